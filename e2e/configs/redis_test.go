package configs

import (
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strings"
	"testing"

	"github.com/cart-llm/cart/e2e/process"
	"github.com/cart-llm/cart/e2e/traefik"
)

// TestForms_redis: the settings as key-value pairs in a real Redis do the same. It tells apart what the module cmd takes for
// Traefik's way of reading pairs from what that is.
func TestForms_redis(t *testing.T) {
	server, err := exec.LookPath("redis-server")
	if err != nil {
		t.Skip("needs the Debian package redis-server")
	}
	address := startRedis(t, server)
	for _, dir := range []string{"plain", "spelled"} {
		t.Run(dir, func(t *testing.T) {
			all, urls := startReplicas(t, 2)
			redis(t, address, "FLUSHALL")
			for _, line := range strings.Split(strings.TrimSpace(formText(t, dir, "kv.txt", urls)), "\n") {
				key, value, _ := strings.Cut(line, "=")
				redis(t, address, "SET", key, value)
			}
			tr, err := traefik.Start(t.Context(), traefik.Options{LogLevel: "ERROR", Static: map[string]any{"providers": map[string]any{
				"redis": map[string]any{"endpoints": []string{address}},
			}}})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = tr.Stop() }()
			if err := tr.Write("routers.yml", routers("redis")); err != nil {
				t.Fatal(err)
			}
			checkPlain(t, tr.URL(), "redis.test", all, urls)
		})
	}
}

// startRedis returns the address of a server that keeps nothing on disk.
func startRedis(t *testing.T, server string) string {
	t.Helper()
	address := freeAddress(t)
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	free, err := process.HoldPort(address) // until Redis has it, which asks for this very one
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = free() })
	cmd := exec.Command(server, "--bind", "127.0.0.1", "--port", port, "--save", "", "--appendonly", "no", "--dir", t.TempDir())
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	eventually(t, func() error {
		answer, err := exec.Command("redis-cli", "-p", port, "PING").Output()
		if err != nil || strings.TrimSpace(string(answer)) != "PONG" {
			return errors.Join(err, fmt.Errorf("PING = %q, want PONG", answer))
		}
		return nil
	})
	return address
}

func redis(t *testing.T, address string, command ...string) {
	t.Helper()
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("redis-cli", append([]string{"-p", port}, command...)...).CombinedOutput()
	if err != nil || strings.TrimSpace(string(out)) != "OK" {
		t.Fatalf("redis-cli %v = %s, %v, want OK", command, out, err)
	}
}
