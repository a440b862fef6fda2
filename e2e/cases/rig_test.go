package cases

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cart-llm/cart/e2e/engine"
)

// slack widens the bounds on time that the cases state for an idle machine.
const slack = 3

// full is set when waits are not to be scaled down.
var full = os.Getenv("FULL") != ""

// scaled returns a wait of the text, or the short one that stands for it.
func scaled(text, short time.Duration) time.Duration {
	if full {
		return text
	}
	return short
}

// stage is one engine that all cases share: each has a host, a router, a middleware and replicas of its own.
type stage struct {
	kind engine.Kind
	e    engine.Engine

	mu    sync.Mutex
	setup engine.Setup
}

func newStage(t *testing.T, kind engine.Kind) *stage {
	s := &stage{kind: kind, setup: engine.Setup{Middlewares: map[string]engine.Config{}, Routers: map[string]engine.Router{}}}
	s.e = engine.Start(t, kind, s.setup)
	return s
}

// put adds a middleware and its router, or replaces them. A nil config takes them away with the next reload.
func (s *stage) put(t testing.TB, name string, config engine.Config) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if config == nil {
		delete(s.setup.Middlewares, name)
		delete(s.setup.Routers, name)
		return
	}
	s.setup.Middlewares[name] = engine.Merged(quiet, config)
	s.setup.Routers[name] = engine.Router{Host: name + ".test", Middleware: name}
	if err := s.e.Reload(s.setup); err != nil {
		t.Fatalf("Reload() = %v", err)
	}
}

// quiet keeps CART from asking replicas of its own accord, but for their health: cases count what replicas are asked.
var quiet = engine.Config{"health": engine.Config{"metrics": engine.Config{"interval": 0}, "models": engine.Config{"interval": 0}}}

// rig is one case's part of a stage.
type rig struct {
	t      *testing.T
	s      *stage
	e      engine.Engine
	name   string
	host   string
	mocks  []*mock
	config engine.Config
}

// start puts n replicas and a middleware for the test on the stage. The configuration is merged over the rig's own.
func (s *stage) start(t *testing.T, n int, config engine.Config) *rig {
	t.Helper()
	r := s.rig(t)
	for i := 0; i < n; i++ {
		r.mocks = append(r.mocks, startMock(t))
	}
	r.config = engine.Merged(engine.Config{
		"workers":  workersOf(r.mocks...),
		"logLevel": "error",
		"health":   engine.Config{"interval": "1s", "timeout": "1s"},
		"proxy":    engine.Config{"addDecisionHeaders": true, "initialBackoff": "10ms"},
	}, config)
	s.put(t, r.name, r.config)
	if why := r.buildError(); why != "" {
		t.Fatalf("the middleware cannot be built: %s", why)
	}
	return r
}

// rig makes a rig without anything on the stage.
func (s *stage) rig(t *testing.T) *rig {
	name := strings.ToLower(t.Name()[strings.Index(t.Name(), "/")+1:])
	name = strings.NewReplacer("/", "-", "_", "-", "#", "-").Replace(name)
	t.Cleanup(func() { s.put(t, name, nil) })
	return &rig{t: t, s: s, e: s.e, name: name, host: name + ".test"}
}

// with reloads with a change to the middleware's configuration.
func (r *rig) with(change engine.Config) {
	r.t.Helper()
	r.config = engine.Merged(r.config, change)
	r.s.put(r.t, r.name, r.config)
}

// buildError is why the middleware could not be built, "" if it was.
func (r *rig) buildError() string { return r.e.MiddlewareError(r.name) }

// all gives every replica the same script.
func (r *rig) all(s script) {
	for _, m := range r.mocks {
		m.does(s)
	}
}

func (r *rig) forget() {
	for _, m := range r.mocks {
		m.forget()
	}
}

// hits returns the requests that all replicas together have seen.
func (r *rig) hits() []*exchange {
	var out []*exchange
	for _, m := range r.mocks {
		out = append(out, m.requests()...)
	}
	return out
}

// at returns the replica with an address.
func (r *rig) at(url string) *mock {
	r.t.Helper()
	for _, m := range r.mocks {
		if m.url() == url {
			return m
		}
	}
	r.t.Fatalf("there is no replica %q", url)
	return nil
}

// other returns a replica that is not the given one.
func (r *rig) other(m *mock) *mock {
	for _, o := range r.mocks {
		if o != m {
			return o
		}
	}
	r.t.Fatal("there is no other replica")
	return nil
}

// workersState is the part of GET /workers that the cases read.
type workersState struct {
	Usable  int
	Tree    struct{ Nodes, Bytes, MaxBytes int }
	Workers []workerState
	Reasons map[string]int
	Refused map[string]int
	Retries int
}

