package traefik

import (
	"context"
	"crypto/tls"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// plugin stands for the real one, so that this package's tests do not depend on it.
var plugin = map[string]string{
	".traefik.yml": `{"displayName": "t", "type": "middleware", "runtime": "yaegi", "import": "github.com/cart-llm/cart", "summary": "t", "testData": {"text": "x"}}`,
	"go.mod":       "module github.com/cart-llm/cart\n",
	"plugin.go": `package cart

import (
	"context"
	"errors"
	"net/http"
)

type Config struct { Text string }

func CreateConfig() *Config { return &Config{} }

func New(ctx context.Context, next http.Handler, c *Config, name string) (http.Handler, error) {
	if c.Text == "" {
		return nil, errors.New("text is empty")
	}
	text := c.Text
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Write([]byte(r.Proto + " " + text))
	}), nil
}
`,
}

func TestTraefik(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	tr := startWithPlugin(ctx, t)

	apply(ctx, t, tr, "one")
	if got, want := fetch(t, http.DefaultClient, tr.URL()+"/a"), "200 HTTP/1.1 one"; got != want {
		t.Errorf("GET /a = %q, want %q", got, want)
	}
	h2 := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: tr.RootCAs()}, ForceAttemptHTTP2: true}}
	if got, want := fetch(t, h2, tr.URLTLS()+"/a"), "200 HTTP/2.0 one"; got != want {
		t.Errorf("GET /a over TLS = %q, want %q", got, want)
	}
	for _, text := range []string{"two", "three", "four"} {
		apply(ctx, t, tr, text)
		if got, want := fetch(t, http.DefaultClient, tr.URL()+"/a"), "200 HTTP/1.1 "+text; got != want {
			t.Fatalf("GET /a right after WaitApplied = %q, want %q", got, want)
		}
	}

	apply(ctx, t, tr, "")
	m, err := tr.Middleware(ctx, "m")
	if err != nil || m.Status != "disabled" || !strings.Contains(strings.Join(m.Errors, ""), "text is empty") {
		t.Errorf("Middleware(m) = %+v, %v, want it disabled because its text is empty", m, err)
	}
	if r, err := tr.Router(ctx, "r"); err != nil || r.Status != "disabled" {
		t.Errorf("Router(r) = %+v, %v, want it disabled", r, err)
	}
	if !strings.Contains(tr.Log(), "text is empty") {
		t.Errorf("Log() = %q, want the plugin's error in it", tr.Log())
	}

	if err := tr.Stop(); err != nil {
		t.Errorf("Stop() = %v, want nil", err)
	}
	select {
	case <-tr.Exited():
	default:
		t.Error("Exited() is open after Stop")
	}
}

func TestStart_tellsWhyThePluginFailed(t *testing.T) {
	useBinary(t)
	root := writePlugin(t, map[string]string{"plugin.go": "package cart\n\nvar x = undefinedName\n"})
	tr, err := Start(context.Background(), Options{Root: root})
	if err == nil {
		_ = tr.Stop()
		t.Fatal("Start() = nil error for a plugin that cannot be loaded")
	}
	if !strings.Contains(err.Error(), "failed to import plugin code") {
		t.Errorf("Start() = %v, want the loader's error in it", err)
	}
}

func startWithPlugin(ctx context.Context, t *testing.T) *Traefik {
	t.Helper()
	useBinary(t)
	tr, err := Start(ctx, Options{Root: writePlugin(t, nil), TLS: true, LogLevel: "DEBUG"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tr.Stop() })
	return tr
}

func useBinary(t *testing.T) {
	t.Helper()
	root, err := Root()
	if err != nil {
		t.Fatal(err)
	}
	binary, err := Binary(context.Background(), root)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("TRAEFIK_BIN", binary)
}

func writePlugin(t *testing.T, changed map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, content := range plugin {
		if c, ok := changed[name]; ok {
			content = c
		}
		if err := os.WriteFile(filepath.Join(root, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func apply(ctx context.Context, t *testing.T, tr *Traefik, text string) {
	t.Helper()
	router := func(name string, more object) object {
		r := object{"rule": "PathPrefix(`/`)", "entryPoints": []string{name}, "middlewares": []string{"m"}, "service": "noop@internal"}
		for k, v := range more {
			r[k] = v
		}
		return r
	}
	err := tr.Write("test.yml", object{"http": object{
		"routers":     object{"r": router(EntryPoint, nil), "rs": router(EntryPointTLS, object{"tls": object{}})},
		"middlewares": object{"m": object{"plugin": object{Alias: object{"text": text}}}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err := tr.WaitApplied(ctx); err != nil {
		t.Fatalf("%v\n%s", err, tr.Log())
	}
}

func fetch(t *testing.T, c *http.Client, address string) string {
	t.Helper()
	resp, err := c.Get(address)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.Status[:4] + string(body)
}
