package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/cart-llm/cart/e2e/replica"
)

// The replicas are fast enough for all clients with one of them missing.
var replicaFlags = []string{"-prefill-rate=60000", "-decode-rate=150", "-output-tokens=16", "-cache-tokens=400000", "-max-running=64"}

// victim is one replica in a process of its own, which can be killed and started again at the same address.
type victim struct {
	binary  string
	url     string
	control string // address for faults, which stays while the replica refuses connections
	cmd     *exec.Cmd

	mu    sync.Mutex
	kills []time.Time
}

// buildReplica compiles e2e/cmd/replica into dir.
func buildReplica(ctx context.Context, root, dir string) (string, error) {
	binary := filepath.Join(dir, "replica")
	build := exec.CommandContext(ctx, "go", "build", "-o", binary, "./cmd/replica")
	build.Dir = filepath.Join(root, "e2e")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build ./cmd/replica: %w\n%s", err, out)
	}
	return binary, nil
}

// start begins the process: at free ports the first time, later at those it had.
func (p *victim) start() error {
	address, control := "127.0.0.1:0", "127.0.0.1:0"
	if p.url != "" {
		address, control = strings.TrimPrefix(p.url, "http://"), strings.TrimPrefix(p.control, "http://")
	}
	cmd := exec.Command(p.binary, append(replicaFlags, "-addr="+address, "-control="+control)...)
	output, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	if err := cmd.Start(); err != nil {
		return err
	}
	lines := bufio.NewScanner(output)
	for _, field := range []struct {
		word string
		to   *string
	}{{"listening", &p.url}, {"control", &p.control}} {
		words := []string{}
		if lines.Scan() {
			words = strings.Fields(lines.Text())
		}
		if len(words) < 2 || words[0] != field.word {
			_ = cmd.Process.Kill()
			_ = cmd.Wait() // it has just been killed
			return fmt.Errorf("a replica did not start: %q %s", words, complaints.String())
		}
		*field.to = words[1]
	}
	p.cmd = cmd
	return nil
}

// kill ends the process as kill -9 does.
func (p *victim) kill() error {
	p.mu.Lock()
	p.kills = append(p.kills, time.Now())
	p.mu.Unlock()
	err := p.cmd.Process.Kill()
	_ = p.cmd.Wait() // tells that it was killed
	p.cmd = nil
	return err
}

// restart starts the process again. Another connection may hold its port for a moment.
func (p *victim) restart(ctx context.Context) error {
	for try := 0; ; try++ {
		err := p.start()
		if err == nil || try == 5 || ctx.Err() != nil {
			return err
		}
	}
}

func (p *victim) stop() {
	if p.cmd == nil {
		return
	}
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // an error means that it has ended
	gone := time.AfterFunc(3*time.Second, func() { _ = p.cmd.Process.Kill() })
	_ = p.cmd.Wait() // how it ended does not matter any more
	gone.Stop()
	p.cmd = nil
}

// killedIn tells whether the process was killed in that time.
func (p *victim) killedIn(from, to time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, at := range p.kills {
		if at.After(from) && at.Before(to) {
			return true
		}
	}
	return false
}

// set puts the replica under a fault, or makes it well again with none.
func (p *victim) set(f *replica.Fault) error {
	method, body := http.MethodDelete, []byte(nil)
	if f != nil {
		method = http.MethodPost
		var err error
		if body, err = json.Marshal(f); err != nil {
			return err
		}
	}
	req, err := http.NewRequest(method, p.control+"/_sim/fault", bytes.NewReader(body))
	if err != nil {
		return err
	}
	return p.tell(req)
}

func (p *victim) resetCache() error {
	req, err := http.NewRequest(http.MethodPost, p.url+"/reset_prefix_cache", nil)
	if err != nil {
		return err
	}
	return p.tell(req)
}

// running is the number of requests that the replica still works on.
func (p *victim) running() (int, error) {
	resp, err := controls.Get(p.control + "/_sim/stats")
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	var stats replica.Stats
	err = json.NewDecoder(resp.Body).Decode(&stats)
	return stats.Running, err
}

var controls = &http.Client{Timeout: 5 * time.Second}

func (p *victim) tell(req *http.Request) error {
	resp, err := controls.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode > 299 {
		return errors.New(req.URL.Path + ": " + resp.Status)
	}
	return nil
}
