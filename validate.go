package cart

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"math"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/traefik/paerser/types"
)

// settings is a Config that has been validated: what the rest of the package reads.
type settings struct {
	workers []worker
	source  *source // of the replicas; nil = they are workers
	policy  string
	costs   bool // the policy is cost: queues and popularity are kept
	shadow  bool // the policy only watches

	quick        bool // decideLoop has the policy in its own statements
	logDecisions bool
	instances    int // Traefik processes that share the replicas
	threshold    float64
	matchAbs     int
	balanceAbs   int
	balanceRel   float64
	maxNodes     int
	maxBytes     int
	evictEvery   time.Duration
	cleanupHour  int
	maxBody      int64
	eagerBody    int64 // announced length up to which a body is read at once; 0 = none
	maxLoad      int   // where a worker does not say otherwise
	mediaStatus  int   // 0 = remote media are allowed
	peerHeader   bool
	decisionHead bool

	maxRetries    int
	retryStatus   map[int]bool
	backoff       backoff
	connectWait   time.Duration
	firstByteWait time.Duration
	requestWait   time.Duration
	idleWait      time.Duration

	tls   *tls.Config
	files string // content of the files that were read, to tell when they change

	health       healthSettings
	breaker      breakerSettings
	healthPath   string
	workersPath  string
	metricsPath  string
	explain      bool
	logDetails   int // lines at debug a second; 0 = all
	logLevel     string
	logFormat    string
	probeHeaders []header

	advice []Fault // what is allowed but hardly meant
}

// worker is one validated entry of the list of workers.
type worker struct {
	name        string   // the address without credentials, as shown to users
	peer        []string // the name as a header's value
	base        *url.URL
	proxy       *httputil.ReverseProxy // of the pool; made when the pool takes it up
	streams     *httputil.ReverseProxy // the same for requests that ask for a stream
	maxLoad     int
	loadPenalty int
	room        int64  // characters that its cache holds; 0 = unknown
	seat        uint64 // hash of the name
	headers     []header

	down    bool // by Traefik's own health check
	leaving bool // its source names it no more; to be removed if it stays so
}

// header is a header ready to be put into an http.Header: canonical name, value as a slice.
type header struct {
	name  string
	value []string
}

type backoff struct {
	initial, max       time.Duration
	multiplier, jitter float64
}

type breakerSettings struct {
	failures, successes int
	openFor             time.Duration
}

// Fault is one thing that is wrong with a configuration.
type Fault struct {
	Key  string // where it is, such as workers[0].url
	Text string // the key, its value and what is allowed
}

// Validate tells everything that is wrong with a configuration, nothing if New would take it. It reads the files that the
// configuration names.
func Validate(c *Config) []Fault {
	_, faults := examine(c)
	return faults
}

// Advise tells what New takes, though hardly anybody means it.
func Advise(c *Config) []Fault {
	s, _ := examine(c)
	if s == nil {
		return nil
	}
	return s.advice
}

// validate turns the user's words into settings, or tells everything that is wrong with them at once.
func validate(c *Config) (*settings, error) {
	s, faults := examine(c)
	if len(faults) == 0 {
		return s, nil
	}
	texts := make([]string, len(faults))
	for i := range faults {
		texts[i] = faults[i].Text
	}
	return nil, fmt.Errorf("invalid configuration: %s", strings.Join(texts, "; "))
}

func examine(c *Config) (*settings, []Fault) {
	if c == nil {
		return nil, []Fault{{Text: "there is none"}}
	}
	v := &validator{}
	v.unknown("", c.Unknown)
	s := &settings{
		policy:    v.oneOf("policy", c.Policy, policyThreshold, policyCost, policyLeastLoad, policyRoundRobin, policyRandom),
		logLevel:  v.oneOf("logLevel", c.LogLevel, "debug", "info", "warn", "error"),
		logFormat: v.oneOf("logFormat", c.LogFormat, "json", "text"),
	}
	s.logDecisions = s.logLevel == "debug"
	v.cost(s, c)
	v.cache(s, &c.Cache)
	v.proxy(s, &c.Proxy)
	v.health(s, &c.Health)
	v.breaker(s, &c.CircuitBreaker)
	v.tls(s, &c.TLS)
	v.endpoints(s, &c.Endpoints)
	v.discovery(s, &c.Discovery)
	v.unknown("log.", c.Log.Unknown)
	s.logDetails = v.integer("log.maxPerSecond", c.Log.MaxPerSecond, 0, 1<<20)
	v.workers(s, c)
	s.files = v.files
	s.advice = v.advice
	return s, v.faults
}

