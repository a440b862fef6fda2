package cases

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cart-llm/cart/e2e/engine"
)

// Checks that many of the cases in Go share.

// text returns n characters of words. Two seeds have no beginning in common.
func text(seed uint64, n int) string {
	random := rand.New(rand.NewPCG(seed, 1))
	var b strings.Builder
	fmt.Fprintf(&b, "%x-", random.Uint64())
	for b.Len() < n {
		fmt.Fprintf(&b, "%x ", random.Uint32()>>(random.Uint32()%24))
	}
	return b.String()[:n]
}

// quoted is a text as a JSON string.
func quoted(text string) string {
	out, _ := json.Marshal(text)
	return string(out)
}

// chat is a chat request with one message of a user.
func chat(content string) query {
	return post("/v1/chat/completions", `{"model":"m1","messages":[{"role":"user","content":`+quoted(content)+`}]}`)
}

// with returns the query with another header.
func (q query) with(name, value string) query {
	q.header = append(append(header{}, q.header...), [2]string{name, value})
	return q
}

// over sends a request over HTTP/1.1 or HTTP/2.
func (r *rig) over(protocol string, q query) reply {
	r.t.Helper()
	if protocol == "HTTP/2" {
		return r.do2(context.Background(), q)
	}
	return r.do(q)
}

var hopByHop = map[string]bool{
	"connection": true, "keep-alive": true, "proxy-authorization": true, "te": true, "transfer-encoding": true, "upgrade": true,
	"http2-settings": true, "expect": true,
}

// verbatim sends a request and checks that one replica, and only one, got it as it was, and the client the replica's answer.
func (r *rig) verbatim(what string, q query) (reply, *exchange) {
	r.t.Helper()
	r.forget()
	return r.checkVerbatim(what, q, r.do(q))
}

func (r *rig) checkVerbatim(what string, q query, a reply) (reply, *exchange) {
	r.t.Helper()
	hits := r.hits()
	if a.err != nil || len(hits) != 1 {
		r.t.Fatalf("%s: %v; %d requests reached the replicas, want 1", what, &a, len(hits))
	}
	x := hits[0]
	if x.method != q.method || x.target != q.target {
		r.t.Errorf("%s: the replica saw %s %s, want %s %s", what, x.method, x.target, q.method, q.target)
	}
	if got := x.received(); !bytes.Equal(got, q.sent()) {
		r.t.Errorf("%s: the replica got the body %q, want %q", what, cut(got), cut(q.sent()))
	}
	for _, f := range q.header {
		if want := q.header.values(f[0]); !hopByHop[strings.ToLower(f[0])] && !sameSet(x.header.values(f[0]), want) {
			r.t.Errorf("%s: the replica saw %s = %q, want %q", what, f[0], x.header.values(f[0]), want)
		}
	}
	x.mu.Lock()
	sent := string(x.sent)
	x.mu.Unlock()
	if q.method != "HEAD" && string(a.body) != sent {
		r.t.Errorf("%s: the client got %q, want %q", what, cut(a.body), cut([]byte(sent)))
	}
	if a.peer() != x.replica.url() {
		r.t.Errorf("%s: x-routed-peer = %q, want %q", what, a.header.values("x-routed-peer"), x.replica.url())
	}
	return a, x
}

// hit checks that a request goes, unchanged, to the replica that is known to have its beginning; miss that it goes to
// another one. Both need lean.
func (r *rig) hit(what string, q query, m *mock) reply {
	r.t.Helper()
	a, x := r.verbatim(what, q)
	if a.status != 200 || x.replica != m {
		r.t.Errorf("%s: %d, %s (match %s), want a hit", what, a.status, a.header.get("x-cart-reason"), a.header.get("x-cart-match"))
	}
	return a
}

func (r *rig) miss(what string, q query, m *mock) reply {
	r.t.Helper()
	a, x := r.verbatim(what, q)
	if a.status != 200 || x.replica == m {
		r.t.Errorf("%s: %d, %s (match %s), want a miss", what, a.status, a.header.get("x-cart-reason"), a.header.get("x-cart-match"))
	}
	return a
}

// match is the share of the prompt that was known.
func (a *reply) match() float64 {
	share, err := strconv.ParseFloat(a.header.get("x-cart-match"), 64)
	if err != nil {
		return -1
	}
	return share
}

// unkeyed checks that an answer's request was routed without a key.
func (r *rig) unkeyed(what string, a reply) {
	r.t.Helper()
	if why := a.header.get("x-cart-reason"); why != "empty_text" {
		r.t.Errorf("%s: reason %q, want empty_text", what, why)
	}
}

// untouched checks that no breaker and no retry has come of what was sent so far.
func (r *rig) untouched() {
	r.t.Helper()
	r.settled()
	s := r.state()
	for _, w := range s.Workers {
		if w.Failures != 0 || w.Breaker != "closed" || w.PushedBack {
			r.t.Errorf("state of %s = %d failures, breaker %s, pushed back %v, want none, closed, no", w.URL, w.Failures, w.Breaker, w.PushedBack)
		}
	}
	if s.Retries != 0 {
		r.t.Errorf("retries = %d, want 0", s.Retries)
	}
}

// failures is the number of failures charged to all replicas.
func (s workersState) failures() int {
	sum := 0
	for _, w := range s.Workers {
		sum += w.Failures
	}
	return sum
}

