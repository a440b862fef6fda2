package cart

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/traefik/genconf/dynamic"
)

// serviceSearch resolves one service of Traefik to the servers behind it.
type serviceSearch struct {
	ctx     context.Context
	client  *http.Client
	api     *api
	found   map[string][]server // by the name of the service; nil while it is being resolved
	ignored []string            // servers that CART cannot use, and why
}

// Bounds of what a search takes in: services, and bytes of each answer.
const (
	mostServices = 100
	mostAnswer   = 4 << 20
)

// serviceExtras is what Traefik's API tells of a service beyond the types of genconf, which are of Traefik 2.
type serviceExtras struct {
	Name                string            `json:"name"`
	ServerStatus        map[string]string `json:"serverStatus"` // UP or DOWN, by a server's address
	LoadBalancer        serverExtras      `json:"loadBalancer"`
	HighestRandomWeight servicesByWeight  `json:"highestRandomWeight"`
}

type serverExtras struct {
	Servers []serverWeight `json:"servers"` // as many as in genconf's type, in the same order
}

type serverWeight struct {
	Weight *int `json:"weight"`
}

type servicesByWeight struct {
	Services []dynamic.WRRService `json:"services"`
}

// newAPIClient returns a client for Traefik's API. A redirect is no answer: it leads to a login page or to another scheme.
func newAPIClient(a *api) *http.Client {
	client := &http.Client{CheckRedirect: noRedirect}
	client.Transport = &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		TLSClientConfig:        a.tls,
		TLSHandshakeTimeout:    5 * time.Second,
		MaxResponseHeaderBytes: 64 << 10,
		MaxIdleConnsPerHost:    1,
		IdleConnTimeout:        30 * time.Second,
	}
	return client
}

// findServers asks Traefik for the servers of a service.
func findServers(ctx context.Context, client *http.Client, src *source) (found []server, ignored []string, err error) {
	s := &serviceSearch{ctx: ctx, client: client, api: &src.api, found: map[string][]server{}}
	found, err = s.resolve(src.service)
	if err != nil {
		return nil, nil, err
	}
	sort.Slice(found, func(i, j int) bool { return found[i].id < found[j].id })
	return found, s.ignored, nil
}

// resolve returns the servers that a service sends requests to, each once.
func (s *serviceSearch) resolve(name string) ([]server, error) {
	known, ok := s.found[name]
	if ok {
		if known == nil {
			return nil, errors.New("Traefik's service " + name + " is made of itself")
		}
		return known, nil
	}
	if len(s.found) >= mostServices {
		return nil, errors.New("Traefik's service is made of more than " + strconv.Itoa(mostServices) + " services")
	}
	s.found[name] = nil
	answer, err := s.ask(name)
	if err != nil {
		return nil, err
	}
	var service dynamic.Service
	var extras serviceExtras
	err = json.Unmarshal(answer, &service)
	if err == nil {
		err = json.Unmarshal(answer, &extras)
	}
	if err != nil {
		return nil, errors.New("the API of Traefik answers with no service: " + err.Error())
	}
	if extras.Name != name {
		return nil, fmt.Errorf("the API of Traefik answers with no service: want one named %s, got %q", name, extras.Name)
	}
	servers, err := s.servers(name, &service, &extras)
	if err != nil {
		return nil, err
	}
	s.found[name] = servers
	return servers, nil
}

// servers tells the kinds of services apart. The list is never nil.
func (s *serviceSearch) servers(name string, service *dynamic.Service, extras *serviceExtras) ([]server, error) {
	switch {
	case service.LoadBalancer != nil:
		return s.leaves(service.LoadBalancer.Servers, extras), nil
	case service.Weighted != nil:
		return s.union(name, service.Weighted.Services)
	case len(extras.HighestRandomWeight.Services) > 0:
		return s.union(name, extras.HighestRandomWeight.Services)
	case service.Mirroring != nil:
		return s.resolve(qualified(service.Mirroring.Service, name))
	case service.Failover != nil:
		return s.failover(name, service.Failover)
	}
	return nil, errors.New("Traefik's service " + name + " is of a kind that has no servers")
}

