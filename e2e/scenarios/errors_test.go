package scenarios

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/cart-llm/cart/e2e/engine"
)

// TestDialectErrors: the errors CART makes itself have the shape the client's library expects, and tell nothing of the
// replicas.
func TestDialectErrors(t *testing.T) {
	paths := map[string]func(*testing.T, answer){
		"/v1/chat/completions": checkOpenAIError,
		"/v1/completions":      checkOpenAIError,
		"/v1/responses":        checkOpenAIError,
		"/v1/messages":         checkAnthropicError,
		"/v1/embeddings":       checkOpenAIError,
	}
	engine.Each(t, func(t *testing.T, kind engine.Kind) {
		r := start(t, kind, pool{size: 2, config: engine.Merged(noProbes, engine.Config{"proxy": engine.Config{"maxBodyBytes": 10000}})})
		small, large := newChat("x").body(), bytes.Repeat([]byte("x"), 10001)
		for path, check := range paths {
			if path == "/v1/embeddings" {
				continue // streamed, of any length
			}
			a := r.post(path, large)
			if a.status != 413 {
				t.Errorf("POST %s of too long a body = %d %s, want 413", path, a.status, a.body)
			}
			check(t, a)
		}
		for _, one := range r.replicas {
			one.Kill()
		}
		for path, check := range paths {
			a := r.post(path, small)
			if a.status != 502 || a.peer() != "" {
				t.Errorf("POST %s with all replicas dead = %d with x-routed-peer %q, want 502 with none", path, a.status, a.peer())
			}
			check(t, a)
		}
		r.with(engine.Config{"workers": []any{}})
		for path, check := range paths {
			a := r.post(path, small)
			if a.status != 503 || a.header.Get("Retry-After") == "" {
				t.Errorf("POST %s without replicas = %d, Retry-After %q, want 503 with one", path, a.status, a.header.Get("Retry-After"))
			}
			check(t, a)
		}
	})
}

// checkOpenAIError fails the test unless an answer is an error in OpenAI's dialect that names no replica.
func checkOpenAIError(t *testing.T, a answer) {
	t.Helper()
	var got struct {
		Error struct{ Message, Type string }
	}
	err := json.Unmarshal(a.body, &got)
	if err != nil || got.Error.Message == "" || got.Error.Type == "" {
		t.Errorf("error body = %s, %v, want OpenAI's shape with a message and a type", a.body, err)
	}
	checkErrorHead(t, a)
}

// checkAnthropicError is the same for Anthropic's dialect.
func checkAnthropicError(t *testing.T, a answer) {
	t.Helper()
	var got struct {
		Type  string
		Error struct{ Message, Type string }
	}
	err := json.Unmarshal(a.body, &got)
	if err != nil || got.Type != "error" || got.Error.Message == "" || got.Error.Type == "" {
		t.Errorf("error body = %s, %v, want Anthropic's shape with a message and a type", a.body, err)
	}
	checkErrorHead(t, a)
}

func checkErrorHead(t *testing.T, a answer) {
	t.Helper()
	if got := a.header.Get("Content-Type"); !strings.HasPrefix(got, "application/json") {
		t.Errorf("Content-Type of an error = %q, want application/json", got)
	}
	if strings.Contains(string(a.body), "127.0.0.1") {
		t.Errorf("error body = %s, want no replica's address in it", a.body)
	}
}
