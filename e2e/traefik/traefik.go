// Package traefik runs the official Traefik binary with the plugin's source loaded from this repository.
package traefik

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Names of the entry points, for the routers' entryPoints.
const (
	EntryPoint    = "web"
	EntryPointTLS = "websecure"
)

// Alias is the plugin's name in a middleware: {"plugin": {"cart": {...}}}.
const Alias = "cart"

const module = "github.com/cart-llm/cart"

// Options tells how to start Traefik. The zero value is good.
type Options struct {
	// Root is the repository's root; "" = found from the working directory.
	Root string
	// LogLevel is Traefik's own; "" = INFO.
	LogLevel string
	// TLS adds the entry point websecure (TLS with HTTP/2). Its routers need "tls": {}.
	TLS bool
	// Throttle is the least time between two reloads; 0 = 20 ms.
	Throttle time.Duration
	// OpenFiles limits the files that the process may open; 0 = no limit but the caller's.
	OpenFiles int
	// Static is merged over the static configuration, maps key by key.
	Static map[string]any
}

// Traefik is a running process with a folder of dynamic configuration of its own.
type Traefik struct {
	id     string // tells this process's answers from those of another one that got the same port
	dir    string
	ports  ports
	cert   *certificate
	client *http.Client

	generation int
	cmd        *exec.Cmd
	exited     chan struct{} // closed when the process has ended
	exitErr    error         // why; to be read after exited is closed
}

// Start runs Traefik and returns when it serves. The caller must call Stop.
func Start(ctx context.Context, o Options) (*Traefik, error) {
	if o.Root == "" {
		root, err := Root()
		if err != nil {
			return nil, err
		}
		o.Root = root
	}
	binary, err := Binary(ctx, o.Root)
	if err != nil {
		return nil, err
	}
	// A port that was free may be taken when Traefik binds it, so a start that fails is tried again.
	for attempt := 1; ; attempt++ {
		t, err := start(ctx, binary, o)
		if err == nil {
			return t, nil
		}
		if attempt == 3 || !strings.Contains(err.Error(), "address already in use") {
			return nil, err
		}
	}
}

func start(ctx context.Context, binary string, o Options) (*Traefik, error) {
	t := &Traefik{id: randomID(), exited: make(chan struct{})}
	if err := t.prepare(o); err != nil {
		return nil, errors.Join(err, t.removeDir())
	}
	output, err := os.Create(filepath.Join(t.dir, "output.log"))
	if err != nil {
		return nil, errors.Join(err, t.removeDir())
	}
	defer output.Close()
	t.cmd = exec.Command(binary, "--configFile="+filepath.Join(t.dir, "traefik.yml"))
	if o.OpenFiles > 0 {
		limit := fmt.Sprintf(`ulimit -n %d; exec "$@"`, o.OpenFiles)
		t.cmd = exec.Command("sh", append([]string{"-c", limit, "sh"}, t.cmd.Args...)...)
	}
	t.cmd.Dir = t.dir
	t.cmd.Stdout = output
	t.cmd.Stderr = output
	if err := t.cmd.Start(); err != nil {
		return nil, errors.Join(err, t.removeDir())
	}
	go func() {
		t.exitErr = t.cmd.Wait()
		close(t.exited)
	}()
	if err := t.waitReady(ctx); err != nil {
		err = fmt.Errorf("traefik did not start: %w\n%s", err, t.Log())
		return nil, errors.Join(err, t.Stop())
	}
	return t, nil
}

// URL is the address of the entry point web.
func (t *Traefik) URL() string { return "http://127.0.0.1:" + strconv.Itoa(t.ports.web) }

// URLTLS is the address of the entry point websecure.
func (t *Traefik) URLTLS() string { return "https://127.0.0.1:" + strconv.Itoa(t.ports.tls) }

// URLAPI is the address of the API, of /ping and of the /dashboard/.
func (t *Traefik) URLAPI() string { return "http://127.0.0.1:" + strconv.Itoa(t.ports.api) }

// AccessLog returns what is in the access log, which Static has to turn on with an empty "accessLog".
func (t *Traefik) AccessLog() string {
	content, err := os.ReadFile(filepath.Join(t.dir, accessLog))
	if err != nil {
		return ""
	}
	return string(content)
}

// Rewrite replaces a file of dynamic configuration in place, as a careless program does: it empties the file and writes
// one piece after the other, with a pause before each.
func (t *Traefik) Rewrite(name string, pause time.Duration, pieces ...string) error {
	file, err := os.Create(filepath.Join(t.dynamicDir(), name))
	if err != nil {
		return err
	}
	for _, piece := range pieces {
		time.Sleep(pause)
		if _, err := file.WriteString(piece); err != nil {
			return errors.Join(err, file.Close())
		}
	}
	return file.Close()
}

// Pid is the process.
func (t *Traefik) Pid() int { return t.cmd.Process.Pid }

// Exited is closed when the process has ended.
func (t *Traefik) Exited() <-chan struct{} { return t.exited }

// Log returns what Traefik logged and what the process, the plugin included, wrote to its outputs.
func (t *Traefik) Log() string {
	var all strings.Builder
	for _, name := range []string{"traefik.log", "output.log"} {
		content, err := os.ReadFile(filepath.Join(t.dir, name))
		if err == nil && len(content) > 0 {
			fmt.Fprintf(&all, "--- %s\n%s", name, content)
		}
	}
	return all.String()
}

// Stop ends the process and removes its folder. Further calls do nothing.
func (t *Traefik) Stop() error {
	select {
	case <-t.exited:
		return t.removeDir()
	default:
	}
	// An error here means that the process has just ended, which the wait below sees.
	_ = t.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-t.exited:
	case <-time.After(5 * time.Second):
		_ = t.cmd.Process.Kill()
		<-t.exited
	}
	return t.removeDir()
}

// waitReady waits for /ping and for the first configuration.
func (t *Traefik) waitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	err := t.poll(ctx, func() error {
		status, _, err := t.get(ctx, t.URLAPI()+"/ping")
		if err == nil && status != http.StatusOK {
			err = fmt.Errorf("GET /ping = %d, want 200", status)
		}
		return err
	})
	if err != nil {
		return err
	}
	return t.WaitApplied(ctx)
}

// poll calls f until it returns nil, the process ends or ctx does.
func (t *Traefik) poll(ctx context.Context, f func() error) error {
	for {
		err := f()
		if err == nil {
			return nil
		}
		select {
		case <-t.exited:
			return fmt.Errorf("the process ended: %w", t.exitErr)
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func (t *Traefik) removeDir() error { return os.RemoveAll(t.dir) }

func randomID() string {
	var b [8]byte
	_, _ = rand.Read(b[:])
	return hex.EncodeToString(b[:])
}
