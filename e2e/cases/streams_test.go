package cases

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cart-llm/cart"
	"github.com/cart-llm/cart/e2e/engine"
)

// Group B: streams. What the machine form leaves out. Cases that mostly wait run side by side, after all others.

func init() {
	tests = append(tests,
		test{"B01", eventsAtOnce}, test{"B02", otherStreams}, test{"B06", longLine}, test{"B07", cutStream}, test{"B08", cleanEndIsSuccess},
		test{"B09", cutAnswer}, test{"B12", errorForStream}, test{"B14", splitCharacters}, test{"B15", compressed},
	)
}

const streamBody = `{"model":"m1","stream":true,"messages":[{"role":"user","content":"hi"}]}`

func streamed(mark string) query {
	return post("/v1/chat/completions", streamBody).with("X-Mark", mark)
}

// pieces sends a body piece by piece, with a pause before each.
func pieces(h header, first, gap time.Duration, parts ...string) script {
	return func(x *exchange) {
		x.open(200, h)
		for i, p := range parts {
			pause := gap
			if i == 0 {
				pause = first
			}
			if !x.wait(pause) || !x.chunk(p) {
				return
			}
		}
		x.end()
	}
}

var sse = header{{"Content-Type", "text/event-stream"}}

// both sends a request over HTTP/1.1 and HTTP/2 at once and returns the answers by protocol.
func (r *rig) both(of func(protocol string) query) map[string]*wire {
	r.t.Helper()
	h2, _ := r.begin2(of("HTTP/2"))
	return map[string]*wire{"HTTP/1.1": r.begin(of("HTTP/1.1")), "HTTP/2": h2}
}

// atOnce checks that the head and every piece of a stream came in time, and each before the next was written.
func (r *rig) atOnce(what string, x *exchange, a *reply) {
	r.t.Helper()
	const bound = slack * 200 * time.Millisecond
	x.mu.Lock()
	defer x.mu.Unlock()
	if a.err != nil || a.status != 200 {
		r.t.Errorf("%s: %v, want 200", what, a)
		return
	}
	if string(a.body) != string(x.sent) {
		r.t.Errorf("%s: the client got %q, want %q", what, cut(a.body), cut(x.sent))
		return
	}
	late := func(from, to time.Time) time.Duration { return to.Sub(from) - pauses.within(from, to) }
	// before says whether something came before the next was written, or would have but for a pause between.
	before := func(written, read, next time.Time) bool {
		return read.Before(next) || read.Sub(next) < pauses.within(written, read)
	}
	if late := late(x.headAt, a.headAt); late > bound || !before(x.headAt, a.headAt, x.writes[0].at) {
		r.t.Errorf("%s: the head came after %v, want at most %v and before the first piece", what, late, bound)
	}
	i := 0
	for n, w := range x.writes {
		for a.reads[i].end < w.end {
			i++
		}
		if late := late(w.at, a.reads[i].at); late > bound {
			r.t.Errorf("%s: piece %d came after %v, want at most %v", what, n, late, bound)
		}
		if n+1 < len(x.writes) && !before(w.at, a.reads[i].at, x.writes[n+1].at) {
			r.t.Errorf("%s: piece %d came only after the next had been written", what, n)
		}
	}
}

// B01 Each SSE event reaches the client at once (inside Traefik, interpreted)
func eventsAtOnce(t *testing.T, s *stage) {
	t.Parallel()
	r := s.start(t, 2, nil)
	var events []string
	for i := 0; i < 5; i++ {
		events = append(events, fmt.Sprintf("data: {\"n\":%d}\n\n", i))
	}
	r.all(pieces(sse, time.Second, 400*time.Millisecond, events...))
	for protocol, w := range r.both(streamed) {
		a := w.wait(20 * time.Second)
		r.atOnce(protocol, r.marked(protocol), &a)
	}
	r.settled()
}

