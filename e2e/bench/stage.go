package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"time"

	"github.com/cart-llm/cart/e2e/process"
	"github.com/cart-llm/cart/e2e/proxies"
	"github.com/cart-llm/cart/e2e/traefik"
)

// The targets by name, in the order of the tables.
const (
	direct       = "direct"
	wrr          = proxies.WRR
	p2c          = proxies.P2C
	interpreted  = "cart"
	before       = "cart-before"
	compiled     = "cart-compiled"
	sglangRouter = proxies.SGLangRouter
	vllmRouter   = proxies.VLLMRouter
)

var targetNames = []string{direct, wrr, p2c, interpreted, before, compiled, sglangRouter, vllmRouter}

var targetAbout = map[string]string{
	direct:       "the client talks to the backends itself",
	wrr:          "Traefik's own balancer, weighted round robin, without plugins",
	p2c:          "the same process, strategy p2c",
	interpreted:  "CART as a plugin of the official Traefik, a process of its own",
	before:       "the same with the plugin of another working tree (-before)",
	compiled:     "the same handler compiled, in a plain net/http server",
	sglangRouter: "sglang-router 0.3.2, policy cache_aware, its defaults, log level warn",
	vllmRouter:   "vllm-router 0.1.17, policy cache_aware, its defaults, log level warning",
}

// object is a piece of configuration.
type object = map[string]any

// target is one way from the client to the backends.
type target struct {
	name string
	urls []string         // used by turns
	host string           // the Host header, "" = that of the address
	proc *process.Process // nil: no proxy
}

// stage is all that runs.
type stage struct {
	progress io.Writer
	word     string // in all answers of this run's backends
	backends *process.Process
	targets  []*target
	leftOut  []string // which targets could not be started, and why
	before   string   // the root of the working tree to compare with, "" = none
	started  []*process.Process
}

func (s *stage) say(format string, args ...any) { fmt.Fprintf(s.progress, format+"\n", args...) }

// startBackends starts the backends; interval is the time between events if they are to stream, else 0.
func (s *stage) startBackends(ctx context.Context, interval time.Duration) (err error) {
	s.word = fmt.Sprintf("bench-%016x", rand.Uint64())
	s.backends, err = s.keep(startRole(ctx, roleBackends, s.word, interval.String()))
	return err
}

func (s *stage) backendURLs() []string {
	var urls []string
	for _, port := range s.backends.Ports {
		urls = append(urls, fmt.Sprintf("http://127.0.0.1:%d", port))
	}
	return urls
}

// startTargets starts those that are asked for. CART and Traefik have to start; a router of others may be missing.
func (s *stage) startTargets(ctx context.Context, names []string) error {
	var balancer *process.Process
	for _, name := range names {
		t := &target{name: name}
		var err error
		switch name {
		case direct:
			t.urls = s.backendURLs()
		case wrr, p2c:
			if balancer == nil {
				balancer, err = s.startBalancer(ctx)
			}
			t.proc, t.host = balancer, proxies.BalancerHost(name)
		case interpreted:
			t.proc, err = s.startInterpreted(ctx)
		case before:
			if s.before == "" {
				continue
			}
			t.proc, err = s.startBefore(ctx)
		case compiled:
			t.proc, err = s.keep(startRole(ctx, roleCart, s.backendURLs()...))
		default:
			if t.proc, err = s.keep(proxies.Router(ctx, name, s.backendURLs())); err != nil && ctx.Err() == nil {
				s.leftOut = append(s.leftOut, fmt.Sprintf("%s is left out: %v", name, err))
				s.say("%s is left out: %v", name, err)
				continue
			}
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if t.proc != nil {
			t.urls = []string{t.proc.URL()}
		}
		s.targets = append(s.targets, t)
		s.say("started %s", name)
	}
	return nil
}

// startBalancer starts a Traefik without plugins.
func (s *stage) startBalancer(ctx context.Context) (*process.Process, error) {
	p, _, err := proxies.Balancer(ctx, s.backendURLs(), traefik.Options{}, wrr, p2c)
	return s.keep(p, err)
}

// startInterpreted starts a Traefik with CART as its plugin.
func (s *stage) startInterpreted(ctx context.Context) (*process.Process, error) {
	p, _, err := proxies.Plugin(ctx, s.backendURLs(), object{}, traefik.Options{})
	return s.keep(p, err)
}

// startBefore starts a Traefik with the plugin of the working tree to compare with.
func (s *stage) startBefore(ctx context.Context) (*process.Process, error) {
	if err := sameBinary(ctx); err != nil {
		return nil, err
	}
	p, _, err := proxies.Plugin(ctx, s.backendURLs(), object{}, traefik.Options{Root: s.before})
	return s.keep(p, err)
}

// sameBinary has all Traefiks that are started from now on be this working tree's.
func sameBinary(ctx context.Context) error {
	ours, err := traefik.Root()
	if err != nil {
		return err
	}
	binary, err := traefik.Binary(ctx, ours)
	if err != nil {
		return err
	}
	return os.Setenv("TRAEFIK_BIN", binary)
}

// keep notes a process that has started, for tearDown.
func (s *stage) keep(p *process.Process, err error) (*process.Process, error) {
	if err == nil {
		s.started = append(s.started, p)
	}
	return p, err
}

// tearDown ends everything.
func (s *stage) tearDown() error {
	var errs []error
	for _, p := range slices.Backward(s.started) {
		errs = append(errs, p.Stop())
	}
	s.started = nil
	return errors.Join(errs...)
}
