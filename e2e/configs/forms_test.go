package configs

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cart-llm/cart/e2e/replica"
	"github.com/cart-llm/cart/e2e/traefik"
)

// TestForms: the same settings as YAML, as TOML and from the HTTP provider do the same in the official Traefik. The files are
// those whose decoding the module cmd compares in all forms.
func TestForms(t *testing.T) {
	var provided atomic.Value // what the HTTP provider gets
	provided.Store("{}")
	endpoint := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		text, _ := provided.Load().(string)
		fmt.Fprint(w, text)
	}))
	defer endpoint.Close()
	tr, err := traefik.Start(t.Context(), traefik.Options{LogLevel: "ERROR", Static: map[string]any{"providers": map[string]any{
		"http": map[string]any{"endpoint": endpoint.URL, "pollInterval": "100ms"},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := tr.Stop(); err != nil {
			t.Errorf("Stop() = %v, want nil", err)
		}
	}()
	if err := tr.Write("routers.yml", routers("file", "http")); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"plain", "spelled"} {
		for _, form := range []struct {
			file, provider string
			put            func(text string) error
		}{
			{"file.yml", "file", func(text string) error { return tr.Write("cart.yml", text) }},
			{"file.toml", "file", func(text string) error { return tr.Write("cart.toml", text) }},
			{"http.json", "http", func(text string) error { provided.Store(text); return nil }},
		} {
			t.Run(dir+"/"+form.file, func(t *testing.T) {
				all, urls := startReplicas(t, 2)
				if err := form.put(formText(t, dir, form.file, urls)); err != nil {
					t.Fatal(err)
				}
				if form.provider == "file" {
					defer func() {
						if err := tr.Remove("cart" + filepath.Ext(form.file)); err != nil {
							t.Error(err)
						}
					}()
				}
				checkPlain(t, tr.URL(), form.provider+".test", all, urls)
				if t.Failed() {
					t.Log(tr.Log())
				}
			})
		}
	}
}

// routers has a router for the middleware cart of each provider.
func routers(providers ...string) map[string]any {
	out := map[string]any{}
	for _, name := range providers {
		out[name] = map[string]any{
			"rule": "Host(`" + name + ".test`)", "entryPoints": []string{traefik.EntryPoint},
			"middlewares": []string{"cart@" + name}, "service": "noop@internal",
		}
	}
	return map[string]any{"http": map[string]any{"routers": out}}
}

// formText reads a configuration and puts in the replicas' addresses.
func formText(t *testing.T, dir, name string, urls []string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("../../cmd/internal/traefik/testdata/forms", dir, name))
	if err != nil {
		t.Fatal(err)
	}
	text := string(content)
	for i, url := range urls {
		was := fmt.Sprintf("http://10.0.0.%d:8000", i+1)
		if !strings.Contains(text, was) {
			t.Fatalf("%s/%s does not have %s", dir, name, was)
		}
		text = strings.ReplaceAll(text, was, url)
	}
	return text
}

// checkPlain sees that the settings of the configuration called plain are in force.
func checkPlain(t *testing.T, base, host string, all []*replica.Replica, urls []string) {
	t.Helper()
	var state workers
	eventually(t, func() (err error) {
		if state, err = readWorkers(t.Context(), base, host); err != nil {
			return err
		}
		return state.has(urls...)
	})
	if got := []int{state.maxLoad(urls[0]), state.maxLoad(urls[1])}; got[0] != 12 || got[1] != 20 || state.Policy != "threshold" {
		t.Errorf("/workers: maxLoad %v and policy %s, want [12 20] and threshold", got, state.Policy)
	}
	seen := map[string]bool{}
	for i := 0; i < 64 && len(seen) < 2; i++ {
		name := fmt.Sprint(host, " ", i)
		first, again := chat(t, base, host, name), chat(t, base, host, name)
		peer := first.header.Get("x-routed-peer")
		if got := again.header.Get("x-routed-peer"); got != peer || again.header.Get("x-cart-reason") != "cache_hit" {
			t.Errorf("a chat went to %s, and again to %s (%s), want the same and cache_hit", peer, got, again.header.Get("x-cart-reason"))
		}
		seen[peer] = true
	}
	if !seen[urls[0]] || !seen[urls[1]] {
		t.Fatalf("64 chats went to %v only, want both replicas", seen)
	}
	for i, one := range all {
		want := []string{"", "eu, west"}[i]
		for _, x := range one.Requests() {
			if got := x.Header.Get("X-Zone"); got != want {
				t.Errorf("%s %s got X-Zone %q at replica %d, want %q", x.Method, x.Target, got, i, want)
			}
		}
		// By default the first probe would be followed by the next after 10 s.
		eventually(t, func() error {
			probes := 0
			for _, x := range one.Requests() {
				if x.Target == "/health" {
					probes++
				}
			}
			if probes < 3 {
				return fmt.Errorf("replica %d got %d probes, want one each 200 ms", i, probes)
			}
			return nil
		})
	}
}
