package scenarios

import (
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cart-llm/cart/e2e/engine"
	"github.com/cart-llm/cart/e2e/replica"
)

// noProbes has CART ask the replicas nothing of its own accord, so that only requests find out about failures, and only they
// are seen at the replicas.
var noProbes = engine.Config{"health": engine.Config{
	"interval": "0", "metrics": engine.Config{"interval": 0}, "models": engine.Config{"interval": 0},
}}

// TestReplicaDown: a request for a replica that fails before it answers is served by another one, without the client's
// knowing but for x-routed-peer.
func TestReplicaDown(t *testing.T) {
	engine.Each(t, func(t *testing.T, kind engine.Kind) {
		r := start(t, kind, pool{size: 2, config: noProbes})
		quick := map[string]string{"Retry-After": "0"}
		for what, fault := range map[string]*replica.Fault{
			"is dead":     nil,
			"resets":      {Kind: replica.Cut},
			"answers 500": {Kind: replica.Status, Status: 500},
			"answers 503": {Kind: replica.Status, Status: 503, Headers: quick},
			"answers 429": {Kind: replica.Status, Status: 429, Headers: quick},
		} {
			for _, stream := range []bool{false, true} {
				checkRetry(t, r, what, fault, stream)
			}
		}
		r.waitIdle()
	})
}

// checkRetry asks for a chat whose replica has the fault, or is dead without one.
func checkRetry(t *testing.T, r *rig, what string, fault *replica.Fault, stream bool) {
	t.Helper()
	c := newChat(fmt.Sprint(what, stream))
	c.Stream = stream
	broken := r.at(r.chat(c).peer())
	if fault == nil {
		broken.Kill()
	} else if err := broken.SetFault(*fault); err != nil {
		t.Fatal(err)
	}
	a := r.post("/v1/chat/completions", c.body())
	if a.err != nil || a.status != 200 || a.peer() == broken.URL() || a.reason() != "retry" {
		t.Errorf("POST when its replica %s = %d from %s (%s), %v, want 200 from the other (retry)", what, a.status, a.peer(), a.reason(), a.err)
	}
	restore := broken.ClearFault
	if fault == nil {
		restore = broken.Restart
	}
	if err := restore(); err != nil {
		t.Fatal(err)
	}
}

// TestFailedAttemptIsForgotten: a replica that failed to answer a prompt is not taken for one that has it.
func TestFailedAttemptIsForgotten(t *testing.T) {
	engine.Each(t, func(t *testing.T, kind engine.Kind) {
		r := start(t, kind, pool{size: 2, config: engine.Merged(noProbes, engine.Config{"circuitBreaker": engine.Config{"failureThreshold": 100}})})
		broken := r.replicas[0]
		if err := broken.SetFault(replica.Fault{Kind: replica.Cut}); err != nil {
			t.Fatal(err)
		}
		var retried []*chat
		for i := 0; len(retried) < 3; i++ {
			if i == 100 {
				t.Fatal("hardly one of 100 unrelated prompts was first sent to the broken replica")
			}
			c := newChat(fmt.Sprintf("forgotten %d", i))
			if r.chat(c).reason() == "retry" {
				retried = append(retried, c)
			}
		}
		if err := broken.ClearFault(); err != nil {
			t.Fatal(err)
		}
		for i := 0; i < 12; i++ {
			if a := r.chat(retried[i%3]); a.peer() == broken.URL() || a.reason() != "cache_hit" {
				t.Errorf("the prompt went to %s (%s), want the replica that answered it (cache_hit)", a.peer(), a.reason())
			}
		}
	})
}

// TestNoRetry: what is the client's own fault is passed on from the first replica.
func TestNoRetry(t *testing.T) {
	engine.Each(t, func(t *testing.T, kind engine.Kind) {
		r := start(t, kind, pool{size: 2})
		for _, one := range r.replicas {
			if err := one.SetFault(replica.Fault{Kind: replica.Status, Status: 422, Body: `{"error":"mine"}`}); err != nil {
				t.Fatal(err)
			}
		}
		a := r.post("/v1/chat/completions", newChat("bad").body())
		if a.status != 422 || string(a.body) != `{"error":"mine"}` {
			t.Errorf("POST that a replica answers with 422 = %d %s, want the replica's answer", a.status, a.body)
		}
		if got := len(generations(r.replicas[0])) + len(generations(r.replicas[1])); got != 1 {
			t.Errorf("attempts = %d, want 1", got)
		}
	})
}

