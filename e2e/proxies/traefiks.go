// Package proxies starts what can stand between clients and replicas: CART in the official Traefik, Traefik's own
// balancers, and the routers of others. All listen on 127.0.0.1.
package proxies

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"

	"github.com/cart-llm/cart/e2e/process"
	"github.com/cart-llm/cart/e2e/traefik"
)

// Traefik's own strategies and the routers of others, by the names that they have themselves.
const (
	WRR          = "wrr"
	P2C          = "p2c"
	LeastTime    = "leasttime"
	SGLangRouter = "sglang-router"
	VLLMRouter   = "vllm-router"
)

// object is a piece of configuration.
type object = map[string]any

// Balancer starts a Traefik without plugins, with a router for each of the strategies, told apart by BalancerHost.
// options.Static is added to its static configuration.
func Balancer(ctx context.Context, replicas []string, options traefik.Options, strategies ...string) (
	*process.Process, *traefik.Traefik, error,
) {
	var servers []object
	for _, address := range replicas {
		servers = append(servers, object{"url": address})
	}
	routers, services := object{}, object{}
	for _, strategy := range strategies {
		routers[strategy] = object{
			"rule": "Host(`" + BalancerHost(strategy) + "`)", "entryPoints": []string{traefik.EntryPoint}, "service": strategy,
		}
		services[strategy] = object{"loadBalancer": object{"strategy": strategy, "servers": servers}}
	}
	options.LogLevel = "ERROR"
	static := object{"experimental": nil}
	maps.Copy(static, options.Static)
	options.Static = static
	p, t, err := startTraefik(ctx, "traefik", options, object{"http": object{"routers": routers, "services": services}})
	if err != nil {
		return nil, nil, err
	}
	for strategy := range routers {
		r, err := t.Router(ctx, strategy)
		if err == nil && r.Status != "enabled" {
			err = fmt.Errorf("traefik refuses the router %s: %s", strategy, strings.Join(r.Errors, "; "))
		}
		if err != nil {
			return nil, nil, errors.Join(err, p.Stop())
		}
	}
	return p, t, nil
}

// BalancerHost is the Host header for the router of a strategy.
func BalancerHost(strategy string) string { return strategy + ".balancer" }

// Plugin starts a Traefik with CART as its plugin.
//
// config is added to a configuration that has the replicas and nothing else; options.Root is where the plugin's source is.
func Plugin(ctx context.Context, replicas []string, config object, options traefik.Options) (
	*process.Process, *traefik.Traefik, error,
) {
	var workers []object
	for _, address := range replicas {
		workers = append(workers, object{"url": address})
	}
	all := object{"workers": workers}
	for key, value := range config {
		all[key] = value
	}
	options.LogLevel = "ERROR"
	p, t, err := startTraefik(ctx, "traefik with CART", options, object{"http": object{
		"routers": object{"cart": object{
			"rule": "PathPrefix(`/`)", "entryPoints": []string{traefik.EntryPoint},
			"middlewares": []string{"cart"}, "service": "noop@internal",
		}},
		"middlewares": object{"cart": object{"plugin": object{traefik.Alias: all}}},
	}})
	if err != nil {
		return nil, nil, err
	}
	m, err := t.Middleware(ctx, "cart")
	if err == nil && m.Status != "enabled" {
		err = fmt.Errorf("traefik refuses the middleware: %s", strings.Join(m.Errors, "; "))
	}
	if err != nil {
		return nil, nil, errors.Join(err, p.Stop())
	}
	return p, t, nil
}

// startTraefik starts the official Traefik and returns when it serves a dynamic configuration.
func startTraefik(ctx context.Context, name string, options traefik.Options, dynamic object) (
	*process.Process, *traefik.Traefik, error,
) {
	t, err := traefik.Start(ctx, options)
	if err != nil {
		return nil, nil, err
	}
	p := &process.Process{Name: name, Pid: t.Pid(), Exited: t.Exited(), Log: t.Log, Stop: t.Stop}
	var port int
	if _, err = fmt.Sscanf(t.URL(), "http://127.0.0.1:%d", &port); err == nil {
		p.Ports = []int{port}
		err = t.Write("proxy.yml", dynamic)
	}
	if err == nil {
		err = t.WaitApplied(ctx)
	}
	if err == nil {
		err = p.Prove()
	}
	if err != nil {
		return nil, nil, errors.Join(err, p.Stop())
	}
	return p, t, nil
}
