package cart

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// serveReplica starts a replica that answers with its name, and returns its address.
func serveReplica(t *testing.T, name string) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		rw.Header().Set("X-Body", string(body))
		io.WriteString(rw, name)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// serve builds the middleware with that configuration and returns its address.
func serve(t *testing.T, c *Config) string {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	h, err := New(ctx, nil, c, t.Name())
	if err != nil {
		cancel()
		t.Fatalf("New() = %v", err)
	}
	s := httptest.NewServer(h)
	t.Cleanup(func() {
		s.Close()
		cancel()
	})
	return s.URL
}

func post(t *testing.T, url, body string) (*http.Response, string) {
	t.Helper()
	res, err := http.Post(url, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatalf("Post(%s) = %v", url, err)
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatalf("Post(%s): reading the answer = %v", url, err)
	}
	return res, string(answer)
}

func TestServe_sendsAConversationToOneReplica(t *testing.T) {
	a, b := serveReplica(t, "a"), serveReplica(t, "b")
	c := CreateConfig()
	c.Workers = []WorkerConfig{{URL: a}, {URL: b}}
	c.Proxy.AddDecisionHeaders = "true"
	url := serve(t, c)

	body := `{"model":"m","messages":[{"role":"user","content":"` + strings.Repeat("a long story ", 400) + `"}]}`
	res, first := post(t, url+"/v1/chat/completions", body)
	if got := res.Header.Get("X-Cart-Reason"); got != reasonMiss {
		t.Errorf("first request: reason = %q, want %q", got, reasonMiss)
	}
	if got := res.Header.Get("X-Body"); got != body {
		t.Errorf("first request: the replica got %d bytes, want the %d sent", len(got), len(body))
	}
	for i := 0; i < 10; i++ {
		res, got := post(t, url+"/v1/chat/completions", body)
		if got != first || res.Header.Get("X-Cart-Reason") != reasonHit {
			t.Errorf("repeat %d: answered by %q for %q, want %q for %q", i, got, res.Header.Get("X-Cart-Reason"), first, reasonHit)
		}
	}
}

func TestServe_ownTimeLimitIsNotTheReplicasFault(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, req *http.Request) {
		io.Copy(io.Discard, req.Body)
		rw.Header().Set("Content-Type", "text/event-stream")
		for req.Context().Err() == nil {
			io.WriteString(rw, "data: x\n\n")
			rw.(http.Flusher).Flush()
			time.Sleep(10 * time.Millisecond)
		}
	}))
	t.Cleanup(s.Close)
	c := CreateConfig()
	c.Workers = []WorkerConfig{{URL: s.URL}}
	c.Proxy.RequestTimeout = "500ms" // in which the stream has begun on a slow machine too
	c.Health.Interval = "0"
	c.Health.Metrics.Interval = "0"
	c.Health.Models.Interval = "0"
	url := serve(t, c)
	res, err := http.Post(url+"/v1/chat/completions", "application/json", strings.NewReader(`{"messages":[{"role":"user"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(res.Body); err == nil {
		t.Error("a stream beyond proxy.requestTimeout ended well, want it broken off")
	}
	res.Body.Close()
	for i := 0; i < 100; i++ {
		registryMu.Lock()
		p := registry[t.Name()]
		registryMu.Unlock()
		p.mu.Lock()
		load, failures := p.replicas[0].load, p.replicas[0].failures
		p.mu.Unlock()
		if load == 0 {
			if failures != 0 {
				t.Errorf("failures = %d, want none: the limit is CART's own", failures)
			}
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Error("load does not come back to 0")
}

func TestServe_aListOfModelsIsKeptForOneCaller(t *testing.T) {
	asked := 0
	s := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, req *http.Request) {
		asked++
		rw.Header().Set("Content-Type", "application/json")
		rw.Header().Set("X-Engine", "yes")
		io.WriteString(rw, `{"data":[]}`)
	}))
	t.Cleanup(s.Close)
	c := CreateConfig()
	c.Workers = []WorkerConfig{{URL: s.URL}}
	c.Health.Interval = "0"
	c.Health.Metrics.Interval = "0"
	c.Health.Models.Interval = "0"
	url := serve(t, c)
	for _, row := range []struct {
		header, value string
		want          int
	}{
		{"Accept", "*/*", 1},
		{"Accept", "*/*", 1},
		{"Cookie", "me", 2},
		{"Cookie", "me", 2},
		{"Origin", "http://browser", 3},
		{"Origin", "http://browser", 4},
	} {
		req, _ := http.NewRequest(http.MethodGet, url+"/v1/models", nil)
		req.Header.Set(row.header, row.value)
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(res.Body)
		res.Body.Close()
		if string(body) != `{"data":[]}` || res.Header.Get("X-Engine") != "yes" || asked != row.want {
			t.Errorf("GET /v1/models with %s: %q, X-Engine %q, replica asked %d times, want the list, its headers and %d times", row.header,
				body, res.Header.Get("X-Engine"), asked, row.want)
		}
	}
}
