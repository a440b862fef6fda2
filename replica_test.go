package cart

import (
	"testing"
	"time"
)

func TestReplica_probesTakeItDownAndBringItBack(t *testing.T) {
	for _, row := range []struct {
		story     string
		failures  int
		successes int
		probes    string // "+" good, "-" failed
		up        string // afterwards, one sign a probe: "u" up, "d" down
		flips     int
	}{
		{"good from the start", 3, 1, "+++", "uuu", 0},
		{"down after three in a row", 3, 1, "---", "uud", 1},
		{"a good one in between starts again", 3, 1, "--+--+---", "uuuuuuuud", 1},
		{"back after one", 3, 1, "---+", "uudu", 2},
		{"back after two in a row", 3, 2, "---+-++", "uuddddu", 2},
		{"stays down without another flip", 3, 1, "------", "uudddd", 1},
		{"down at the first", 1, 1, "-+-+", "dudu", 4},
		{"the count of failures starts again after it is back", 2, 1, "--+-+--", "uduuuud", 3},
	} {
		r := &replica{up: true, worker: &worker{maxLoad: 1}}
		set := &healthSettings{failures: row.failures, successes: row.successes}
		got, flips := "", 0
		for i := range row.probes {
			why := ""
			if row.probes[i] == '-' {
				why = "/health answered 500"
			}
			r.probing = true
			if r.probed(why, set) {
				flips++
			}
			if r.probing {
				t.Errorf("%s: probing = true after probe %d", row.story, i)
			}
			if r.up {
				got += "u"
			} else {
				got += "d"
			}
			if !r.up && r.why == "" {
				t.Errorf("%s: down without saying why after probe %d", row.story, i)
			}
			if r.up && why == "" && r.why != "" {
				t.Errorf("%s: up with why = %q after good probe %d", row.story, r.why, i)
			}
		}
		if got != row.up || flips != row.flips {
			t.Errorf("%s: probes %s = %s with %d flips, want %s with %d", row.story, row.probes, got, flips, row.up, row.flips)
		}
	}
}

func TestReplica_usableIsALadder(t *testing.T) {
	now := second(0)
	for _, row := range []struct {
		story   string
		r       replica
		want    bool
		anyLoad bool // what it is when the load does not matter
	}{
		{"fine", replica{up: true, load: 1}, true, true},
		{"down", replica{load: 1}, false, false},
		{"full", replica{up: true, load: 2}, false, true},
		{"overfull after a change of maxLoad", replica{up: true, load: 5}, false, true},
		{"draining", replica{up: true, draining: true}, false, false},
		{"breaker open", replica{up: true, breaker: breaker{state: breakerOpen, openUntil: now + 1}}, false, false},
		{"breaker about to probe", replica{up: true, breaker: breaker{state: breakerOpen, openUntil: now}}, true, true},
		{"breaker probing", replica{up: true, breaker: breaker{state: breakerHalfOpen, probing: true}}, false, false},
		{"pushed back", replica{up: true, pushedUntil: now + 1}, true, true},
	} {
		r := row.r
		r.worker = &worker{maxLoad: 2}
		if got := r.usable(now, false); got != row.want {
			t.Errorf("%s: usable(now, false) = %v, want %v", row.story, got, row.want)
		}
		if got := r.usable(now, true); got != row.anyLoad {
			t.Errorf("%s: usable(now, true) = %v, want %v", row.story, got, row.anyLoad)
		}
	}
}

func TestReplica_pushKeepsTheLaterTime(t *testing.T) {
	r := &replica{}
	for _, step := range []struct {
		at, wait, until int // seconds
	}{{0, 10, 10}, {2, 3, 10}, {5, 10, 15}, {30, 1, 31}} {
		r.push(second(step.at), time.Duration(step.wait)*time.Second)
		if r.pushedUntil != second(step.until) {
			t.Errorf("push(at %ds, %ds): until = %ds, want %ds", step.at, step.wait, (r.pushedUntil-second(0))/int64(time.Second), step.until)
		}
	}
}

func TestProbed_backUpItMayBeTriedAtOnce(t *testing.T) {
	set := &healthSettings{failures: 1, successes: 1}
	r := &replica{up: true, breaker: breaker{state: breakerOpen, openUntil: second(30)}}
	r.probed("down", set)
	if r.breaker.allows(second(1)) {
		t.Error("while it is down the breaker allows a request, want it open")
	}
	r.probed("", set)
	if !r.breaker.allows(second(1)) {
		t.Error("back up, the breaker allows no request, want one to probe at once")
	}
}
