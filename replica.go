package cart

import (
	"math"
	"sort"
	"time"
)

// replica is one inference server of a pool. All fields but worker's content are guarded by the pool's lock.
type replica struct {
	id      int     // its name in the tree; never used twice, and another one after its cache was lost
	life    int     // tells it from what it was before it was removed and came back; never used twice
	worker  *worker // replaced, never changed
	load    int     // requests in flight
	breaker breaker

	up       bool   // neither failed nor reported; a new replica starts up
	failed   bool   // down by the health probe
	why      string // what the last bad probe said
	reported bool   // down by Traefik's own health check, see worker.down
	leaving  bool   // as in worker
	misses   int    // failed probes in a row
	passes   int    // good probes in a row
	probing  bool
	draining bool // removed from the configuration, requests still running

	place  int  // index in the pool's list of replicas
	ranked bool // the pool's loads have it: see rank
	slot   int  // index among the candidates while choose runs, -1 = none

	age     *age        // of its claims
	queue   int         // characters of prompts, less what was known of them, whose streamed answers have not begun
	waiting int         // how many requests these are
	whole   *wholeQueue // the same for answers that come whole
	turn    int         // the pool's when matched was told
	matched int         // characters of that prompt that are known here
	price   int         // what the policy cost compares

	engine engineView   // what it tells of itself
	cached cachedTokens // what its answers tell

	pushedUntil int64 // nanoseconds of the Unix epoch until which it asked to be left alone

	since    time.Time        // when it came or went up or down last
	downs    int64            // how often the probe took it out
	reasons  map[string]int64 // attempts sent to it, by the reason of the decision
	failures int64            // attempts that counted against it
	shadowed int64            // requests that the policy would have sent to it while it only watched
	first    *histogram       // of the time to the first byte of answers whose decision was no hit
	hitFirst *histogram       // and of those whose was
}

func newReplica() *replica {
	return &replica{draining: true, whole: &wholeQueue{pace: firstPace}, reasons: map[string]int64{},
		first: newHistogram(firstByteBounds), hitFirst: newHistogram(firstByteBounds)}
}

// observe notes how long the first byte of an answer took. The loops do the same in their own statements.
func (r *replica) observe(why string, took time.Duration) {
	h := r.first
	if why == reasonHit {
		h = r.hitFirst
	}
	h.counts[sort.SearchFloat64s(firstByteNanos, float64(took))]++
	h.sum += took
}

// usable says whether a request may go to the replica at now: it is up, its breaker lets the request through, and unless
// anyLoad is set it has room. The pool's loop over all replicas repeats this rule inline.
func (r *replica) usable(now int64, anyLoad bool) bool {
	return r.up && !r.draining && r.breaker.allows(now) && (anyLoad || r.load < r.worker.maxLoad)
}

// probed takes the result of a health probe: an empty why is a good one. It says whether the replica went up or down.
func (r *replica) probed(why string, set *healthSettings) (changed bool) {
	r.probing = false
	if why != "" {
		r.why = why
		r.misses = r.misses + 1
		r.passes = 0
		if r.misses >= set.failures {
			r.failed = true
		}
		return r.judge()
	}
	r.misses = 0
	r.passes = r.passes + 1
	if !r.failed || r.passes >= set.successes {
		r.failed = false
		r.why = ""
	}
	return r.judge()
}

// sourced takes what the replica's source says of it, and says whether it is another word on its health than before. A
// replica that is leaving is second choice until it has left or is back.
func (r *replica) sourced(w *worker) (changed bool) {
	if w.leaving != r.leaving {
		r.leaving = w.leaving
		r.pushedUntil = 0
		if w.leaving {
			r.pushedUntil = math.MaxInt64
		}
	}
	if w.down == r.reported {
		return false
	}
	r.reported = w.down
	r.judge()
	return true
}

// judge works out whether the replica is up, and says whether that changed.
func (r *replica) judge() (changed bool) {
	up := !r.failed && !r.reported
	if up == r.up {
		return false
	}
	r.up = up
	r.since = time.Now()
	if !up {
		r.downs++
	} else {
		// Back from an outage: what opened the breaker is over as well, so the next request may probe at once.
		r.breaker.openUntil = 0
	}
	return true
}

// push notes that the replica asked to be left alone for a while.
func (r *replica) push(now int64, wait time.Duration) {
	if until := now + int64(wait); until > r.pushedUntil {
		r.pushedUntil = until
	}
}
