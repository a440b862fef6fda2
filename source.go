package cart

import (
	"crypto/tls"
	"crypto/x509"
	"net/url"
	"sort"
	"strconv"
	"strings"
	"time"
)

// source is where a pool finds its replicas, if they are not listed in the configuration: the servers of a Traefik service,
// or the addresses of a name. Either service or dns is set.
type source struct {
	service  string   // qualified name, such as vllm@docker
	dns      *url.URL // of whose name each address is a replica
	lookFor  []header // what goes to each of these: Host, credentials
	interval time.Duration
	api      api
	overlay  map[string]worker // what tunes single replicas, by addressID
	general  worker            // what tunes all others
}

// api is how Traefik is asked for a service.
type api struct {
	base           *url.URL
	user, password string
	tls            *tls.Config
}

// server is one replica as its source tells of it.
type server struct {
	id      string // see addressID
	base    *url.URL
	headers []header // to be sent to it: credentials in its address, Host
	down    bool     // by Traefik's own health check
	goneAt  time.Time
}

// allWorkers is the id of the entry of workers that tunes all replicas that are found.
const allWorkers = "*"

func isAll(url string) bool { return strings.TrimSpace(url) == allWorkers }

// name tells users where replicas are looked for. It has no secrets.
func (s *source) name() string {
	if s.dns != nil {
		return "dns " + s.dns.String()
	}
	return "service " + s.service + " of Traefik at " + s.api.base.String()
}

// tune makes workers of servers: what the source says of each, and what the configuration says over it.
func (s *source) tune(servers []server) []worker {
	out := make([]worker, 0, len(servers))
	for i := range servers {
		found := &servers[i]
		tuning, ok := s.overlay[found.id]
		if !ok {
			tuning = s.general
		}
		one := worker{maxLoad: tuning.maxLoad, loadPenalty: tuning.loadPenalty, room: tuning.room}
		one.down = found.down
		one.leaving = !found.goneAt.IsZero()
		// Later ones replace earlier ones.
		one.headers = append(one.headers, found.headers...)
		one.headers = append(one.headers, tuning.headers...)
		one.setBase(found.base)
		out = append(out, one)
	}
	return out
}

// unmatched returns the addresses of the entries of workers that tune none of the servers.
func (s *source) unmatched(servers []server) []string {
	here := map[string]bool{}
	for i := range servers {
		here[servers[i].id] = true
	}
	out := []string{}
	for id, tuning := range s.overlay {
		if !here[id] {
			out = append(out, tuning.name)
		}
	}
	sort.Strings(out)
	return out
}

// setBase gives a worker its address.
func (w *worker) setBase(base *url.URL) {
	w.base = base
	w.name = base.String()
	w.peer = []string{w.name}
	w.seat = seatOf(w.name)
}

// addressID returns what two addresses of one replica have in common.
func addressID(base *url.URL) string {
	host := base.Host
	if base.Scheme == "https" {
		host = strings.TrimSuffix(host, ":443")
	} else {
		host = strings.TrimSuffix(host, ":80")
	}
	return base.Scheme + "://" + host + base.EscapedPath()
}

const addressForm = "http:// or https://, a host, an optional port and base path, no query, no fragment"

// address returns an address with a base path that does not end with a slash, and its credentials as a header; or nil and
// an error noted.
func (v *validator) address(key, value string) (*url.URL, []header) {
	u, credentials := parseAddress(value)
	if u == nil {
		v.fail(key, withoutCredentials(strings.TrimSpace(value)), addressForm)
	}
	return u, credentials
}

// parseAddress returns what address does, or nil.
func parseAddress(value string) (*url.URL, []header) {
	u, err := url.Parse(strings.TrimSpace(value))
	if err != nil {
		return nil, nil // the parser's own message would repeat the value, credentials included
	}
	u.Scheme = strings.ToLower(u.Scheme)
	u.Host = strings.ToLower(u.Host)
	if (u.Scheme != "http" && u.Scheme != "https") || !hasHost(u) ||
		u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || u.Opaque != "" {
		return nil, nil
	}
	u.Path = strings.TrimRight(u.Path, "/")
	u.RawPath = strings.TrimRight(u.RawPath, "/")
	if u.User == nil {
		return u, nil
	}
	password, _ := u.User.Password()
	credentials := []header{basicAuth(u.User.Username(), password)}
	u.User = nil
	return u, credentials
}

