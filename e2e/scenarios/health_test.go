package scenarios

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"testing"
	"time"

	"github.com/cart-llm/cart/e2e/engine"
	"github.com/cart-llm/cart/e2e/replica"
)

// TestHealthLoop: three probes missed in a row take a replica out, one good one brings it back.
func TestHealthLoop(t *testing.T) {
	t.Parallel() // it mostly waits
	engine.Each(t, func(t *testing.T, kind engine.Kind) {
		r := start(t, kind, pool{size: 2, config: engine.Config{"health": engine.Config{"interval": "200ms", "timeout": "100ms"}}})
		sick := r.replicas[0]
		for what, fault := range map[string]replica.Fault{
			"500":      {Kind: replica.Status, Path: "/health", Status: 500},
			"redirect": {Kind: replica.Status, Path: "/health", Status: 302, Headers: map[string]string{"Location": r.replicas[1].URL() + "/health"}},
			"hang":     {Kind: replica.HangHealth},
		} {
			before := len(exchanges(sick, "/health"))
			if err := sick.SetFault(fault); err != nil {
				t.Fatal(err)
			}
			missed := func() (n int) { // those that have begun
				for _, x := range exchanges(sick, "/health")[before:] {
					if x.Status != http.StatusOK {
						n++
					}
				}
				return n
			}
			eventually(t, 10*time.Second, func() error {
				n := missed() // before the state: the next probe begins when CART has taken in the one before
				w, _ := r.state().worker(sick.URL())
				switch {
				case !w.Healthy:
					return nil
				case n > 3:
					t.Fatalf("%d probes with %s and the replica is not down, want 3", n, what)
				}
				return fmt.Errorf("with %d probes with %s the replica is not down", n, what)
			})
			if n := missed(); n < 3 {
				t.Errorf("probes with %s until the replica was down = %d, want 3", what, n)
			}
			if w, _ := r.state().worker(sick.URL()); w.Why == "" {
				t.Errorf("why in /workers of a replica down by %s is empty", what)
			}
			served := len(generations(sick))
			for i := 0; i < 10; i++ {
				r.chat(newChat(fmt.Sprintf("%s %d", what, i)))
			}
			if got := len(generations(sick)); got != served {
				t.Errorf("requests to a replica down by %s = %d, want 0", what, got-served)
			}
			if err := sick.ClearFault(); err != nil {
				t.Fatal(err)
			}
			r.waitHealthy(sick, true)
		}
	})
}

// TestHealthLoop_threeMisses: no more misses than the threshold are needed.
func TestHealthLoop_threeMisses(t *testing.T) {
	t.Parallel() // it mostly waits
	engine.Each(t, func(t *testing.T, kind engine.Kind) {
		r := start(t, kind, pool{size: 1, config: engine.Config{"health": engine.Config{"interval": "200ms", "timeout": "10s"}}})
		one := r.replicas[0]
		if err := one.SetFault(
			replica.Fault{Kind: replica.Status, Path: "/health", Status: 500, Count: 3},
			replica.Fault{Kind: replica.Slow, Path: "/health", Delay: 2 * time.Second, Count: 1}, // good, and time to look before it
		); err != nil {
			t.Fatal(err)
		}
		r.waitHealthy(one, false)
		r.waitHealthy(one, true)
	})
}

// TestHealthLoop_twoMisses: fewer misses than the threshold leave a replica in.
func TestHealthLoop_twoMisses(t *testing.T) {
	t.Parallel() // it mostly waits
	engine.Each(t, func(t *testing.T, kind engine.Kind) {
		r := start(t, kind, pool{size: 1})
		one := r.replicas[0]
		if err := one.SetFault(replica.Fault{Kind: replica.Status, Path: "/health", Status: 500, Count: 2}); err != nil {
			t.Fatal(err)
		}
		before := len(exchanges(one, "/health"))
		eventually(t, 2*time.Second, func() error {
			if w, _ := r.state().worker(one.URL()); !w.Healthy {
				t.Fatal("two missed probes took the replica out, want three to do so")
			}
			if probes := len(exchanges(one, "/health")) - before; probes < 4 {
				return fmt.Errorf("probes = %d, want 4", probes)
			}
			return nil
		})
	})
}

// waitHealthy waits until /workers shows a replica as up or down.
func (r *rig) waitHealthy(one *replica.Replica, want bool) {
	r.t.Helper()
	r.waitState(10*time.Second, func(s poolState) error {
		if w, _ := s.worker(one.URL()); w.Healthy != want {
			return fmt.Errorf("healthy of %s in /workers = %v, want %v", w.URL, w.Healthy, want)
		}
		return nil
	})
}

