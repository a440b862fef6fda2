package cases

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cart-llm/cart/e2e/engine"
)

// What the groups C, E, F and G have in common.

// ask is a chat of one user message.
func ask(text string) query { return askWith(text, "") }

// askStream is a chat of which the answer is to be a stream.
func askStream(text string) query { return askWith(text, `"stream":true,`) }

// askWith is a chat with more fields before the messages.
func askWith(text, fields string) query {
	return post("/v1/chat/completions", `{"model":"m1",`+fields+`"messages":[{"role":"user","content":`+quoted(text)+`}]}`)
}

// prose is a text of n bytes that begins like no other with another label.
func prose(label string, n int) string {
	return strings.Repeat(label+" and so on, ", n/len(label)+1)[:n]
}

// gate is what a held exchange waits for.
type gate struct{ open chan struct{} }

func newGate(t testing.TB) *gate {
	g := &gate{open: make(chan struct{})}
	t.Cleanup(g.release)
	return g
}

func (g *gate) release() {
	select {
	case <-g.open:
	default:
		close(g.open)
	}
}

const firstEvent, lastEvent = "data: {\"n\":1}\n\n", "data: [DONE]\n\n"

// streaming begins a stream at once and ends it when the gate opens.
func (g *gate) streaming(x *exchange) {
	x.events()
	x.chunk(firstEvent)
	if x.until(g.open) {
		x.chunk(lastEvent)
		x.end()
	}
}

// silent answers nothing until the gate opens.
func (g *gate) silent(x *exchange) {
	if x.until(g.open) {
		x.json(200, `{"held":true}`)
	}
}

// hold begins n requests and waits until the replicas have them all.
func (r *rig) hold(n int, make func(i int) query) []*wire {
	r.t.Helper()
	before := len(r.hits())
	var out []*wire
	for i := 0; i < n; i++ {
		out = append(out, r.begin(make(i)))
	}
	r.eventually(slack*5*time.Second, func() error {
		if now := len(r.hits()) - before; now != n {
			for _, w := range out {
				if a := w.soFar(); a.status >= 400 {
					return fmt.Errorf("one of the requests to hold got %v", &a)
				}
			}
			return fmt.Errorf("%d of %d requests to hold are at the replicas", now, n)
		}
		return nil
	})
	return out
}

// whole checks that held streams came to their end.
func (r *rig) whole(streams []*wire) {
	r.t.Helper()
	for i, w := range streams {
		if a := w.wait(30 * time.Second); a.err != nil || a.status != 200 || string(a.body) != firstEvent+lastEvent {
			r.t.Errorf("stream %d = %v, want it whole", i, &a)
		}
	}
}

// favour makes one replica the least loaded at all times, by penalties on the others, or none with nil.
func (r *rig) favour(m *mock) {
	r.t.Helper()
	r.with(engine.Config{"workers": favouring(m, r.mocks...)})
}

func favouring(m *mock, mocks ...*mock) []any {
	workers := workersOf(mocks...)
	for i, one := range mocks {
		if m != nil && one != m {
			workers[i].(engine.Config)["loadPenalty"] = 1000
		}
	}
	return workers
}

// ok sends a request that must be answered 200 and returns the answer.
func (r *rig) ok(q query) reply {
	r.t.Helper()
	a := r.do(q)
	if a.err != nil || a.status != 200 {
		r.t.Errorf("%s %s = %v, want 200", q.method, q.target, &a)
	}
	return a
}

// unharmed fails the test when any replica has been charged a failure or is out.
func (r *rig) unharmed() {
	r.t.Helper()
	for _, w := range r.state().Workers {
		if w.Failures != 0 || w.Breaker != "closed" || !w.Healthy {
			r.t.Errorf("replica %s has %d failures, breaker %s, healthy %t, want none, closed, true", w.URL, w.Failures, w.Breaker, w.Healthy)
		}
	}
}

// localError checks an error that CART makes itself, in the dialect of a path.
func localError(a reply, path string, statuses ...int) error {
	fits := false
	for _, status := range statuses {
		fits = fits || a.status == status
	}
	var body struct {
		Type  string
		Error map[string]any
	}
	switch {
	case a.err != nil || !fits:
		return fmt.Errorf("%s: %v, want status %v", path, &a, statuses)
	case !strings.HasPrefix(a.header.get("Content-Type"), "application/json"):
		return fmt.Errorf("%s: Content-Type = %q, want application/json", path, a.header.get("Content-Type"))
	case a.header.get("x-routed-peer") != "":
		return fmt.Errorf("%s: x-routed-peer = %q, want none on a local answer", path, a.header.get("x-routed-peer"))
	case len(a.body) >= 1000 || strings.Contains(string(a.body), "127.0.0.1") || strings.Contains(string(a.body), "goroutine"):
		return fmt.Errorf("%s: body %q, want less than 1 kB, no address and no stack", path, a.body)
	case a.header.get("Content-Length") != fmt.Sprint(len(a.body)):
		return fmt.Errorf("%s: Content-Length = %q, want %d", path, a.header.get("Content-Length"), len(a.body))
	}
	if err := json.Unmarshal(a.body, &body); err != nil {
		return fmt.Errorf("%s: body %q: %w", path, a.body, err)
	}
	names := []string{"message", "type", "code"}
	if path == "/v1/messages" {
		names = []string{"message", "type"}
		if body.Type != "error" {
			return fmt.Errorf("%s: type = %q, want error", path, body.Type)
		}
	}
	for _, name := range names {
		if v, _ := body.Error[name].(string); v == "" {
			return fmt.Errorf("%s: error.%s = %v in %s, want a text", path, name, body.Error[name], a.body)
		}
	}
	return nil
}

// logLines returns the lines that the plugin has logged for the rig's pool.
func (r *rig) logLines() []string {
	var out []string
	for _, line := range strings.Split(r.e.Log(), "\n") {
		if strings.Contains(line, `"pool":"`+r.name) {
			out = append(out, line)
		}
	}
	return out
}