// B02 Content-Type with parameters or odd case, and unknown-length non-SSE streams
func otherStreams(t *testing.T, s *stage) {
	t.Parallel()
	r := s.start(t, 2, nil)
	types := []string{"text/event-stream; charset=utf-8", "Text/Event-Stream", "application/x-ndjson", ""}
	of := func(mark string) script {
		_, kind, _ := strings.Cut(mark, " ")
		var h header
		if kind != "" {
			h = header{{"Content-Type", kind}}
		}
		return pieces(h, 400*time.Millisecond, 400*time.Millisecond, "{\"n\":1}\n", "{\"n\":2}\n", "<html>3\n", "data: 4\n\n")
	}
	r.all(func(x *exchange) { of(x.header.get("X-Mark"))(x) })
	running := map[string]*wire{}
	for _, kind := range types {
		for protocol, w := range r.both(func(protocol string) query { return streamed(protocol + " " + kind) }) {
			running[protocol+" "+kind] = w
		}
	}
	for mark, w := range running {
		a := w.wait(20 * time.Second)
		mark = strings.TrimSuffix(mark, " ") // as it is on the wire
		r.atOnce(mark, r.marked(mark), &a)
		_, want, _ := strings.Cut(mark, " ")
		if got := a.header.get("Content-Type"); got != want {
			t.Errorf("%s: Content-Type = %q, want %q", mark, got, want)
		}
	}

	// Nothing is guessed from the first bytes either, however soon they come, and whatever the length.
	for i := 0; i < 20 && !t.Failed(); i++ {
		for what, script := range map[string]script{
			"a stream":                  pieces(nil, 0, 0, "<html>\n", "x"),
			"an answer with its length": func(x *exchange) { x.answer(200, nil, "<html>") },
		} {
			r.all(script)
			for protocol, w := range r.both(streamed) {
				if a := w.wait(20 * time.Second); a.err != nil || a.status != 200 || len(a.header.values("Content-Type")) > 0 {
					t.Errorf("%s without Content-Type over %s: %v, want none", what, protocol, &a)
				}
			}
		}
	}
	r.settled()
}

