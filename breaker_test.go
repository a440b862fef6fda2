package cart

import (
	"testing"
	"time"
)

// breakerStep is one line of a breaker's story: at a second, something is done and seen.
type breakerStep struct {
	at    int    // seconds
	do    string // try, ok, fail, neutral: a whole request; begin, then end-ok, end-fail, end-neutral: the probe in two parts; late-...: of a request sent before
	last  bool   // no other replica is usable
	can   bool   // a request may be sent afterwards
	state breakerState
}

// second is a time of the stories, well after the epoch.
func second(n int) int64 { return int64(1700000000+n) * int64(time.Second) }

func outcomeOf(word string) outcome {
	switch word {
	case "ok", "end-ok", "late-ok":
		return outcomeSuccess
	case "fail", "end-fail", "late-fail":
		return outcomeFailure
	}
	return outcomeNeutral
}

func TestBreaker_stories(t *testing.T) {
	set := &breakerSettings{failures: 3, successes: 2, openFor: 30 * time.Second}
	for _, story := range []struct {
		name  string
		steps []breakerStep
	}{
		{"opens after failures in a row", []breakerStep{
			{0, "fail", false, true, breakerClosed},
			{1, "fail", false, true, breakerClosed},
			{2, "fail", false, false, breakerOpen},
			{31, "", false, false, breakerOpen},
			{32, "", false, true, breakerOpen},
		}},
		{"a success starts the count again", []breakerStep{
			{0, "fail", false, true, breakerClosed},
			{0, "fail", false, true, breakerClosed},
			{0, "ok", false, true, breakerClosed},
			{0, "fail", false, true, breakerClosed},
			{0, "fail", false, true, breakerClosed},
			{0, "fail", false, false, breakerOpen},
		}},
		{"what is neutral does not", []breakerStep{
			{0, "fail", false, true, breakerClosed},
			{0, "fail", false, true, breakerClosed},
			{0, "neutral", false, true, breakerClosed},
			{0, "fail", false, false, breakerOpen},
		}},
		{"the last replica is not ejected", []breakerStep{
			{0, "fail", true, true, breakerClosed},
			{0, "fail", true, true, breakerClosed},
			{0, "fail", true, true, breakerClosed},
			{0, "fail", true, true, breakerClosed},
			{0, "fail", false, false, breakerOpen}, // another one is back
		}},
		{"half open closes after successes", []breakerStep{
			{0, "fail", false, true, breakerClosed},
			{0, "fail", false, true, breakerClosed},
			{0, "fail", false, false, breakerOpen},
			{30, "ok", false, true, breakerHalfOpen},
			{30, "ok", false, true, breakerClosed},
		}},
		{"half open lets one probe through at a time", []breakerStep{
			{0, "fail", false, true, breakerClosed},
			{0, "fail", false, true, breakerClosed},
			{0, "fail", false, false, breakerOpen},
			{30, "begin", false, false, breakerHalfOpen},
			{500, "", false, false, breakerHalfOpen},
			{500, "end-ok", false, true, breakerHalfOpen},
			{500, "begin", false, false, breakerHalfOpen},
			{500, "end-ok", false, true, breakerClosed},
		}},
		{"a failing probe opens anew", []breakerStep{
			{0, "fail", false, true, breakerClosed},
			{0, "fail", false, true, breakerClosed},
			{0, "fail", false, false, breakerOpen},
			{30, "ok", false, true, breakerHalfOpen},
			{31, "fail", false, false, breakerOpen},
			{60, "", false, false, breakerOpen},
			{61, "ok", false, true, breakerHalfOpen},
			{61, "ok", false, true, breakerClosed},
		}},
		{"a neutral probe says nothing and frees the place", []breakerStep{
			{0, "fail", false, true, breakerClosed},
			{0, "fail", false, true, breakerClosed},
			{0, "fail", false, false, breakerOpen},
			{30, "begin", false, false, breakerHalfOpen},
			{30, "end-neutral", false, true, breakerHalfOpen},
			{30, "ok", false, true, breakerHalfOpen},
			{30, "ok", false, true, breakerClosed},
		}},
		{"late results of the time before do not count", []breakerStep{
			{0, "fail", false, true, breakerClosed},
			{0, "fail", false, true, breakerClosed},
			{0, "fail", false, false, breakerOpen},
			{5, "late-ok", false, false, breakerOpen},
			{6, "late-fail", false, false, breakerOpen},
			{29, "", false, false, breakerOpen},
			{30, "begin", false, false, breakerHalfOpen},
			{31, "late-ok", false, false, breakerHalfOpen},
			{31, "late-fail", false, false, breakerHalfOpen},
			{32, "end-ok", false, true, breakerHalfOpen},
			{32, "ok", false, true, breakerClosed},
		}},
		{"failures from before the opening are forgotten at the closing", []breakerStep{
			{0, "fail", false, true, breakerClosed},
			{0, "fail", false, true, breakerClosed},
			{0, "fail", false, false, breakerOpen},
			{30, "ok", false, true, breakerHalfOpen},
			{30, "ok", false, true, breakerClosed},
			{30, "fail", false, true, breakerClosed},
			{30, "fail", false, true, breakerClosed},
			{30, "fail", false, false, breakerOpen},
		}},
	} {
		b := &breaker{}
		for i, step := range story.steps {
			now := second(step.at)
			switch step.do {
			case "ok", "fail", "neutral":
				if !b.allows(now) {
					t.Errorf("%s, step %d: allows() = false before %q", story.name, i, step.do)
				}
				probe := b.begin(now)
				b.record(outcomeOf(step.do), probe, step.last, now, set)
			case "begin":
				if !b.begin(now) {
					t.Errorf("%s, step %d: begin() = false, want the probe", story.name, i)
				}
			case "end-ok", "end-fail", "end-neutral":
				b.record(outcomeOf(step.do), true, step.last, now, set)
			case "late-ok", "late-fail":
				b.record(outcomeOf(step.do), false, step.last, now, set)
			}
			if b.state != step.state {
				t.Errorf("%s, step %d: state after %q at %ds = %v, want %v", story.name, i, step.do, step.at, b.state, step.state)
			}
			if got := b.allows(now); got != step.can {
				t.Errorf("%s, step %d: allows() after %q at %ds = %v, want %v", story.name, i, step.do, step.at, got, step.can)
			}
		}
	}
}

func TestBreaker_countsItsOpenings(t *testing.T) {
	set := &breakerSettings{failures: 1, successes: 1, openFor: time.Second}
	b := &breaker{}
	for i := 0; i < 3; i++ {
		now := second(i * 10)
		b.record(outcomeFailure, b.begin(now), false, now, set)
	}
	if b.opened != 3 {
		t.Errorf("opened = %d after three failures, want 3", b.opened)
	}
}

func TestBreakerState_showsItsName(t *testing.T) {
	for state, want := range map[breakerState]string{breakerClosed: "closed", breakerOpen: "open", breakerHalfOpen: "halfOpen"} {
		if got := state.String(); got != want {
			t.Errorf("breakerState(%d).String() = %q, want %q", int(state), got, want)
		}
	}
}
