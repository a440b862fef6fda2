package scenarios

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cart-llm/cart/e2e/engine"
	"github.com/cart-llm/cart/e2e/replica"
)

// TestCacheSticks: each conversation stays on the replica that has its beginning, and new ones spread.
func TestCacheSticks(t *testing.T) {
	engine.Each(t, func(t *testing.T, kind engine.Kind) {
		r := start(t, kind, pool{size: 4})
		used := map[string]bool{}
		for i := 0; i < 24; i++ {
			c := newChat(fmt.Sprintf("conversation %d", i))
			first := r.chat(c)
			if first.reason() != "miss" {
				t.Errorf("reason of a new conversation = %q, want miss", first.reason())
			}
			used[first.peer()] = true
			last := first
			for turn := 2; turn <= 3; turn++ {
				c = c.grown(reply(last))
				last = r.chat(c)
				if last.peer() != first.peer() || last.reason() != "cache_hit" {
					t.Errorf("turn %d went to %s (%s), want %s (cache_hit)", turn, last.peer(), last.reason(), first.peer())
				}
			}
			seen := generations(r.at(first.peer()))
			if x := seen[len(seen)-1]; x.CachedTokens*10 < x.PromptTokens*9 {
				t.Errorf("the replica had %d of %d prompt tokens of turn 3 in its cache, want nearly all", x.CachedTokens, x.PromptTokens)
			}
		}
		// One in four million runs would put 24 new conversations on two replicas by chance.
		if len(used) < 3 {
			t.Errorf("24 new conversations went to %d of 4 replicas, want at least 3", len(used))
		}
	})
}

// TestCacheSticks_dialects: the other three endpoints route by prefix too.
func TestCacheSticks_dialects(t *testing.T) {
	content := func(i int) string { return text(fmt.Sprintf("dialect turn %d", i), 700) }
	turns := func(n int) []message {
		var out []message
		for i := 0; i < n; i++ {
			out = append(out, message{[]string{"user", "assistant"}[i%2], content(i)})
		}
		return out
	}
	joined := func(n int) string {
		var b strings.Builder
		for i := 0; i < n; i++ {
			b.WriteString(content(i))
		}
		return b.String()
	}
	bodies := map[string]func(n int) any{
		"/v1/completions": func(n int) any { return map[string]any{"model": "sim", "prompt": joined(n)} },
		"/v1/messages": func(n int) any {
			return map[string]any{"model": "sim", "max_tokens": 4, "system": content(99), "messages": turns(n)}
		},
		"/v1/responses": func(n int) any { return map[string]any{"model": "sim", "input": turns(n)} },
	}
	engine.Each(t, func(t *testing.T, kind engine.Kind) {
		r := start(t, kind, pool{size: 4})
		for path, body := range bodies {
			first := r.mustPost(path, mustJSON(t, body(1)))
			for n := 3; n <= 9; n += 2 {
				a := r.mustPost(path, mustJSON(t, body(n)))
				if a.peer() != first.peer() || a.reason() != "cache_hit" {
					t.Errorf("POST %s with %d turns went to %s (%s), want %s (cache_hit)", path, n, a.peer(), a.reason(), first.peer())
				}
			}
		}
	})
}

// TestBurstStaysTogether: equal prompts that arrive before the first of them is answered go to one replica.
func TestBurstStaysTogether(t *testing.T) {
	engine.Each(t, func(t *testing.T, kind engine.Kind) {
		r := start(t, kind, pool{size: 4, options: replica.Options{DecodeRate: 1}})
		c := newChat("burst").tokens(1000)
		first := r.hold(c)
		for i := 2; i <= 5; i++ {
			if next := r.hold(c); next.peer() != first.peer() {
				t.Errorf("request %d of the burst went to %s, want %s", i, next.peer(), first.peer())
			}
		}
	})
}

// TestSpreadByLoad: unrelated prompts that run at the same time are shared out evenly.
func TestSpreadByLoad(t *testing.T) {
	engine.Each(t, func(t *testing.T, kind engine.Kind) {
		r := start(t, kind, pool{size: 4, options: replica.Options{DecodeRate: 1}})
		for i := 0; i < 8; i++ {
			r.hold(newChat(fmt.Sprintf("unrelated %d", i)).tokens(1000))
		}
		for _, one := range r.replicas {
			if got := one.Running(); got != 2 {
				t.Errorf("Running() of a replica = %d after 8 unrelated streams on 4 replicas, want 2", got)
			}
		}
	})
}

