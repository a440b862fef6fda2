package configs

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/cart-llm/cart/e2e/traefik"
)

// TestMigrate: a full configuration of the Rust router comes out as files with which the official Traefik starts as they
// are, listens where the Rust router did, and routes chats with the settings that it had.
func TestMigrate(t *testing.T) {
	root, err := traefik.Root()
	if err != nil {
		t.Fatal(err)
	}
	binary, err := traefik.Binary(t.Context(), root)
	if err != nil {
		t.Fatal(err)
	}
	command := filepath.Join(t.TempDir(), "cart")
	if out, err := exec.Command("go", "build", "-C", filepath.Join(root, "cmd"), "-o", command, "./cart").CombinedOutput(); err != nil {
		t.Fatalf("go build ./cart: %v\n%s", err, out)
	}
	for _, row := range []struct {
		what string
		args []string
	}{
		{"workers as a service", nil},
		{"workers inline", []string{"--inline"}},
	} {
		t.Run(row.what, func(t *testing.T) {
			_, urls := startReplicas(t, 3)
			// A port that was free may be taken when Traefik binds it, so a start that fails for that is tried again.
			for attempt := 1; ; attempt++ {
				base, log := migrated(t, root, binary, command, urls, row.args)
				if base != "" {
					checkMigrated(t, base, urls)
					if t.Failed() {
						t.Log(log())
					}
					return
				}
				if attempt == 3 || !strings.Contains(log(), "address already in use") {
					t.Fatalf("Traefik did not start:\n%s", log())
				}
			}
		})
	}
}

// migrated starts Traefik with what the full configuration migrates to, and returns its address, "" if it ended again.
func migrated(t *testing.T, root, binary, command string, urls, args []string) (base string, log func() string) {
	t.Helper()
	listen, api := freeAddress(t), freeAddress(t)
	dir := t.TempDir()
	source := fullConfig(t, root, listen, urls)
	args = append([]string{"migrate", source, "-o", dir, "--api", api}, args...)
	if out, err := exec.Command(command, args...).CombinedOutput(); err != nil {
		t.Fatalf("cart %v: %v\n%s", args, err, out)
	}
	plugin := filepath.Join(dir, "plugins-local/src/github.com/cart-llm/cart")
	if err := os.MkdirAll(filepath.Dir(plugin), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(root, plugin); err != nil {
		t.Fatal(err)
	}
	var output lockedBuffer
	cmd := exec.Command(binary, "--configFile=traefik.yml")
	cmd.Dir = dir
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	exited := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(exited)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // its grace for open connections is of no use here
		<-exited
	})
	base = "http://" + listen
	ended := false
	eventually(t, func() error {
		select {
		case <-exited:
			ended = true
			return nil
		default:
		}
		state, err := readWorkers(t.Context(), base, "any.test")
		if err != nil {
			return fmt.Errorf("%w\n%s", err, output.String())
		}
		return state.has(urls...)
	})
	if ended {
		base = ""
	}
	return base, output.String
}

// fullConfig writes the full configuration with ports and replicas of this machine.
func fullConfig(t *testing.T, root, listen string, urls []string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(root, "cmd/cart/testdata/rust/full.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	_, port, err := net.SplitHostPort(listen)
	if err != nil {
		t.Fatal(err)
	}
	text := regexp.MustCompile(`port: \d+`).ReplaceAllString(string(content), "port: "+port)
	for i, url := range urls {
		text = strings.ReplaceAll(text, fmt.Sprintf("http://127.0.0.1:800%d", i+1), url)
	}
	name := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return name
}

func checkMigrated(t *testing.T, base string, urls []string) {
	t.Helper()
	state, err := readWorkers(t.Context(), base, "any.test")
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []int{10, 30, 10} {
		if got := state.maxLoad(urls[i]); got != want {
			t.Errorf("/workers: %s has maxLoad %d, want %d", urls[i], got, want)
		}
	}
	first, again := chat(t, base, "any.test", "one"), chat(t, base, "any.test", "one")
	peer := first.header.Get("x-routed-peer")
	if peer == "" || again.header.Get("x-routed-peer") != peer {
		t.Errorf("a chat went to %q, and again to %q, want the same replica", peer, again.header.Get("x-routed-peer"))
	}
	remote := []byte(`{"model":"sim","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"http://elsewhere/x.png"}}]}]}`)
	if a, err := send(t.Context(), http.MethodPost, base+"/v1/chat/completions", "any.test", remote); err != nil || a.status != 400 {
		t.Errorf("POST with a remote image = %d, %v, want 400 as remote_media_url_policy says", a.status, err)
	}
	if a, err := send(t.Context(), http.MethodGet, base+"/health", "any.test", nil); err != nil || a.status != 200 {
		t.Errorf("GET /health = %d, %v, want 200", a.status, err)
	}
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