// validator reads texts and gathers what is wrong with them.
type validator struct {
	faults []Fault
	advice []Fault
	files  string // content of the files read so far
}

func (v *validator) cache(s *settings, c *CacheConfig) {
	v.unknown("cache.", c.Unknown)
	s.threshold = v.float("cache.threshold", c.Threshold, 0, 1)
	s.matchAbs = v.integer("cache.matchAbsThreshold", c.MatchAbsThreshold, 0, 1<<30)
	s.balanceAbs = v.integer("cache.balanceAbsThreshold", c.BalanceAbsThreshold, 0, 1<<20)
	s.balanceRel = v.float("cache.balanceRelThreshold", c.BalanceRelThreshold, 1, 1000)
	s.maxNodes = v.integer("cache.maxTreeSize", c.MaxTreeSize, 16, 1<<30)
	s.maxBytes = v.size("cache.maxTreeBytes", c.MaxTreeBytes, 64<<10)
	s.evictEvery = v.duration("cache.evictionInterval", c.EvictionInterval, true)
	s.cleanupHour = v.integer("cache.dailyCleanupHourUtc", c.DailyCleanupHourUtc, -1, 23)
}

func (v *validator) proxy(s *settings, c *ProxyConfig) {
	v.unknown("proxy.", c.Unknown)
	s.maxRetries = v.integer("proxy.maxRetries", c.MaxRetries, 0, 100)
	s.retryStatus = v.statuses("proxy.retryStatuses", c.RetryStatuses)
	s.backoff = backoff{
		initial:    v.duration("proxy.initialBackoff", c.InitialBackoff, true),
		max:        v.duration("proxy.maxBackoff", c.MaxBackoff, true),
		multiplier: v.float("proxy.backoffMultiplier", c.BackoffMultiplier, 1, 100),
		jitter:     v.float("proxy.jitterFactor", c.JitterFactor, 0, 1),
	}
	s.connectWait = v.duration("proxy.connectTimeout", c.ConnectTimeout, false)
	s.firstByteWait = v.duration("proxy.firstByteTimeout", c.FirstByteTimeout, true)
	s.requestWait = v.duration("proxy.requestTimeout", c.RequestTimeout, true)
	s.idleWait = v.duration("proxy.streamIdleTimeout", c.StreamIdleTimeout, true)
	s.maxBody = int64(v.size("proxy.maxBodyBytes", c.MaxBodyBytes, 1))
	s.eagerBody = eagerBody
	if s.eagerBody > s.maxBody {
		s.eagerBody = s.maxBody
	}
	if c.RemoteMediaURLPolicy != "" {
		s.mediaStatus = v.integer("proxy.remoteMediaUrlPolicy", c.RemoteMediaURLPolicy, 400, 599)
		s.eagerBody = 0 // all bodies are inspected
	}
	s.peerHeader = v.boolean("proxy.addRoutedPeerHeader", c.AddRoutedPeerHeader)
	s.decisionHead = v.boolean("proxy.addDecisionHeaders", c.AddDecisionHeaders)
}

func (v *validator) breaker(s *settings, c *CircuitBreakerConfig) {
	v.unknown("circuitBreaker.", c.Unknown)
	s.breaker = breakerSettings{
		failures:  v.integer("circuitBreaker.failureThreshold", c.FailureThreshold, 1, 1000),
		successes: v.integer("circuitBreaker.successThreshold", c.SuccessThreshold, 1, 1000),
		openFor:   v.duration("circuitBreaker.timeout", c.Timeout, false),
	}
}

func (v *validator) tls(s *settings, c *TLSConfig) {
	v.unknown("tls.", c.Unknown)
	s.tls = &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: v.boolean("tls.insecureSkipVerify", c.InsecureSkipVerify)}
	if c.CAFile != "" {
		roots := x509.NewCertPool()
		if !roots.AppendCertsFromPEM(v.file(c.CAFile)) {
			v.fail("tls.caFile", c.CAFile, "a readable file of PEM certificates")
		}
		s.tls.RootCAs = roots
	}
	if c.CertFile != "" || c.KeyFile != "" {
		pair, err := tls.X509KeyPair(v.file(c.CertFile), v.file(c.KeyFile))
		if err != nil {
			v.fail("tls.certFile", c.CertFile, "a readable PEM certificate, with its key in tls.keyFile")
		}
		s.tls.Certificates = []tls.Certificate{pair}
	}
}

