package scenarios

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cart-llm/cart/e2e/engine"
	"github.com/cart-llm/cart/e2e/replica"
)

// TestCost_instancesAgree: two pools that know nothing of each other, as those of two Traefik processes, send a conversation to
// the same replica, so that its second turn finds its first one cached.
func TestCost_instancesAgree(t *testing.T) {
	engine.Each(t, func(t *testing.T, kind engine.Kind) {
		r := start(t, kind, pool{size: 4, config: engine.Config{"policy": "cost", "cost": engine.Config{"instances": 2}}})
		r.setup.Middlewares["second"] = r.config
		r.setup.Routers["second"] = engine.Router{Host: "second.test", Middleware: "second"}
		r.reload()
		used := map[string]bool{}
		for i := 0; i < 24; i++ {
			c := newChat(fmt.Sprintf("conversation %d", i))
			first := r.chat(c)
			if first.reason() != "placed" {
				t.Errorf("reason of a new conversation = %q, want placed", first.reason())
			}
			used[first.peer()] = true
			c = c.grown(reply(first))
			second := r.do(request{method: "POST", path: "/v1/chat/completions", host: "second.test", body: c.body()})
			if second.peer() != first.peer() || second.reason() != "placed" {
				t.Errorf("turn 2 through the second router went to %s (%s), want %s (placed)", second.peer(), second.reason(), first.peer())
			}
			seen := generations(r.at(first.peer()))
			if x := seen[len(seen)-1]; x.CachedTokens*10 < x.PromptTokens*8 {
				t.Errorf("the replica had %d of %d prompt tokens of turn 2 in its cache, want nearly all", x.CachedTokens, x.PromptTokens)
			}
			if third := r.chat(c.grown(reply(second))); third.peer() != first.peer() || third.reason() != "cache_hit" {
				t.Errorf("turn 3 went to %s (%s), want %s (cache_hit)", third.peer(), third.reason(), first.peer())
			}
		}
		if len(used) < 3 {
			t.Errorf("24 new conversations went to %d of 4 replicas, want at least 3", len(used))
		}
	})
}

// TestCost_leavesAQueue: what a replica has still to compute counts until its answer begins, and drives others away; when it is
// gone, they come back.
func TestCost_leavesAQueue(t *testing.T) {
	engine.Each(t, func(t *testing.T, kind engine.Kind) {
		r := start(t, kind, pool{size: 2, options: replica.Options{PrefillRate: 1000}, config: engine.Config{"policy": "cost"}})
		c := newChat("short")
		first := r.chat(c)
		a, b := first.peer(), r.other(first.peer()).URL()
		long := r.hold(c.grown(text("a document", 200_000))) // takes its replica 50 s
		if long.peer() != a || long.reason() != "cache_hit" {
			t.Fatalf("the long turn went to %s (%s), want %s (cache_hit)", long.peer(), long.reason(), a)
		}
		if w, _ := r.state().worker(a); w.Waiting != 1 || w.Queue < 190_000 {
			t.Errorf("/workers shows %d waiting on %s with %d characters, want 1 with nearly 200,000", w.Waiting, a, w.Queue)
		}
		c = c.grown("yes")
		if got := r.chat(c); got.peer() != b || got.reason() != "hit_overloaded" {
			t.Errorf("a short turn behind the long one went to %s (%s), want %s (hit_overloaded)", got.peer(), got.reason(), b)
		}
		long.release()
		r.waitState(10*time.Second, func(s poolState) error {
			if w, _ := s.worker(a); w.Waiting != 0 || w.Queue != 0 {
				return fmt.Errorf("/workers shows %d waiting on %s with %d characters after they were given up, want none", w.Waiting, a, w.Queue)
			}
			return nil
		})
	})
}

// TestShadow: a policy that only watches is counted and changes nothing, until it is let loose.
func TestShadow(t *testing.T) {
	engine.Each(t, func(t *testing.T, kind engine.Kind) {
		for _, policy := range []string{"threshold", "cost"} {
			r := start(t, kind, pool{size: 2, config: engine.Config{"policy": policy, "shadow": true}})
			c := newChat("watched " + policy)
			used := map[string]bool{}
			for i := 0; i < 30; i++ {
				got := r.chat(c)
				if got.reason() != "shadow" {
					t.Errorf("%s: reason = %q, want shadow", policy, got.reason())
				}
				used[got.peer()] = true
			}
			if len(used) != 2 {
				t.Errorf("%s: a prompt went to %d of 2 idle replicas, want both", policy, len(used))
			}
			s := r.state()
			if s.Shadow == nil || s.Shadow.Decisions != 30 || s.Shadow.Reasons["cache_hit"] != 29 || s.Shadow.CouldKnow < s.Shadow.Known {
				t.Errorf("%s: shadow in /workers = %+v, want 30 decisions, 29 of them hits", policy, s.Shadow)
			}
			metrics := string(r.get("/metrics").body)
			if !strings.Contains(metrics, `cart_shadow_decisions_total{pool="`) {
				t.Errorf("%s: /metrics has no shadow decisions", policy)
			}
			r.with(engine.Config{"shadow": false})
			if got := r.chat(c); got.reason() != "cache_hit" {
				t.Errorf("%s: reason when it is let loose = %q, want cache_hit", policy, got.reason())
			}
			if s := r.state(); s.Shadow != nil {
				t.Errorf("%s: shadow in /workers = %+v, want none", policy, s.Shadow)
			}
		}
	})
}

// TestClaimsFade: what a replica's cache cannot hold any more is not expected there.
func TestClaimsFade(t *testing.T) {
	engine.Each(t, func(t *testing.T, kind engine.Kind) {
		r := start(t, kind, pool{size: 2})
		workers := workersOf(r.urls()...)
		for i := range workers {
			workers[i].(engine.Config)["cacheTokens"] = 2000 // of 4 characters: three and a half of these chats
		}
		r.with(engine.Config{"workers": workers})
		c := newChat("old")
		first := r.chat(c)
		c = c.grown(reply(first))
		if got := r.chat(c); got.peer() != first.peer() || got.reason() != "cache_hit" {
			t.Errorf("the second turn went to %s (%s), want %s (cache_hit)", got.peer(), got.reason(), first.peer())
		}
		for i := 0; i < 60; i++ { // one in ten million runs gives either replica less than four of them by chance
			r.chat(newChat(fmt.Sprintf("newer %d", i)))
		}
		if got := r.chat(c); got.reason() != "miss" {
			t.Errorf("reason of what the caches have no room for any more = %q, want miss", got.reason())
		}
	})
}
