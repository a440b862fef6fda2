package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/cart-llm/cart/e2e/traefik"
)

const (
	module = "github.com/cart-llm/cart"
	alias  = "cart" // of the plugin
)

// object is a piece of configuration. JSON is YAML, so Traefik reads it from a .yml file.
type object = map[string]any

// server is the official Traefik. Package traefik's own has no /debug/pprof, by which this one's footprint is measured.
type server struct {
	dir    string
	url    string // of the clients' entry point
	api    string
	cmd    *exec.Cmd
	exited chan struct{}
	client *http.Client
}

func startTraefik(ctx context.Context, root string) (*server, error) {
	binary, err := traefik.Binary(ctx, root)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "cart-soak-")
	if err != nil {
		return nil, err
	}
	t := &server{dir: dir, exited: make(chan struct{}), client: &http.Client{Timeout: 10 * time.Second}}
	if err := t.start(ctx, binary, root); err != nil {
		return nil, errors.Join(fmt.Errorf("traefik did not start: %w\n%s", err, t.log()), t.stop())
	}
	return t, nil
}

func (t *server) start(ctx context.Context, binary, root string) error {
	source := filepath.Join(t.dir, "plugins-local", "src", module)
	for _, dir := range []string{filepath.Dir(source), filepath.Join(t.dir, "dynamic")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	if err := os.Symlink(root, source); err != nil {
		return err
	}
	config, err := t.static()
	if err != nil {
		return err
	}
	name := filepath.Join(t.dir, "traefik.yml")
	if err := os.WriteFile(name, config, 0o644); err != nil {
		return err
	}
	output, err := os.Create(filepath.Join(t.dir, "output.log"))
	if err != nil {
		return err
	}
	defer output.Close()
	t.cmd = exec.Command(binary, "--configFile="+name)
	t.cmd.Dir, t.cmd.Stdout, t.cmd.Stderr = t.dir, output, output
	if err := t.cmd.Start(); err != nil {
		t.cmd = nil
		return err
	}
	go func() {
		_ = t.cmd.Wait() // how it ended shows in its log
		close(t.exited)
	}()
	return t.until(ctx, func() error { return t.get(ctx, t.api+"/ping", io.Discard) })
}

func (t *server) static() ([]byte, error) {
	var addresses []string
	for range 2 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close() // only then, so that the two differ
		addresses = append(addresses, l.Addr().String())
	}
	t.url, t.api = "http://"+addresses[0], "http://"+addresses[1]
	return json.Marshal(object{
		"global":      object{"checkNewVersion": false, "sendAnonymousUsage": false},
		"entryPoints": object{"web": object{"address": addresses[0]}, "traefik": object{"address": addresses[1]}},
		"api":         object{"insecure": true, "debug": true},
		"ping":        object{},
		"log":         object{"level": "INFO", "filePath": filepath.Join(t.dir, "traefik.log"), "noColor": true},
		"experimental": object{
			"abortOnPluginFailure": true,
			"localPlugins":         object{alias: object{"moduleName": module}},
		},
		"providers": object{
			"providersThrottleDuration": "100ms",
			"file":                      object{"directory": filepath.Join(t.dir, "dynamic"), "watch": true},
		},
	})
}

// write puts a file of dynamic configuration in place, in one step; nil takes it away.
func (t *server) write(name string, content object) error {
	name = filepath.Join(t.dir, "dynamic", name)
	if content == nil {
		return os.Remove(name)
	}
	text, err := json.Marshal(content)
	if err != nil {
		return err
	}
	staged := filepath.Join(t.dir, "staged")
	if err := os.WriteFile(staged, text, 0o644); err != nil {
		return err
	}
	return os.Rename(staged, name)
}

// until calls f until it returns nil, for at most half a minute.
func (t *server) until(ctx context.Context, f func() error) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		err := f()
		if err == nil {
			return nil
		}
		select {
		case <-t.exited:
			return errors.Join(errors.New("traefik ended by itself"), err)
		case <-ctx.Done():
			return err
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (t *server) get(ctx context.Context, url string, to io.Writer) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := t.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: %s", url, resp.Status)
	}
	_, err = io.Copy(to, resp.Body)
	return err
}

// alive returns an error if the process has ended.
func (t *server) alive() error {
	select {
	case <-t.exited:
		return fmt.Errorf("traefik ended by itself; its log:\n%s", t.log())
	default:
		return nil
	}
}

// log is what Traefik and the plugin have written.
func (t *server) log() string {
	var all strings.Builder
	for _, name := range []string{"traefik.log", "output.log"} {
		if text, err := os.ReadFile(filepath.Join(t.dir, name)); err == nil {
			all.Write(text)
		}
	}
	return all.String()
}

// stop ends the process and removes its folder.
func (t *server) stop() error {
	t.client.CloseIdleConnections()
	if t.cmd != nil {
		_ = t.cmd.Process.Signal(syscall.SIGTERM) // an error means that it has ended
		select {
		case <-t.exited:
		case <-time.After(5 * time.Second):
			_ = t.cmd.Process.Kill()
			<-t.exited
		}
	}
	return os.RemoveAll(t.dir)
}

// footprint is what the process holds after a garbage collection.
type footprint struct {
	goroutines int
	heap       int // bytes
}

var (
	goroutineTotal = regexp.MustCompile(`goroutine profile: total (\d+)`)
	heapAlloc      = regexp.MustCompile(`# HeapAlloc = (\d+)`)
)

func (t *server) footprint(ctx context.Context) (footprint, error) {
	// Goroutines that wait for a request are gone with the connection that asks.
	defer t.client.CloseIdleConnections()
	heap, err := t.measure(ctx, "heap?gc=1&debug=1", heapAlloc)
	if err != nil {
		return footprint{}, err
	}
	goroutines, err := t.measure(ctx, "goroutine?debug=1", goroutineTotal)
	return footprint{goroutines: goroutines, heap: heap}, err
}

func (t *server) measure(ctx context.Context, profile string, number *regexp.Regexp) (int, error) {
	var text strings.Builder
	if err := t.get(ctx, t.api+"/debug/pprof/"+profile, &text); err != nil {
		return 0, err
	}
	found := number.FindStringSubmatch(text.String())
	if found == nil {
		return 0, fmt.Errorf("no %s in /debug/pprof/%s", number, profile)
	}
	return strconv.Atoi(found[1])
}

// settled returns the footprint once it is near the one before, or after half a minute what it is then. Without one
// before, it waits until two measurements a second apart are the same but for a little.
func (t *server) settled(ctx context.Context, before footprint) (footprint, error) {
	var now footprint
	var err error
	for end := time.Now().Add(30 * time.Second); ; {
		last := now
		if now, err = t.footprint(ctx); err != nil {
			return now, err
		}
		if before == (footprint{}) && now.near(last) || before != (footprint{}) && now.near(before) || time.Now().After(end) {
			return now, nil
		}
		select {
		case <-ctx.Done():
			return now, ctx.Err()
		case <-time.After(time.Second):
		}
	}
}

// What a footprint may grow by and still be near: pools of connections and buffers that Go keeps.
const (
	moreGoroutines = 20
	moreHeap       = 24 << 20
)

func (f footprint) near(before footprint) bool {
	return f.goroutines <= before.goroutines+moreGoroutines && f.heap <= before.heap+moreHeap
}