// B06 One SSE line of several MB
func longLine(t *testing.T, s *stage) {
	const mib, count, streams = 1 << 20, 5, 8
	r := s.start(t, 2, nil)
	block := []byte(strings.Repeat("0123456789abcde ", mib/16))
	block[0] = 'd'
	var mu sync.Mutex
	there := map[string]chan struct{}{} // closed when the first MB is with the client
	for i := 0; i < streams; i++ {
		there[fmt.Sprint(i)] = make(chan struct{})
	}
	late := map[string]bool{}
	written := make(chan bool, streams)
	measured := make(chan struct{})
	r.do(chat("to have everything in place"))
	r.all(func(x *exchange) { // writes by itself, for nothing is to be kept here
		x.events()
		for i := 0; i < count; i++ {
			if i > 0 && !x.wait(100*time.Millisecond) {
				return
			}
			if mark := x.header.get("X-Mark"); i == count-1 {
				select { // by which the first is to be with the client, for whom the last one waits
				case <-there[mark]:
				case <-x.gone:
					return
				case <-time.After(10 * time.Second):
					mu.Lock()
					late[mark] = true
					mu.Unlock()
				}
			}
			fmt.Fprintf(x.conn, "%x\r\n", mib)
			x.conn.Write(block)
			io.WriteString(x.conn, "\r\n")
		}
		written <- true
		<-measured
		x.raw("f\r\n\ndata: [DONE]\n\n\r\n")
		x.end()
	})
	want := sha256.New()
	for i := 0; i < count; i++ {
		want.Write(block)
	}
	io.WriteString(want, "\ndata: [DONE]\n\n")

	type outcome struct {
		mark string
		sum  string
		err  error
	}
	ended := make(chan outcome, streams)
	one := func(client *http.Client, base, mark string) {
		o := outcome{mark: mark}
		defer func() { ended <- o }()
		req, err := http.NewRequest("POST", base+"/v1/chat/completions", strings.NewReader(streamBody))
		if err != nil {
			o.err = err
			return
		}
		req.Host = r.host
		req.Header.Set("X-Mark", mark)
		resp, err := client.Do(req)
		if err != nil {
			o.err = err
			return
		}
		defer resp.Body.Close()
		sum, buffer, n := sha256.New(), make([]byte, 16<<10), 0
		for {
			m, err := resp.Body.Read(buffer)
			sum.Write(buffer[:m])
			if n += m; n >= mib && n-m < mib {
				close(there[mark])
			}
			if err != nil {
				if err != io.EOF {
					o.err = err
				}
				break
			}
		}
		o.sum = hex.EncodeToString(sum.Sum(nil))
	}
	before := r.memory()
	for i := 0; i < streams; i++ {
		if i%2 == 0 {
			go one(r.e.Client(), r.e.URL(), fmt.Sprint(i))
		} else {
			go one(r.e.ClientTLS(), r.e.URLTLS(), fmt.Sprint(i))
		}
	}
	for i := 0; i < streams; i++ {
		select {
		case <-written:
		case <-time.After(30 * time.Second):
			t.Fatal("the replica could not write the line")
		}
	}
	time.Sleep(100 * time.Millisecond)
	if grown := r.memory() - before; grown > streams*2*mib {
		t.Errorf("memory grew by %d kB with %d streams of a line of %d MB, want at most 2 MB each", grown>>10, streams, count)
	}
	close(measured)
	for i := 0; i < streams; i++ {
		o := <-ended
		mu.Lock()
		held := late[o.mark]
		mu.Unlock()
		if o.err != nil || o.sum != hex.EncodeToString(want.Sum(nil)) {
			t.Errorf("a long line arrived changed: %v", o.err)
		} else if held {
			t.Errorf("the first of %d MB was not with the client before the last was written", count)
		}
	}
	r.settled()
}

const threeEvents = "data: {\"n\":1}\n\ndata: {\"n\":2}\n\ndata: {\"n\":3}\n\n"

// B07 Replica dies in mid-stream: abort, add nothing
func cutStream(t *testing.T, s *stage) {
	r := s.start(t, 2, nil)
	clients := []*rig{r}
	if s.kind == engine.Traefik {
		clients = append(clients, r.before("retry", map[string]any{"attempts": 4, "initialInterval": "10ms"}))
	}
	cuts := 0
	for what, end := range map[string]func(x *exchange){"closed": (*exchange).close, "reset": (*exchange).reset} {
		r.all(func(x *exchange) {
			x.events()
			for _, event := range strings.SplitAfter(threeEvents, "\n\n")[:3] {
				x.chunk(event)
				if !x.wait(50 * time.Millisecond) {
					return
				}
			}
			end(x)
		})
		for _, c := range clients {
			for _, protocol := range []string{"HTTP/1.1", "HTTP/2"} {
				r.forget()
				a := c.over(protocol, streamed("m"))
				cuts++
				name := fmt.Sprintf("a stream that is %s, over %s, to %s", what, protocol, c.name)
				if a.status != 200 || a.err == nil || string(a.body) != threeEvents {
					t.Errorf("%s: %v, want 200, the three events and an error", name, &a)
				} else if protocol == "HTTP/2" && !strings.Contains(a.err.Error(), "stream error") {
					t.Errorf("%s: error %v, want one of the stream alone", name, a.err)
				}
				if n := len(r.hits()); n != 1 {
					t.Errorf("%s: %d requests reached the replicas, want 1", name, n)
				}
				r.settled()
				if got := r.state().failures(); got != cuts {
					t.Fatalf("failures in /workers after %s = %d, want %d", name, got, cuts)
				}
				// Breakers must not get in the way of the next.
				r.all2(func(x *exchange) { x.json(200, `{}`) }, func() { r.do(chat("one")); r.do(chat("two")) })
			}
		}
	}
}

