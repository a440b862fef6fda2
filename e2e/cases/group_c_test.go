package cases

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cart-llm/cart/e2e/engine"
)

// Group C: retries, timeouts, cancellation, load accounting.

func init() {
	tests = append(tests,
		test{"C01", clientLeavesBeforeFirstByte},
		test{"C02", clientLeavesInMidStream},
		test{"C04", probesKeepCounters},
		test{"C05", retrySendsWholeBody},
		test{"C06", resetInMidUpload},
		test{"C07", clientErrorsKeepBreaker},
		test{"C08", overloadAnswers},
		test{"C10", killerRequest},
		test{"C11", oneLiveCopy},
		test{"C13", livingStream},
		test{"C14", stalledUpload},
		test{"C15", fullPool},
		test{"C17", cutStreams},
		test{"C18", slowReaders},
	)
}

// departures notes when clients left and when the replicas saw it, by the text of the request.
type departures struct {
	mu   sync.Mutex
	left map[string]time.Time
	seen map[string]time.Time
}

func newDepartures() *departures {
	return &departures{left: map[string]time.Time{}, seen: map[string]time.Time{}}
}

func (d *departures) note(into map[string]time.Time, key string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	into[key] = time.Now()
}

// check waits until all departures have been seen and checks that each was within a second.
func (d *departures) check(r *rig, n int) {
	r.t.Helper()
	r.eventually(slack*2*time.Second, func() error {
		d.mu.Lock()
		defer d.mu.Unlock()
		if len(d.seen) != n {
			return fmt.Errorf("the replicas saw %d clients leave, want %d", len(d.seen), n)
		}
		return nil
	})
	for key, seen := range d.seen {
		if late := seen.Sub(d.left[key]); late > slack*time.Second {
			r.t.Errorf("the replica saw client %s leave after %v, want 1s at most", key, late)
		}
	}
}

// label is the text of a chat made by ask.
func label(x *exchange) string {
	_, rest, _ := strings.Cut(string(x.received()), `"content":"`)
	out, _, _ := strings.Cut(rest, `"`)
	return out
}

// C01: Client leaves before the first byte.
func clientLeavesBeforeFirstByte(t *testing.T, s *stage) {
	const clients = 200
	r := s.lab(t).start(t, 4, engine.Config{"maxLoad": clients})
	r.ok(ask("warm up"))
	r.e.ClientTLS().CloseIdleConnections()
	before := r.s.goroutines(t)
	d := newDepartures()
	r.forget()
	r.all(func(x *exchange) {
		if x.wait(20 * time.Second) {
			x.json(200, `{}`)
			return
		}
		d.note(d.seen, label(x))
	})
	leave := map[string]func(){}
	for i := 0; i < clients; i++ {
		name := fmt.Sprint("client-", i)
		q := ask(name)
		if i%2 == 0 {
			q = askStream(name)
		}
		if i%3 == 0 {
			_, leave[name] = r.begin2(q)
			continue
		}
		w := r.begin(q)
		leave[name] = w.close
		if i%5 == 0 {
			leave[name] = w.reset
		}
	}
	r.waitState(slack*10*time.Second, func(s workersState) error {
		if s.load() != clients {
			return fmt.Errorf("loads in /workers = %v, want %d in all", s.loads(), clients)
		}
		return nil
	})
	time.Sleep(scaled(time.Second, 100*time.Millisecond))
	for name, f := range leave {
		d.note(d.left, name)
		f()
	}
	d.check(r, clients)
	r.settled()
	if n := len(r.hits()); n != clients {
		t.Errorf("%d requests reached the replicas, want %d and no retry", n, clients)
	}
	if s := r.state(); s.Retries != 0 {
		t.Errorf("retries in /workers = %d, want 0", s.Retries)
	}
	r.unharmed()
	r.goroutinesBack(before)
}

