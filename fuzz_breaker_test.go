//go:build gc
// +build gc

package cart

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// FuzzBreaker plays requests, their ends and the passing of time on a pool of replicas, and watches every breaker.
func FuzzBreaker(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte("\x02" + strings.Repeat("\x00\x00\x01\x00\x05", 30)))                                     // failures only
	f.Add([]byte("\x00" + strings.Repeat("\x00\x01\x00\x04\x02\x01", 30)))                                 // on the last replica
	f.Add([]byte("\x01" + strings.Repeat("\x00\x01\x00\x04\x00\x01\x00\x04\x02\xff\x00\x01\x00\x00", 10))) // then better
	f.Add([]byte("\x03" + strings.Repeat("\x00\x00\x00\x03\x01\x01\x02\x02\x20\x04\x01", 20)))
	f.Fuzz(func(t *testing.T, data []byte) {
		s := newBreakerStory(t, data)
		for n := 0; n < 300 && !s.in.done() && !t.Failed(); n++ {
			s.step()
			s.compare()
		}
		for len(s.open) > 0 && !t.Failed() {
			s.end(0, 200)
			s.compare()
		}
		if t.Failed() {
			t.Errorf("the story:\n%s", strings.Join(s.told, "\n"))
		}
	})
}

type breakerStory struct {
	t    *testing.T
	in   *fuzzInput
	pool *pool
	now  int64
	open []*exchange // under way
	seen map[int]seenBreaker
	told []string

	charged map[*exchange][]int // replicas that answered it with a failure
}

// seenBreaker is what a breaker was like after the step before, and what came of its replica since its last success.
type seenBreaker struct {
	state  breakerState
	opened int64
	bad    int // failures that may have counted, since the last success
	good   int // successful probes, since it was half open
}

func newBreakerStory(t *testing.T, data []byte) *breakerStory {
	startDeciders()
	s := &breakerStory{t: t, in: &fuzzInput{data}, now: second(0), seen: map[int]seenBreaker{}, charged: map[*exchange][]int{}}
	s.pool = poolOf(t, "abcd"[:1+s.in.below(4)])
	s.pool.seed = 1 // the same story for the same input
	s.pool.set.breaker = breakerSettings{failures: 3, successes: 2, openFor: 30 * time.Second}
	s.compare()
	return s
}

func (s *breakerStory) tell(format string, args ...interface{}) {
	s.told = append(s.told, fmt.Sprintf(format, args...))
}

func (s *breakerStory) step() {
	switch s.in.below(8) {
	case 0, 1, 2:
		s.begin()
	case 3:
		s.now += int64(s.in.below(256)) * int64(time.Second) / 4
		s.tell("it is %d s later", (s.now-second(0))/int64(time.Second))
	case 4:
		r := s.pool.replicas[s.in.below(len(s.pool.replicas))]
		r.up = !r.up
		s.tell("%s: up = %v", r.worker.name, r.up)
	default:
		if len(s.open) > 0 {
			statuses := []int{200, 0, 500, 502, 404, 429, 503}
			s.end(s.in.below(len(s.open)), statuses[s.in.below(len(statuses))])
		}
	}
}

func (s *breakerStory) begin() {
	ex := ask(s.pool, "")
	able, probing := 0, map[int]bool{}
	for _, r := range s.pool.replicas {
		if r.up && r.load < r.worker.maxLoad {
			able++
		}
		probing[r.id] = r.breaker.probing
	}
	a, refusal := choose(s.pool, ex, s.now)
	switch {
	case a != nil:
		ex.attempt = a
		s.open = append(s.open, ex)
		s.tell("a request to %s, probe = %v", letterOf(a), a.probe)
		if a.probe && (probing[a.id] || a.replica.breaker.state != breakerHalfOpen) {
			s.t.Errorf("a probe of %s, in state %s, while another runs: %v", letterOf(a), a.replica.breaker.state, probing[a.id])
		}
	case refusal == refusedNone && able == len(s.pool.replicas):
		s.t.Errorf("choose() = none, %q, want one of %d replicas that are up and have room", refusal, able)
	}
}

