package proxies

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"time"

	"github.com/cart-llm/cart/e2e/process"
	"github.com/cart-llm/cart/e2e/python"
	"github.com/cart-llm/cart/e2e/traefik"
)

// The routers of others come from the Python package index, each with all that it needs pinned.
//
//go:embed locks/*.lock
var locks embed.FS

// installLimit bounds an installation.
const installLimit = 5 * time.Minute

// startLimit bounds a start, and then the search for replicas: engines that start at the same time are slow to answer.
const startLimit = time.Minute

// Router starts one of the Rust routers with policy cache_aware and its own defaults. Only what it logs is reduced:
// sglang-router writes two lines a request by default, which none of the others does. It is installed in .cache/venvs on
// first use.
func Router(ctx context.Context, name string, replicas []string) (*process.Process, error) {
	root, err := traefik.Root()
	if err != nil {
		return nil, err
	}
	lock, err := locks.ReadFile("locks/" + name + ".lock")
	if err != nil {
		return nil, err
	}
	bin, err := python.Venv(ctx, filepath.Join(root, ".cache", "venvs", name), lock, installLimit)
	if err != nil {
		return nil, err
	}
	// A port that was free may be taken when the router binds it, so it is tried again.
	for attempt := 1; ; attempt++ {
		p, err := tryRouter(ctx, name, filepath.Join(bin, name), replicas)
		if err == nil || attempt == 3 || ctx.Err() != nil {
			return p, err
		}
	}
}

func tryRouter(ctx context.Context, name, program string, replicas []string) (*process.Process, error) {
	port, err := process.FreePort()
	if err != nil {
		return nil, err
	}
	metrics, err := process.FreePort()
	if err != nil {
		return nil, err
	}
	argv := []string{program}
	level := "warning"
	if name == SGLangRouter {
		argv = append(argv, "launch")
		level = "warn"
	}
	argv = append(argv, "--host", "127.0.0.1", "--port", strconv.Itoa(port), "--policy", "cache_aware", "--log-level", level,
		"--prometheus-host", "127.0.0.1", "--prometheus-port", strconv.Itoa(metrics), "--worker-urls")
	argv = append(argv, replicas...)
	// Should it look for a tokenizer of the model, it is to look nowhere else.
	env := []string{"HF_HUB_OFFLINE=1", "HF_ENDPOINT=" + replicas[0]}
	p, err := process.Start(name, process.Options{Env: env}, argv...)
	if err != nil {
		return nil, err
	}
	p.Ports = []int{port}
	err = p.WaitHealthy(ctx, startLimit)
	if err == nil {
		err = waitForReplicas(ctx, p, len(replicas))
	}
	if err != nil {
		return nil, errors.Join(err, p.Stop())
	}
	return p, nil
}

// waitForReplicas returns when a router has found all its replicas, which it looks for after it has begun to answer.
func waitForReplicas(ctx context.Context, p *process.Process, want int) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	for {
		var state struct {
			Healthy int `json:"healthy_workers"`
		}
		body, err := process.GetBody(ctx, p.URL()+"/readiness") // 503 until it has found one
		if err == nil {
			err = json.Unmarshal(body, &state)
		}
		if err == nil && state.Healthy >= want {
			return nil
		}
		select {
		case <-p.Exited:
			return p.Alive()
		case <-ctx.Done():
			return fmt.Errorf("%s has found %d of %d replicas: %w\n%s", p.Name, state.Healthy, want, errors.Join(err, ctx.Err()), p.Log())
		case <-time.After(100 * time.Millisecond):
		}
	}
}
