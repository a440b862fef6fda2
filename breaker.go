package cart

import "time"

// breaker takes a replica out after failures in a row: closed, then open for a while, then half open, in which one request
// at a time probes. It has no lock and no clock of its own. Nanoseconds are of the Unix epoch.
type breaker struct {
	state     breakerState
	failures  int   // in a row, while closed
	successes int   // while half open
	openUntil int64 // nanoseconds; while open
	probing   bool  // the one request of half open is under way
	opened    int64 // how often it opened
}

type breakerState int

const (
	breakerClosed breakerState = iota
	breakerOpen
	breakerHalfOpen
)

// String returns the state as /workers shows it.
func (s breakerState) String() string {
	switch s {
	case breakerOpen:
		return "open"
	case breakerHalfOpen:
		return "halfOpen"
	}
	return "closed"
}

// outcome is what an attempt says about the replica.
type outcome int

const (
	outcomeNeutral outcome = iota // 4xx, backpressure, the client's own leaving: says nothing
	outcomeSuccess
	outcomeFailure
)

// allows says whether a request may be sent at now.
func (b *breaker) allows(now int64) bool {
	return b.state == breakerClosed || (!b.probing && (b.state == breakerHalfOpen || now >= b.openUntil))
}

// begin notes that a request is sent at now. It returns whether that request is the probe of half open.
func (b *breaker) begin(now int64) bool {
	if b.state == breakerOpen && now >= b.openUntil {
		b.set(breakerHalfOpen)
	}
	if b.state == breakerHalfOpen && !b.probing {
		b.probing = true
		return true
	}
	return false
}

// record takes the outcome of a request at its end. last says that no other replica is usable: then the breaker does not
// open, for a poor replica is better than none.
func (b *breaker) record(out outcome, probe, last bool, now int64, set *breakerSettings) {
	if probe {
		b.probing = false
	}
	switch b.state {
	case breakerClosed:
		if out == outcomeSuccess {
			b.failures = 0
		} else if out == outcomeFailure {
			b.failures++
			if b.failures >= set.failures && !last {
				b.open(now, set.openFor)
			}
		}
	case breakerHalfOpen:
		// A late result of a request sent before the opening says nothing about now.
		if !probe {
			return
		}
		if out == outcomeFailure {
			b.open(now, set.openFor)
		} else if out == outcomeSuccess {
			b.successes++
			if b.successes >= set.successes {
				b.set(breakerClosed)
			}
		}
	}
}

func (b *breaker) open(now int64, wait time.Duration) {
	b.set(breakerOpen)
	b.openUntil = now + int64(wait)
	b.opened++
}

// set changes the state; every transition passes here.
func (b *breaker) set(s breakerState) {
	b.state = s
	b.failures = 0
	b.successes = 0
	b.probing = false
}
