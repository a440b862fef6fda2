package cases

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cart-llm/cart/e2e/engine"
)

// Group F: reload, health, breaker.

func init() {
	tests = append(tests,
		test{"F01", unrelatedChange},
		test{"F03", removedWhileBusy},
		test{"F05", missedProbes},
		test{"F06", probeAddresses},
		test{"F07", modelsWithReplicaDown},
		test{"F09", clientErrorsBeside},
		test{"F11", neutralBetweenFailures},
		test{"F12", noReplica},
		test{"F13", shortOutage},
		test{"F14", deafReplica},
		test{"F15", requestsOwnFault},
	)
}

// F01: An unrelated config change must not wipe affinity.
func unrelatedChange(t *testing.T, s *stage) {
	t.Parallel()
	r := s.start(t, 2, engine.Config{"maxLoad": 6, "cache": engine.Config{"balanceAbsThreshold": 8}})
	warm := func(i int) query { return ask(prose(fmt.Sprint(i, " of the warmed"), 4096)) }
	home := map[int]*mock{}
	for i := 0; i < 20; i++ {
		home[i] = r.warm(warm(i))
	}
	unrelated := r.name + "-unrelated"
	t.Cleanup(func() { s.put(t, unrelated, nil) })
	change := 0
	reload := func() {
		change++
		s.put(t, unrelated, engine.Config{"workers": workersOf(r.mocks...), "logLevel": "error", "maxLoad": 100 + change})
	}
	reload()
	for i := 0; i < 20; i++ {
		release := r.lean(warm(i), home[i])
		if a := r.hit(fmt.Sprint("prompt ", i), warm(i), home[i]); a.header.get("x-cart-reason") != "cache_hit" {
			t.Errorf("prompt %d: reason = %q, want cache_hit", i, a.header.get("x-cart-reason"))
		}
		release()
		r.settled()
	}
	// While streams run, old and new requests count together.
	g := newGate(t)
	r.all(g.streaming)
	r.forget()
	streams := r.hold(10, func(i int) query { return askStream(prose(fmt.Sprint(i, " runs"), 4096)) })
	reload()
	if st := r.state(); st.load() != 10 {
		t.Errorf("loads in /workers after the reload = %v, want 10 in all", st.loads())
	}
	streams = append(streams, r.hold(2, func(i int) query { return askStream(prose(fmt.Sprint(i, " comes after"), 4096)) })...)
	if err := localError(r.do(ask("one too many")), "/v1/chat/completions", 503); err != nil {
		t.Error(err)
	}
	reload()
	g.release()
	r.whole(streams)
	r.settled()
	r.all(nil)
	for i := 0; i < 20; i++ {
		if a := r.ok(warm(i)); a.peer() != home[i].url() {
			t.Errorf("prompt %d went to %s (%s), want %s", i, a.peer(), a.header.get("x-cart-reason"), home[i].url())
		}
	}
}

// F03: Removing a busy worker drains it.
func removedWhileBusy(t *testing.T, s *stage) {
	t.Parallel()
	r := s.start(t, 3, nil)
	gone := r.mocks[0]
	r.favour(gone)
	left := scaled(5*time.Second, time.Second)
	seen := newGate(t) // opens when the loads of the running streams have been looked at
	r.all(func(x *exchange) {
		if !strings.Contains(string(x.received()), `"stream":true`) {
			x.json(200, `{"ok":true}`)
			return
		}
		x.events()
		x.until(seen.open)
		for i := 0; i < 50 && x.wait(left/50); i++ {
			x.chunk(fmt.Sprintf("data: {\"n\":%d}\n\n", i))
		}
		x.chunk(lastEvent)
		x.end()
	})
	streams := r.hold(10, func(i int) query { return askStream(prose(fmt.Sprint(i, " runs"), 4096)) })
	if n := r.state().of(gone).Load; n != 10 {
		t.Fatalf("load of the replica to remove = %d, want 10", n)
	}
	seen.release()
	running := gone.requests()
	r.with(engine.Config{"workers": workersOf(r.mocks[1:]...)})
	for i := 0; i < 50; i++ {
		r.ok(ask(prose(fmt.Sprint(i, " during the drain"), 500)))
		if i < 10 {
			r.ok(ask(prose(fmt.Sprint(i, " runs"), 4096))) // what it had is asked for again
		}
	}
	if n := len(gone.requests()); n != 10 {
		t.Errorf("%d requests reached the removed replica, want none but its 10 streams", n-10)
	}
	for i, w := range streams {
		a := w.wait(left + 10*time.Second)
		whole := false
		for _, x := range running {
			x.mu.Lock()
			whole = whole || string(x.sent) == string(a.body)
			x.mu.Unlock()
		}
		if a.err != nil || a.status != 200 || !whole || !strings.HasSuffix(string(a.body), lastEvent) {
			t.Errorf("stream %d of the removed replica = %v, want it whole", i, &a)
		}
	}
	r.waitState(slack*time.Second, func(st workersState) error {
		if w := st.of(gone); w.URL != "" && (!w.Draining || w.Load != 0) || st.load() != 0 {
			return fmt.Errorf("state = %+v, want the removed replica gone and no load", st.Workers)
		}
		return nil
	})
}