// TestBreaker: failures in a row take a replica out, one request at a time tries it after the timeout, successes bring it
// back; no client sees any of it.
func TestBreaker(t *testing.T) {
	t.Parallel() // it mostly waits
	const openFor = time.Second
	engine.Each(t, func(t *testing.T, kind engine.Kind) {
		r := start(t, kind, pool{size: 2, config: engine.Merged(noProbes, engine.Config{
			"circuitBreaker": engine.Config{"failureThreshold": 3, "successThreshold": 2, "timeout": openFor.String()},
			"proxy":          engine.Config{"initialBackoff": "1ms"},
		})})
		bad := r.replicas[0]
		if err := bad.SetFault(replica.Fault{Kind: replica.Cut}); err != nil {
			t.Fatal(err)
		}
		n := 0
		var asked time.Time
		ask := func() {
			n++
			asked = time.Now()
			r.chat(newChat(fmt.Sprintf("breaker %d", n)))
		}
		r.askUntil(ask, bad, "open", 2*time.Second)
		opened := asked // or a little later
		if got := len(generations(bad)); got != 3 {
			t.Errorf("attempts until the breaker opened = %d, want 3", got)
		}

		// While it is open, and for one probe after each timeout, at most that many attempts reach the bad replica.
		eventually(t, 10*time.Second, func() error {
			ask()
			if time.Since(opened) < openFor*3/2 || len(generations(bad)) == 3 {
				return fmt.Errorf("no probe %v after the breaker opened", time.Since(opened))
			}
			return nil
		})
		got := len(generations(bad)) - 3
		if probes := int(time.Since(opened) / openFor); got > probes { // 1, unless the machine was held up
			t.Errorf("attempts in one and a half timeouts of an open breaker = %d, want 1 failed probe", got)
		}
		if w, _ := r.state().worker(bad.URL()); w.Breaker != "open" {
			t.Errorf("breaker after a failed probe = %s, want open", w.Breaker)
		}

		if err := bad.ClearFault(); err != nil {
			t.Fatal(err)
		}
		r.askUntil(ask, bad, "closed", 3*time.Second)
		if got := len(generations(bad)); got < 6 {
			t.Errorf("attempts until the breaker closed = %d, want at least 6: two good probes", got)
		}
	})
}

