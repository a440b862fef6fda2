package cart

import (
	"fmt"
	"runtime"
	"sync"
	"time"
)

// The decision on a request is made by goroutines that live as long as the process: keyLoops cut the key out of the body,
// decideLoops choose the replica, and take it back at the end. An interpreted call allocates every variable and every
// intermediate value of the called function, about 100 ns each, reached or not; a loop that never returns pays that once.
// Handing over to it costs less than calling a function of twenty lines.
var (
	decidersOnce sync.Once
	keyJobs      = make(chan *exchange, 256)
	decideJobs   = make(chan *exchange, 256)
)

// What a decideLoop is asked for.
const (
	opChoose  = iota // pick a replica; answered on done
	opRelease        // end the present attempt; answered on done only if waits is set
)

// loopState is what has to be put right when a loop panics.
type loopState struct {
	ex     *exchange
	locked bool
}

// startDeciders starts the loops, once in a process.
func startDeciders() {
	decidersOnce.Do(func() {
		n := runtime.GOMAXPROCS(0)
		if n < 4 {
			n = 4 // so that a body of many megabytes does not hold up the others
		}
		for i := 0; i < n; i++ {
			go guard("key loop", func() { forever(keyLoop) })
			go guard("decide loop", func() { forever(decideLoop) })
		}
	})
}

// forever runs a loop again after a panic.
func forever(loop func(*loopState)) {
	for {
		survive(loop, &loopState{})
	}
}

// survive turns the panic of a loop into a log line and an answer without a replica.
func survive(loop func(*loopState), state *loopState) {
	defer func() {
		r := recover()
		if r == nil {
			return
		}
		ex := state.ex
		if state.locked {
			ex.pool.mu.Unlock()
		}
		newLogger("error", "json").print(levelError, "panic in a decision", "panic", fmt.Sprint(r))
		ex.chosen = nil
		ex.refusal = refusedFailed
		ex.key = ""
		if ex.op == opChoose || ex.waits {
			ex.done <- 1
		}
	}()
	loop(state)
}

// choose picks a replica that ex has not tried yet, takes a place on it and teaches the tree. Without one it returns nil
// and why not. at is the time in nanoseconds of the Unix epoch, 0 = now.
func choose(p *pool, ex *exchange, at int64) (a *attempt, refusal string) {
	ex.pool = p
	ex.op = opChoose
	ex.at = at
	decideJobs <- ex
	<-ex.done
	return ex.chosen, ex.refusal
}

// release ends the present attempt of ex, before another one begins.
func release(ex *exchange, a *attempt, at int64) {
	ex.attempt = a
	ex.op = opRelease
	ex.at = at
	ex.waits = true
	decideJobs <- ex
	<-ex.done
	ex.waits = false
}

// decideLoop serves one exchange after another: see keyLoop for why it is one long function.
func decideLoop(state *loopState) {
	var ex *exchange
	var p *pool
	var r *replica
	var a *attempt
	var cs []candidate
	var c claim
	var now, stamp int64
	var grade, g, index, i, n, before int
	var full, allowed, routed, keyed, found bool
	var why string
	var in *prompt
	var t *tree
	for {
		ex = <-decideJobs
		state.ex = ex
		p = ex.pool
		now = ex.at
		if now == 0 {
			now = time.Now().UnixNano()
		}
		p.mu.Lock()
		state.locked = true

		if ex.op == opRelease {
			r = ex.attempt.replica
			if ex.result == outcomeSuccess && ex.answered && r.breaker.state == breakerClosed && !r.draining && ex.charges == nil {
				r.load--
				r.breaker.failures = 0
			} else {
				endAttempt(p, ex, ex.attempt, now)
			}
			state.locked = false
			p.mu.Unlock()
			if ex.waits {
				ex.done <- 1
			}
			continue
		}

		// Candidates of the best grade there is: 0 = fine, 1 = asked to be left alone, 2 = breaker open. The last grade counts
		// only when no breaker in the whole pool lets a request through.
		routed = ex.endpoint != endpointOther
		cs = p.scratch[:0]
		grade, full, allowed = 2, false, false
		for _, r = range p.replicas {
			r.slot = -1
			if !r.up {
				continue
			}
			g = 0
			if r.breaker.state != breakerClosed && !r.breaker.allows(now) {
				g = 2
			} else {
				allowed = true
				if r.pushedUntil > now {
					g = 1
				}
			}
			if g > grade || (ex.tried != nil && wasTried(ex, r)) {
				continue
			}
			if routed && r.load >= r.worker.maxLoad {
				full = true
				continue
			}
			if g < grade {
				for i = range cs {
					cs[i].replica.slot = -1
				}
				grade = g
				cs = cs[:0]
			}
			r.slot = len(cs)
			cs = append(cs, candidate{replica: r, load: r.load + r.worker.loadPenalty})
		}
		p.scratch = cs
		n = len(cs)
		if n == 0 || (grade == 2 && allowed) {
			ex.chosen = nil
			ex.refusal = refusedNone
			if full {
				ex.refusal = refusedFull
			}
			state.locked = false
			p.mu.Unlock()
			ex.done <- 1
			continue
		}

		// Tell the holders among the candidates what of the prompt they hold, at the longest match that any of them has: no
		// policy asks for more.
		keyed = routed && ex.key != ""
		t = p.tree
		if keyed {
			t.find(ex.space, ex.key)
			found = false
			if t.part != nil {
				for _, c = range t.part.claims {
					r = p.byID[c.id]
					if r != nil && r.slot >= 0 {
						cs[r.slot].matched = t.match
						found = true
					}
				}
			}
			for i = len(t.path) - 1; i > 0 && !found; i-- {
				for _, c = range t.path[i].claims {
					r = p.byID[c.id]
					if r != nil && r.slot >= 0 {
						cs[r.slot].matched = t.depth[i]
						found = true
					}
				}
			}
		}

		p.turn++
		p.seed = p.seed*6364136223846793005 + 1442695040888963407
		in = p.in
		in.total = len(ex.key)
		in.turn = p.turn
		in.draw = int(p.seed >> 33)
		in.set = ex.set
		if routed {
			index, why = ex.policy(cs, in)
		} else {
			index = leastLoad(cs, in.draw, 0)
			why = reasonPassthrough
		}
		r = cs[index].replica
		a = &attempt{replica: r, worker: r.worker, id: r.id, load: r.load + 1, others: n - 1, matched: cs[index].matched}
		if ex.tried != nil {
			why = reasonRetry
			p.retries++
		}
		a.why = why
		r.load++
		r.requests++
		if why == reasonHit {
			r.hits++
		}
		p.reasons[why]++
		if r.breaker.state != breakerClosed {
			a.probe = r.breaker.begin(now)
		}
		if keyed {
			stamp, before = t.insert(ex.space, ex.key, r.id)
			a.stamp = stamp
			a.before = before
			a.learned = true
		}
		ex.tried = append(ex.tried, r.id)
		ex.chosen = a
		state.locked = false
		p.mu.Unlock()
		ex.done <- 1
	}
}

func wasTried(ex *exchange, r *replica) bool {
	for _, id := range ex.tried {
		if id == r.id {
			return true
		}
	}
	return false
}