// TestEndpoints: /health and /workers tell the state of the pool.
func TestEndpoints(t *testing.T) {
	engine.Each(t, func(t *testing.T, kind engine.Kind) {
		r := start(t, kind, pool{size: 2, config: engine.Config{"maxLoad": 9}})
		checkHealth(t, r, 200, 2)
		c := newChat("counted")
		peer := r.chat(c).peer()
		r.chat(c)
		r.waitIdle()
		s := r.state()
		if s.Policy != "threshold" || s.Usable != 2 || len(s.Workers) != 2 || s.Tree.Nodes == 0 || s.Tree.Bytes < 2000 {
			t.Errorf("/workers = %+v, want policy threshold, 2 usable of 2 and a tree of more than 2000 bytes", s)
		}
		if s.Reasons["miss"] != 1 || s.Reasons["cache_hit"] != 1 {
			t.Errorf("reasons in /workers = %v, want one miss and one cache_hit", s.Reasons)
		}
		w, _ := s.worker(peer)
		want := workerState{URL: peer, Healthy: true, Breaker: "closed", MaxLoad: 9, Requests: 2, Hits: 1, Claims: w.Claims,
			toldState: w.toldState}
		if !reflect.DeepEqual(w, want) || w.Claims < 2000 {
			t.Errorf("/workers of the replica that served = %+v, want %+v with claims of more than 2000", w, want)
		}
		if a := r.do(request{method: http.MethodHead, path: "/health"}); a.status != 200 || len(a.body) != 0 {
			t.Errorf("HEAD /health = %d with %d bytes, want 200 with none", a.status, len(a.body))
		}

		r.replicas[0].Kill()
		r.waitHealthy(r.replicas[0], false)
		checkHealth(t, r, 200, 1)
		r.replicas[1].Kill()
		r.waitHealthy(r.replicas[1], false)
		checkHealth(t, r, 503, 0)
		if err := r.replicas[0].Restart(); err != nil {
			t.Fatal(err)
		}
		r.waitHealthy(r.replicas[0], true)
		checkHealth(t, r, 200, 1)
	})
}

func checkHealth(t *testing.T, r *rig, status, usable int) {
	t.Helper()
	a := r.get("/health")
	var got struct{ Usable *int }
	if err := json.Unmarshal(a.body, &got); err != nil || a.status != status || got.Usable == nil || *got.Usable != usable {
		t.Errorf("GET /health = %d %s, %v, want %d with usable %d", a.status, a.body, err, status, usable)
	}
}

// TestEndpointsMoved: the paths are settings, and an empty one leaves the path to the replicas.
func TestEndpointsMoved(t *testing.T) {
	engine.Each(t, func(t *testing.T, kind engine.Kind) {
		r := start(t, kind, pool{size: 1, config: engine.Config{"endpoints": engine.Config{"health": "", "workers": "/_cart/workers"}}})
		if a := r.get("/health"); a.status != 200 || a.peer() != r.replicas[0].URL() {
			t.Errorf("GET /health with that endpoint off = %d from %q, want 200 from the replica", a.status, a.peer())
		}
		if a := r.get("/workers"); a.status != 404 || a.peer() != r.replicas[0].URL() {
			t.Errorf("GET /workers with that endpoint moved = %d from %q, want 404 from the replica", a.status, a.peer())
		}
		if a := r.get("/_cart/workers"); a.status != 200 || !json.Valid(a.body) {
			t.Errorf("GET /_cart/workers = %d %s, want 200 with JSON", a.status, a.body)
		}
	})
}

// TestModelsCached: the list of models is asked once, of a replica that is well.
func TestModelsCached(t *testing.T) {
	engine.Each(t, func(t *testing.T, kind engine.Kind) {
		r := start(t, kind, pool{
			size: 2, options: replica.Options{Models: []string{"llama", "qwen"}},
			config: engine.Config{"health": engine.Config{"models": engine.Config{"interval": 0}}}, // it asks too
		})
		if err := r.replicas[0].SetFault(replica.Fault{Kind: replica.Status, Path: "*", Status: 500}); err != nil {
			t.Fatal(err)
		}
		r.waitHealthy(r.replicas[0], false)
		first := r.get("/v1/models")
		var got struct{ Data []struct{ ID string } }
		if err := json.Unmarshal(first.body, &got); err != nil || first.status != 200 || len(got.Data) != 2 || got.Data[0].ID != "llama" {
			t.Fatalf("GET /v1/models = %d %s, %v, want 200 with the replica's two models", first.status, first.body, err)
		}
		for i := 0; i < 5; i++ {
			a := r.get("/v1/models")
			if a.status != 200 || string(a.body) != string(first.body) || a.header.Get("Content-Type") != first.header.Get("Content-Type") {
				t.Errorf("GET /v1/models again = %d %s, want the first answer", a.status, a.body)
			}
		}
		if got := len(exchanges(r.replicas[1], "/v1/models")); got != 1 {
			t.Errorf("requests for the models at the replica that is well = %d, want 1", got)
		}
		if got := len(exchanges(r.replicas[0], "/v1/models")); got != 0 {
			t.Errorf("requests for the models at the replica that is down = %d, want 0", got)
		}
		// What is kept for one key is not given to another.
		a := r.do(request{path: "/v1/models", header: http.Header{"Authorization": {"Bearer other"}}})
		if got := len(exchanges(r.replicas[1], "/v1/models")); a.status != 200 || got != 2 {
			t.Errorf("GET /v1/models with another key = %d after %d requests at the replica, want 200 after 2", a.status, got)
		}
	})
}
