package check

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cart-llm/cart/e2e/replica"
)

// example is a stage with a folder of examples/, its replicas and its entry point web.
type example struct {
	*stage
	asker
	urls [2]string
}

// fileEdits are those that all examples need.
func (s *stage) fileEdits(address string, urls [2]string) edits {
	return edits{
		{`address: ":8000"`, fmt.Sprintf("address: %q", address)},
		{etc, s.path(etc)},
		{"http://10.0.0.1:8000", urls[0]},
		{"http://10.0.0.2:8000", urls[1]},
	}
}

// startExample runs an example as it stands in examples/, but for what edits say beside the usual.
func startExample(t *testing.T, name string, more func(s *stage) edits) example {
	t.Helper()
	e := newExample(t)
	e.begin(t, name, append(e.fileEdits(strings.TrimPrefix(e.base, "http://"), e.urls), more(e.stage)...))
	return e
}

func newExample(t *testing.T) example {
	t.Helper()
	s := newStage(t)
	s.unpack(t)
	return example{stage: s, asker: asker{base: "http://" + s.listen(t)}, urls: startReplicas(t)}
}

func (e *example) begin(t *testing.T, name string, with edits) {
	t.Helper()
	e.put(t, filepath.Join(root(t), "examples", name), etc, with)
	e.start(t, "--configFile="+e.path(etc+"/traefik.yml"))
}

func nothing(*stage) edits { return nil }