type workerState struct {
	URL        string
	Healthy    bool
	Why        string
	Breaker    string
	PushedBack bool
	Draining   bool
	Load       int
	Requests   int
	Hits       int
	Failures   int
	Claims     int
}

var stateClient = &http.Client{Timeout: 10 * time.Second}

// readState reads /workers; an error where it cannot be had.
func (r *rig) readState() (workersState, error) {
	var s workersState
	req, err := http.NewRequest(http.MethodGet, r.e.URL()+"/workers", nil)
	if err != nil {
		return s, err
	}
	req.Host = r.host
	resp, err := stateClient.Do(req)
	if err != nil {
		return s, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return s, fmt.Errorf("GET /workers = %s", resp.Status)
	}
	if err := json.NewDecoder(resp.Body).Decode(&s); err != nil {
		return s, err
	}
	for _, w := range s.Workers {
		if w.Load < 0 {
			return s, fmt.Errorf("load of %s = %d in /workers, want none below 0", w.URL, w.Load)
		}
	}
	return s, nil
}

func (r *rig) state() workersState {
	r.t.Helper()
	s, err := r.readState()
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

func (s workersState) of(m *mock) workerState {
	for _, w := range s.Workers {
		if w.URL == m.url() {
			return w
		}
	}
	return workerState{}
}

func (s workersState) loads() []int {
	var out []int
	for _, w := range s.Workers {
		out = append(out, w.Load)
	}
	return out
}

func (s workersState) load() int {
	sum := 0
	for _, n := range s.loads() {
		sum += n
	}
	return sum
}

// settled waits until no replica has load, as it must within a second of the last exchange's end.
func (r *rig) settled() {
	r.t.Helper()
	r.waitState(slack*time.Second, func(s workersState) error {
		if s.load() != 0 {
			return fmt.Errorf("loads in /workers = %v, want 0", s.loads())
		}
		return nil
	})
}

// waitState waits until the pool's state is as check wants it.
func (r *rig) waitState(within time.Duration, check func(s workersState) error) {
	r.t.Helper()
	r.eventually(within, func() error { return check(r.state()) })
}

// eventually calls f until it returns nil, and ends the test when it does not within that time.
func (r *rig) eventually(within time.Duration, f func() error) {
	r.t.Helper()
	if err := poll(within, f); err != nil {
		r.t.Fatal(err)
	}
}

// poll calls f until it returns nil. What stops the whole machine for a while, test and server alike, counts little.
func poll(within time.Duration, f func() error) error {
	const most = time.Second // of what one try counts
	took := time.Duration(0)
	for {
		began := time.Now()
		err := f()
		if err == nil {
			return nil
		}
		if took > within {
			return fmt.Errorf("still after %v: %w", within, err)
		}
		time.Sleep(10 * time.Millisecond)
		took += min(most, time.Since(began))
	}
}

// lean holds an exact repeat of a request open on the replica that has answered it, so that a prompt that hits goes there
// and one that misses does not. The returned function ends it.
func (r *rig) lean(q query, m *mock) (release func()) {
	r.t.Helper()
	held := make(chan *exchange, 1)
	done := make(chan struct{})
	scripts := map[*mock]script{}
	var once sync.Once
	for _, one := range r.mocks {
		one := one
		one.mu.Lock()
		scripts[one] = one.script
		one.script = func(x *exchange) {
			mine := false
			once.Do(func() { mine = true })
			if !mine {
				if s := scripts[one]; s != nil {
					s(x)
					return
				}
				x.json(200, `{"ok":true}`)
				return
			}
			held <- x
			if x.until(done) {
				x.json(200, `{"held":true}`)
			}
		}
		one.mu.Unlock()
	}
	w := r.begin(q)
	select {
	case x := <-held:
		for _, one := range r.mocks {
			one.does(scripts[one])
		}
		if x.replica != m {
			close(done)
			w.wait(5 * time.Second)
			r.t.Fatalf("the repeat of the warmed request went to %s, want %s which has it", x.replica.url(), m.url())
		}
	case <-time.After(10 * time.Second):
		r.t.Fatalf("the request to hold reached no replica: %v", w.soFar())
	}
	return sync.OnceFunc(func() {
		close(done)
		w.wait(5 * time.Second)
	})
}

// warm sends a request that must succeed and returns the replica that answered.
func (r *rig) warm(q query) *mock {
	r.t.Helper()
	a := r.do(q)
	if a.err != nil || a.status != 200 {
		r.t.Fatalf("%s %s = %v, want 200", q.method, q.target, &a)
	}
	r.settled()
	return r.at(a.peer())
}

func workersOf(mocks ...*mock) []any {
	out := []any{}
	for _, m := range mocks {
		out = append(out, engine.Config{"url": m.url()})
	}
	return out
}
