package cart

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
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
