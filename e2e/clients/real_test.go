package clients

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cart-llm/cart/e2e/engine"
)

// TestReal has llama.cpp behind CART in place of simulated replicas. It is not part of make test: see make clients-real.
func TestReal(t *testing.T) {
	python.require(t)
	e := newLlama(t)
	l := newLab(t)
	l.addPool("main", []string{e.start(t, "text"), e.start(t, "text")})
	l.addPool("embeddings", []string{e.start(t, "embeddings")})
	l.configure(map[string]engine.Config{"main": {"maxLoad": 50}, "embeddings": {}})
	l.write("tiny")
	for suite, file := range map[*suite]string{&python: "engine.py", &node: "engine.js"} {
		t.Run(suite.language, func(t *testing.T) {
			suite.require(t)
			report(t, suite.run(t, l, install(t, suite.language), file))
			l.checkIdle(t)
		})
	}
}

// llama is llama.cpp with a tiny model, out of packages for Python.
type llama struct {
	packages string
	model    string
}

func newLlama(t *testing.T) *llama {
	t.Helper()
	e := &llama{packages: install(t, "engine"), model: filepath.Join(t.TempDir(), "tiny.gguf")}
	if out, err := e.python("tiny_model.py", e.model).CombinedOutput(); err != nil {
		t.Fatalf("tiny_model.py: %v\n%s", err, out)
	}
	return e
}

func (e *llama) python(script string, args ...string) *exec.Cmd {
	cmd := exec.Command(python.program, append([]string{filepath.Join("engine", script)}, args...)...)
	cmd.Env = append(os.Environ(), "PYTHONPATH="+e.packages)
	return cmd
}

// start runs a server until the test ends, and returns its address.
func (e *llama) start(t *testing.T, purpose string) string {
	t.Helper()
	cmd := e.python("serve.py", e.model, purpose)
	var log strings.Builder
	cmd.Stderr = &log
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		kill := time.AfterFunc(10*time.Second, func() { _ = cmd.Process.Kill() })
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		_ = cmd.Wait()                          // by the signal
		kill.Stop()
	})
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if address, ok := strings.CutPrefix(lines.Text(), "listening "); ok {
			return address
		}
	}
	t.Fatalf("the engine did not start:\n%s", log.String())
	return ""
}