// hasHost says whether an address has a name or an address of a host, an IPv6 one in brackets, and maybe a port.
func hasHost(u *url.URL) bool {
	name, port := u.Hostname(), u.Port()
	number, err := strconv.Atoi(port)
	if name == "" || strings.HasSuffix(u.Host, ":") || (port != "" && (err != nil || number < 1 || number > 65535)) {
		return false
	}
	return !strings.Contains(name, ":") || u.Host[0] == '['
}

// shortestInterval keeps a source from being asked without a pause.
const shortestInterval = 100 * time.Millisecond

func (v *validator) discovery(s *settings, c *DiscoveryConfig) {
	v.unknown("discovery.", c.Unknown)
	found := &source{
		service:  strings.TrimSpace(c.Service),
		interval: v.duration("discovery.interval", c.Interval, false),
		overlay:  map[string]worker{},
	}
	if found.interval < shortestInterval {
		v.fail("discovery.interval", c.Interval, "a duration from 100ms, such as 5s")
	}
	v.api(&found.api, &c.API, found.service != "")
	if c.DNS != "" {
		found.dns, found.lookFor = v.address("discovery.dns", c.DNS)
		if found.dns != nil {
			v.versioned("discovery.dns", found.dns)
			found.lookFor = append(found.lookFor, newHeader("Host", found.dns.Host))
			if found.dns.Scheme == "https" {
				s.tls.ServerName = found.dns.Hostname()
			}
		}
		if found.service != "" {
			v.fail("discovery.dns", withoutCredentials(c.DNS), "one source: either discovery.service or discovery.dns")
		}
	}
	if found.service != "" {
		name, provider, _ := strings.Cut(found.service, "@")
		if name == "" || provider == "" || strings.ContainsAny(found.service, " \t\r\n/?#") || strings.Contains(provider, "@") {
			v.fail("discovery.service", c.Service, "the name of a service with its provider, such as vllm@docker")
		}
	}
	if found.service != "" || found.dns != nil {
		s.source = found
	}
}

// api reads how Traefik's API is reached. Without a service to ask for, its settings would do nothing.
func (v *validator) api(a *api, c *APIConfig, wanted bool) {
	v.unknown("discovery.api.", c.Unknown)
	base, credentials := v.address("discovery.api.address", c.Address)
	a.base = base
	if credentials != nil {
		v.fail("discovery.api.address", withoutCredentials(c.Address), "no credentials; they go into discovery.api.user, .passwordFile")
	}
	a.user = c.User
	a.password = c.Password
	if c.PasswordFile != "" {
		a.password = strings.TrimSpace(string(v.file(c.PasswordFile)))
		if a.password == "" {
			v.fail("discovery.api.passwordFile", c.PasswordFile, "a readable file with the password")
		}
		if c.Password != "" {
			v.fail("discovery.api.passwordFile", c.PasswordFile, "either discovery.api.password or .passwordFile")
		}
	}
	hasPassword := c.Password != "" || c.PasswordFile != ""
	if strings.Contains(a.user, ":") || (a.user != "") != hasPassword {
		v.fail("discovery.api.user", onlyName(c.User), "a name without a colon, and with it discovery.api.password or .passwordFile")
	}
	a.tls = &tls.Config{MinVersion: tls.VersionTLS12}
	a.tls.InsecureSkipVerify = v.boolean("discovery.api.insecureSkipVerify", c.InsecureSkipVerify)
	if c.CAFile != "" {
		roots := x509.NewCertPool()
		if !roots.AppendCertsFromPEM(v.file(c.CAFile)) {
			v.fail("discovery.api.caFile", c.CAFile, "a readable file of PEM certificates")
		}
		a.tls.RootCAs = roots
	}
	if !wanted && (c.User != "" || c.Password != "" || c.PasswordFile != "" || c.CAFile != "") {
		v.fail("discovery.service", "", "a service such as vllm@docker, for there are settings of discovery.api")
	}
}

// onlyName hides what follows a colon: a password, most likely.
func onlyName(user string) string {
	if i := strings.Index(user, ":"); i >= 0 {
		return user[:i+1] + "..."
	}
	return user
}

// withoutCredentials hides what stands before an @, or in a query, of an address that could not be read.
func withoutCredentials(value string) string {
	if i := strings.LastIndex(value, "@"); i >= 0 {
		value = "..." + value[i:]
	}
	if i := strings.Index(value, "?"); i >= 0 && i < len(value)-1 {
		value = value[:i+1] + "..."
	}
	return value
}
