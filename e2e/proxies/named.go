package proxies

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/cart-llm/cart/e2e/process"
	"github.com/cart-llm/cart/e2e/traefik"
)

// cart begins the names of CART's policies as proxies: cart-threshold is CART with the policy threshold.
const cart = "cart-"

// IsCart tells whether a name is that of CART with one of its policies.
func IsCart(name string) bool { return strings.HasPrefix(name, cart) }

// Named tells whether Open knows a name.
func Named(name string) bool {
	return IsCart(name) || slices.Contains([]string{WRR, P2C, LeastTime, SGLangRouter, VLLMRouter}, name)
}

// Opened is a proxy that runs. URL and Host are how it is asked.
type Opened struct {
	*process.Process
	Host string
}

// Open starts a proxy by its name: one of Traefik's own strategies, a router of others, or CART with one of its policies in
// the official Traefik and with its defaults. Each is a process of its own that knows nothing of earlier ones.
func Open(ctx context.Context, name string, replicas []string) (*Opened, error) {
	var p *process.Process
	var err error
	host := ""
	switch {
	case IsCart(name):
		config := object{"policy": strings.TrimPrefix(name, cart), "logLevel": "error"}
		p, _, err = Plugin(ctx, replicas, config, traefik.Options{})
	case name == SGLangRouter || name == VLLMRouter:
		p, err = Router(ctx, name, replicas)
	default:
		host = BalancerHost(name)
		p, _, err = Balancer(ctx, replicas, traefik.Options{}, name)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return &Opened{p, host}, nil
}

// About describes a proxy by its name.
func About(name string) string {
	switch {
	case IsCart(name):
		return "CART with the policy " + strings.TrimPrefix(name, cart) + ", else its defaults, as a plugin of the official Traefik"
	case name == SGLangRouter:
		return "sglang-router 0.3.2, policy cache_aware, its defaults"
	case name == VLLMRouter:
		return "vllm-router 0.1.17, policy cache_aware, its defaults"
	}
	return "Traefik's own balancer, strategy " + name
}
