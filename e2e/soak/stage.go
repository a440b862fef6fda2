package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/cart-llm/cart/e2e/traefik"
)

const replicas = 6

// The middlewares; each has a pool of its own, so that the storm does not begin with what the calm has learned.
const (
	calmName  = "calm"
	stormName = "storm"
)

const (
	routing   = "cart.yml"      // file of the middleware and its router
	unrelated = "unrelated.yml" // of a router that has nothing to do with them
)

// stage is all that runs.
type stage struct {
	dir      string
	replicas []*victim
	traefik  *server
	client   *http.Client
	counts   counts
}

func setUp(ctx context.Context) (*stage, error) {
	s := &stage{client: newClient()}
	if err := s.setUp(ctx); err != nil {
		return nil, errors.Join(err, s.tearDown())
	}
	return s, nil
}

func (s *stage) setUp(ctx context.Context) error {
	root, err := traefik.Root()
	if err != nil {
		return err
	}
	if s.dir, err = os.MkdirTemp("", "cart-soak-"); err != nil {
		return err
	}
	binary, err := buildReplica(ctx, root, s.dir)
	if err != nil {
		return err
	}
	for range replicas {
		p := &victim{binary: binary}
		if err := p.start(); err != nil {
			return err
		}
		s.replicas = append(s.replicas, p)
	}
	if s.traefik, err = startTraefik(ctx, root); err != nil {
		return err
	}
	return s.traefik.write(unrelated, unrelatedRouter(0))
}

// tearDown ends everything. It can be called again.
func (s *stage) tearDown() error {
	var errs []error
	s.client.CloseIdleConnections()
	controls.CloseIdleConnections()
	if s.traefik != nil {
		errs = append(errs, s.traefik.stop())
		s.traefik = nil
	}
	for _, p := range s.replicas {
		p.stop()
	}
	return errors.Join(append(errs, os.RemoveAll(s.dir))...)
}

// route writes the configuration of a middleware with these replicas, and its router.
func (s *stage) route(name string, list []*victim) error {
	workers := []object{}
	for _, p := range list {
		workers = append(workers, object{"url": p.url})
	}
	config := object{
		"workers":        workers,
		"maxLoad":        40,
		"health":         object{"interval": "1s", "timeout": "1s", "failureThreshold": 2},
		"circuitBreaker": object{"timeout": "3s"},
		"logLevel":       "warn",
	}
	return s.traefik.write(routing, object{"http": object{
		"middlewares": object{name: object{"plugin": object{alias: config}}},
		"routers": object{name: object{
			"rule": "PathPrefix(`/`)", "entryPoints": []string{"web"}, "middlewares": []string{name}, "service": "noop@internal",
		}},
	}})
}

func unrelatedRouter(n int) object {
	return object{"http": object{
		"middlewares": object{"unrelated": object{"headers": object{"customResponseHeaders": object{"X-Generation": fmt.Sprint(n)}}}},
		"routers": object{"unrelated": object{
			"rule": "Host(`unrelated.test`)", "entryPoints": []string{"web"}, "middlewares": []string{"unrelated"}, "service": "ping@internal",
		}},
	}}
}

// workers is what GET /workers tells.
type workers struct {
	Pool    string         `json:"pool"`
	Usable  int            `json:"usable"`
	Retries int            `json:"retries"`
	Refused map[string]int `json:"refused"`
	Workers []struct {
		URL  string `json:"url"`
		Load int    `json:"load"`
	} `json:"workers"`
}

func (w *workers) load() int {
	sum := 0
	for _, one := range w.Workers {
		sum += one.Load
	}
	return sum
}

func (s *stage) workers(ctx context.Context) (*workers, error) {
	var text strings.Builder
	if err := s.traefik.get(ctx, s.traefik.url+"/workers", &text); err != nil {
		return nil, err
	}
	w := &workers{}
	return w, json.Unmarshal([]byte(text.String()), w)
}

// inForce waits until the middleware answers with all replicas usable.
func (s *stage) inForce(ctx context.Context, name string) error {
	return s.traefik.until(ctx, func() error {
		w, err := s.workers(ctx)
		if err != nil {
			return err
		}
		if w.Pool != name+"@file" || len(w.Workers) != replicas || w.Usable != replicas {
			return fmt.Errorf("/workers shows %d of %d replicas usable in %q, want %d in %q", w.Usable, len(w.Workers), w.Pool,
				replicas, name+"@file")
		}
		return nil
	})
}

// phase has the crowd talk through one middleware, with cold caches at first, and shows how it goes.
func (s *stage) phase(ctx context.Context, name string, lasts time.Duration) (*tally, error) {
	for _, p := range s.replicas {
		if err := p.resetCache(); err != nil {
			return nil, err
		}
	}
	if err := s.route(name, s.replicas); err != nil {
		return nil, err
	}
	if err := s.inForce(ctx, name); err != nil {
		return nil, err
	}
	t := newTally()
	done := make(chan struct{})
	shown := make(chan struct{})
	go func() {
		defer close(shown)
		s.show(name, t, lasts, done)
	}()
	weather := make(chan error, 1)
	if name == stormName {
		go func() { weather <- s.blow(ctx, lasts) }()
	} else {
		weather <- nil
	}
	s.crowd(ctx, lasts, name == stormName, t)
	err := <-weather
	close(done)
	<-shown
	return t, errors.Join(err, ctx.Err(), s.traefik.alive())
}

func (s *stage) calm(ctx context.Context, lasts time.Duration) (*tally, error) {
	return s.phase(ctx, calmName, lasts)
}

func (s *stage) storm(ctx context.Context, lasts time.Duration) (*tally, error) {
	return s.phase(ctx, stormName, lasts)
}

// show prints a line now and then, and a last one.
func (s *stage) show(name string, t *tally, lasts time.Duration, done <-chan struct{}) {
	every := min(max(lasts/12, time.Second), 10*time.Second)
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			fmt.Println(t.line(name) + s.counts.String())
		case <-done:
			fmt.Println(t.line(name) + s.counts.String() + "\n")
			return
		}
	}
}
