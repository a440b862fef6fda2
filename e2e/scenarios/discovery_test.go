package scenarios

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cart-llm/cart/e2e/engine"
)

// sourceAPI stands for Traefik's API with one service, vllm@file.
type sourceAPI struct {
	*httptest.Server
	list    atomic.Pointer[[]string]
	trouble atomic.Pointer[http.HandlerFunc] // answers in its place; nil = none
}

func startAPI(t *testing.T, urls ...string) *sourceAPI {
	t.Helper()
	a := &sourceAPI{}
	a.set(urls...)
	a.Server = httptest.NewServer(http.HandlerFunc(a.serve))
	t.Cleanup(a.Close)
	return a
}

func (a *sourceAPI) set(urls ...string) { a.list.Store(&urls) }

func (a *sourceAPI) serve(w http.ResponseWriter, r *http.Request) {
	if trouble := a.trouble.Load(); trouble != nil {
		(*trouble)(w, r)
		return
	}
	servers := []map[string]any{}
	for _, url := range *a.list.Load() {
		servers = append(servers, map[string]any{"url": url})
	}
	_ = json.NewEncoder(w).Encode(map[string]any{
		"name": "vllm@file", "provider": "file", "type": "loadbalancer", "status": "enabled",
		"loadBalancer": map[string]any{"servers": servers, "passHostHeader": true},
	})
}

// troubles are ways in which an API says nothing of a service.
var troubles = []struct {
	what   string
	answer http.HandlerFunc
	says   string // in /workers
}{
	{"refuses access", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(401) }, "401"},
	{"does not know it", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "404 page not found", 404) }, "404"},
	{"is broken", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }, "500"},
	{"talks nonsense", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>") }, "no service"},
	{"stops half-way", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "1000")
		fmt.Fprint(w, `{"name":"vllm@file"`)
	}, "half an answer"},
	{"hangs up", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "no answer"},
}

// TestDiscoveryFollowsTheSource: replicas come and go as the source says, whoever stays keeps all it has, and no trouble
// with the source costs a request.
func TestDiscoveryFollowsTheSource(t *testing.T) {
	engine.Each(t, func(t *testing.T, kind engine.Kind) {
		var urls []string
		tickers := map[string]*ticker{}
		for range 3 {
			one := startTicker(t)
			tickers[one.URL] = one
			urls = append(urls, one.URL)
		}
		stays, goes, comes := urls[0], urls[1], urls[2]
		api := startAPI(t, stays, goes)
		r := start(t, kind, pool{config: engine.Config{"discovery": engine.Config{
			"service": "vllm@file", "interval": "100ms", "api": engine.Config{"address": api.URL},
		}}})
		r.waitListed(stays, goes)
		kept, moved := r.promptAt(stays), r.promptAt(goes)

		crowd := r.crowd(3)
		h := r.hold(moved.tokens(60))
		if h.peer() != goes {
			t.Fatalf("a stream went to %s, want %s", h.peer(), goes)
		}
		api.set(stays, comes)
		r.waitUsed(tickers[comes])
		r.waitListed(stays, comes)
		r.waitArrived(goes, 1)
		before := tickers[goes].requests.Load()
		for range 5 {
			r.chat(moved)
		}
		checkTicks(t, h, 60)
		if got := tickers[goes].requests.Load(); got != before {
			t.Errorf("requests that reached the replica after its removal = %d, want 0", got-before)
		}

		for i, trouble := range troubles {
			api.trouble.Store(&trouble.answer)
			r.waitState(10*time.Second, func(s poolState) error {
				if s.Discovery.State != "failing" || !strings.Contains(s.Discovery.Error, trouble.says) {
					return fmt.Errorf("the source %s, and /workers says %+v", trouble.what, s.Discovery)
				}
				return nil
			})
			r.with(engine.Config{"maxLoad": 30 + i}) // the list is kept over a reload
			if got := r.listed(); !slices.Equal(got, sorted(stays, comes)) {
				t.Errorf("replicas while the source %s = %q, want %q", trouble.what, got, sorted(stays, comes))
			}
		}
		api.trouble.Store(nil)
		for i := range 10 {
			if i%2 == 0 {
				api.set(stays)
			} else {
				api.set(comes, stays)
			}
			time.Sleep(50 * time.Millisecond)
		}
		r.waitListed(stays, comes)
		if a := r.chat(kept); a.peer() != stays || a.reason() != "cache_hit" {
			t.Errorf("a prompt known before it all went to %s (%s), want %s (cache_hit)", a.peer(), a.reason(), stays)
		}
		crowd.stop()
		r.waitIdle()

		api.set()
		eventually(t, 10*time.Second, func() error {
			if a := r.post("/v1/chat/completions", kept.body()); a.status != 503 || a.header.Get("Retry-After") == "" {
				return fmt.Errorf("POST without a replica = %d, Retry-After %q, want 503 with one", a.status, a.header.Get("Retry-After"))
			}
			return nil
		})
		api.set(stays)
		r.waitListed(stays)
		r.chat(kept)
	})
}

