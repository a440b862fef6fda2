package scenarios

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/cart-llm/cart/e2e/engine"
)

// badConfigs are mistakes, each with what its error has to name: the key, the value and what is allowed.
var badConfigs = []struct {
	what   string
	change engine.Config
	names  []string
}{
	{"unknown key", engine.Config{"polcy": "threshold"}, []string{"polcy", "threshold", "no such key"}},
	{"unknown key below", engine.Config{"cache": engine.Config{"treshold": 0.5}}, []string{"cache.treshold", "0.5", "no such key"}},
	{"unknown key of a worker", engine.Config{"workers": []any{engine.Config{"url": "http://h", "weight": 3}}},
		[]string{"workers[0].weight", "3", "no such key"}},
	{"bad URL", engine.Config{"workers": workersOf("vllm-0:8000")}, []string{"workers[0].url", "vllm-0:8000", "http://"}},
	{"no URL", engine.Config{"workers": []any{engine.Config{"maxLoad": 3}}}, []string{"workers[0].url", `""`, "http://"}},
	{"duplicate URL", engine.Config{"workers": workersOf("http://h:1", "http://h:1/")}, []string{"workers[1].url", "http://h:1", "once"}},
	{"bad duration", engine.Config{"health": engine.Config{"interval": "abc"}}, []string{"health.interval", "abc", "10s"}},
	{"threshold 2", engine.Config{"cache": engine.Config{"threshold": 2}}, []string{"cache.threshold", "2", "0 to 1"}},
	{"empty endpoint", engine.Config{"health": engine.Config{"endpoint": ""}}, []string{"health.endpoint", `""`, "/health"}},
	{"unknown policy", engine.Config{"policy": "fastest"}, []string{"policy", "fastest", "leastLoad"}},
	{"not a number", engine.Config{"maxLoad": "many"}, []string{"maxLoad", "many", "whole number"}},
	{"two mistakes", engine.Config{"maxLoad": 0, "logLevel": "loud"}, []string{"maxLoad", "logLevel", "loud", "debug"}},
}

// TestBadConfig: a mistake disables the router that uses the middleware and no other one, says what is wrong, and the next
// good configuration heals it with everything it knew.
func TestBadConfig(t *testing.T) {
	engine.Each(t, func(t *testing.T, kind engine.Kind) {
		r := start(t, kind, pool{size: 4})
		r.setup.Middlewares["fragile"] = r.config
		r.setup.Routers["fragile"] = engine.Router{Host: "fragile.test", Middleware: "fragile"}
		// So that a request for the disabled router does not fall to the other one.
		r.setup.Routers["cart"] = engine.Router{Host: "good.test", Middleware: "cart"}
		r.reload()
		ask := func(host string) answer {
			return r.do(request{method: "POST", path: "/v1/chat/completions", host: host, body: newChat("kept").body()})
		}
		home := ask("fragile.test").peer()
		for _, bad := range badConfigs {
			r.setup.Middlewares["fragile"] = engine.Merged(r.config, bad.change)
			r.reload()
			why := r.e.MiddlewareError("fragile")
			for _, name := range bad.names {
				if !strings.Contains(why, name) {
					t.Errorf("error for %s = %q, want %q in it", bad.what, why, name)
				}
			}
			if a := ask("fragile.test"); a.status != http.StatusNotFound {
				t.Errorf("POST to the router with %s = %d %s, want 404", bad.what, a.status, a.body)
			}
			if a := ask("good.test"); a.status != http.StatusOK {
				t.Errorf("POST to the other router beside %s = %d %s, want 200", bad.what, a.status, a.body)
			}
			if why := r.e.MiddlewareError("cart"); why != "" {
				t.Errorf("error of the other middleware beside %s = %q, want none", bad.what, why)
			}
		}
		r.setup.Middlewares["fragile"] = r.config
		r.reload()
		if why := r.e.MiddlewareError("fragile"); why != "" {
			t.Errorf("error after the configuration is good again = %q, want none", why)
		}
		if a := ask("fragile.test"); a.status != http.StatusOK || a.peer() != home || a.reason() != "cache_hit" {
			t.Errorf("POST after the configuration is good again = %d from %s (%s), want 200 from %s (cache_hit)", a.status, a.peer(), a.reason(), home)
		}
	})
}

// TestBadConfigDuringStream: a stream of a router that a mistake disables goes on.
func TestBadConfigDuringStream(t *testing.T) {
	engine.Each(t, func(t *testing.T, kind engine.Kind) {
		one := startTicker(t)
		r := start(t, kind, pool{config: engine.Config{"workers": workersOf(one.URL)}})
		h := r.hold(newChat("running").tokens(30))
		good := r.config
		r.with(engine.Config{"maxLoad": "many"})
		if r.e.MiddlewareError("cart") == "" {
			t.Error("error of the middleware with a mistake = none, want one")
		}
		checkTicks(t, h, 30)
		r.config = good
		r.with(nil)
		r.waitIdle()
	})
}

// TestBadConfigForLong: the pool of a router that a mistake disables outlasts the 10 s that it outlasts its last handler.
// One engine is enough: it is a matter of counting handlers, and takes its time.
func TestBadConfigForLong(t *testing.T) {
	t.Parallel() // it mostly waits
	if !engine.Selected(engine.Compiled) {
		t.Skip("runs on the engine compiled only")
	}
	r := start(t, engine.Compiled, pool{size: 4})
	c := newChat("kept for long")
	home := r.chat(c).peer()
	good := r.config
	r.with(engine.Config{"maxLoad": "many"})
	time.Sleep(11 * time.Second)
	r.config = good
	r.with(nil)
	if a := r.chat(c); a.peer() != home || a.reason() != "cache_hit" {
		t.Errorf("POST after 11 s of a bad configuration went to %s (%s), want %s (cache_hit)", a.peer(), a.reason(), home)
	}
}

// TestCredentialsStayHidden: an error does not show the password in an address.
func TestCredentialsStayHidden(t *testing.T) {
	engine.Each(t, func(t *testing.T, kind engine.Kind) {
		r := start(t, kind, pool{size: 1})
		r.with(engine.Config{"workers": workersOf("http://user:secret@host:port")})
		if why := r.e.MiddlewareError("cart"); why == "" || strings.Contains(why, "secret") {
			t.Errorf("error for a bad address with a password = %q, want one without the password", why)
		}
	})
}

// TestNoWorkers: an empty list is no mistake; requests get 503 until there is a replica.
func TestNoWorkers(t *testing.T) {
	engine.Each(t, func(t *testing.T, kind engine.Kind) {
		r := start(t, kind, pool{size: 1})
		r.with(engine.Config{"workers": []any{}})
		if why := r.e.MiddlewareError("cart"); why != "" {
			t.Fatalf("error for an empty list of workers = %q, want none", why)
		}
		if a := r.post("/v1/chat/completions", newChat("x").body()); a.status != 503 || a.header.Get("Retry-After") == "" {
			t.Errorf("POST without workers = %d, Retry-After %q, want 503 with one", a.status, a.header.Get("Retry-After"))
		}
		if a := r.get("/health"); a.status != 503 {
			t.Errorf("GET /health without workers = %d, want 503", a.status)
		}
		r.with(engine.Config{"workers": workersOf(r.urls()...)})
		r.chat(newChat("x"))
	})
}
