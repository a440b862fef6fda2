// Package scenarios runs whole stories against the plugin on every engine: simulated replicas behind it, clients before.
package scenarios

import (
	"encoding/json"
	"fmt"
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
	setup    engine.Setup
	host     string // of requests that name none
}

// pool tells how a rig is built.
type pool struct {
	size    int
	options replica.Options
	config  engine.Config // merged over the rig's own
}

// plainConfig is what the configurations of all rigs have in common.
var plainConfig = engine.Config{
	"logLevel": "error",
	"health":   engine.Config{"interval": "100ms", "timeout": "1s"},
	"proxy":    engine.Config{"addDecisionHeaders": true, "initialBackoff": "10ms"},
}

// start starts everything and leaves the rig ready for requests.
func start(t *testing.T, kind engine.Kind, p pool) *rig {
	t.Helper()
	r := &rig{t: t}
	for i := 0; i < p.size; i++ {
		one, err := replica.Start(p.options)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(one.Kill)
		r.replicas = append(r.replicas, one)
	}
	r.config = engine.Merged(engine.Merged(plainConfig, engine.Config{"workers": workersOf(r.urls()...)}), p.config)
	r.setup = engine.Setup{
		Middlewares: map[string]engine.Config{"cart": r.config},
		Routers:     map[string]engine.Router{"cart": {Middleware: "cart"}},
	}
	r.e = engine.Start(t, kind, r.setup)
	if why := r.e.MiddlewareError("cart"); why != "" {
		t.Fatalf("the middleware cannot be built: %s", why)
	}
	return r
}

// reload puts the rig's setup in force.
func (r *rig) reload() {
	r.t.Helper()
	if err := r.e.Reload(r.setup); err != nil {
		r.t.Fatalf("Reload() = %v", err)
	}
}

// with reloads the middleware "cart" with a change to its configuration.
func (r *rig) with(change engine.Config) {
	r.t.Helper()
	r.config = engine.Merged(r.config, change)
	r.setup.Middlewares["cart"] = r.config
	r.reload()
}

func (r *rig) urls() []string {
	var out []string
	for _, one := range r.replicas {
		out = append(out, one.URL())
	}
	return out
}

// at returns the replica with an address, which the test must know.
func (r *rig) at(url string) *replica.Replica {
	r.t.Helper()
	for _, one := range r.replicas {
		if one.URL() == url {
			return one
		}
	}
	r.t.Fatalf("there is no replica %q among %v", url, r.urls())
	return nil
}

// other returns a replica that is not the one with that address.
func (r *rig) other(url string) *replica.Replica {
	r.t.Helper()
	for _, one := range r.replicas {
		if one.URL() != url {
			return one
		}
	}
	r.t.Fatalf("there is no replica but %q", url)
	return nil
}

// generations returns the routed requests a replica has seen.
func generations(one *replica.Replica) []replica.Exchange {
	return exchanges(one, "/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses")
}

// exchanges returns the requests a replica has seen on some paths.
func exchanges(one *replica.Replica, paths ...string) []replica.Exchange {
	var out []replica.Exchange
	for _, x := range one.Requests() {
		path, _, _ := strings.Cut(x.Target, "?")
		for _, p := range paths {
			if p == path {
				out = append(out, x)
			}
		}
	}
	return out
}

// poolState is the answer of /workers.
type poolState struct {
	Policy string
	Usable int
	Tree   struct{ Nodes, Bytes int }
	// Workers are in the order of the configuration.
	Workers []workerState
	Reasons map[string]int
	Shadow  *struct {
		Decisions, Agreed, Total, Known, CouldKnow int
		Reasons                                    map[string]int
	}
	Discovery struct {
		State, Source, Error, LastSuccess string
		Leaving, Ignored, Unmatched       []string
	}
}

type workerState struct {
	URL        string
	Healthy    bool
	Why        string
	Breaker    string
	Load       int
	MaxLoad    int
	Requests   int
	Hits       int
	Failures   int
	Claims     int
	Draining   bool
	PushedBack bool
	Waiting    int
	Queue      int
	toldState
}

// toldState is what a replica tells of itself.
type toldState struct {
	CacheTokens, ReportedCacheTokens int
	Restarts, CacheResets            int
	Models                           []string
	CachedTokens                     struct{ Answers, Prompt, Predicted, Actual int }
}

// waitServed waits for the router: files that are written one after the other may be applied one after the other.
func (r *rig) waitServed() {
	r.t.Helper()
	eventually(r.t, 20*time.Second, func() error {
		if a := r.get("/workers"); a.err != nil || a.status != http.StatusOK {
			return fmt.Errorf("GET /workers = %d %s, error %s, want 200", a.status, a.body, fmt.Sprint(a.err))
		}
		return nil
	})
}

// state reads /workers.
func (r *rig) state() poolState {
	r.t.Helper()
	a := r.get("/workers")
	if a.err != nil || a.status != http.StatusOK {
		r.t.Fatalf("GET /workers = %d %s, %v, want 200", a.status, a.body, a.err)
	}
	var s poolState
	if err := json.Unmarshal(a.body, &s); err != nil {
		r.t.Fatalf("GET /workers: %v in %s", err, a.body)
	}
	return s
}

// worker returns the state of the replica with an address; ok tells whether it is listed.
func (s poolState) worker(url string) (w workerState, ok bool) {
	for _, w := range s.Workers {
		if w.URL == url {
			return w, true
		}
	}
	return workerState{}, false
}

func (s poolState) load() int {
	sum := 0
	for _, w := range s.Workers {
		sum += w.Load
	}
	return sum
}

// waitState waits until the pool's state is as it should be; check says what is wrong with it.
func (r *rig) waitState(within time.Duration, check func(s poolState) error) (took time.Duration) {
	r.t.Helper()
	return eventually(r.t, within, func() error { return check(r.state()) })
}

// waitIdle waits until no replica has load, which has to be at once when all exchanges have ended.
func (r *rig) waitIdle() {
	r.t.Helper()
	r.waitState(5*time.Second, func(s poolState) error {
		if s.load() != 0 {
			return fmt.Errorf("load in /workers = %d, want 0: %+v", s.load(), s.Workers)
		}
		return nil
	})
}

// eventually calls f until it returns nil, and fails the test when it does not within that time. It returns how long it
// took. What stops the whole machine for a while, test and server alike, counts little.
func eventually(t *testing.T, within time.Duration, f func() error) (took time.Duration) {
	t.Helper()
	const most = time.Second // of what one try counts
	for {
		began := time.Now()
		err := f()
		if err == nil {
			return took + min(most, time.Since(began))
		}
		if took > within {
			t.Fatalf("still after %v: %v", within, err)
		}
		time.Sleep(5 * time.Millisecond)
		took += min(most, time.Since(began))
	}
}

func workersOf(urls ...string) []any {
	out := []any{}
	for _, url := range urls {
		out = append(out, engine.Config{"url": url})
	}
	return out
}