// C02: Client leaves in mid-stream.
func clientLeavesInMidStream(t *testing.T, s *stage) {
	t.Parallel()
	r := s.start(t, 2, nil)
	gap := scaled(100*time.Millisecond, 20*time.Millisecond)
	d := newDepartures()
	r.all(func(x *exchange) {
		x.events()
		for x.chunk(firstEvent) {
			if !x.wait(gap) {
				d.note(d.seen, label(x))
				return
			}
		}
		d.note(d.seen, label(x))
	})
	const clients = 10
	var wg sync.WaitGroup
	for i := 0; i < clients; i++ {
		wg.Add(1)
		go func() {
			defer wg.Done()
			name := fmt.Sprint("client-", i)
			w, leave := (*wire)(nil), context.CancelFunc(nil)
			if i%2 == 0 {
				w, leave = r.begin2(askStream(name))
			} else {
				w = r.begin(askStream(name))
				leave = w.close
			}
			if err := poll(20*time.Second, func() error {
				if a := w.soFar(); len(a.body) < 5*len(firstEvent) {
					return fmt.Errorf("client %d has %v", i, &a)
				}
				return nil
			}); err != nil {
				t.Error(err)
			}
			d.note(d.left, name)
			leave()
		}()
	}
	wg.Wait()
	d.check(r, clients)
	r.settled()
	r.unharmed()
	if lines := r.logLines(); len(lines) > 0 {
		t.Errorf("logged at error: %q, want nothing", lines)
	}
}

// C04: Health check must not reset live counters.
func probesKeepCounters(t *testing.T, s *stage) {
	t.Parallel()
	interval := scaled(time.Second, 200*time.Millisecond)
	r := s.start(t, 2, engine.Config{
		"health": engine.Config{"interval": interval.String()},
		"cache":  engine.Config{"balanceAbsThreshold": 100},
	})
	q := askStream(prose("one prompt for all", 5000))
	home := r.warm(q)
	g := newGate(t)
	r.all(g.streaming)
	r.forget()
	streams := r.hold(10, func(int) query { return q })
	probes := len(home.probed())
	for len(home.probed()) < probes+6 {
		if s := r.state(); s.of(home).Load != 10 || s.load() != 10 {
			t.Fatalf("loads in /workers = %v after %d probes, want 10 on one", s.loads(), len(home.probed())-probes)
		}
		time.Sleep(interval / 10)
	}
	g.release()
	r.whole(streams)
	r.settled()
}

// C05: Retry sends the whole body again.
func retrySendsWholeBody(t *testing.T, s *stage) {
	t.Parallel()
	r := s.start(t, 2, engine.Config{
		"health":         engine.Config{"interval": 0},
		"circuitBreaker": engine.Config{"failureThreshold": 1000},
	})
	for _, size := range []int{10, 100_000, 8 << 20} {
		for _, chunked := range []bool{false, true} {
			q := ask(prose(fmt.Sprintf("%t %d", chunked, size), size))
			if size == 10 {
				q = post("/v1/chat/completions", `{"n":1234}`)
			}
			first := r.warm(q)
			if size == 10 { // it has no key
				first = r.mocks[0]
				r.favour(first)
			}
			first.stop()
			r.forget()
			if chunked {
				whole := q.body
				q.body, q.chunks = nil, nil
				for len(whole) > 0 {
					n := min(len(whole), 1<<20, len(q.sent())+5)
					q.chunks, whole = append(q.chunks, whole[:n]), whole[n:]
				}
			}
			a := r.do(q)
			second := r.other(first)
			hits := r.hits()
			switch {
			case a.err != nil || a.status != 200 || a.peer() != second.url() || len(hits) != 1:
				t.Errorf("%d bytes, chunked %t: %d requests arrived and the answer is %v, want one and 200 from %s",
					size, chunked, len(hits), &a, second.url())
			case sha256.Sum256(hits[0].received()) != sha256.Sum256(q.sent()):
				t.Errorf("%d bytes, chunked %t: the body of the retry differs: %d bytes arrived", size, chunked, len(hits[0].received()))
			case a.header.get("x-cart-reason") != "retry":
				t.Errorf("%d bytes, chunked %t: reason = %q, want retry", size, chunked, a.header.get("x-cart-reason"))
			}
			r.settled()
			first.restart(t)
			if size == 10 {
				r.favour(nil)
			}
		}
	}
}

