// Package seeing tests what CART shows of itself: metrics against the real Prometheus, the page in a real browser, the
// explanation of decisions, and log lines.
package seeing

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/cart-llm/cart/e2e/engine"
	"github.com/cart-llm/cart/e2e/replica"
)

// rig is one engine with a router to one middleware, both named "cart", before simulated replicas.
type rig struct {
	t        *testing.T
	e        engine.Engine
	replicas []*replica.Replica
	config   engine.Config
}

// start starts everything; config is merged over the rig's own.
func start(t *testing.T, kind engine.Kind, replicas int, config engine.Config) *rig {
	t.Helper()
	r := &rig{t: t}
	workers := []any{}
	for i := 0; i < replicas; i++ {
		one, err := replica.Start(replica.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(one.Kill)
		r.replicas = append(r.replicas, one)
		workers = append(workers, engine.Config{"url": one.URL()})
	}
	r.config = engine.Merged(engine.Config{
		"workers": workers, "logLevel": "error", "health": engine.Config{"interval": "100ms", "timeout": "1s"},
		"proxy": engine.Config{"addDecisionHeaders": true, "initialBackoff": "10ms"},
	}, config)
	r.e = engine.Start(t, kind, r.setup())
	if why := r.e.MiddlewareError("cart"); why != "" {
		t.Fatalf("the middleware cannot be built: %s", why)
	}
	return r
}

func (r *rig) setup() engine.Setup {
	return engine.Setup{
		Middlewares: map[string]engine.Config{"cart": r.config},
		Routers:     map[string]engine.Router{"cart": {Middleware: "cart"}},
	}
}

// with reloads the middleware with a change to its configuration.
func (r *rig) with(change engine.Config) {
	r.t.Helper()
	r.config = engine.Merged(r.config, change)
	if err := r.e.Reload(r.setup()); err != nil {
		r.t.Fatalf("Reload() = %v", err)
	}
}

type answer struct {
	status int
	header http.Header
	body   string
}

// do sends a request and fails the test unless it is answered.
func (r *rig) do(method, path, body string) answer {
	r.t.Helper()
	req, err := http.NewRequest(method, r.e.URL()+path, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	resp, err := r.e.Client().Do(req)
	if err != nil {
		r.t.Fatalf("%s %s: %v", method, path, err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatalf("%s %s: %v", method, path, err)
	}
	return answer{resp.StatusCode, resp.Header, string(text)}
}

// chat posts a chat with one message.
func (r *rig) chat(text string) answer {
	r.t.Helper()
	return r.do(http.MethodPost, "/v1/chat/completions", chatOf(text, false))
}

func chatOf(text string, stream bool) string {
	body, err := json.Marshal(map[string]any{
		"model": "m", "max_tokens": 2, "stream": stream, "messages": []any{map[string]any{"role": "user", "content": text}},
	})
	if err != nil {
		panic(err) // strings always encode
	}
	return string(body)
}

// traffic makes some hits and misses, streams, a retry, a refusal and other requests.
func (r *rig) traffic() {
	r.t.Helper()
	for i := 0; i < 6; i++ {
		prompt := strings.Repeat(fmt.Sprintf("%d tells a story. ", i), 60)
		for turn := 0; turn < 3; turn++ {
			for _, stream := range []bool{false, true} {
				if a := r.do(http.MethodPost, "/v1/chat/completions", chatOf(prompt, stream)); a.status != http.StatusOK {
					r.t.Fatalf("POST of a chat = %d %s", a.status, a.body)
				}
			}
			prompt += strings.Repeat("and goes on. ", 10)
		}
	}
	r.do(http.MethodPost, "/v1/embeddings", `{"input":"x"}`)
	if err := r.replicas[0].SetFault(replica.Fault{Kind: replica.Status, Status: 500, Count: 1}); err != nil {
		r.t.Fatal(err)
	}
	// One in 256 runs would send none of eight prompts to one of two replicas.
	retries := r.state().Reasons["retry"]
	for i := 0; i < 8 || i < 100 && r.state().Reasons["retry"] == retries; i++ {
		r.chat(strings.Repeat(fmt.Sprintf("%d is new. ", i), 40))
	}
	if a := r.do(http.MethodPost, "/v1/completions", strings.Repeat("x", 4000)); a.status != http.StatusRequestEntityTooLarge {
		r.t.Fatalf("POST of a long body = %d %s, want 413", a.status, a.body)
	}
}

// small makes the body that traffic sends last too long.
var small = engine.Config{"proxy": engine.Config{"maxBodyBytes": 3000}}

// state is the part of /workers that the tests look at.
type state struct {
	Workers []struct {
		URL     string `json:"url"`
		Healthy bool   `json:"healthy"`
		Load    int    `json:"load"`
	} `json:"workers"`
	Reasons map[string]int `json:"reasons"`
	Refused map[string]int `json:"refused"`
}

func (r *rig) state() state {
	r.t.Helper()
	var s state
	a := r.do(http.MethodGet, "/workers", "")
	if err := json.NewDecoder(bytes.NewReader([]byte(a.body))).Decode(&s); err != nil {
		r.t.Fatalf("GET /workers = %d %s: %v", a.status, a.body, err)
	}
	return s
}

// eventually calls f until it returns nil, and fails the test when it does not within that time. What stops the whole machine
// for a while, test and server alike, counts little.
func eventually(t *testing.T, within time.Duration, f func() error) {
	t.Helper()
	const most = time.Second // of what one try counts
	took := time.Duration(0)
	for {
		began := time.Now()
		err := f()
		if err == nil {
			return
		}
		if took > within {
			t.Fatalf("still after %v: %v", within, err)
		}
		time.Sleep(10 * time.Millisecond)
		took += min(most, time.Since(began))
	}
}

func readAll(t *testing.T, resp *http.Response) string {
	t.Helper()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