// file returns the content of a file, nothing if it cannot be read.
func (v *validator) file(name string) []byte {
	content, err := os.ReadFile(name)
	if err != nil {
		return nil
	}
	v.files += string(content)
	return content
}

// workers reads the list of replicas, or what tunes those that are found elsewhere.
func (v *validator) workers(s *settings, c *Config) {
	s.maxLoad = v.integer("maxLoad", c.MaxLoad, 1, 1<<20)
	general := worker{maxLoad: s.maxLoad}
	seen := map[string]int{}
	if s.source != nil {
		for i := range c.Workers {
			if isAll(c.Workers[i].URL) && v.onlyOnce(i, "*", allWorkers, seen) {
				general = v.tuned("workers["+strconv.Itoa(i)+"].", &c.Workers[i], &general)
			}
		}
		s.source.general = general
	}
	for i := range c.Workers {
		if s.source != nil && isAll(c.Workers[i].URL) {
			continue
		}
		key := "workers[" + strconv.Itoa(i) + "]."
		one := v.tuned(key, &c.Workers[i], &general)
		base, credentials := v.address(key+"url", c.Workers[i].URL)
		if base == nil {
			continue
		}
		one.headers = append(one.headers, credentials...)
		one.setBase(base)
		id := addressID(base)
		if !v.onlyOnce(i, one.name, id, seen) {
			continue
		}
		if s.source != nil {
			s.source.overlay[id] = one
		} else {
			v.versioned(key+"url", base)
			s.workers = append(s.workers, one)
		}
	}
}

// versioned advises against an address that ends in what each request brings along.
func (v *validator) versioned(key string, base *url.URL) {
	ending := "/v1"
	for path := range routedPaths {
		if strings.HasSuffix(base.Path, path) {
			ending = path
		}
	}
	if !strings.HasSuffix(base.Path, ending) {
		return
	}
	text := key + " = " + strconv.Quote(base.String()) + ": the path of each request is appended, so that a chat goes to " +
		base.Path + "/v1/chat/completions there; leave out " + ending + " unless that is meant"
	v.advice = append(v.advice, Fault{Key: key, Text: text})
}

// tuned reads what an entry says of its replica; the rest is as in general.
func (v *validator) tuned(key string, w *WorkerConfig, general *worker) worker {
	one := worker{maxLoad: general.maxLoad, loadPenalty: general.loadPenalty, room: general.room}
	one.headers = append(one.headers, general.headers...)
	v.unknown(key, w.Unknown)
	one.headers = append(one.headers, v.headers(key+"headers", w.Headers)...)
	if w.MaxLoad != "" {
		one.maxLoad = v.integer(key+"maxLoad", w.MaxLoad, 1, 1<<20)
	}
	if w.LoadPenalty != "" {
		one.loadPenalty = v.integer(key+"loadPenalty", w.LoadPenalty, 0, 1<<20)
	}
	if w.CacheTokens != "" {
		one.room = charsPerToken * int64(v.integer(key+"cacheTokens", w.CacheTokens, 1, math.MaxInt32))
	}
	if w.APIKeyFile != "" {
		one.headers = append(one.headers, v.apiKey(key+"apiKeyFile", w.APIKeyFile)...)
	}
	return one
}

// onlyOnce notes that entry i of the list is the one for id, and says whether it is the first.
func (v *validator) onlyOnce(i int, shown, id string, seen map[string]int) bool {
	if first, ok := seen[id]; ok {
		v.fail("workers["+strconv.Itoa(i)+"].url", shown, "each replica once; workers["+strconv.Itoa(first)+"] is the same")
		return false
	}
	seen[id] = i
	return true
}

func (v *validator) headers(key string, values map[string]string) []header {
	names := make([]string, 0, len(values))
	for name := range values {
		names = append(names, name)
	}
	sort.Strings(names)
	var out []header
	for _, name := range names {
		if name == "" || strings.ContainsAny(name, " \t\r\n:\"(),/;<=>?@[\\]{}") || strings.ContainsAny(values[name], "\r\n\x00") {
			// The value may be a secret: only the name is told.
			v.fail(key, name, "header names of letters, digits and dashes, values of one line")
			continue
		}
		out = append(out, newHeader(name, values[name]))
	}
	return out
}