// C06: Worker reads half the body and resets.
func resetInMidUpload(t *testing.T, s *stage) {
	r := s.lab(t).start(t, 2, engine.Config{"health": engine.Config{"interval": 0}})
	q := ask(prose("half of it is read", 4<<20))
	first := r.warm(q)
	second := r.other(first)
	r.favour(first)
	r.forget()
	before := r.s.heap(t)
	first.doesEarly(func(x *exchange) {
		if _, err := io.CopyN(io.Discard, x.in, 64<<10); err != nil {
			t.Error(err)
		}
		x.reset()
	})
	const times = 3 // below the breaker's threshold
	for i := 1; i <= times; i++ {
		a := r.do(q)
		if a.err != nil || a.status != 200 || a.peer() != second.url() {
			t.Fatalf("the answer = %v, want 200 from %s", &a, second.url())
		}
		hits := second.requests()
		if len(hits) != 1 || sha256.Sum256(hits[0].received()) != sha256.Sum256(q.body) {
			t.Fatalf("%d requests arrived, want one with the whole body", len(hits))
		}
		if n := len(first.requests()); n != 1 {
			t.Errorf("%d requests reached the replica that resets, want 1", n)
		}
		r.settled()
		if n := r.state().of(first).Failures; n != i {
			t.Errorf("failures of the replica that resets = %d, want %d", n, i)
		}
		r.forget()
	}
	q.body = nil
	r.grown(before, 16<<20, "after retries of 4 MB bodies")
}

// C07: Deterministic client errors are never retried, nor do they touch the breaker.
func clientErrorsKeepBreaker(t *testing.T, s *stage) {
	r := s.start(t, 2, engine.Config{"circuitBreaker": engine.Config{"failureThreshold": 1}})
	for _, status := range []int{400, 401, 403, 404, 405, 413, 415, 422} {
		body := fmt.Sprintf(`{"error":{"message":"no","n":%d}}`, status)
		r.all(func(x *exchange) { x.json(status, body) })
		r.forget()
		a := r.do(ask(fmt.Sprint("refused with ", status)))
		if a.err != nil || a.status != status || string(a.body) != body || len(r.hits()) != 1 {
			t.Errorf("%d requests and the answer %v, want one and %d %s", len(r.hits()), &a, status, body)
		}
	}
	r.settled()
	r.unharmed()
}

// C08: 429 / 529 / 503 from a replica.
func overloadAnswers(t *testing.T, s *stage) {
	t.Parallel()
	busy := func(status int, after, body string) script {
		return func(x *exchange) {
			x.answer(status, header{{"Content-Type", "application/json"}, {"Retry-After", after}}, body)
		}
	}
	for _, status := range []int{429, 503, 529} {
		t.Run(fmt.Sprint("one of two answers ", status), func(t *testing.T) {
			r := s.start(t, 2, engine.Config{"circuitBreaker": engine.Config{"failureThreshold": 1}})
			q := ask(prose("warm", 5000))
			first := r.warm(q)
			first.does(busy(status, "9", `{}`))
			r.forget()
			a := r.do(q)
			if a.err != nil || a.status != 200 || a.peer() != r.other(first).url() || len(r.hits()) != 2 {
				t.Errorf("%d requests and the answer %v, want 200 from the other replica at the second", len(r.hits()), &a)
			}
			if !r.state().of(first).PushedBack {
				t.Error("pushedBack in /workers = false, want true")
			}
			// It is left alone for the time it has named.
			r.forget()
			for i := 0; i < 3; i++ {
				r.ok(q)
			}
			if n := len(first.requests()); n != 0 {
				t.Errorf("%d requests reached the replica that asked to be left alone, want none", n)
			}
			r.settled()
			r.unharmed()
		})
		t.Run(fmt.Sprint("both answer ", status), func(t *testing.T) {
			r := s.start(t, 2, engine.Config{"circuitBreaker": engine.Config{"failureThreshold": 1}})
			want := map[string][2]string{}
			for i, m := range r.mocks {
				after, body := fmt.Sprint(7+i), fmt.Sprintf(`{"error":{"message":"full %d"}}`, i)
				want[m.url()] = [2]string{after, body}
				m.does(busy(status, after, body))
			}
			a := r.do(ask("anything"))
			hits := append(r.mocks[0].requests(), r.mocks[1].requests()...)
			if a.err != nil || a.status != status || len(hits) != 2 {
				t.Fatalf("%d requests and the answer %v, want %d after two", len(hits), &a, status)
			}
			last := hits[0]
			if hits[1].began.After(last.began) {
				last = hits[1]
			}
			if a.peer() != last.replica.url() {
				t.Errorf("the answer is of %s, want that of the last attempt, %s", a.peer(), last.replica.url())
			}
			if got := [2]string{a.header.get("Retry-After"), string(a.body)}; got != want[a.peer()] {
				t.Errorf("Retry-After and body = %q, want %q", got, want[a.peer()])
			}
			if n := len(a.header.values("Retry-After")); n != 1 {
				t.Errorf("%d Retry-After, want 1", n)
			}
			r.settled()
			r.unharmed()
		})
	}
}