// TestSpillOnLoad walks the thresholds: the holder may be 5 requests busier than the least loaded, not 6.
func TestSpillOnLoad(t *testing.T) {
	engine.Each(t, func(t *testing.T, kind engine.Kind) {
		r := start(t, kind, pool{size: 2, options: replica.Options{DecodeRate: 1}})
		c := newChat("popular").tokens(1000)
		first := r.hold(c)
		a, b := first.peer(), r.other(first.peer()).URL()
		steps := []struct{ peer, reason string }{
			{a, "cache_hit"}, {a, "cache_hit"}, {a, "cache_hit"}, {a, "cache_hit"}, {a, "cache_hit"}, // a had 1 to 5, b 0
			{b, "hit_overloaded"},              // a has 6
			{b, "cache_hit"}, {b, "cache_hit"}, // b holds the prompt now and is the less loaded holder
		}
		for i, want := range steps {
			got := r.hold(c)
			if got.peer() != want.peer || got.reason() != want.reason {
				t.Fatalf("request %d went to %s (%s), want %s (%s)", i+2, got.peer(), got.reason(), want.peer, want.reason)
			}
		}
		s := r.state()
		for url, load := range map[string]int{a: 6, b: 3} {
			if w, _ := s.worker(url); w.Load != load {
				t.Errorf("load of %s in /workers = %d, want %d", url, w.Load, load)
			}
		}
	})
}

// TestPolicies: the baselines do what their names say.
func TestPolicies(t *testing.T) {
	engine.Each(t, func(t *testing.T, kind engine.Kind) {
		r := start(t, kind, pool{size: 3, config: engine.Config{"policy": "roundRobin"}})
		for i := 0; i < 12; i++ {
			if a := r.chat(newChat("same")); a.reason() != "round_robin" {
				t.Errorf("reason = %q, want round_robin", a.reason())
			}
		}
		for _, one := range r.replicas {
			if got := len(generations(one)); got != 4 {
				t.Errorf("requests at a replica after 12 by roundRobin = %d, want 4", got)
			}
		}
		for policy, reason := range map[string]string{"leastLoad": "least_load", "random": "random"} {
			r.with(engine.Config{"policy": policy})
			if a := r.chat(newChat("same")); a.reason() != reason {
				t.Errorf("reason under %s = %q, want %s", policy, a.reason(), reason)
			}
			if got := r.state().Policy; got != policy {
				t.Errorf("policy in /workers = %q, want %s", got, policy)
			}
		}
	})
}

// TestTwoRoutersOnePool: routers that share the middleware share its tree and its loads.
func TestTwoRoutersOnePool(t *testing.T) {
	engine.Each(t, func(t *testing.T, kind engine.Kind) {
		r := start(t, kind, pool{size: 4, options: replica.Options{DecodeRate: 5}})
		r.setup.Routers["second"] = engine.Router{Host: "second.test", Middleware: "cart"}
		r.reload()
		for i := 0; i < 8; i++ {
			c := newChat(fmt.Sprintf("shared %d", i)).tokens(1)
			first := r.chat(c)
			second := r.do(request{method: "POST", path: "/v1/chat/completions", host: "second.test", body: c.body()})
			if second.peer() != first.peer() || second.reason() != "cache_hit" {
				t.Errorf("the second router sent the prompt to %s (%s), want %s (cache_hit)", second.peer(), second.reason(), first.peer())
			}
		}
		h := r.hold(newChat("running").tokens(1000))
		a := r.do(request{path: "/workers", host: "second.test"})
		var s poolState
		if err := json.Unmarshal(a.body, &s); err != nil {
			t.Fatalf("GET /workers of the second router: %v in %s", err, a.body)
		}
		if w, _ := s.worker(h.peer()); w.Load != 1 {
			t.Errorf("load of %s seen through the second router = %d, want 1", h.peer(), w.Load)
		}
		h.release()
		r.waitIdle()
	})
}

// TestMaxLoadRefuses: at maxLoad a routed request gets 503, everything else still passes.
func TestMaxLoadRefuses(t *testing.T) {
	engine.Each(t, func(t *testing.T, kind engine.Kind) {
		r := start(t, kind, pool{size: 2, options: replica.Options{DecodeRate: 1}, config: engine.Config{"maxLoad": 2}})
		var holds []*held
		for i := 0; i < 4; i++ {
			holds = append(holds, r.hold(newChat(fmt.Sprintf("full %d", i)).tokens(1000)))
		}
		began := time.Now()
		a := r.post("/v1/chat/completions", newChat("one too many").body())
		if a.status != 503 || a.header.Get("Retry-After") == "" {
			t.Errorf("POST with all replicas full = %d, Retry-After %q, want 503 with one", a.status, a.header.Get("Retry-After"))
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("the refusal took %v, want it at once", took)
		}
		checkOpenAIError(t, a)
		if a := r.post("/tokenize", []byte(`{"prompt":"some text"}`)); a.status != 200 {
			t.Errorf("POST /tokenize with all replicas full = %d %s, want 200", a.status, a.body)
		}
		if a := r.get("/v1/models"); a.status != 200 {
			t.Errorf("GET /v1/models with all replicas full = %d %s, want 200", a.status, a.body)
		}
		for _, h := range holds {
			h.release()
		}
		r.waitIdle()
		r.mustPost("/v1/chat/completions", newChat("after").tokens(1).body())
	})
}

func mustJSON(t *testing.T, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