// all2 gives the replicas another script while f runs.
func (r *rig) all2(s script, f func()) {
	var before []script
	for _, m := range r.mocks {
		m.mu.Lock()
		before = append(before, m.script)
		m.script = s
		m.mu.Unlock()
	}
	f()
	for i, m := range r.mocks {
		m.does(before[i])
	}
}

// B08 Clean end without [DONE] or message_stop: it counts as success for the breaker.
func cleanEndIsSuccess(t *testing.T, s *stage) {
	r := s.start(t, 2, engine.Config{
		"circuitBreaker": engine.Config{"failureThreshold": 2, "timeout": "1m"}, "proxy": engine.Config{"maxRetries": 0},
	})
	q := chat(text(1, 5000))
	m := r.warm(q)
	broken := func(x *exchange) {
		x.events()
		x.chunk("data: 1\n\n")
		x.close()
	}
	unterminated := func(x *exchange) {
		x.events()
		x.chunk("data: 1\n\ndata: 2\n\n")
		x.end()
	}
	send := func(s script, good bool, breaker string) {
		t.Helper()
		r.all(s)
		r.forget()
		a := r.do(q)
		if (a.err == nil) != good || a.peer() != m.url() {
			t.Fatalf("%v, want it from %s, good %v", &a, m.url(), good)
		}
		if good && string(a.body) != "data: 1\n\ndata: 2\n\n" {
			t.Errorf("the client got %q, want the two events and nothing else", a.body)
		}
		r.settled()
		if got := r.state().of(m).Breaker; got != breaker {
			t.Fatalf("breaker = %s, want %s", got, breaker)
		}
	}
	send(broken, false, "closed")
	send(unterminated, true, "closed")
	send(broken, false, "closed")
	send(unterminated, true, "closed")
	send(broken, false, "closed")
	send(broken, false, "open")
}

// B09 Fixed-length answer cut short. Settled: retry as long as nothing was written to the client.
func cutAnswer(t *testing.T, s *stage) {
	r := s.start(t, 2, nil)
	const head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n"
	part := strings.Repeat("a", 400)
	for what, end := range map[string]func(x *exchange){"closed": (*exchange).close, "reset": (*exchange).reset} {
		r.all(func(x *exchange) {
			x.raw(head + part)
			if x.wait(50 * time.Millisecond) {
				end(x)
			}
		})
		for protocol, w := range r.both(streamed) {
			a := w.wait(20 * time.Second)
			if a.status != 200 || a.header.get("Content-Length") != "1000" || string(a.body) != part || a.err == nil {
				t.Errorf("cut after 400 bytes, %s, over %s: %v, want 200, those 400 and an error", what, protocol, &a)
			}
			r.marked(protocol)
		}
		r.forget()
		r.settled()
		r.all2(nil, func() { r.do(chat("one")); r.do(chat("two")) })

		// Cut before the first byte: the other replica answers.
		for _, protocol := range []string{"HTTP/1.1", "HTTP/2"} {
			var once sync.Once
			r.all(func(x *exchange) {
				first := false
				once.Do(func() { first = true })
				if !first {
					x.json(200, `{"from":"the second"}`)
					return
				}
				x.raw(head)
				if x.wait(20 * time.Millisecond) {
					end(x)
				}
			})
			r.forget()
			a := r.over(protocol, streamed("m"))
			switch {
			case a.err == nil && a.status == 200 && string(a.body) == `{"from":"the second"}`:
			case a.err == nil && a.status == 502 && strings.Contains(string(a.body), `"error"`):
			default:
				t.Errorf("cut right after the head, %s, over %s: %v, want the other replica's answer or 502", what, protocol, &a)
			}
			r.settled()
		}
		// Both of them: never an answer that looks complete.
		r.all(func(x *exchange) {
			x.raw(head)
			end(x)
		})
		if a := r.do(streamed("m")); a.err != nil || a.status != 502 || !strings.Contains(string(a.body), `"error"`) {
			t.Errorf("all cut right after the head, %s: %v, want 502", what, &a)
		}
		r.settled()
		r.all2(nil, func() { r.do(chat("three")); r.do(chat("four")) })
	}
}

