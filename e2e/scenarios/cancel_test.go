package scenarios

import (
	"context"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/cart-llm/cart/e2e/engine"
	"github.com/cart-llm/cart/e2e/replica"
)

// TestClientCancels: a client that leaves ends the work at the replica within a second, gives its place back, and is
// nobody's failure.
func TestClientCancels(t *testing.T) {
	engine.Each(t, func(t *testing.T, kind engine.Kind) {
		// 500 prompt tokens at 50 a second: nothing is answered for 10 s.
		slowStart := start(t, kind, pool{size: 2, options: replica.Options{PrefillRate: 50}})
		slowStream := start(t, kind, pool{size: 2, options: replica.Options{DecodeRate: 10}})
		protocols(t, func(t *testing.T, h2 bool) {
			t.Run("before the first byte", func(t *testing.T) { cancelBeforeFirstByte(t, slowStart, h2) })
			t.Run("in mid-stream", func(t *testing.T) { cancelInMidStream(t, slowStream, h2) })
		})
		for _, r := range []*rig{slowStart, slowStream} {
			for _, w := range r.state().Workers {
				if w.Failures != 0 || w.Breaker != "closed" {
					t.Errorf("a client's leaving counts against %s: %d failures, breaker %s", w.URL, w.Failures, w.Breaker)
				}
			}
		}
	})
}

func cancelBeforeFirstByte(t *testing.T, r *rig, h2 bool) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := make(chan error, 1)
	before := r.aborted()
	go func() {
		body := newChat("cancel early " + t.Name()).body()
		resp, err := r.send(ctx, request{method: "POST", path: "/v1/chat/completions", body: body, h2: h2})
		if err == nil {
			_ = resp.Body.Close()
		}
		done <- err
	}()
	eventually(t, 2*time.Second, func() error {
		if r.running() != 1 {
			return fmt.Errorf("requests at the replicas = %d, want 1", r.running())
		}
		return nil
	})
	cancel()
	if err := <-done; err == nil {
		t.Error("an answer came before the cancellation")
	}
	r.waitAborted(t, before+1)
}

func cancelInMidStream(t *testing.T, r *rig, h2 bool) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	before := r.aborted()
	body := newChat("cancel late " + t.Name()).stream().tokens(1000).body()
	resp, err := r.send(ctx, request{method: "POST", path: "/v1/chat/completions", body: body, h2: h2})
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := io.ReadFull(resp.Body, make([]byte, 400)); err != nil {
		t.Fatal(err)
	}
	if got := r.state().load(); got != 1 {
		t.Errorf("load in /workers during the stream = %d, want 1", got)
	}
	cancel()
	r.waitAborted(t, before+1)
}

func (r *rig) waitAborted(t *testing.T, want int64) {
	t.Helper()
	eventually(t, time.Second, func() error {
		if got := r.aborted(); got != want || r.running() != 0 {
			return fmt.Errorf("requests aborted at the replicas = %d and running %d, want %d and 0", got, r.running(), want)
		}
		return nil
	})
	r.waitIdle()
}

func (r *rig) aborted() int64 {
	var sum int64
	for _, one := range r.replicas {
		sum += one.Aborted()
	}
	return sum
}

func (r *rig) running() int {
	sum := 0
	for _, one := range r.replicas {
		sum += one.Running()
	}
	return sum
}
