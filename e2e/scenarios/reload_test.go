package scenarios

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cart-llm/cart/e2e/engine"
	"github.com/cart-llm/cart/e2e/replica"
)

// TestReloadKeepsTree: 50 reloads or more of something else under load lose no request, no count and no knowledge.
func TestReloadKeepsTree(t *testing.T) {
	engine.Each(t, func(t *testing.T, kind engine.Kind) {
		// Room for all that the crowd sends, or what was warmed would rightly be taken for evicted.
		r := start(t, kind, pool{size: 3, options: replica.Options{DecodeRate: 1000, CacheTokens: 1 << 22}})
		home := map[string]string{}
		for i := 0; i < 9; i++ {
			name := fmt.Sprintf("warmed %d", i)
			home[name] = r.chat(newChat(name)).peer()
		}
		crowd := r.crowd(6)
		// On a slow machine there are more of them until enough has been sent to show anything.
		const enough = 100
		for i := 0; i < 50 || crowd.sent.Load() < enough && i < 1000; i++ {
			r.setup.Middlewares["other"] = engine.Config{"workers": workersOf(r.urls()...), "maxLoad": i + 1, "logLevel": "error"}
			r.setup.Routers["other"] = engine.Router{Host: fmt.Sprintf("other-%d.test", i), Middleware: "other"}
			r.reload()
			time.Sleep(15 * time.Millisecond) // in-process reloads take no time; the crowd is to get between them
		}
		sent := len(home) + crowd.stop()
		if sent < enough {
			t.Errorf("only %d requests were sent, too few to show anything", sent)
		}
		r.waitIdle()
		s := r.state()
		requests, reasons, seen := 0, 0, 0
		for i, w := range s.Workers {
			requests += w.Requests
			seen += len(generations(r.replicas[i]))
		}
		for _, n := range s.Reasons {
			reasons += n
		}
		if requests != sent || reasons != sent || seen != sent {
			t.Errorf("requests in /workers = %d, reasons %v, seen by the replicas %d, want %d each", requests, s.Reasons, seen, sent)
		}
		for name, peer := range home {
			if a := r.chat(newChat(name)); a.peer() != peer || a.reason() != "cache_hit" {
				t.Errorf("%s went to %s (%s), want %s (cache_hit)", name, a.peer(), a.reason(), peer)
			}
		}
	})
}

// crowd are clients that send unrelated chats, every fourth as a longer stream, until they are stopped.
type crowd struct {
	r    *rig
	done chan struct{}
	sent atomic.Int64
	wait sync.WaitGroup
}

func (r *rig) crowd(clients int) *crowd {
	c := &crowd{r: r, done: make(chan struct{})}
	for i := 0; i < clients; i++ {
		c.wait.Add(1)
		go func() {
			defer c.wait.Done()
			c.client(i)
		}()
	}
	return c
}

func (c *crowd) client(i int) {
	for n := 0; ; n++ {
		select {
		case <-c.done:
			return
		default:
		}
		one := newChat(fmt.Sprintf("crowd %d %d", i, n))
		if n%4 == 3 {
			one = one.stream().tokens(40)
		}
		a := c.r.post("/v1/chat/completions", one.body())
		c.sent.Add(1)
		if a.err != nil || a.status != http.StatusOK {
			c.r.t.Errorf("a client of the crowd got %d %.200s, %v, want 200", a.status, a.body, a.err)
			return
		}
	}
}

// more waits until so many further requests have been answered.
func (c *crowd) more(t *testing.T, n int64) {
	t.Helper()
	want := c.sent.Load() + n
	eventually(t, 20*time.Second, func() error {
		if got := c.sent.Load(); got < want {
			return fmt.Errorf("the crowd has sent %d requests, want %d", got, want)
		}
		return nil
	})
}

// stop ends the clients and returns how many requests they have sent.
func (c *crowd) stop() int {
	close(c.done)
	c.wait.Wait()
	return int(c.sent.Load())
}