// B12 `stream:true` answered with a JSON error keeps its status
func errorForStream(t *testing.T, s *stage) {
	r := s.start(t, 2, nil)
	for _, path := range []string{"/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses"} {
		for _, status := range []int{400, 401, 404, 422, 429} {
			h := header{{"Content-Type", "application/json"}, {"x-trace", "q1"}, {"X-Trace", "q2"}}
			if status == 429 {
				h = append(h, [2]string{"Retry-After", "7"})
			}
			r.all(func(x *exchange) { x.answer(status, h, `{"error":{"message":"prompt too long"}}`) })
			what := fmt.Sprintf("%s answered %d", path, status)
			r.forget()
			a := r.do(post(path, streamBody))
			if a.err != nil || a.status != status || string(a.body) != `{"error":{"message":"prompt too long"}}` {
				t.Errorf("%s: %v", what, &a)
			}
			for _, f := range h {
				if got := a.header.values(f[0]); !sameSet(got, h.values(f[0])) {
					t.Errorf("%s: %s = %q, want %q", what, f[0], got, h.values(f[0]))
				}
			}
			if n := len(r.hits()); n != 1 && (status != 429 || n != 2) {
				t.Errorf("%s: %d requests reached the replicas", what, n)
			}
			if a.peer() == "" {
				t.Errorf("%s: no x-routed-peer", what)
			}
			r.settled()
		}
	}
	r.settled()
	if got := r.state().failures(); got != 0 {
		t.Errorf("failures in /workers = %d, want 0", got)
	}

	// The other way round: what was not asked for as a stream and comes as one passes as one.
	r.all(pieces(sse, 200*time.Millisecond, 200*time.Millisecond, "data: 1\n\n", "data: 2\n\n"))
	for _, body := range []string{`{"model":"m1","messages":[]}`, `{"model":"m1","stream":false,"messages":[]}`, ``} {
		r.forget()
		a := r.do(post("/v1/chat/completions", body))
		r.atOnce("a stream that "+body+" did not ask for", r.hits()[0], &a)
	}
	r.settled()
}