// end ends a request: with an answer of that status, with none for 0, or by a retry on another replica.
func (s *breakerStory) end(i, status int) {
	ex := s.open[i]
	a := ex.attempt
	var next *attempt
	if status >= 500 && s.in.yes(3) {
		next, _ = choose(s.pool, ex, s.now)
	}
	s.told = append(s.told, fmt.Sprintf("the request to %s (probe = %v) ends with %d, retry on %q", letterOf(a), a.probe, status, letterOf(next)))
	was := a.replica.breaker.state
	endWith(s.pool, ex, a, status, next, s.now)
	if ex.refusal == refusedFailed {
		s.t.Errorf("release() panicked")
	}
	if next == nil {
		s.open = append(s.open[:i], s.open[i+1:]...)
	} else {
		ex.attempt = next
	}
	s.note(ex, a, status, was)
}

// note keeps count of what the breakers may have been told: of a good answer and of a broken connection at once, of failure
// statuses when the exchange is over.
func (s *breakerStory) note(ex *exchange, a *attempt, status int, was breakerState) {
	charged := s.charged[ex]
	switch {
	case status == 0:
		s.blame(a.id)
	case status >= 500:
		charged = append(charged, a.id)
	case status == 200:
		seen := s.seen[a.id]
		if was == breakerClosed {
			seen.bad = 0
		} else if was == breakerHalfOpen && a.probe {
			seen.good++
		}
		s.seen[a.id] = seen
	}
	s.charged[ex] = charged
	if ex.next == nil {
		for _, id := range charged {
			s.blame(id)
		}
		delete(s.charged, ex)
	}
}

func (s *breakerStory) blame(id int) {
	seen := s.seen[id]
	seen.bad++
	s.seen[id] = seen
}

// compare wants every change of state to be a legal one, one probe at a time, and the loads to be what is under way.
func (s *breakerStory) compare() {
	loads, probes := map[int]int{}, map[int]int{}
	for _, ex := range s.open {
		loads[ex.attempt.id]++
		if ex.attempt.probe {
			probes[ex.attempt.id]++
		}
	}
	for _, r := range s.pool.replicas {
		name, b, last := r.worker.name, &r.breaker, s.seen[r.id]
		if r.load != loads[r.id] {
			s.t.Errorf("%s: load = %d, want the %d under way", name, r.load, loads[r.id])
		}
		if b.state != breakerHalfOpen && b.probing || b.state == breakerHalfOpen && probes[r.id] > 1 {
			s.t.Errorf("%s: %s, probing = %v, %d probes under way, want one at most", name, b.state, b.probing, probes[r.id])
		}
		switch {
		case b.state == last.state && b.opened == last.opened:
		case last.state == breakerClosed && b.state == breakerOpen:
			if last.bad < s.pool.set.breaker.failures {
				s.t.Errorf("%s: opened after %d failures, want %d", name, last.bad, s.pool.set.breaker.failures)
			}
			if !s.otherUsable(r) {
				s.t.Errorf("%s: opened, though no other replica was usable", name)
			}
		case last.state == breakerOpen && b.state == breakerHalfOpen:
			if s.now < b.openUntil {
				s.t.Errorf("%s: half open %v too early", name, time.Duration(b.openUntil-s.now))
			}
			last.good = 0
		case last.state == breakerHalfOpen && b.state == breakerOpen: // the probe failed
		case last.state == breakerHalfOpen && b.state == breakerClosed:
			if last.good < s.pool.set.breaker.successes {
				s.t.Errorf("%s: closed after %d good probes, want %d", name, last.good, s.pool.set.breaker.successes)
			}
			last.bad = 0
		default:
			s.t.Errorf("%s: from %s to %s", name, last.state, b.state)
		}
		if b.state == breakerOpen && b.openUntil > s.now+int64(s.pool.set.breaker.openFor) {
			s.t.Errorf("%s: open until %v from now", name, time.Duration(b.openUntil-s.now))
		}
		last.state, last.opened = b.state, b.opened
		s.seen[r.id] = last
	}
}

func (s *breakerStory) otherUsable(r *replica) bool {
	for _, o := range s.pool.replicas {
		if o != r && o.up && (o.breaker.state == breakerClosed || o.breaker.allows(s.now)) {
			return true
		}
	}
	return false
}