// TestRemovalDrains: the streams of a replica that is removed go on to their end, nothing new reaches it, and when it
// comes back nothing is remembered of it.
func TestRemovalDrains(t *testing.T) {
	engine.Each(t, func(t *testing.T, kind engine.Kind) {
		tickers := map[string]*ticker{}
		var urls []string
		for i := 0; i < 3; i++ {
			one := startTicker(t)
			tickers[one.URL] = one
			urls = append(urls, one.URL)
		}
		r := start(t, kind, pool{config: engine.Config{"workers": workersOf(urls...)}})
		kept := newChat("only the removed one has it").tokens(1)
		gone := tickers[r.chat(kept).peer()]
		streamed := r.promptAt(gone.URL)
		crowd := r.crowd(3)
		var streams []*held
		for i := 0; i < 3; i++ {
			h := r.hold(streamed.tokens(60))
			if h.peer() != gone.URL {
				t.Fatalf("a stream went to %s (%s), want %s", h.peer(), h.reason(), gone.URL)
			}
			streams = append(streams, h)
		}

		var rest []string
		for _, url := range urls {
			if url != gone.URL {
				rest = append(rest, url)
			}
		}
		r.with(engine.Config{"workers": workersOf(rest...)})
		r.waitArrived(gone.URL, len(streams))
		before := gone.requests.Load()
		if w, ok := r.state().worker(gone.URL); ok && !w.Draining {
			t.Errorf("the removed replica in /workers = %+v, want it draining or absent", w)
		}
		for i := 0; i < 10; i++ {
			if a := r.chat(streamed.tokens(1)); a.peer() == gone.URL {
				t.Errorf("a prompt of the removed replica went to it (%s)", a.reason())
			}
		}
		for _, h := range streams {
			checkTicks(t, h, 60)
		}
		crowd.stop()
		if got := gone.requests.Load(); got != before {
			t.Errorf("requests that reached the replica after its removal = %d, want 0", got-before)
		}
		r.waitState(5*time.Second, func(s poolState) error {
			if w, ok := s.worker(gone.URL); ok {
				return fmt.Errorf("the drained replica is still in /workers: %+v", w)
			}
			return nil
		})

		r.with(engine.Config{"workers": workersOf(urls...)})
		if w, ok := r.state().worker(gone.URL); !ok || w.Claims != 0 || w.Load != 0 {
			t.Errorf("the replica that came back in /workers = %+v, %v, want it with no claims and no load", w, ok)
		}
		if a := r.chat(kept); a.reason() != "miss" {
			t.Errorf("reason for a prompt of the replica's former life = %s, want miss", a.reason())
		}
	})
}

// waitArrived waits until a replica that was removed has no more than so many streams: what was sent to it before the removal may
// still be on its way, and counts as load from when it is sent.
func (r *rig) waitArrived(url string, streams int) {
	r.t.Helper()
	r.waitState(10*time.Second, func(s poolState) error {
		if w, _ := s.worker(url); w.Load > streams {
			return fmt.Errorf("load of %s after its removal = %d, want %d streams at most", url, w.Load, streams)
		}
		return nil
	})
}

// TestReturnWhileDraining: a replica that comes back before its last stream has ended takes up its load again, but none of
// its claims.
func TestReturnWhileDraining(t *testing.T) {
	engine.Each(t, func(t *testing.T, kind engine.Kind) {
		one, other := startTicker(t), startTicker(t)
		r := start(t, kind, pool{config: engine.Config{"workers": workersOf(one.URL, other.URL)}})
		c := r.promptAt(one.URL)
		h := r.hold(c.tokens(40))
		goOn := one.pause()
		defer goOn()
		r.with(engine.Config{"workers": workersOf(other.URL)})
		r.with(engine.Config{"workers": workersOf(one.URL, other.URL)})
		if w, _ := r.state().worker(one.URL); w.Load != 1 || w.Claims != 0 || w.Draining {
			t.Errorf("the replica that came back in /workers = %+v, want load 1, no claims, not draining", w)
		}
		if a := r.chat(c); a.reason() != "miss" || a.peer() != other.URL {
			t.Errorf("a prompt of its former life went to %s (%s), want the less loaded %s (miss)", a.peer(), a.reason(), other.URL)
		}
		goOn()
		checkTicks(t, h, 40)
		r.waitIdle()
	})
}