// C10: Retry budget and a killer request.
func killerRequest(t *testing.T, s *stage) {
	t.Parallel()
	r := s.start(t, 8, engine.Config{"logLevel": "info", "proxy": engine.Config{"maxRetries": 2}})
	var attempts sync.Map
	r.all(func(x *exchange) {
		if !bytes.Contains(x.received(), []byte("boom")) {
			x.json(200, `{"ok":true}`)
			return
		}
		n, _ := attempts.LoadOrStore(label(x), new(atomic.Int32))
		n.(*atomic.Int32).Add(1)
		x.close()
	})
	stop := make(chan struct{})
	var beside sync.WaitGroup
	var normal atomic.Int32
	for i := 0; i < 4; i++ {
		beside.Add(1)
		go func() {
			defer beside.Done()
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				r.ok(ask(prose(fmt.Sprintf("good %d %d", i, n), 300)))
				normal.Add(1)
				time.Sleep(10 * time.Millisecond)
			}
		}()
	}
	const times = 20
	for i := 0; i < times; i++ {
		name := fmt.Sprintf("boom %d, a secret text", i)
		if err := localError(r.do(ask(name)), "/v1/chat/completions", 502, 503); err != nil {
			t.Error(err)
		}
		n, ok := attempts.Load(name)
		if !ok || n.(*atomic.Int32).Load() > 3 {
			t.Errorf("attempts of request %d = %v, want 1 to 3", i, n)
		}
	}
	time.Sleep(100 * time.Millisecond)
	close(stop)
	beside.Wait()
	if n := normal.Load(); n < 20 {
		t.Errorf("%d good requests beside, too few to show anything", n)
	}
	open := 0
	for _, w := range r.state().Workers {
		if w.Breaker == "open" {
			open++
		}
	}
	if open == 8 {
		t.Error("all breakers are open")
	}
	lines := r.logLines()
	if len(lines) > 3*times {
		t.Errorf("%d log lines, want at most one for each of %d attempts", len(lines), 3*times)
	}
	if all := strings.Join(lines, "\n"); strings.Contains(all, "secret text") {
		t.Errorf("the log repeats the body:\n%s", all)
	}
	r.settled()
}