// refusedHere checks an answer that CART must have made itself, as JSON in the dialect of the path, and that no replica saw
// the request.
func (r *rig) refusedHere(what string, q query, a reply, statuses ...int) {
	r.t.Helper()
	good := false
	for _, s := range statuses {
		good = good || a.status == s
	}
	if a.err != nil || !good {
		r.t.Errorf("%s: %v, want %v", what, &a, statuses)
		return
	}
	if n := len(r.hits()); n != 0 {
		r.t.Errorf("%s: %d requests reached the replicas, want 0", what, n)
	}
	if a.peer() != "" {
		r.t.Errorf("%s: x-routed-peer = %q, want none", what, a.peer())
	}
	var body struct {
		Type  string
		Error struct{ Type, Message, Code string }
	}
	err := json.Unmarshal(a.body, &body)
	anthropic := strings.HasPrefix(q.target, "/v1/messages")
	if err != nil || body.Error.Type == "" || body.Error.Message == "" || (body.Type == "error") != anthropic ||
		a.header.get("Content-Type") != "application/json" {
		r.t.Errorf("%s: %s %q, want an error in JSON, in the dialect of the path", what, a.header.get("Content-Type"), cut(a.body))
	}
}

// logged returns the lines of the engine's log about this rig that have a text in them.
func (r *rig) logged(text string) []string {
	var out []string
	for _, line := range strings.Split(r.e.Log(), "\n") {
		if strings.Contains(line, r.name) && strings.Contains(line, text) {
			out = append(out, line)
		}
	}
	return out
}

// marked returns the exchange of the request that carries a mark, which tells those apart that run side by side.
func (r *rig) marked(mark string) *exchange {
	r.t.Helper()
	var found *exchange
	for _, x := range r.hits() {
		if x.header.get("X-Mark") == mark {
			if found != nil {
				r.t.Fatalf("%s: more than one request reached the replicas", mark)
			}
			found = x
		}
	}
	if found == nil {
		r.t.Fatalf("%s: the request reached no replica", mark)
	}
	return found
}

// plain is a rig whose host leads to a replica through Traefik's own service. Only the engine Traefik has it.
func (s *stage) plain(t *testing.T, m *mock) *rig {
	t.Helper()
	r := s.rig(t)
	r.name += "-plain"
	r.host = r.name + ".test"
	r.mocks = []*mock{m}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.setup.Routers[r.name] = engine.Router{Host: r.host, Plain: m.url()}
	t.Cleanup(func() { s.put(t, r.name, nil) })
	if err := s.e.Reload(s.setup); err != nil {
		t.Fatalf("Reload() = %v", err)
	}
	return r
}

// files is what the engine Traefik has beyond the others.
type files interface {
	Write(name string, content any) error
	WaitApplied(ctx context.Context) error
	Remove(name string) error
	Pid() int
}

// before gives the rig another host, whose router has a middleware of Traefik before the service or middleware that the
// rig's own router leads to. Only the engine Traefik has it.
func (r *rig) before(name string, config map[string]any) *rig {
	r.t.Helper()
	out := *r
	out.name = r.name + "-" + name
	out.host = out.name + ".test"
	chain, service := []string{out.name}, "noop@internal"
	if r.config != nil {
		chain = append(chain, r.name)
	} else {
		service = r.name
	}
	router := map[string]any{"rule": "Host(`" + out.host + "`)", "middlewares": chain, "service": service, "entryPoints": []string{"web"}}
	secure := map[string]any{
		"rule": router["rule"], "middlewares": chain, "service": service, "entryPoints": []string{"websecure"}, "tls": map[string]any{},
	}
	f := r.e.(files)
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	file := out.name + ".yml"
	err := f.Write(file, map[string]any{"http": map[string]any{
		"routers":     map[string]any{out.name: router, out.name + "-tls": secure},
		"middlewares": map[string]any{out.name: map[string]any{name: config}},
	}})
	if err == nil {
		err = f.WaitApplied(context.Background())
	}
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		r.s.mu.Lock()
		defer r.s.mu.Unlock()
		if err := f.Remove(file); err != nil {
			r.t.Error(err)
		}
	})
	return &out
}

// raw sends bytes as they are and returns what comes back until the server closes, which the bytes should ask for.
func (r *rig) raw(text string) string {
	r.t.Helper()
	w := r.dial()
	w.conn.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := w.conn.Write([]byte(text)); err != nil {
		r.t.Fatal(err)
	}
	var b bytes.Buffer
	_, err := b.ReadFrom(w.conn)
	if err != nil && b.Len() == 0 {
		r.t.Fatalf("no answer: %v", err)
	}
	return b.String()
}

// memory is the bytes that the engine's process holds: exactly for what runs in this process, the resident set otherwise.
func (r *rig) memory() int {
	r.t.Helper()
	f, ok := r.e.(files)
	if !ok {
		return heap()
	}
	status, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(f.Pid()), "status"))
	if err != nil {
		r.t.Skipf("the memory of a process cannot be read here: %v", err)
	}
	for _, line := range strings.Split(string(status), "\n") {
		if value, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kib, err := strconv.Atoi(strings.Fields(value)[0])
			if err != nil {
				r.t.Fatal(err)
			}
			return kib << 10
		}
	}
	r.t.Fatal("the process has no VmRSS")
	return 0
}

// heap is what this process has allocated and still uses.
func heap() int {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}
