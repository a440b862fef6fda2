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

	"github.com/cart-llm/cart/e2e/traefik"
)

// The targets by name, in the order of the tables.
const (
	direct       = "direct"
	wrr          = "wrr"
	p2c          = "p2c"
	interpreted  = "cart"
	before       = "cart-before"
	compiled     = "cart-compiled"
	sglangRouter = "sglang-router"
	vllmRouter   = "vllm-router"
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

// target is one way from the client to the backends.
type target struct {
	name string
	urls []string // used by turns
	host string   // the Host header, "" = that of the address
	proc *process // nil: no proxy
}

// stage is all that runs.
type stage struct {
	progress io.Writer
	word     string // in all answers of this run's backends
	backends *process
	targets  []*target
	leftOut  []string // which targets could not be started, and why
	before   string   // the root of the working tree to compare with, "" = none
	started  []*process
}

func (s *stage) say(format string, args ...any) { fmt.Fprintf(s.progress, format+"\n", args...) }

// startBackends starts the backends; interval is the time between events if they are to stream, else 0.
func (s *stage) startBackends(ctx context.Context, interval time.Duration) (err error) {
	s.word = fmt.Sprintf("bench-%016x", rand.Uint64())
	s.backends, err = startRole(ctx, roleBackends, s.word, interval.String())
	if err == nil {
		s.started = append(s.started, s.backends)
	}
	return err
}

func (s *stage) backendURLs() []string {
	var urls []string
	for _, port := range s.backends.ports {
		urls = append(urls, fmt.Sprintf("http://127.0.0.1:%d", port))
	}
	return urls
}

// startTargets starts those that are asked for. CART and Traefik have to start; a router of others may be missing.
func (s *stage) startTargets(ctx context.Context, names []string) error {
	var balancer *process
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
			t.proc, t.host = balancer, balancerHost(name)
		case interpreted:
			t.proc, err = s.startInterpreted(ctx, object{})
		case before:
			if s.before == "" {
				continue
			}
			t.proc, err = s.startBefore(ctx)
		case compiled:
			if t.proc, err = startRole(ctx, roleCart, s.backendURLs()...); err == nil {
				s.started = append(s.started, t.proc)
			}
		default:
			if t.proc, err = s.startRouter(ctx, name); err != nil && ctx.Err() == nil {
				s.leftOut = append(s.leftOut, fmt.Sprintf("%s is left out: %v", name, err))
				s.say("%s is left out: %v", name, err)
				continue
			}
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if t.proc != nil {
			t.urls = []string{t.proc.url()}
		}
		s.targets = append(s.targets, t)
		s.say("started %s", name)
	}
	return nil
}

// startTraefik starts the official Traefik with a dynamic configuration. from is the root of the plugin's source, "" = ours.
func (s *stage) startTraefik(ctx context.Context, name, from string, static, dynamic object) (*process, *traefik.Traefik, error) {
	t, err := traefik.Start(ctx, traefik.Options{LogLevel: "ERROR", Root: from, Static: static})
	if err != nil {
		return nil, nil, err
	}
	p := &process{name: name, pid: t.Pid(), exited: t.Exited(), log: t.Log, stop: t.Stop}
	s.started = append(s.started, p)
	var port int
	if _, err := fmt.Sscanf(t.URL(), "http://127.0.0.1:%d", &port); err != nil {
		return nil, nil, err
	}
	p.ports = []int{port}
	if err := t.Write("bench.yml", dynamic); err != nil {
		return nil, nil, err
	}
	if err := t.WaitApplied(ctx); err != nil {
		return nil, nil, err
	}
	return p, t, p.prove()
}

// tearDown ends everything.
func (s *stage) tearDown() error {
	var errs []error
	for _, p := range slices.Backward(s.started) {
		errs = append(errs, p.stop())
	}
	s.started = nil
	return errors.Join(errs...)
}

// root is the repository's.
func root() (string, error) {
	dir, err := traefik.Root()
	if err != nil {
		wd, _ := os.Getwd() // for the message only
		return "", fmt.Errorf("%s: %w", wd, err)
	}
	return dir, nil
}