// C11: Header timeout: first attempt is cancelled before the second starts.
func oneLiveCopy(t *testing.T, s *stage) {
	t.Parallel()
	limit, work := scaled(2*time.Second, 400*time.Millisecond), scaled(5*time.Second, time.Second)
	r := s.start(t, 3, engine.Config{"proxy": engine.Config{"firstByteTimeout": limit.String(), "maxRetries": 2, "initialBackoff": "50ms"}})
	var live, peak, aborted atomic.Int32
	r.all(func(x *exchange) {
		// The one before has been cancelled when this one is sent, of which a slow machine may tell its script later. One that
		// is not cancelled goes on for longer than that.
		for until := time.Now().Add((work - limit) / 2); live.Load() > 0 && time.Now().Before(until); {
			time.Sleep(time.Millisecond)
		}
		now := live.Add(1)
		for {
			old := peak.Load()
			if now <= old || peak.CompareAndSwap(old, now) {
				break
			}
		}
		defer live.Add(-1)
		if x.wait(work) {
			x.json(200, `{"late":true}`)
			return
		}
		aborted.Add(1)
	})
	if err := localError(r.do(ask("slow")), "/v1/chat/completions", 504); err != nil {
		t.Error(err)
	}
	r.settled()
	if err := poll(slack*time.Second, func() error {
		if n := aborted.Load(); n != 3 {
			return fmt.Errorf("%d of 3 attempts were cancelled", n)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	if len(r.hits()) != 3 || peak.Load() != 1 {
		t.Errorf("%d attempts, at most %d alive at once, want 3 and 1", len(r.hits()), peak.Load())
	}

	silence := scaled(70*time.Second, 2*time.Second)
	r.with(engine.Config{"proxy": engine.Config{"firstByteTimeout": 0}})
	r.forget()
	r.all(func(x *exchange) {
		if x.wait(silence) {
			x.json(200, `{"late":true}`)
		}
	})
	began := time.Now()
	a := r.begin(ask("very slow")).wait(silence + 30*time.Second)
	if a.err != nil || a.status != 200 || len(r.hits()) != 1 || time.Since(began) < silence {
		t.Errorf("%d attempts and after %v the answer %v, want one and 200 after %v", len(r.hits()), time.Since(began), &a, silence)
	}
	r.settled()
}

// C13: No total timeout on a living stream.
func livingStream(t *testing.T, s *stage) {
	t.Parallel()
	silence, gap, whole := scaled(65*time.Second, 1300*time.Millisecond), scaled(2*time.Second, 40*time.Millisecond), scaled(200*time.Second, 4*time.Second)
	config := engine.Config{}
	if !full {
		config["proxy"] = engine.Config{"streamIdleTimeout": "3s"} // of 5m, scaled with some air
	}
	r := s.start(t, 2, config)
	for _, headFirst := range []bool{true, false} {
		r.forget()
		r.all(func(x *exchange) {
			if headFirst {
				x.events()
			}
			if !x.wait(silence) {
				return
			}
			if !headFirst {
				x.events()
			}
			for n := 0; time.Since(x.began) < whole; n++ {
				x.chunk(fmt.Sprintf("data: {\"n\":%d}\n\n", n))
				if !x.wait(gap) {
					return
				}
			}
			x.chunk(lastEvent)
			x.end()
		})
		w := r.begin(askStream("a long one"))
		r.eventually(10*time.Second, func() error {
			if len(r.hits()) == 0 {
				return fmt.Errorf("the request is not at a replica")
			}
			return nil
		})
		for {
			if s := r.state(); s.load() != 1 {
				select {
				case <-w.done:
				case <-time.After(slack * 100 * time.Millisecond):
					t.Errorf("loads in /workers = %v while the stream runs, want 1", s.loads())
				}
			}
			select {
			case <-w.done:
			case <-time.After(whole / 100):
				continue
			}
			break
		}
		a := w.wait(time.Second)
		hits := r.hits()
		if a.err != nil || a.status != 200 || len(hits) != 1 || !bytes.Equal(a.body, hits[0].sent) || !bytes.HasSuffix(a.body, []byte(lastEvent)) {
			t.Errorf("%d requests and the answer %v, want one stream as it was sent", len(hits), &a)
		}
		r.settled()
	}
}

// C14: Client stalls or drops while uploading.
func stalledUpload(t *testing.T, s *stage) {
	ours := s.lab(t).start(t, 2, nil)
	r := ours
	if s.kind != engine.Traefik {
		r = slowUploads(t, ours.mocks...)
	}
	before := ours.s.goroutines(t)
	half := func() *wire {
		w := r.dial()
		q := ask(prose("half", 500))
		q.header = append(q.header, [2]string{"Content-Length", "100000"})
		if _, err := io.WriteString(w.conn, r.headOf(q)); err != nil {
			t.Fatal(err)
		}
		if _, err := w.conn.Write(q.body[:500]); err != nil {
			t.Fatal(err)
		}
		return w
	}
	// (a) It waits beyond the entry point's bound.
	stalled := half()
	began := time.Now()
	_ = stalled.conn.SetReadDeadline(began.Add(uploadWait + slack*5*time.Second))
	stalled.read("POST")
	if a := stalled.soFar(); a.status != 400 && a.status != 408 {
		t.Errorf("the answer to an upload that stalls = %v after %v, want 400 or 408", &a, time.Since(began))
	}
	stalled.close()
	// (b) It goes away.
	for i := 0; i < 40; i++ {
		if w := half(); i%2 == 0 {
			w.close()
		} else {
			w.reset()
		}
	}
	r.settled()
	ours.goroutinesBack(before)
	if n := len(r.hits()); n != 0 {
		t.Errorf("%d requests reached the replicas, want none", n)
	}
	r.unharmed()
	for _, w := range r.state().Workers {
		if w.Requests != 0 {
			t.Errorf("requests of %s = %d, want none counted", w.URL, w.Requests)
		}
	}
}

// C15: max_load: clean 503 and recovery.
func fullPool(t *testing.T, s *stage) {
	r := s.start(t, 2, engine.Config{"maxLoad": 2})
	g := newGate(t)
	one := newGate(t)
	var n atomic.Int32
	routed := func(x *exchange) {
		if n.Add(1) == 1 {
			one.streaming(x)
			return
		}
		g.streaming(x)
	}
	r.all(func(x *exchange) {
		if strings.HasPrefix(x.target, "/v1/chat") {
			routed(x)
			return
		}
		x.json(200, `{"data":[]}`)
	})
	first := r.hold(1, func(int) query { return askStream("stream 0") })
	rest := r.hold(3, func(i int) query { return askStream(fmt.Sprint("stream ", i+1)) })
	if loads := r.state().loads(); loads[0] != 2 || loads[1] != 2 {
		t.Fatalf("loads in /workers = %v, want 2 and 2", loads)
	}
	for _, path := range []string{"/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses"} {
		r.forget()
		w := r.dial()
		began := time.Now()
		q := post(path, `{"model":"m1","prompt":"x","messages":[{"role":"user","content":"one too many"}]}`)
		w.write(r.headOf(q), q)
		w.read("POST")
		took := since(began)
		a := w.soFar()
		if err := localError(a, path, 503); err != nil {
			t.Error(err)
		}
		if a.header.get("Retry-After") == "" || len(r.hits()) != 0 || took > 10*50*time.Millisecond {
			t.Errorf("%s: after %v, Retry-After %q, %d requests at the replicas, want at once, one and none",
				path, took, a.header.get("Retry-After"), len(r.hits()))
		}
	}
	for _, q := range []query{post("/v1/embeddings", `{"input":"x"}`), get("/v1/models"), get("/version"), get("/health"), get("/workers")} {
		r.ok(q)
	}
	one.release()
	r.whole(first)
	r.waitState(slack*time.Second, func(s workersState) error {
		if s.load() != 3 {
			return fmt.Errorf("loads in /workers = %v, want 3 in all", s.loads())
		}
		return nil
	})
	g.release()
	r.whole(append(rest, r.begin(askStream("the sixth"))))
	r.settled()
}

// C17: The proxy's abort panic must not skip clean-up.
func cutStreams(t *testing.T, s *stage) {
	t.Parallel()
	r := s.start(t, 4, engine.Config{
		"maxLoad":        1000,
		"circuitBreaker": engine.Config{"failureThreshold": 5, "successThreshold": 1, "timeout": "100ms"},
	})
	event := func(n int) string { return fmt.Sprintf("data: {\"n\":%d}\n\n", n) }
	r.all(func(x *exchange) {
		byReplica := strings.HasPrefix(label(x), "replica")
		x.events()
		for n := 0; x.chunk(event(n)); n++ {
			if byReplica && n == 4 {
				if strings.HasPrefix(label(x), "replica-half") {
					x.raw("20\r\ndata: {\"half")
					x.sent = append(x.sent, "data: {\"half"...)
					x.close()
				} else {
					x.reset()
				}
				return
			}
			if !x.wait(5 * time.Millisecond) {
				return
			}
		}
	})
	var wg sync.WaitGroup
	for i := 0; i < 200; i++ {
		wg.Add(1)
		go func() {
			defer wg.Done()
			if i%2 == 0 {
				a := r.do(askStream(prose(fmt.Sprint([]string{"replica-half ", "replica-reset "}[i/2%2], i), 300)))
				checkCut(t, a, event)
				return
			}
			w := r.begin(askStream(prose(fmt.Sprint("client ", i), 300)))
			if err := poll(20*time.Second, func() error {
				if a := w.soFar(); len(a.body) < len(event(0))*3 {
					return fmt.Errorf("a stream to cut has %v", &a)
				}
				return nil
			}); err != nil {
				t.Error(err)
			}
			w.reset()
			checkCut(t, w.soFar(), event)
		}()
	}
	wg.Wait()
	r.settled()
	// No place of a breaker that is half open is lost: all of them close again.
	r.all(nil)
	i := 0
	r.waitState(slack*5*time.Second, func(s workersState) error {
		for _, w := range s.Workers {
			if w.Breaker != "closed" {
				for j := 0; j < 8; j++ {
					i++
					r.ok(ask(prose(fmt.Sprint("afterwards ", i), 300)))
				}
				return fmt.Errorf("breaker of %s = %s, want it closed again", w.URL, w.Breaker)
			}
		}
		return nil
	})
	r.settled()
}

// checkCut checks that what came of a stream is a beginning of what was sent, and that it did not end well.
func checkCut(t *testing.T, a reply, event func(n int) string) {
	t.Helper()
	var want strings.Builder
	for n := 0; want.Len() <= len(a.body); n++ {
		want.WriteString(event(n))
	}
	all := want.String()
	half, broken := strings.CutSuffix(string(a.body), "data: {\"half")
	if a.status != 200 || !strings.HasPrefix(all, half) && !strings.HasPrefix(all, string(a.body)) {
		t.Errorf("a stream that was cut = %v, want a beginning of what was sent", &a)
	}
	if broken && a.err == nil {
		t.Errorf("a stream that was cut ended well: %v", &a)
	}
}

// C18: Slow reader does not make memory grow.
func slowReaders(t *testing.T, s *stage) {
	r := s.lab(t).start(t, 2, nil)
	const clients, length = 10, 300 << 20
	block := strings.Repeat("x", 64<<10)
	var sent atomic.Int64
	gone := make(chan struct{}, clients)
	r.all(func(x *exchange) {
		if strings.HasPrefix(label(x), "endless") {
			x.raw("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
		} else {
			x.raw(fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nContent-Length: %d\r\n\r\n", length))
		}
		for n := 0; n < length && !x.dead; n += len(block) {
			if strings.HasPrefix(label(x), "endless") {
				x.raw(fmt.Sprintf("%x\r\n%s\r\n", len(block), block))
				n = 0
			} else {
				x.raw(block)
			}
			sent.Add(int64(len(block)))
		}
		gone <- struct{}{}
	})
	before := r.s.heap(t)
	var conns []net.Conn
	for i := 0; i < clients; i++ {
		w := r.dial()
		_ = w.conn.(*net.TCPConn).SetReadBuffer(16 << 10)
		q := askStream(fmt.Sprint([]string{"endless ", "fixed "}[i%2], i))
		w.write(r.headOf(q), q)
		conns = append(conns, w.conn)
	}
	read := func() {
		for _, c := range conns {
			if _, err := io.CopyN(io.Discard, c, 1000); err != nil {
				t.Error(err)
			}
		}
	}
	read()
	var last int64
	quiet := 0
	if err := poll(slack*10*time.Second, func() error { // until all is stuck, and not for a moment only
		now := sent.Load()
		if quiet++; now != last {
			quiet = 0
		}
		last = now
		time.Sleep(200 * time.Millisecond)
		if quiet < 3 {
			return fmt.Errorf("the replicas go on sending to clients that do not read: %d MB so far", now>>20)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	for i := 0; i < int(scaled(10, 2)); i++ {
		read()
		r.grown(before, 32<<20, "with ten slow readers")
		time.Sleep(scaled(time.Second, 200*time.Millisecond))
	}
	if now := sent.Load(); now-last > 20<<20 {
		t.Errorf("the replicas sent %d MB while the clients read some kB, want them held back", (now-last)>>20)
	}
	for _, c := range conns {
		_ = c.Close()
	}
	for i := 0; i < clients; i++ {
		select {
		case <-gone:
		case <-time.After(slack * time.Second):
			t.Fatalf("only %d of %d replicas were cut off after the clients left", i, clients)
		}
	}
	r.settled()
	r.unharmed()
}
