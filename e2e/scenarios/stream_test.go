package scenarios

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/cart-llm/cart/e2e/engine"
	"github.com/cart-llm/cart/e2e/replica"
)

// protocols runs f for HTTP/1.1 and for HTTP/2.
func protocols(t *testing.T, f func(t *testing.T, h2 bool)) {
	t.Helper()
	t.Run("http1", func(t *testing.T) { f(t, false) })
	t.Run("http2", func(t *testing.T) { f(t, true) })
}

// event is one server-sent event as the client got it.
type event struct {
	data     string
	sent, at time.Time // written by the replica, read by the client
}

// readEvents reads a stream to its end.
func readEvents(body io.Reader) ([]event, error) {
	var out []event
	lines := bufio.NewReader(body)
	for {
		line, err := lines.ReadBytes('\n')
		if data, ok := bytes.CutPrefix(bytes.TrimSpace(line), []byte("data: ")); ok {
			e := event{data: string(data), at: time.Now()}
			var payload map[string]json.RawMessage
			var nanos int64
			if json.Unmarshal(data, &payload) == nil && json.Unmarshal(payload[replica.SentField], &nanos) == nil {
				e.sent = time.Unix(0, nanos)
			}
			out = append(out, e)
		}
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return out, err
		}
	}
}

// TestStreamFlushes: the headers come before the first event, and each event when it is written.
func TestStreamFlushes(t *testing.T) {
	engine.Each(t, func(t *testing.T, kind engine.Kind) {
		r := start(t, kind, pool{size: 2, options: replica.Options{PrefillRate: 2000, DecodeRate: 20}})
		protocols(t, func(t *testing.T, h2 bool) {
			c := newChat("stream of " + t.Name()).stream().tokens(10)
			heldUp := watchPauses()
			resp, err := r.send(context.Background(), request{method: "POST", path: "/v1/chat/completions", body: c.body(), h2: h2})
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			headers := time.Now()
			if want := map[bool]int{false: 1, true: 2}[h2]; resp.ProtoMajor != want {
				t.Fatalf("protocol of the answer = %s, want HTTP/%d", resp.Proto, want)
			}
			events, err := readEvents(resp.Body)
			if err != nil || len(events) != 13 { // role, 10 tokens, finish, [DONE]
				t.Fatalf("the stream had %d events and ended with %v, want 13 and nil", len(events), err)
			}
			paused := heldUp() // of which nothing here is to be blamed
			if got := events[0].sent.Sub(headers); got < -paused {
				t.Errorf("the headers came %v after the first event was written, want before: prefill takes 250 ms", -got)
			}
			for i, e := range events[:12] {
				if late := e.at.Sub(e.sent); late > 200*time.Millisecond+paused {
					t.Errorf("event %d came %v after it was written, want at most 200 ms", i, late)
				}
			}
			if took := events[12].at.Sub(events[0].at); took < 400*time.Millisecond-paused {
				t.Errorf("the events came within %v, want them spread over half a second", took)
			}
		})
		r.waitIdle()
	})
}

// watchPauses returns a function that ends the watch and tells the longest time since for which this process did not run.
func watchPauses() (most func() time.Duration) {
	const every = 5 * time.Millisecond
	end, longest := make(chan struct{}), make(chan time.Duration)
	go func() {
		var most time.Duration
		for {
			began := time.Now()
			select {
			case <-end:
				longest <- most
				return
			case <-time.After(every):
				most = max(most, time.Since(began)-every)
			}
		}
	}()
	return func() time.Duration {
		close(end)
		return <-longest
	}
}

// TestMidStreamCut: a stream that breaks at the replica breaks at the client after exactly the bytes before, and nothing
// is tried again.
func TestMidStreamCut(t *testing.T) {
	engine.Each(t, func(t *testing.T, kind engine.Kind) {
		r := start(t, kind, pool{size: 2})
		for _, one := range r.replicas {
			if err := one.SetFault(replica.Fault{Kind: replica.Cut, Bytes: 1000}); err != nil {
				t.Fatal(err)
			}
		}
		tries := 0
		protocols(t, func(t *testing.T, h2 bool) {
			c := newChat("cut").stream().tokens(100)
			a := r.do(request{method: "POST", path: "/v1/chat/completions", body: c.body(), h2: h2})
			tries++
			if a.status != http.StatusOK || len(a.body) != 1000 {
				t.Errorf("status and length of the broken stream = %d, %d, want 200, 1000", a.status, len(a.body))
			}
			if a.err == nil || errors.Is(a.err, context.DeadlineExceeded) {
				t.Errorf("error of the broken stream = %v, want it broken off", a.err)
			}
			if bytes.Contains(a.body, []byte("[DONE]")) || bytes.Contains(a.body, []byte(`"error"`)) {
				t.Errorf("the broken stream ends with %q, want nothing added", a.body[max(0, len(a.body)-100):])
			}
		})
		if got := len(generations(r.replicas[0])) + len(generations(r.replicas[1])); got != tries {
			t.Errorf("%d attempts for %d broken streams, want no retry", got, tries)
		}
		r.waitIdle()
	})
}

// TestCutBody: an answer with a Content-Length that breaks off is broken at the client too.
func TestCutBody(t *testing.T) {
	engine.Each(t, func(t *testing.T, kind engine.Kind) {
		r := start(t, kind, pool{size: 1})
		if err := r.replicas[0].SetFault(replica.Fault{Kind: replica.Cut, Bytes: 50}); err != nil {
			t.Fatal(err)
		}
		protocols(t, func(t *testing.T, h2 bool) {
			a := r.do(request{method: "POST", path: "/v1/chat/completions", body: newChat("cut").body(), h2: h2})
			if a.err == nil || a.status != http.StatusOK || len(a.body) != 50 {
				t.Errorf("broken answer = %d with %d bytes and error %v, want 200 with 50 and an error", a.status, len(a.body), a.err)
			}
		})
		r.waitIdle()
	})
}
