package check

import (
	"context"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cart-llm/cart/e2e/replica"
	"github.com/cart-llm/cart/e2e/traefik"
)

// etc is where the examples say that their files are.
const etc = "/etc/traefik"

// stage is a folder that stands for the root of a machine or container, to run Traefik in.
type stage struct {
	dir string
	web string // the address that stands for the entry points' and the containers'
	env []string
	uid int // to run as; 0 = as the tests

	output lockedBuffer
}

// newStage makes an empty one, which other users can read.
func newStage(t *testing.T) *stage {
	t.Helper()
	dir, err := os.MkdirTemp("", "cart-check-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return &stage{dir: dir, web: loopback()}
}

var loopbacks atomic.Uint32

// loopback is an address of this machine that no other test uses, so that a port that is free stays free.
func loopback() string {
	n := uint32(os.Getpid())*64 + loopbacks.Add(1)
	return fmt.Sprintf("127.%d.%d.%d", 80+n>>16%100, n>>8%256, 1+n%254)
}

// freePort is one that is free on all the addresses.
func freePort(t *testing.T, addresses ...string) string {
	t.Helper()
	for range 20 {
		port := "0"
		var held []net.Listener
		for _, address := range addresses {
			l, err := net.Listen("tcp", net.JoinHostPort(address, port))
			if err != nil {
				break
			}
			held = append(held, l)
			_, port, _ = net.SplitHostPort(l.Addr().String())
		}
		for _, l := range held {
			l.Close()
		}
		if len(held) == len(addresses) {
			return port
		}
	}
	t.Fatalf("no port is free on all of %v", addresses)
	return ""
}

// listen returns HOST:PORT of its own.
func (s *stage) listen(t *testing.T) string {
	t.Helper()
	return net.JoinHostPort(s.web, freePort(t, s.web))
}

// path is where a path of the machine or container is.
func (s *stage) path(absolute string) string { return filepath.Join(s.dir, absolute) }

// edit is one replacement: what an example says, and what it has to be here.
type edit struct{ old, new string }

// edits are replacements of which each has to be needed: an example that has changed is told, not skipped.
type edits []edit

// apply replaces in all texts together.
func (e edits) apply(t *testing.T, texts []string) {
	t.Helper()
	for _, one := range e {
		found := false
		for i, text := range texts {
			found = found || strings.Contains(text, one.old)
			texts[i] = strings.ReplaceAll(text, one.old, one.new)
		}
		if !found {
			t.Fatalf("nothing has %q, which the test replaces by %q", one.old, one.new)
		}
	}
}

// put copies a folder to a path of the stage, with edits.
func (s *stage) put(t *testing.T, source, target string, e edits) {
	t.Helper()
	var names, texts []string
	err := filepath.WalkDir(source, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(source, path)
		names, texts = append(names, name), append(texts, string(content))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	e.apply(t, texts)
	for i, name := range names {
		info, err := os.Stat(filepath.Join(source, name))
		if err != nil {
			t.Fatal(err)
		}
		s.write(t, filepath.Join(target, name), texts[i], info.Mode().Perm())
	}
}

func (s *stage) write(t *testing.T, absolute, text string, mode os.FileMode) {
	t.Helper()
	path := s.path(absolute)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

// start runs the official Traefik in the stage until the test ends.
func (s *stage) start(t *testing.T, args ...string) {
	t.Helper()
	s.run(t, append([]string{traefikBinary(t)}, args...)...)
}

// run starts a command in the stage and ends it with the test. What it wrote is shown if the test fails.
func (s *stage) run(t *testing.T, command ...string) {
	t.Helper()
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Dir = s.dir
	cmd.Env = append(os.Environ(), s.env...)
	cmd.Stdout, cmd.Stderr = &s.output, &s.output
	if s.uid != 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(s.uid), Gid: uint32(s.uid)}}
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	exited := make(chan struct{})
	go func() {
		_ = cmd.Wait() // how it ends is the test's doing
		close(exited)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may be over
		select {
		case <-exited:
		case <-time.After(5 * time.Second): // an entry point's graceTimeOut may be longer
			_ = cmd.Process.Kill()
			<-exited
		}
		if t.Failed() {
			t.Logf("what %s wrote:\n%s", filepath.Base(command[0]), s.output.String())
		}
	})
}

var traefikOnce = sync.OnceValues(func() (string, error) {
	root, err := traefik.Root()
	if err != nil {
		return "", err
	}
	return traefik.Binary(context.Background(), root)
})

func traefikBinary(t *testing.T) string {
	t.Helper()
	binary, err := traefikOnce()
	if err != nil {
		t.Fatal(err)
	}
	return binary
}

// root is the repository's.
func root(t *testing.T) string {
	t.Helper()
	dir, err := traefik.Root()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// startReplica runs a simulated engine. address "" = any.
func startReplica(t *testing.T, o replica.Options) *replica.Replica {
	t.Helper()
	r, err := replica.Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Kill)
	return r
}

// startReplicas returns two and their addresses.
func startReplicas(t *testing.T) (urls [2]string) {
	t.Helper()
	for i := range urls {
		urls[i] = startReplica(t, replica.Options{Name: fmt.Sprint("replica ", i)}).URL()
	}
	return urls
}