// TestBreaker_oneProbe: requests that come while the probe of a half-open breaker is under way go elsewhere.
func TestBreaker_oneProbe(t *testing.T) {
	t.Parallel() // it mostly waits
	engine.Each(t, func(t *testing.T, kind engine.Kind) {
		r := start(t, kind, pool{size: 2, config: engine.Merged(noProbes, engine.Config{
			"circuitBreaker": engine.Config{"failureThreshold": 1, "timeout": "100ms"},
		})})
		bad := r.replicas[0]
		if err := bad.SetFault(replica.Fault{Kind: replica.Cut}); err != nil {
			t.Fatal(err)
		}
		n := 0
		ask := func() {
			n++
			r.chat(newChat(fmt.Sprintf("probe %d", n)))
		}
		r.askUntil(ask, bad, "open", 2*time.Second)
		if err := bad.SetFault(replica.Fault{Kind: replica.Hang}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(100 * time.Millisecond)
		before := len(generations(bad))
		var group sync.WaitGroup
		var answered atomic.Int32
		for i := 0; i < 20; i++ {
			group.Add(1)
			go func() {
				defer group.Done()
				if a := r.post("/v1/chat/completions", newChat(fmt.Sprintf("beside the probe %d", i)).body()); a.status != 200 {
					t.Errorf("POST beside the probe = %d %s, %v, want 200", a.status, a.body, a.err)
				}
				answered.Add(1)
			}()
		}
		// The probe lasts until the others have their answers.
		eventually(t, 20*time.Second, func() error {
			if n := answered.Load(); n < 19 {
				return fmt.Errorf("%d of 20 requests are answered, %d are at the replica that is probed, want 19 and 1", n, len(generations(bad))-before)
			}
			return nil
		})
		if got := len(generations(bad)) - before; got != 1 {
			t.Errorf("requests at the replica that is probed = %d of 20, want 1", got)
		}
		bad.Kill()
		group.Wait()
	})
}

// askUntil asks until /workers shows a state of a replica's breaker.
func (r *rig) askUntil(ask func(), one *replica.Replica, want string, within time.Duration) {
	r.t.Helper()
	eventually(r.t, within, func() error {
		if w, _ := r.state().worker(one.URL()); w.Breaker != want {
			ask()
			return fmt.Errorf("breaker = %s, want %s", w.Breaker, want)
		}
		return nil
	})
}

// TestLastReplicaStays: the breaker never takes the last replica out.
func TestLastReplicaStays(t *testing.T) {
	engine.Each(t, func(t *testing.T, kind engine.Kind) {
		r := start(t, kind, pool{size: 1, config: noProbes})
		if err := r.replicas[0].SetFault(replica.Fault{Kind: replica.Cut}); err != nil {
			t.Fatal(err)
		}
		for i := 0; i < 10; i++ {
			if a := r.post("/v1/chat/completions", newChat("last").body()); a.status != http.StatusBadGateway {
				t.Errorf("POST when the only replica resets = %d %s, want 502", a.status, a.body)
			}
		}
		if err := r.replicas[0].ClearFault(); err != nil {
			t.Fatal(err)
		}
		r.chat(newChat("last"))
	})
}

// TestPoisonRequest: a request that fails in the same way everywhere takes no replica out.
func TestPoisonRequest(t *testing.T) {
	engine.Each(t, func(t *testing.T, kind engine.Kind) {
		r := start(t, kind, pool{size: 3, config: engine.Config{"proxy": engine.Config{"initialBackoff": "1ms"}}})
		for _, one := range r.replicas {
			if err := one.SetFault(replica.Fault{Kind: replica.Status, Status: 500, Match: "poison"}); err != nil {
				t.Fatal(err)
			}
		}
		poison := newChat("x")
		poison.Messages[1].Content = "poison"
		for i := 0; i < 10; i++ {
			if a := r.post("/v1/chat/completions", poison.body()); a.status != 500 {
				t.Errorf("POST that fails everywhere = %d %s, want the last replica's 500", a.status, a.body)
			}
		}
		for _, w := range r.state().Workers {
			if w.Breaker != "closed" || w.Failures != 0 {
				t.Errorf("%s after poisoned requests: breaker %s, %d failures, want closed and 0", w.URL, w.Breaker, w.Failures)
			}
		}
	})
}

// TestBackpressure: a replica that asks to be left alone is, for as long as it asked, and is not taken for broken.
func TestBackpressure(t *testing.T) {
	t.Parallel() // it mostly waits
	engine.Each(t, func(t *testing.T, kind engine.Kind) {
		r := start(t, kind, pool{size: 2})
		c := newChat("pushed")
		busy := r.at(r.chat(c).peer())
		fault := replica.Fault{Kind: replica.Status, Status: 429, Count: 1, Headers: map[string]string{"Retry-After": "1"}}
		if err := busy.SetFault(fault); err != nil {
			t.Fatal(err)
		}
		pushed := time.Now()
		r.chat(c) // hidden by a retry
		before := len(generations(busy))
		for i := 0; i < 10; i++ {
			r.chat(newChat(fmt.Sprintf("unrelated %d", i)))
		}
		if got := len(generations(busy)) - before; got != 0 && time.Since(pushed) < time.Second {
			t.Errorf("requests to a replica that asked for a second's rest = %d, want 0", got)
		}
		w, _ := r.state().worker(busy.URL())
		if time.Since(pushed) < 900*time.Millisecond && !w.PushedBack {
			t.Error("pushedBack in /workers = false, want true")
		}
		if w.Failures != 0 || w.Breaker != "closed" {
			t.Errorf("after backpressure: breaker %s, %d failures, want closed and 0", w.Breaker, w.Failures)
		}
		eventually(t, 5*time.Second, func() error {
			if a := r.chat(newChat(fmt.Sprint("back ", time.Now().UnixNano()))); a.peer() != busy.URL() {
				return fmt.Errorf("the replica is not asked again")
			}
			return nil
		})
	})
}
