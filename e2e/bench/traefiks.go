package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/cart-llm/cart/e2e/traefik"
)

// object is a piece of configuration.
type object = map[string]any

func balancerHost(strategy string) string { return strategy + ".bench" }

// startBalancer starts a Traefik without plugins, with a router for each of its own strategies, told apart by host.
func (s *stage) startBalancer(ctx context.Context) (*process, error) {
	var servers []object
	for _, address := range s.backendURLs() {
		servers = append(servers, object{"url": address})
	}
	routers, services := object{}, object{}
	for _, strategy := range []string{wrr, p2c} {
		routers[strategy] = object{
			"rule": "Host(`" + balancerHost(strategy) + "`)", "entryPoints": []string{traefik.EntryPoint}, "service": strategy,
		}
		services[strategy] = object{"loadBalancer": object{"strategy": strategy, "servers": servers}}
	}
	dynamic := object{"http": object{"routers": routers, "services": services}}
	p, t, err := s.startTraefik(ctx, "traefik", "", object{"experimental": nil}, dynamic)
	if err != nil {
		return nil, err
	}
	for strategy := range routers {
		r, err := t.Router(ctx, strategy)
		if err != nil {
			return nil, err
		}
		if r.Status != "enabled" {
			return nil, fmt.Errorf("traefik refuses the router %s: %s", strategy, strings.Join(r.Errors, "; "))
		}
	}
	return p, nil
}

// startInterpreted starts a Traefik with CART as its plugin. more is added to CART's configuration.
func (s *stage) startInterpreted(ctx context.Context, more object) (*process, error) {
	p, _, err := s.startPlugin(ctx, "", nil, more)
	return p, err
}

// startBefore starts a Traefik with the plugin of the working tree to compare with.
func (s *stage) startBefore(ctx context.Context) (*process, error) {
	ours, err := root()
	if err != nil {
		return nil, err
	}
	binary, err := traefik.Binary(ctx, ours)
	if err != nil {
		return nil, err
	}
	if err := os.Setenv("TRAEFIK_BIN", binary); err != nil {
		return nil, err
	}
	p, _, err := s.startPlugin(ctx, s.before, nil, object{})
	return p, err
}

func (s *stage) startPlugin(ctx context.Context, from string, static, more object) (*process, *traefik.Traefik, error) {
	var workers []object
	for _, address := range s.backendURLs() {
		workers = append(workers, object{"url": address})
	}
	config := object{"workers": workers}
	for key, value := range more {
		config[key] = value
	}
	p, t, err := s.startTraefik(ctx, "traefik with CART", from, static, object{"http": object{
		"routers": object{"cart": object{
			"rule": "PathPrefix(`/`)", "entryPoints": []string{traefik.EntryPoint},
			"middlewares": []string{"cart"}, "service": "noop@internal",
		}},
		"middlewares": object{"cart": object{"plugin": object{traefik.Alias: config}}},
	}})
	if err != nil {
		return nil, nil, err
	}
	m, err := t.Middleware(ctx, "cart")
	if err != nil {
		return nil, nil, err
	}
	if m.Status != "enabled" {
		return nil, nil, fmt.Errorf("traefik refuses the middleware: %s", strings.Join(m.Errors, "; "))
	}
	return p, t, nil
}
