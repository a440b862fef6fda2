package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/cart-llm/cart/e2e/chats"
	"github.com/cart-llm/cart/e2e/process"
	"github.com/cart-llm/cart/e2e/python"
	"github.com/cart-llm/cart/e2e/traefik"
)

const (
	servers       = 3
	blocks        = 96 // of 128 tokens: the KV cache of a server
	installLimit  = 30 * time.Minute
	startLimit    = 5 * time.Minute // three that start together on two cores take 1 to 2 minutes
	endLimit      = 10 * time.Second
	warmUpPrompts = 2
)

//go:embed vllm/requirements.lock
var requirements []byte

//go:embed vllm/model.py
var modelScript []byte

//go:embed vllm/serve.py
var serveScript []byte

// engine is vLLM as it is installed.
type engine struct {
	python string
	script string // serves the model
	model  string // folder
}

// install puts vLLM and the model into a folder, "" = .cache/vllm. There is nothing to do if they are there already.
func install(ctx context.Context, dir string, progress io.Writer) (*engine, error) {
	if dir == "" {
		root, err := traefik.Root()
		if err != nil {
			return nil, err
		}
		dir = filepath.Join(root, ".cache", "vllm")
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(progress, "vLLM in %s (the first time this takes about 5 minutes and 6 GB)\n", dir)
	bin, err := python.Venv(ctx, filepath.Join(dir, "venv"), requirements, installLimit)
	if err != nil {
		return nil, err
	}
	e := &engine{
		python: filepath.Join(bin, "python"), script: filepath.Join(dir, "serve.py"), model: filepath.Join(dir, "model"),
	}
	maker := filepath.Join(dir, "model.py")
	made, _ := os.ReadFile(maker) // none was made by this script if it cannot be read
	if err := os.WriteFile(e.script, serveScript, 0o644); err != nil {
		return nil, err
	}
	if _, err := os.Stat(filepath.Join(e.model, "config.json")); err == nil && string(made) == string(modelScript) {
		return e, nil
	}
	if err := errors.Join(os.RemoveAll(e.model), os.WriteFile(maker, modelScript, 0o644)); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, e.python, maker, e.model)
	cmd.Env = append(os.Environ(), "HF_HUB_OFFLINE=1")
	if said, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("the model could not be made: %w\n%s", err, said)
	}
	return e, nil
}

// serve starts a server on a port; it is not ready yet.
func (e *engine) serve(port int) (*process.Process, error) {
	p, err := process.Start("vLLM", process.Options{Group: true, Grace: endLimit},
		e.python, e.script, e.model, strconv.Itoa(port), strconv.Itoa(blocks))
	if err != nil {
		return nil, err
	}
	p.Ports = []int{port}
	return p, nil
}

// stack is the servers.
type stack struct {
	engine *engine
	procs  []*process.Process
}

// startServers starts all and returns when they are warm. What it returns has to be stopped even with an error.
func startServers(ctx context.Context, e *engine, progress io.Writer) (*stack, error) {
	s := &stack{engine: e}
	begin := time.Now()
	for range servers {
		port, err := process.FreePort()
		if err != nil {
			return s, err
		}
		p, err := e.serve(port)
		if err != nil {
			return s, err
		}
		s.procs = append(s.procs, p)
	}
	for _, p := range s.procs {
		if err := p.WaitHealthy(ctx, startLimit); err != nil {
			return s, err
		}
	}
	fmt.Fprintf(progress, "%d servers are ready after %v\n", servers, time.Since(begin).Round(time.Second))
	for i, p := range s.procs {
		if err := warmUp(ctx, p, uint64(i)); err != nil {
			return s, err
		}
	}
	return s, nil
}

// warmUp has a server answer prompts that no workload has: its first ones take longer.
func warmUp(ctx context.Context, p *process.Process, number uint64) error {
	w := chats.Even
	w.Talks, w.Turns = warmUpPrompts, 1
	for _, turn := range chats.Drive(ctx, chats.Target{URL: p.URL()}, w.Conversations(1000+number), 1) {
		if turn.Err != nil {
			return turn.Err
		}
	}
	return ctx.Err()
}

func (s *stack) urls() []string {
	var all []string
	for _, p := range s.procs {
		all = append(all, p.URL())
	}
	return all
}

func (s *stack) stop() error {
	var errs []error
	for _, p := range s.procs {
		errs = append(errs, p.Stop())
	}
	return errors.Join(errs...)
}