// leaves reads the servers of a load balancer. Those of weight 0 get no requests from Traefik, so none from here.
func (s *serviceSearch) leaves(servers []dynamic.Server, extras *serviceExtras) []server {
	status := map[string]string{}
	for address, word := range extras.ServerStatus {
		if base, _ := parseAddress(address); base != nil {
			status[addressID(base)] = word
		}
	}
	out := []server{}
	for i := range servers {
		if i < len(extras.LoadBalancer.Servers) {
			if weight := extras.LoadBalancer.Servers[i].Weight; weight != nil && *weight <= 0 {
				continue
			}
		}
		base, credentials := parseAddress(servers[i].URL)
		if base == nil {
			s.ignored = append(s.ignored, withoutCredentials(servers[i].URL)+" (want "+addressForm+")")
			continue
		}
		id := addressID(base)
		out = addServer(out, server{id: id, base: base, headers: credentials, down: status[id] == "DOWN"})
	}
	return out
}

// union resolves the services that one is made of, less those of weight 0.
func (s *serviceSearch) union(name string, services []dynamic.WRRService) ([]server, error) {
	out := []server{}
	for i := range services {
		if services[i].Weight != nil && *services[i].Weight <= 0 {
			continue
		}
		more, err := s.resolve(qualified(services[i].Name, name))
		if err != nil {
			return nil, err
		}
		for j := range more {
			out = addServer(out, more[j])
		}
	}
	return out, nil
}

// failover resolves to the main service while it has a server that is not down, else to the fallback as well: the main
// ones stay in the list, so that what they hold is still known when they are back.
func (s *serviceSearch) failover(name string, failover *dynamic.Failover) ([]server, error) {
	out, err := s.resolve(qualified(failover.Service, name))
	if err != nil {
		return nil, err
	}
	for i := range out {
		if !out[i].down {
			return out, nil
		}
	}
	fallback, err := s.resolve(qualified(failover.Fallback, name))
	if err != nil {
		return nil, err
	}
	out = append([]server{}, out...)
	for i := range fallback {
		out = addServer(out, fallback[i])
	}
	return out, nil
}

// addServer adds a server unless it is there. What one service knows to be down is down: another one may not check.
func addServer(servers []server, one server) []server {
	for i := range servers {
		if servers[i].id == one.id {
			servers[i].down = servers[i].down || one.down
			return servers
		}
	}
	return append(servers, one)
}

// qualified returns the name of a service that another one refers to: without a provider it is of the same.
func qualified(name, from string) string {
	if strings.Contains(name, "@") {
		return name
	}
	return name + from[strings.LastIndex(from, "@"):]
}

// ask returns what Traefik's API says of a service.
func (s *serviceSearch) ask(name string) ([]byte, error) {
	where := s.api.base.String()
	address := where + "/api/http/services/" + url.PathEscape(name)
	req, err := http.NewRequestWithContext(s.ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, errors.New("the address of Traefik's API is wrong: " + err.Error())
	}
	if s.api.user != "" {
		req.SetBasicAuth(s.api.user, s.api.password)
	}
	res, err := s.client.Do(req)
	if err != nil {
		return nil, errors.New("no answer from the API of Traefik at " + where + ": " + reasonOf(err))
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, mostAnswer+1))
	if err != nil {
		return nil, errors.New("half an answer from the API of Traefik at " + where + ": " + err.Error())
	}
	if res.StatusCode != http.StatusOK {
		return nil, s.refused(name, where, res.StatusCode, body)
	}
	if len(body) > mostAnswer {
		return nil, errors.New("the API of Traefik answers with no service: more than " + strconv.Itoa(mostAnswer) + " bytes")
	}
	return body, nil
}

// refused says what an answer other than 200 means. The body is not shown, for nobody knows whose it is.
func (s *serviceSearch) refused(name, where string, status int, body []byte) error {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden:
		return fmt.Errorf("the API of Traefik at %s refuses access with status %d: see discovery.api.user", where, status)
	case http.StatusNotFound:
		// Traefik's API says so in JSON; without an API there, it is plain text.
		var message struct{ Message string }
		if json.Unmarshal(body, &message) == nil && message.Message != "" {
			return errors.New("Traefik has no service " + name)
		}
		return fmt.Errorf("no API of Traefik at %s (status 404): see discovery.api.address and Traefik's static key api", where)
	}
	return fmt.Errorf("the API of Traefik at %s answers with status %d", where, status)
}

// reasonOf returns the text of an error less the method and address that net/http puts before it.
func reasonOf(err error) string {
	text := err.Error()
	if i := strings.Index(text, "\": "); i >= 0 {
		return text[i+3:]
	}
	return text
}