// promptAt returns a chat that has been sent to the replica with that address.
func (r *rig) promptAt(url string) *chat {
	r.t.Helper()
	for i := 0; i < 100; i++ {
		c := newChat(fmt.Sprintf("search %d", i)).tokens(1)
		if r.chat(c).peer() == url {
			return c
		}
	}
	r.t.Fatalf("none of 100 unrelated prompts went to %s", url)
	return nil
}

// ticker is a server whose streams are made of the same bytes each time: max_tokens events, 20 ms apart.
type ticker struct {
	*httptest.Server
	requests atomic.Int64
	paused   sync.RWMutex
}

// pause stops all streams until what it returns is called.
func (o *ticker) pause() (goOn func()) {
	o.paused.Lock()
	return sync.OnceFunc(o.paused.Unlock)
}

func startTicker(t *testing.T) *ticker {
	t.Helper()
	one := &ticker{}
	one.Server = httptest.NewServer(http.HandlerFunc(one.serve))
	t.Cleanup(func() {
		one.CloseClientConnections()
		one.Close()
	})
	return one
}

func (o *ticker) serve(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		return // a health probe
	}
	o.requests.Add(1)
	var c chat
	if err := json.NewDecoder(r.Body).Decode(&c); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	out := http.NewResponseController(w)
	for i := 0; i < c.MaxTokens; i++ {
		o.paused.RLock()
		_, err := io.WriteString(w, tickerEvent(i))
		if err == nil {
			err = out.Flush()
		}
		o.paused.RUnlock()
		if err != nil {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func tickerEvent(i int) string { return fmt.Sprintf("data: event %d of the stream\n\n", i) }

// checkTicks reads a held stream of a ticker to its end and checks every byte.
func checkTicks(t *testing.T, h *held, n int) {
	t.Helper()
	var want strings.Builder
	for i := 0; i < n; i++ {
		want.WriteString(tickerEvent(i))
	}
	body, err := io.ReadAll(h.resp.Body)
	if err != nil || string(body) != want.String() {
		t.Errorf("a stream ended with %v after %d bytes, want nil after the same %d", err, len(body), want.Len())
	}
}

// TestReloadDuringStream: a stream outlives the configuration it began under, and its client can still cancel it.
func TestReloadDuringStream(t *testing.T) {
	engine.Each(t, func(t *testing.T, kind engine.Kind) {
		r := start(t, kind, pool{size: 1, options: replica.Options{DecodeRate: 50}})
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		ask := func(n int) *http.Response {
			body := newChat("long").stream().tokens(n).body()
			resp, err := r.send(ctx, request{method: "POST", path: "/v1/chat/completions", body: body})
			if err != nil {
				t.Fatal(err)
			}
			return resp
		}
		short, long := ask(40), ask(5000)
		defer short.Body.Close()
		defer long.Body.Close()
		r.with(engine.Config{"maxLoad": 7})
		if got := r.state().load(); got != 2 && r.running() == 2 { // on a slow machine the short one may have ended
			t.Errorf("load in /workers after a reload = %d, want 2", got)
		}
		events, err := readEvents(short.Body)
		if err != nil || len(events) != 43 {
			t.Errorf("a stream over a reload had %d events and ended with %v, want 43 and nil", len(events), err)
		}
		cancel()
		eventually(t, time.Second, func() error {
			if r.running() != 0 {
				return fmt.Errorf("the cancelled stream still runs at the replica")
			}
			return nil
		})
		r.waitIdle()
	})
}