// F05: One missed probe does not eject; recovery needs several good ones.
func missedProbes(t *testing.T, s *stage) {
	t.Parallel()
	// The timeout is what a probe may take on a slow machine without being missed.
	interval, timeout, slow := scaled(time.Second, 600*time.Millisecond), scaled(500*time.Millisecond, 500*time.Millisecond), scaled(800*time.Millisecond, 2*time.Second)
	const tick = 100 * time.Millisecond // CART looks that often whether a probe is due
	r := s.start(t, 2, engine.Config{"health": engine.Config{
		"interval": interval.String(), "timeout": timeout.String(), "failureThreshold": 3, "successThreshold": 2,
	}})
	first, second := r.mocks[0], r.mocks[1]
	good := func(x *exchange) { x.json(200, `{}`) }
	var misses, left, passes atomic.Int32 // probes to miss, and what has been seen since
	probe := func(x *exchange) {
		if n := left.Add(-1); n >= 0 {
			if n == 0 {
				passes.Store(0) // those after the last one to miss are counted
			}
			x.wait(slow)
			x.raw("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
			misses.Add(1)
			return
		}
		passes.Add(1)
		good(x)
	}
	first.answersProbes(probe)
	miss := func(n int32) {
		misses.Store(0)
		passes.Store(0)
		left.Store(n)
		r.eventually(time.Duration(n+3)*interval*slack, func() error {
			if misses.Load() < n {
				return fmt.Errorf("%d of %d probes were missed", misses.Load(), n)
			}
			return nil
		})
	}
	for _, n := range []int32{1, 2} {
		miss(n)
		until := time.Now().Add(interval)
		for time.Now().Before(until) {
			if w := r.state().of(first); !w.Healthy {
				t.Fatalf("after %d missed probes the replica is out: %+v", n, w)
			}
			time.Sleep(10 * time.Millisecond)
		}
		r.eventually(slack*2*interval, func() error { // a good one in between
			if passes.Load() == 0 {
				return fmt.Errorf("no further probe")
			}
			return nil
		})
	}
	secondProbes, began := len(second.probed()), time.Now()
	miss(3)
	left.Store(0)
	if n, want := len(second.probed())-secondProbes, int(time.Since(began)/(interval+tick))-1; n < want {
		t.Errorf("%d probes of the other replica in %v, want %d: the slow one must not delay it", n, time.Since(began), want)
	}
	out := func(m *mock) func(st workersState) error {
		return func(st workersState) error {
			if w := st.of(m); w.Healthy || w.Why == "" {
				return fmt.Errorf("after three missed probes the replica is %+v, want it out and why", w)
			}
			return nil
		}
	}
	r.waitState(slack*timeout, out(first))
	r.waitState(slack*4*interval, func(st workersState) error {
		n := passes.Load() // read after the state: a replica that is up has had at least that many good ones
		if w := st.of(first); !w.Healthy {
			return fmt.Errorf("after %d good probes the replica is %+v, want it back", n, w)
		}
		if n < 2 {
			t.Errorf("the replica is back after %d good probes, want 2", n)
		}
		return nil
	})
	// All probes time out while requests are served: up to the third miss nothing changes.
	r.ok(ask("before"))
	for _, m := range r.mocks {
		m.answersProbes(func(x *exchange) { x.wait(time.Minute) })
	}
	r.eventually(slack*6*interval, func() error {
		a := r.do(ask("while probes hang"))
		st := r.state()
		if a.status != 200 && st.Usable > 0 {
			t.Errorf("with %d usable replicas the answer is %v, want 200", st.Usable, &a)
		}
		if st.Usable > 0 {
			return fmt.Errorf("%d replicas are usable", st.Usable)
		}
		return nil
	})
	if err := localError(r.do(ask("none is left")), "/v1/chat/completions", 503); err != nil {
		t.Error(err)
	}
	for _, m := range r.mocks {
		m.answersProbes(nil)
	}
	r.waitState(slack*5*interval, func(st workersState) error {
		if st.Usable != 2 {
			return fmt.Errorf("%d replicas are usable, want 2", st.Usable)
		}
		return nil
	})
	r.ok(ask("after"))
}

// F06: Health probe path, auth and redirects.
func probeAddresses(t *testing.T, s *stage) {
	t.Parallel()
	const secret = "probe-key-4711"
	for i, base := range []string{"/", "", "/base", "/base/"} {
		for j, path := range []string{"/health", "health", "/ping?x=1"} {
			t.Run(fmt.Sprintf("%d-%d", i, j), func(t *testing.T) {
				t.Logf("base path %q, probe %q", base, path)
				secret := fmt.Sprintf("%s-%d-%d", secret, i, j)
				r := s.rig(t)
				r.mocks = []*mock{startMock(t), startMock(t), startMock(t)}
				wants, redirects, empty := r.mocks[0], r.mocks[1], r.mocks[2]
				var login atomic.Int32
				wants.answersProbes(func(x *exchange) {
					if x.header.get("Authorization") != "Bearer "+secret {
						x.json(401, `{"error":"who are you"}`)
						return
					}
					x.json(200, `{}`)
				})
				redirects.answersProbes(func(x *exchange) {
					if strings.HasSuffix(x.target, "/login") {
						login.Add(1)
						x.json(200, `{}`)
						return
					}
					x.answer(302, header{{"Location", "/login"}}, "")
				})
				empty.answersProbes(func(x *exchange) { x.answer(204, nil, "") })
				var workers []any
				for _, m := range r.mocks {
					workers = append(workers, engine.Config{"url": m.url() + base, "headers": engine.Config{"Authorization": "Bearer " + secret}})
				}
				s.put(t, r.name, engine.Config{"workers": workers, "health": engine.Config{"interval": "100ms", "endpoint": path}})
				if why := r.buildError(); why != "" {
					t.Fatalf("the middleware cannot be built: %s", why)
				}
				r.waitState(slack*2*time.Second, func(st workersState) error {
					if len(st.Workers) != 3 || st.Workers[1].Healthy {
						return fmt.Errorf("state = %+v, want the one that redirects out", st.Workers)
					}
					return nil
				})
				st := r.state()
				if !st.Workers[0].Healthy || !st.Workers[2].Healthy {
					t.Errorf("state = %+v, want those with a key and with 204 well", st.Workers)
				}
				if !strings.Contains(st.Workers[1].Why, "302") {
					t.Errorf("why = %q, want the 302 told", st.Workers[1].Why)
				}
				if n := login.Load(); n != 0 {
					t.Errorf("the redirect was followed %d times", n)
				}
				want := strings.TrimSuffix(base, "/") + "/" + strings.TrimPrefix(path, "/")
				// Pools of cases before may still probe a port that was theirs. A probe of ours without the key is seen by the
				// replica that wants it: it would be out by now.
				own := 0
				for _, x := range append(wants.probed(), empty.probed()...) {
					if x.header.get("Authorization") != "Bearer "+secret {
						continue
					}
					own++
					if x.target != want {
						t.Errorf("probe = %s, want %s", x.target, want)
						break
					}
				}
				if own < 2 {
					t.Errorf("%d probes with the key, want one of each replica at least", own)
				}
				// The key goes to replicas with requests too, and nowhere else.
				models := r.ok(get("/v1/models"))
				for _, x := range r.hits() {
					if x.header.get("Authorization") != "Bearer "+secret || x.target != strings.TrimSuffix(base, "/")+"/v1/models" {
						t.Errorf("the list of models was asked for as %s with %q", x.target, x.header.get("Authorization"))
					}
				}
				seen := fmt.Sprint(models.header, string(models.body))
				for _, path := range []string{"/workers", "/health", "/metrics"} {
					a := r.do(get(path))
					seen += fmt.Sprint(a.header, string(a.body))
				}
				if seen += strings.Join(r.logLines(), "\n"); strings.Contains(seen, secret) {
					t.Errorf("the key is shown: %s", seen)
				}
			})
		}
	}
	t.Run("health.headers", func(t *testing.T) {
		r := s.start(t, 1, engine.Config{"health": engine.Config{"interval": "100ms", "headers": engine.Config{"Authorization": "Bearer " + secret}}})
		r.eventually(slack*time.Second, func() error {
			if len(r.mocks[0].probed()) == 0 {
				return fmt.Errorf("no probe")
			}
			return nil
		})
		if x := r.mocks[0].probed()[0]; x.header.get("Authorization") != "Bearer "+secret {
			t.Errorf("probe with %q, want the key", x.header.get("Authorization"))
		}
		r.ok(ask("a request"))
		if x := r.hits()[0]; x.header.get("Authorization") != "" {
			t.Errorf("a request carries %q, want none: health.headers are for probes", x.header.get("Authorization"))
		}
	})
}

// F07: /v1/models with the first worker down.
func modelsWithReplicaDown(t *testing.T, s *stage) {
	t.Parallel()
	r := s.start(t, 3, engine.Config{"health": engine.Config{"interval": 0}})
	ask := func(what string) {
		t.Helper()
		for i := 0; i < 12; i++ { // with credentials of its own each: nothing comes from a list kept before
			began := time.Now()
			a := r.ok(get("/v1/models").with("Authorization", fmt.Sprint("Bearer ", what, i)))
			if took := since(began); took > slack*2*time.Second || string(a.body) != `{"data":[]}` {
				t.Errorf("%s: after %v %v, want the list within 2s", what, took, &a)
			}
		}
	}
	models := func(x *exchange) { x.json(200, `{"data":[]}`) }
	r.all(models)
	r.mocks[0].stop()
	ask("one refuses")
	r.mocks[0].restart(t)
	r.mocks[1].does(func(x *exchange) { x.wait(time.Minute) })
	r.with(engine.Config{"circuitBreaker": engine.Config{"failureThreshold": 3}}) // another configuration, a new list
	hung := time.Now()
	ask("one hangs")
	if took := since(hung); took > slack*12*time.Second {
		t.Errorf("12 lists took %v", took)
	}
	r.settled()
}

// F09: Client errors do not open the breaker.
func clientErrorsBeside(t *testing.T, s *stage) {
	t.Parallel()
	r := s.start(t, 2, engine.Config{"circuitBreaker": engine.Config{"failureThreshold": 3}})
	statuses := []int{400, 404, 413, 422, 429}
	for i := 0; i < 50; i++ {
		status := statuses[i%len(statuses)]
		r.all(func(x *exchange) { x.json(status, `{"error":{"message":"too long"}}`) })
		if a := r.do(ask(prose(fmt.Sprint(i, " too long"), 300))); a.status != status {
			t.Errorf("request %d = %v, want %d", i, &a, status)
		}
	}
	r.unharmed()
	r.all(nil)
	for i := 0; i < 6; i++ {
		began := time.Now()
		r.ok(ask(prose(fmt.Sprint(i, " normal"), 300)))
		if took := since(began); took > 10*100*time.Millisecond {
			t.Errorf("a normal request took %v, want no wait", took)
		}
	}
	r.settled()
}

// F11: 400s between real failures must not hide them.
func neutralBetweenFailures(t *testing.T, s *stage) {
	t.Parallel()
	r := s.start(t, 2, engine.Config{"circuitBreaker": engine.Config{"failureThreshold": 3}})
	bad := r.mocks[0]
	r.favour(bad)
	for failures := 1; failures <= 3; failures++ {
		bad.does(func(x *exchange) { x.json(500, `{"error":{"message":"broken"}}`) })
		if a := r.ok(ask(fmt.Sprint("failure ", failures))); a.peer() != r.mocks[1].url() {
			t.Errorf("failure %d was answered by %s, want the other replica", failures, a.peer())
		}
		r.settled()
		if w := r.state().of(bad); (w.Breaker == "open") != (failures == 3) || w.Failures != failures {
			t.Fatalf("after failure %d: %+v, want it open at the third", failures, w)
		}
		if failures == 3 {
			break
		}
		bad.does(func(x *exchange) { x.json(400, `{"error":{"message":"your fault"}}`) })
		if a := r.do(ask("bad")); a.status != 400 || a.peer() != bad.url() {
			t.Errorf("a bad request got %v, want 400 from the first replica", &a)
		}
		// A client that leaves before the answer, and one in mid-stream.
		for _, g := range []*gate{newGate(t), newGate(t)} {
			bad.does(g.silent)
			if failures == 2 {
				bad.does(g.streaming)
			}
			w := r.hold(1, func(int) query { return askStream("leaves") })[0]
			if failures == 2 {
				r.waitBody(w, 1)
			}
			w.reset()
			r.settled()
		}
	}
	bad.does(nil)
	r.forget()
	r.ok(ask("afterwards"))
	if n := len(bad.requests()); n != 0 {
		t.Errorf("%d requests reached the replica whose breaker is open, want none", n)
	}
}

// F12: No healthy worker at all.
func noReplica(t *testing.T, s *stage) {
	t.Parallel()
	const interval = 200 * time.Millisecond
	health := engine.Config{"interval": interval.String(), "timeout": "500ms"}
	refused := func(t *testing.T, r *rig) {
		t.Helper()
		for _, path := range []string{"/v1/chat/completions", "/v1/messages", "/v1/embeddings"} {
			began := time.Now()
			a := r.do(post(path, `{"model":"m1","input":"x","messages":[{"role":"user","content":"hi"}]}`))
			if err := localError(a, path, 503); err != nil {
				t.Error(err)
			}
			if took := since(began); took > 10*200*time.Millisecond || a.header.get("Retry-After") == "" {
				t.Errorf("%s: after %v, Retry-After %q, want 200ms at most and one", path, took, a.header.get("Retry-After"))
			}
		}
		if a := r.do(get("/health")); a.status != 503 {
			t.Errorf("GET /health = %v, want 503", &a)
		}
	}
	usable := func(r *rig, n int) {
		r.t.Helper()
		r.waitState(slack*4*interval, func(st workersState) error {
			if st.Usable != n {
				return fmt.Errorf("%d replicas are usable, want %d: %+v", st.Usable, n, st.Workers)
			}
			return nil
		})
	}
	start := func(t *testing.T, mocks ...*mock) *rig {
		r := s.start(t, 0, engine.Config{"workers": workersOf(mocks...), "health": health})
		r.mocks = mocks
		return r
	}
	t.Run("all are down", func(t *testing.T) {
		mocks := []*mock{startMock(t), startMock(t), startMock(t)}
		for _, m := range mocks {
			m.stop()
		}
		r := start(t, mocks...)
		// Until the probes have told, a request finds out by itself.
		if err := localError(r.do(ask("at once")), "/v1/chat/completions", 502, 503); err != nil {
			t.Error(err)
		}
		usable(r, 0)
		refused(t, r)
		for _, m := range mocks {
			m.restart(t)
		}
		usable(r, 3)
		r.ok(ask("up again"))
	})
	t.Run("the list is empty", func(t *testing.T) {
		r := start(t)
		refused(t, r)
		m := startMock(t)
		r.mocks = []*mock{m}
		r.with(engine.Config{"workers": workersOf(m)})
		r.ok(ask("there is one"))
	})
	t.Run("one of three is up", func(t *testing.T) {
		mocks := []*mock{startMock(t), startMock(t), startMock(t)}
		mocks[0].stop()
		mocks[2].stop()
		r := start(t, mocks...)
		for i := 0; i < 20; i++ { // enough to open the breakers of the others, which must not keep them out later
			r.ok(ask(prose(fmt.Sprint(i, " with one up"), 500)))
		}
		r.waitState(slack*4*interval, func(st workersState) error { // the probes have told, whatever the breakers did before
			if w := st.Workers; w[0].Healthy || !w[1].Healthy || w[2].Healthy || st.Usable != 1 {
				return fmt.Errorf("state = %+v, want the two down", st.Workers)
			}
			return nil
		})
		if a := r.do(get("/health")); a.status != 200 {
			t.Errorf("GET /health = %v, want 200", &a)
		}
		mocks[0].restart(t)
		mocks[2].restart(t)
		usable(r, 3)
		g := newGate(t)
		r.all(g.silent)
		held := r.hold(3, func(i int) query { return ask(prose(fmt.Sprint(i, " with three up"), 500)) })
		if loads := r.state().loads(); fmt.Sprint(loads) != "[1 1 1]" {
			t.Errorf("loads in /workers = %v, want the ones that joined to take part", loads)
		}
		g.release()
		for _, w := range held {
			w.wait(5 * time.Second)
		}
	})
}

// F13: A short outage must not purge the tree.
func shortOutage(t *testing.T, s *stage) {
	t.Parallel()
	r := s.start(t, 2, engine.Config{
		"health": engine.Config{"interval": "100ms", "timeout": "1s"},
		"cache":  engine.Config{"balanceAbsThreshold": 8},
	})
	first, second := r.mocks[0], r.mocks[1]
	r.favour(first)
	warm := func(i int) query { return ask(prose(fmt.Sprint(i, " of the warmed"), 4096)) }
	for i := 0; i < 20; i++ {
		if a := r.ok(warm(i)); a.peer() != first.url() {
			t.Fatalf("prompt %d went to %s, want the first replica", i, a.peer())
		}
	}
	r.favour(nil)
	claims := r.state().of(first).Claims
	healthy := func(want bool) {
		t.Helper()
		r.waitState(slack*2*time.Second, func(st workersState) error {
			if st.of(first).Healthy != want {
				return fmt.Errorf("healthy = %t, want %t", !want, want)
			}
			return nil
		})
	}
	first.answersProbes(func(x *exchange) { x.json(503, `{}`) })
	healthy(false)
	for i := 0; i < 10; i++ {
		if a := r.ok(warm(i)); a.peer() != second.url() {
			t.Errorf("prompt %d went to %s, want the one that is well", i, a.peer())
		}
	}
	time.Sleep(scaled(5*time.Second, 1500*time.Millisecond)) // longer than the janitor's step
	if now := r.state().of(first).Claims; now != claims {
		t.Errorf("claims of the one that is out = %d, want its %d kept", now, claims)
	}
	first.answersProbes(nil)
	healthy(true)
	for _, half := range []struct {
		busy     *mock
		from, to int
	}{
		{second, 0, 10}, // the stand-in has these as well: when it is busy the first gets them
		{first, 10, 20},
	} {
		g := newGate(t)
		r.all(g.silent)
		r.favour(half.busy)
		held := r.hold(1, func(int) query { return post("/v1/embeddings", `{}`) })[0]
		r.all(nil)
		r.favour(nil)
		for i := half.from; i < half.to; i++ {
			if a := r.ok(warm(i)); a.peer() != first.url() || a.header.get("x-cart-reason") != "cache_hit" {
				t.Errorf("prompt %d went to %s (%s), want a hit on the first replica", i, a.peer(), a.header.get("x-cart-reason"))
			}
			r.waitState(slack*time.Second, func(st workersState) error { // a load may outlive its answer by a moment
				if st.load() != 1 {
					return fmt.Errorf("loads in /workers = %v, want the held one", st.loads())
				}
				return nil
			})
		}
		g.release()
		held.wait(5 * time.Second)
		r.settled()
	}
}

// F14: Replica says healthy but never answers.
func deafReplica(t *testing.T, s *stage) {
	t.Parallel()
	const wait = time.Second // which a replica that is well does not take on a slow machine
	coolDown := scaled(10*time.Second, 3*time.Second)
	r := s.start(t, 2, engine.Config{
		"proxy":          engine.Config{"firstByteTimeout": wait.String()},
		"circuitBreaker": engine.Config{"failureThreshold": 3, "successThreshold": 1, "timeout": coolDown.String()},
	})
	deaf, well := r.mocks[0], r.mocks[1]
	r.favour(deaf)
	deaf.does(func(x *exchange) { x.wait(time.Minute) })
	timed := func() (reply, time.Duration) {
		began := time.Now()
		a := r.ok(ask("hello"))
		if a.peer() != well.url() {
			t.Errorf("answered by %s, want the replica that is well", a.peer())
		}
		return a, time.Since(began)
	}
	for i := 0; i < 3; i++ {
		if _, took := timed(); took < wait || took > wait+10*500*time.Millisecond {
			t.Errorf("request %d took %v, want it at the other replica after %v", i, took, wait)
		}
	}
	opened := time.Now()
	r.settled()
	if w := r.state().of(deaf); w.Breaker != "open" || !w.Healthy {
		t.Errorf("after three timeouts: %+v, want the breaker open and the replica healthy", w)
	}
	r.forget()
	for i := 0; i < 5; i++ {
		if _, took := timed(); took > 3*wait {
			t.Errorf("with the breaker open a request took %v, want no wait", took)
		}
	}
	if n := len(deaf.requests()); n != 0 {
		t.Errorf("%d requests reached the deaf replica while its breaker was open, want none", n)
	}
	deaf.does(nil)
	time.Sleep(coolDown - time.Since(opened) + 100*time.Millisecond)
	if a := r.ok(ask("hello")); a.peer() != deaf.url() {
		t.Errorf("after the cool-down the request went to %s, want a probe of the one that was deaf", a.peer())
	}
	r.settled()
	if w := r.state().of(deaf); w.Breaker != "closed" {
		t.Errorf("breaker after a good probe = %s, want closed", w.Breaker)
	}
}

// F15: 500 caused by the request itself.
func requestsOwnFault(t *testing.T, s *stage) {
	t.Parallel()
	const engineError = `{"error":{"message":"this model's maximum context length is 8192 tokens"}}`
	r := s.start(t, 4, engine.Config{"circuitBreaker": engine.Config{"failureThreshold": 3}, "proxy": engine.Config{"maxRetries": 2}})
	r.all(func(x *exchange) {
		if strings.Contains(string(x.received()), "TOO_LONG") {
			x.json(500, engineError)
			return
		}
		x.json(200, `{"ok":true}`)
	})
	gap := scaled(100*time.Millisecond, 20*time.Millisecond)
	stop := make(chan struct{})
	var beside sync.WaitGroup
	var good atomic.Int32
	attempts := func(name string) (n int) {
		for _, x := range r.hits() {
			if label(x) == name {
				n++
			}
		}
		return n
	}
	beside.Add(2)
	go func() {
		defer beside.Done()
		for {
			select {
			case <-stop:
				return
			case <-time.After(gap):
				r.ok(ask(prose(fmt.Sprint("good ", good.Add(1)), 300)))
			}
		}
	}()
	go func() {
		defer beside.Done()
		for {
			select {
			case <-stop:
				return
			case <-time.After(gap / 4):
				if st, err := r.readState(); err != nil || st.Usable == 0 {
					t.Errorf("usable replicas = %d, %v, want one at least at all times", st.Usable, err)
				}
			}
		}
	}()
	for i := 0; i < 30; i++ {
		name := fmt.Sprint("TOO_LONG ", i)
		a := r.do(ask(name))
		if a.err != nil || a.status != 500 || string(a.body) != engineError {
			t.Errorf("bad request %d got %v, want the engine's 500", i, &a)
		}
		if n := attempts(name); n < 1 || n > 3 {
			t.Errorf("bad request %d reached the replicas %d times, want 1 to 3", i, n)
		}
		time.Sleep(gap)
	}
	close(stop)
	beside.Wait()
	if n := good.Load(); n < 10 {
		t.Errorf("%d good requests, too few to show anything", n)
	}
	r.settled()
	r.unharmed()

	// Failures that are the replicas' own: the last one stays.
	r.all(func(x *exchange) { x.close() })
	for i := 0; i < 12; i++ {
		if err := localError(r.do(ask(prose(fmt.Sprint(i, " nobody answers"), 300))), "/v1/chat/completions", 502); err != nil {
			t.Error(err)
		}
		if st := r.state(); st.Usable == 0 {
			t.Errorf("no replica is usable after %d requests, want the last one kept", i+1)
		}
	}
	r.all(nil)
	r.ok(ask("it works again"))
	if a := r.do(get("/health")); a.status != http.StatusOK {
		t.Errorf("GET /health = %v, want 200", &a)
	}
}