// waitListed waits until these are the replicas, and none is about to leave.
func (r *rig) waitListed(urls ...string) {
	r.t.Helper()
	r.waitState(10*time.Second, func(s poolState) error {
		if got := listedIn(s); !slices.Equal(got, sorted(urls...)) || len(s.Discovery.Leaving) > 0 {
			return fmt.Errorf("replicas = %q, leaving %q, want %q: %+v", got, s.Discovery.Leaving, sorted(urls...), s.Discovery)
		}
		return nil
	})
}

// waitUsed waits until the ticker gets another request, and sends some in the meantime.
func (r *rig) waitUsed(one *ticker) (took time.Duration) {
	r.t.Helper()
	before, n := one.requests.Load(), 0
	return eventually(r.t, 10*time.Second, func() error {
		n++
		r.chat(newChat(fmt.Sprintf("is anybody new there %d", n)).tokens(1))
		if one.requests.Load() == before {
			return fmt.Errorf("%d requests and none to %s: %+v", n, one.URL, r.state())
		}
		return nil
	})
}

func (r *rig) listed() []string {
	r.t.Helper()
	return listedIn(r.state())
}

// listedIn returns the replicas that are not draining, sorted.
func listedIn(s poolState) []string {
	out := []string{}
	for _, w := range s.Workers {
		if !w.Draining {
			out = append(out, w.URL)
		}
	}
	return sorted(out...)
}

func sorted(urls ...string) []string {
	out := slices.Clone(urls)
	slices.Sort(out)
	return out
}

// TestDiscoveryByName: each address of a name is a replica, and the name is what it is called by.
func TestDiscoveryByName(t *testing.T) {
	engine.Each(t, func(t *testing.T, kind engine.Kind) {
		r := start(t, kind, pool{size: 1, config: noProbes})
		one := r.replicas[0]
		_, port, err := net.SplitHostPort(strings.TrimPrefix(one.URL(), "http://"))
		if err != nil {
			t.Fatal(err)
		}
		r.with(engine.Config{
			"workers":   []any{},
			"discovery": engine.Config{"dns": "http://localhost:" + port, "interval": "200ms"},
		})
		r.waitState(10*time.Second, func(s poolState) error {
			if _, ok := s.worker(one.URL()); !ok || s.Discovery.State != "ok" {
				return fmt.Errorf("replicas = %+v, %+v, want %s found", s.Workers, s.Discovery, one.URL())
			}
			return nil
		})
		for i := range 5 {
			// localhost may be ::1 as well, where nobody listens.
			if a := r.chat(newChat(fmt.Sprintf("by name %d", i))); a.peer() != one.URL() {
				t.Errorf("x-routed-peer = %q, want %q", a.peer(), one.URL())
			}
		}
		for _, x := range generations(one) {
			if want := "localhost:" + port; x.Host != want {
				t.Errorf("Host at the replica = %q, want %q", x.Host, want)
			}
		}
		r.with(engine.Config{"discovery": engine.Config{"dns": "http://nobody.invalid:" + port}})
		r.waitState(20*time.Second, func(s poolState) error {
			if s.Discovery.State != "failing" {
				return fmt.Errorf("with a name that nobody has /workers says %+v", s.Discovery)
			}
			return nil
		})
		if a := r.chat(newChat("the former list stays")); a.peer() != one.URL() {
			t.Errorf("x-routed-peer = %q, want %q", a.peer(), one.URL())
		}
	})
}