func (v *validator) apiKey(key, file string) []header {
	text := strings.TrimSpace(string(v.file(file)))
	if text == "" || strings.ContainsAny(text, "\r\n\x00") {
		v.fail(key, file, "a readable file with one key on one line")
		return nil
	}
	return []header{newHeader("Authorization", "Bearer "+text)}
}

func (v *validator) statuses(key string, values []string) map[int]bool {
	out := map[int]bool{}
	if len(values) == 0 {
		values = []string{"408", "429", "500", "502", "503", "504", "529"}
	}
	for _, value := range values {
		out[v.integer(key, value, 400, 599)] = true
	}
	return out
}

func (v *validator) path(key, value string, mayBeEmpty bool) string {
	value = strings.TrimSpace(value)
	if value == "" && mayBeEmpty {
		return ""
	}
	if value != "" && !strings.HasPrefix(value, "/") && !strings.Contains(value, "://") {
		value = "/" + value
	}
	if _, err := url.ParseRequestURI(value); err != nil || !strings.HasPrefix(value, "/") {
		v.fail(key, value, "a path such as /health")
	}
	return value
}

func (v *validator) duration(key, value string, mayBeZero bool) time.Duration {
	var d types.Duration
	err := d.Set(strings.TrimSpace(value))
	out := time.Duration(d)
	if err != nil || out < 0 || out > 10000*time.Hour || (out == 0 && !mayBeZero) {
		allowed := "a duration above 0 such as 10s, 1m30s or 30 (seconds)"
		if mayBeZero {
			allowed = "a duration such as 10s, 1m30s or 30 (seconds), 0 to turn it off"
		}
		v.fail(key, value, allowed)
		return time.Second
	}
	return out
}

// mostBytes bounds sizes in bytes: 1 TiB, or what an int holds on a 32-bit machine.
func mostBytes() int {
	most := int64(1) << 40
	if strconv.IntSize < 64 {
		most = math.MaxInt32
	}
	return int(most)
}

// size reads a number of bytes: plain, or with KiB, MiB or GiB.
func (v *validator) size(key, value string, least int) int {
	number, unit, power := strings.TrimSpace(value), 1, 1
	for _, suffix := range []string{"KiB", "MiB", "GiB"} {
		power *= 1024
		if strings.HasSuffix(number, suffix) {
			number = strings.TrimSpace(strings.TrimSuffix(number, suffix))
			unit = power
		}
	}
	n, err := strconv.Atoi(number)
	if err != nil || n < 0 || n > mostBytes()/unit || n*unit < least {
		most := strconv.Itoa(mostBytes())
		v.fail(key, value, "a whole number from "+strconv.Itoa(least)+" to "+most+" of bytes, or one with KiB, MiB or GiB")
		return least
	}
	return n * unit
}

func (v *validator) integer(key, value string, least, most int) int {
	n, err := strconv.Atoi(strings.TrimSpace(value))
	if err != nil || n < least || n > most {
		v.fail(key, value, "a whole number from "+strconv.Itoa(least)+" to "+strconv.Itoa(most))
		return least
	}
	return n
}

func (v *validator) float(key, value string, least, most float64) float64 {
	f, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
	// The comparison is false for NaN as well.
	if err != nil || !(f >= least && f <= most) {
		v.fail(key, value, "a number from "+strconv.FormatFloat(least, 'g', -1, 64)+" to "+strconv.FormatFloat(most, 'g', -1, 64))
		return least
	}
	return f
}

func (v *validator) boolean(key, value string) bool {
	b, err := strconv.ParseBool(strings.TrimSpace(value))
	if err != nil {
		v.fail(key, value, "true or false")
	}
	return b
}

func (v *validator) oneOf(key, value string, allowed ...string) string {
	for _, a := range allowed {
		if strings.EqualFold(strings.TrimSpace(value), a) {
			return a
		}
	}
	v.fail(key, value, "one of "+strings.Join(allowed, ", "))
	return allowed[0]
}

// fail notes that key has a value other than what is allowed.
func (v *validator) fail(key, value, allowed string) {
	if len(value) > 80 {
		value = value[:80] + "..."
	}
	text := key + " = " + strconv.Quote(value) + " is not allowed (want " + allowed + ")"
	v.faults = append(v.faults, Fault{Key: key, Text: text})
}

func newHeader(name, value string) header {
	return header{name: http.CanonicalHeaderKey(name), value: []string{value}}
}

func basicAuth(user, password string) header {
	return newHeader("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(user+":"+password)))
}