func TestExample_file(t *testing.T) {
	t.Parallel()
	e := startExample(t, "file", nothing)
	e.chat(t, "one file")
	e.reaches(t, e.urls[:]...)
	// The same file holds the dynamic configuration, and is followed.
	third := startReplica(t, replica.Options{Name: "third"})
	path := e.path(etc + "/traefik.yml")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path+".new", []byte(strings.Replace(string(text), e.urls[0], third.URL(), 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
	e.reaches(t, third.URL(), e.urls[1])
}

func TestExample_directory(t *testing.T) {
	t.Parallel()
	var api string
	e := startExample(t, "directory", func(s *stage) edits {
		api = s.listen(t)
		return edits{
			{"127.0.0.1:8080", api},
			{"service: vllm@file", "service: vllm@file\n            api: {address: http://" + api + "}"},
		}
	})
	e.chat(t, "a directory")
	e.reaches(t, e.urls[:]...)

	// The generator's list grows by one.
	third := startReplica(t, replica.Options{Name: "third"})
	list := e.path("/list.txt")
	e.write(t, "/list.txt", fmt.Sprintf("# three now\n%s\n\n  %s # a comment\n%s\n", e.urls[0], e.urls[1], third.URL()), 0o644)
	generate := exec.Command(e.path(etc+"/generate-workers"), list, e.path(etc+"/dynamic/workers.yml"))
	if out, err := generate.CombinedOutput(); err != nil {
		t.Fatalf("generate-workers: %v\n%s", err, out)
	}
	e.reaches(t, e.urls[0], e.urls[1], third.URL())
}

// TestExample_directoryIsGenerated: the file of workers that is there is what the generator makes of the list.
func TestExample_directoryIsGenerated(t *testing.T) {
	folder := filepath.Join(root(t), "examples", "directory")
	want := filepath.Join(t.TempDir(), "dynamic", "workers.yml")
	if err := os.Mkdir(filepath.Dir(want), 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(filepath.Join(folder, "generate-workers"), filepath.Join(folder, "replicas.txt"), want).CombinedOutput(); err != nil {
		t.Fatalf("generate-workers: %v\n%s", err, out)
	}
	made, err := os.ReadFile(want)
	if err != nil {
		t.Fatal(err)
	}
	there, err := os.ReadFile(filepath.Join(folder, "dynamic", "workers.yml"))
	if err != nil {
		t.Fatal(err)
	}
	if string(made) != string(there) {
		t.Errorf("dynamic/workers.yml is\n%swant\n%s", there, made)
	}
}

func TestExample_internal(t *testing.T) {
	t.Parallel()
	var internal string
	e := startExample(t, "internal", func(s *stage) edits {
		internal = s.listen(t)
		return edits{{"127.0.0.1:8081", internal}}
	})
	e.chat(t, "an internal entry point")
	inside := asker{base: "http://" + internal}
	for path, want := range map[string]string{
		"/workers": e.urls[0], "/metrics": "cart_", "/health": `"`, "/ping": "OK", "/api/http/middlewares/cart@file": "enabled",
	} {
		if got, err := inside.send(http.MethodGet, path, nil); err != nil || got.status != http.StatusOK || !strings.Contains(string(got.body), want) {
			t.Errorf("GET %s inside = %d %.200s, %v, want 200 with %s", path, got.status, got.body, err, want)
		}
		if got, err := e.send(http.MethodGet, path, nil); err != nil || got.status != http.StatusNotFound {
			t.Errorf("GET %s outside = %d %.200s, %v, want 404", path, got.status, got.body, err)
		}
	}
	explained, err := inside.send(http.MethodPost, "/workers?explain=/v1/chat/completions", []byte(`{"messages": []}`))
	if err != nil || explained.status != http.StatusOK {
		t.Errorf("POST /workers?explain= = %d %.200s, %v, want 200", explained.status, explained.body, err)
	}
}

func TestExample_pools(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.unpack(t)
	qwen, llama, address := startReplicas(t), startReplicas(t), s.listen(t)
	s.put(t, filepath.Join(root(t), "examples", "pools"), etc, edits{
		{`address: ":8000"`, fmt.Sprintf("address: %q", address)},
		{etc, s.path(etc)},
		{"http://10.0.1.1:8000", qwen[0]},
		{"http://10.0.1.2:8000", qwen[1]},
		{"http://10.0.2.1:8000", llama[0]},
		{"http://10.0.2.2:8000", llama[1]},
	})
	s.start(t, "--configFile="+s.path(etc+"/traefik.yml"))
	base := "http://" + address
	for _, c := range []struct {
		how  string
		ask  asker
		pool [2]string
	}{
		{"path", asker{prefix: "/qwen/v1"}, qwen},
		{"path", asker{prefix: "/llama/v1"}, llama},
		{"host", asker{host: "qwen.llm.example.com"}, qwen},
		{"host", asker{host: "llama.llm.example.com"}, llama},
		{"header", asker{header: http.Header{"X-Pool": {"qwen"}}}, qwen},
		{"header", asker{header: http.Header{"X-Pool": {"llama"}}}, llama},
		{"nothing", asker{}, qwen},
	} {
		c.ask.base = base
		for n := range 4 {
			if peer := c.ask.chat(t, fmt.Sprint(c.how, n)); peer != c.pool[0] && peer != c.pool[1] {
				t.Errorf("by %s %s answered, want one of %v", c.how, peer, c.pool)
			}
		}
	}
}

func TestExample_apiKey(t *testing.T) {
	t.Parallel()
	e := newExample(t)
	keys := [2]string{"key-of-engine-1", "key-of-engine-2"}
	guarded := e.urls
	for i := range guarded {
		guarded[i] = guard(t, e.urls[i], keys[i])
		e.write(t, fmt.Sprint(etc, "/secrets/engine-", i+1), keys[i]+"\n", 0o600)
	}
	e.begin(t, "api-key", append(e.fileEdits(strings.TrimPrefix(e.base, "http://"), guarded),
		edit{"127.0.0.1/32", "127.0.0.0/8"}))
	e.header = http.Header{"Authorization": {"Bearer the-client's-own"}}
	e.chat(t, "keys")
	e.reaches(t, guarded[:]...)
}

// TestExample_apiKeyKeepsOthersOut: the addresses are looked at before CART.
func TestExample_apiKeyKeepsOthersOut(t *testing.T) {
	t.Parallel()
	e := newExample(t)
	for i := range e.urls {
		e.write(t, fmt.Sprint(etc, "/secrets/engine-", i+1), "key\n", 0o600)
	}
	e.begin(t, "api-key", append(e.fileEdits(strings.TrimPrefix(e.base, "http://"), e.urls), edit{"127.0.0.1/32", "192.0.2.1/32"}))
	eventually(t, func() error {
		got, err := e.send(http.MethodGet, "/v1/models", nil)
		if err == nil && got.status != http.StatusForbidden {
			err = fmt.Errorf("GET /v1/models = %d %.200s, want 403", got.status, got.body)
		}
		return err
	})
}

func TestExample_tls(t *testing.T) {
	t.Parallel()
	e := newExample(t)
	authority := newAuthority(t)
	certs := etc + "/certs/"
	e.write(t, certs+"engines-ca.crt", authority.pem(), 0o644)
	for name, host := range map[string]string{"traefik": e.web, "cart": "cart"} {
		cert, key := authority.issue(t, host)
		e.write(t, certs+name+".crt", cert, 0o644)
		e.write(t, certs+name+".key", key, 0o600)
	}
	engines := e.urls
	for i := range engines {
		engines[i] = overTLS(t, authority, e.urls[i])
	}
	secure := e.listen(t)
	e.begin(t, "tls", edits{
		{`address: ":8000"`, fmt.Sprintf("address: %q", strings.TrimPrefix(e.base, "http://"))},
		{`address: ":8443"`, fmt.Sprintf("address: %q", secure)},
		{etc, e.path(etc)},
		{"https://10.0.0.1:8443", engines[0]},
		{"https://10.0.0.2:8443", engines[1]},
	})
	client := asker{base: "https://" + secure, client: authority.client()}
	client.chat(t, "TLS")
	client.reaches(t, engines[:]...)

	got, err := asker{base: e.base, client: &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}}.send(http.MethodGet, "/v1/models", nil)
	if err != nil || !strings.HasPrefix(got.header.Get("Location"), "https://") {
		t.Errorf("GET /v1/models without TLS = %d to %q, %v, want a redirect", got.status, got.header.Get("Location"), err)
	}
}

// TestExamples_areAllListed: each folder has a line in the README and a test here.
func TestExamples_areAllListed(t *testing.T) {
	folder := filepath.Join(root(t), "examples")
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile(filepath.Join(folder, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	tested := map[string]bool{
		"file": true, "directory": true, "internal": true, "pools": true, "api-key": true, "tls": true, "docker": true, "kubernetes": true,
	}
	for _, entry := range entries {
		if !entry.IsDir() {
			continue
		}
		if !strings.Contains(string(readme), "["+entry.Name()+"]("+entry.Name()+"/") {
			t.Errorf("examples/README.md does not list %s", entry.Name())
		}
		if !tested[entry.Name()] {
			t.Errorf("no test starts or validates examples/%s", entry.Name())
		}
	}
}