// B14 Writes cut inside a character, a CRLF or a chunk
func splitCharacters(t *testing.T, s *stage) {
	t.Parallel()
	r := s.start(t, 2, nil)
	body := "data: {\"t\":\"\u20ac \u6f22 \U0001f642\"}\r\n\r\ndata: \xff\xc3\r\ndata: [DONE]\r\n\r\n"
	var single []string
	for i := range len(body) {
		single = append(single, body[i:i+1])
	}
	scripts := map[string]script{
		"chunk per byte": pieces(sse, 5*time.Millisecond, 5*time.Millisecond, single...),
		"bytes of chunks": func(x *exchange) { // the framing itself is cut
			x.events()
			x.mu.Lock()
			x.sent = []byte(body)
			x.mu.Unlock()
			framed := fmt.Sprintf("%x\r\n%s\r\n%x;ext=1\r\n%s\r\n0\r\n\r\n", 20, body[:20], len(body)-20, body[20:])
			for i := range len(framed) {
				x.raw(framed[i : i+1])
				if !x.wait(5 * time.Millisecond) {
					return
				}
			}
		},
	}
	r.all(func(x *exchange) { scripts[strings.TrimSuffix(x.header.get("X-Mark"), " 2")](x) })
	running := map[string]*wire{}
	for name := range scripts {
		running[name] = r.begin(streamed(name))
		running[name+" 2"], _ = r.begin2(streamed(name + " 2"))
	}
	for name, w := range running {
		a := w.wait(20 * time.Second)
		if a.err != nil || string(a.body) != body {
			t.Errorf("%s: %v, want %q", name, &a, body)
			continue
		}
		if err := prompt(r.marked(name), &a, slack*200*time.Millisecond); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	r.settled()
}

// B15 Traefik compress middleware behind/before CART
func compressed(t *testing.T, s *stage) {
	t.Parallel()
	r := s.start(t, 2, nil)
	events := []string{"data: {\"n\":1}\n\n", "data: {\"n\":2}\n\n", "data: {\"n\":3}\n\n"}
	script := pieces(sse, 500*time.Millisecond, 500*time.Millisecond, events...)
	r.all(script)
	gzip := func(mark string) query { return streamed(mark).with("Accept-Encoding", "gzip") }

	// CART alone.
	for protocol, w := range r.both(gzip) {
		a := w.wait(20 * time.Second)
		r.atOnce("CART alone over "+protocol, r.marked(protocol), &a)
		if got := a.header.values("Content-Encoding"); len(got) > 0 {
			t.Errorf("CART alone: Content-Encoding = %q, want none", got)
		}
	}
	r.forget()
	if s.kind != engine.Traefik {
		flushesEachWrite(t, r, gzip("m"))
		return
	}

	one := startMock(t)
	one.does(script)
	plain := s.plain(t, one).before("compress", map[string]any{})
	chained := r.before("compress", map[string]any{})
	type run struct {
		r *rig
		w *wire
	}
	runs := map[string]run{"CART": {chained, chained.begin(gzip("m"))}, "a plain service": {plain, plain.begin(gzip("m"))}}
	held := map[string]bool{}
	for name, one := range runs {
		a := one.w.wait(20 * time.Second)
		if a.err != nil || a.status != 200 {
			t.Fatalf("compress before %s: %v, want 200", name, &a)
		}
		x := one.r.marked("m")
		x.mu.Lock()
		for n := 0; n+1 < len(x.writes); n++ {
			// Compressed or not, something has to come between two writes.
			came := false
			for _, read := range a.reads {
				came = came || (read.at.After(x.writes[n].at) && read.at.Before(x.writes[n+1].at))
			}
			held[name] = held[name] || !came
		}
		x.mu.Unlock()
		t.Logf("compress before %s: Content-Encoding %q, held back %v", name, a.header.values("Content-Encoding"), held[name])
	}
	if held["CART"] && !held["a plain service"] {
		t.Error("compress before CART holds events back, before a plain service it does not")
	}
}

// flushesEachWrite checks that what stands before CART is told to pass on each write.
func flushesEachWrite(t *testing.T, r *rig, q query) {
	config := cart.CreateConfig()
	config.LogLevel = "error"
	for _, m := range r.mocks {
		config.Workers = append(config.Workers, cart.WorkerConfig{URL: m.url()})
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	h, err := cart.New(ctx, http.NotFoundHandler(), config, "b15-flushes")
	if err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	var mu sync.Mutex
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		h.ServeHTTP(&flushRecorder{w, &mu, &log}, req)
	}))
	defer server.Close()
	resp, err := http.Post(server.URL+q.target, "application/json", strings.NewReader(string(q.body)))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || len(body) == 0 {
		t.Fatalf("the stream = %q, %v", body, err)
	}
	mu.Lock()
	defer mu.Unlock()
	if got := strings.ReplaceAll(log.String(), "WF", ""); strings.Contains(got, "W") || log.Len() < 6 {
		t.Errorf("writes and flushes = %s, want a flush after each write", log.String())
	}
}

type flushRecorder struct {
	http.ResponseWriter
	mu  *sync.Mutex
	log *strings.Builder
}

func (w *flushRecorder) note(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.log.WriteString(what)
}

func (w *flushRecorder) Write(b []byte) (int, error) {
	w.note("W")
	return w.ResponseWriter.Write(b)
}

func (w *flushRecorder) Flush() {
	w.note("F")
	w.ResponseWriter.(http.Flusher).Flush()
}
