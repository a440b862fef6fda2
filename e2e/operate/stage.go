package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"

	"github.com/cart-llm/cart/e2e/engine"
	"github.com/cart-llm/cart/e2e/replica"
	"github.com/cart-llm/cart/e2e/traefik"
)

// stage is all that runs: simulated replicas in this process, and the official Traefik with CART before them.
type stage struct {
	replicas []*replica.Replica
	traefik  *traefik.Traefik
	config   engine.Config
}

// fast are replicas of which a prefill is felt and a decoding is not.
var fast = replica.Options{PrefillRate: 12000, DecodeRate: 300, CacheTokens: 60000, MaxRunning: 16}

func setUp(ctx context.Context, replicas int, options replica.Options, change engine.Config) (*stage, error) {
	s := &stage{}
	if err := s.setUp(ctx, replicas, options, change); err != nil {
		return nil, errors.Join(err, s.tearDown())
	}
	return s, nil
}

func (s *stage) setUp(ctx context.Context, replicas int, options replica.Options, change engine.Config) error {
	workers := []any{}
	for i := 0; i < replicas; i++ {
		one, err := replica.Start(options)
		if err != nil {
			return err
		}
		s.replicas = append(s.replicas, one)
		workers = append(workers, engine.Config{"url": one.URL()})
	}
	s.config = engine.Merged(engine.Config{
		"workers": workers, "logLevel": "error", "health": engine.Config{
			"interval": "500ms", "timeout": "400ms",
			"metrics": engine.Config{"interval": 0}, // else CART knows of small caches and restarts
		},
	}, change)
	var err error
	if s.traefik, err = traefik.Start(ctx, traefik.Options{LogLevel: "ERROR", Root: os.Getenv("ROOT")}); err != nil {
		return err
	}
	err = s.traefik.Write("operate.yml", map[string]any{"http": map[string]any{
		"routers": map[string]any{"llm": map[string]any{
			"rule": "PathPrefix(`/`)", "entryPoints": []string{traefik.EntryPoint}, "middlewares": []string{"cart"}, "service": "noop@internal",
		}},
		"middlewares": map[string]any{"cart": map[string]any{"plugin": map[string]any{traefik.Alias: s.config}}},
	}})
	if err == nil {
		err = s.traefik.WaitApplied(ctx)
	}
	if err != nil {
		return err
	}
	m, err := s.traefik.Middleware(ctx, "cart")
	if err == nil && m.Status != "enabled" {
		err = fmt.Errorf("traefik refuses the middleware: %s", strings.Join(m.Errors, "; "))
	}
	return err
}

func (s *stage) page() string { return s.traefik.URL() + "/workers" }

func (s *stage) tearDown() error {
	var errs []error
	if s.traefik != nil {
		errs = append(errs, s.traefik.Stop())
	}
	for _, one := range s.replicas {
		errs = append(errs, one.Close())
	}
	return errors.Join(errs...)
}

// figures is the part of /workers that tells the symptoms apart.
type figures struct {
	Workers []struct {
		URL       string         `json:"url"`
		Requests  int            `json:"requests"`
		Hits      int            `json:"hits"`
		Failures  int            `json:"failures"`
		Load      int            `json:"load"`
		Reasons   map[string]int `json:"reasons"`
		FirstByte struct {
			Hit   histogram `json:"hit"`
			Other histogram `json:"other"`
		} `json:"firstByteSeconds"`
	} `json:"workers"`
	Reasons    map[string]int `json:"reasons"`
	Refused    map[string]int `json:"refused"`
	Known      histogram      `json:"knownRatio"`
	Characters struct {
		Prompt, Known, Matched float64
	} `json:"characters"`
}

type histogram struct {
	Count float64 `json:"count"`
	Sum   float64 `json:"sum"`
}

func (h histogram) mean() float64 { return h.Sum / h.Count }

func (s *stage) figures() (f figures, err error) {
	resp, err := http.Get(s.page())
	if err != nil {
		return f, err
	}
	defer resp.Body.Close()
	return f, json.NewDecoder(resp.Body).Decode(&f)
}
