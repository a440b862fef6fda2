//go:build gc
// +build gc

package cart

import (
	"reflect"
	"strings"
	"testing"
)

// FuzzChoose puts a pool's replicas into any state and wants of choose a replica that may be had, the best grade of them
// and the same for the same draw; and of the policies that they only choose.
func FuzzChoose(f *testing.F) {
	f.Add(uint64(1), []byte{})
	f.Add(uint64(2), []byte("\x05\x00\x01\x02\x03\x00\x00\x05\x00\x09\x07\x03\x01\x00\x02"))
	f.Add(uint64(3), []byte(strings.Repeat("\x03\x00\x02\x00\x00\x01", 8)))
	f.Add(uint64(1<<63), []byte(strings.Repeat("\x07\x06\x05\x04", 8)))
	f.Fuzz(func(t *testing.T, draw uint64, state []byte) {
		checkChoice(t, draw, state)
		checkPolicies(t, draw, &fuzzInput{state})
	})
}

const choiceTime = int64(1 << 40) // the present of the pools below

// poolInState makes a pool and a request to it; equal input makes equal ones.
func poolInState(t *testing.T, draw uint64, state []byte) (*pool, *exchange) {
	startDeciders()
	in := &fuzzInput{state}
	names := []string{policyThreshold, policyCost, policyLeastLoad, policyRoundRobin, policyRandom}
	p := poolOf(t, "abcdefgh"[:in.below(9)])
	p.set.policy = names[in.below(len(names))]
	p.set.costs = p.set.policy == policyCost
	p.set.quick = p.set.costs || p.set.policy == policyThreshold
	p.seed = draw
	p.turn = in.below(20)
	ex := ask(p, "a prompt"[:in.below(9)])
	if in.yes(4) {
		ex.endpoint = endpointOther
	}
	for _, r := range p.replicas {
		r.load = in.below(r.worker.maxLoad + 2)
		r.up = !in.yes(4)
		if in.yes(4) {
			r.pushedUntil = choiceTime + int64(in.below(3)) - 1
		}
		switch in.below(6) {
		case 1:
			r.breaker.state, r.breaker.openUntil = breakerOpen, choiceTime+int64(in.below(3))-1
		case 2:
			r.breaker.state, r.breaker.probing = breakerHalfOpen, in.yes(2)
		}
		if in.yes(4) {
			ex.tried = append(ex.tried, r.life)
		}
		for n := in.below(3); n > 0; n-- {
			learn(p.tree, "m", "a prompt and more"[:in.below(18)], r.id)
		}
	}
	return p, ex
}

// gradeOf is the rule of choose in plain words: 0 = fine, 1 = asked to be left alone, 2 = the breaker is against it, 3 = not
// to be had at all.
func gradeOf(r *replica, ex *exchange) int {
	switch {
	case !r.up, wasTried(ex, r), ex.endpoint != endpointOther && r.load >= r.worker.maxLoad:
		return 3
	case !r.breaker.allows(choiceTime):
		return 2
	case r.pushedUntil > choiceTime:
		return 1
	}
	return 0
}

func checkChoice(t *testing.T, draw uint64, state []byte) {
	t.Helper()
	p, ex := poolInState(t, draw, state)
	best, lastResort := 3, true
	grades, loads := map[int]int{}, map[int]int{}
	for _, r := range p.replicas {
		grades[r.id], loads[r.id] = gradeOf(r, ex), r.load
		if grades[r.id] < best {
			best = grades[r.id]
		}
		lastResort = lastResort && !(r.up && r.breaker.allows(choiceTime))
	}
	if best == 2 && !lastResort {
		best = 3 // an open breaker is passed only where no other replica is left in the whole pool
	}
	a, refusal := choose(p, ex, choiceTime)

	again, ex2 := poolInState(t, draw, state)
	if b, refusal2 := choose(again, ex2, choiceTime); refusal2 != refusal || letterOf(b) != letterOf(a) || (a != nil && b.why != a.why) {
		t.Errorf("choose() = %q, %q, then for the same draw %q, %q", letterOf(a), refusal, letterOf(b), refusal2)
	}
	if a == nil {
		if best < 3 {
			t.Errorf("choose() = none, %q, want a replica of grade %d of %v", refusal, best, grades)
		}
		if refusal != refusedNone && refusal != refusedFull {
			t.Errorf("choose() = none, %q, want %q or %q", refusal, refusedNone, refusedFull)
		}
		return
	}
	if refusal != "" || grades[a.id] != best || best == 3 {
		t.Errorf("choose() = %q of grade %d, %q, want one of grade %d of %v", letterOf(a), grades[a.id], refusal, best, grades)
	}
	loads[a.id]++
	for _, r := range p.replicas {
		if r.load != loads[r.id] {
			t.Errorf("after choose() = %q: load of %s = %d, want %d", letterOf(a), r.worker.name, r.load, loads[r.id])
		}
	}
	if (ex.tried == nil && ex.attempt != a) || (ex.tried != nil && !wasTried(ex, a.replica)) {
		t.Errorf("choose() = %q and does not note that it was tried: %v", letterOf(a), ex.tried)
	}
	if ex.key != "" && ex.endpoint != endpointOther && held(p.tree, ex.space, ex.key, a.id) != len(ex.key) {
		t.Errorf("choose() = %q and does not teach the tree %q", letterOf(a), ex.key)
	}
	checkTree(t, p.tree)
}

// checkPolicies gives each policy the same candidates and draw.
func checkPolicies(t *testing.T, draw uint64, in *fuzzInput) {
	t.Helper()
	set := &settings{
		threshold: float64(in.below(11)) / 10, matchAbs: in.number(), balanceAbs: in.below(40), balanceRel: 1 + float64(in.below(30))/10,
	}
	prompt := prompt{total: in.number(), draw: int(draw >> 33), turn: in.below(256), set: set,
		heat: in.number(), place: uint32(in.below(3))}
	cs := make([]candidate, 1+in.below(8))
	for i := range cs {
		cs[i] = candidate{replica: &replica{id: i + 1}, load: in.below(40), seat: seatOf(string(rune(97 + i)))}
		cs[i].waiting = in.below(cs[i].load + 1)
		cs[i].queue = cs[i].waiting * in.number()
		if prompt.total > 0 && in.yes(2) {
			cs[i].matched = in.number() % (prompt.total + 1)
		}
	}
	weigh(cs, &prompt)
	before := append([]candidate(nil), cs...)
	for name, choose := range policies {
		asked := prompt
		index, why := choose(cs, &asked)
		if index < 0 || index >= len(cs) || why == "" {
			t.Errorf("%s(%v) = %d, %q, want one of the candidates and a reason", name, cs, index, why)
			continue
		}
		if !reflect.DeepEqual(cs, before) || asked != prompt {
			t.Errorf("%s() changed its input", name)
		}
		if again, why2 := choose(cs, &asked); again != index || why2 != why {
			t.Errorf("%s(%v) = %d, %q, then for the same draw %d, %q", name, cs, index, why, again, why2)
		}
		if name == policyThreshold {
			checkThreshold(t, cs, &prompt, index, why)
		}
	}
}

// checkThreshold holds a choice against the rule: the least loaded holder of the longest match if that is good enough and
// the holder not too busy, else the least loaded of all.
func checkThreshold(t *testing.T, cs []candidate, in *prompt, index int, why string) {
	t.Helper()
	longest, least, holder := 0, cs[0].load, 0
	for _, c := range cs {
		if c.matched > longest {
			longest = c.matched
		}
		if c.load < least {
			least = c.load
		}
	}
	known := false
	for _, c := range cs {
		if c.matched == longest && (!known || c.load < holder) {
			holder, known = c.load, true
		}
	}
	good := longest > 0 && (float64(longest) >= in.set.threshold*float64(in.total) || longest >= in.set.matchAbs)
	busy := holder-least > in.set.balanceAbs && float64(holder) > in.set.balanceRel*float64(least)
	want, load := reasonHit, holder
	switch {
	case len(cs) == 1:
		want = reasonOnlyOne
	case in.total == 0:
		want, load = reasonNoText, least
	case !good:
		want, load = reasonMiss, least
	case busy:
		want, load = reasonOverloaded, least
	}
	if why != want || cs[index].load != load || (want == reasonHit && cs[index].matched != longest) {
		t.Errorf("threshold(%v, %+v) = %+v for %q, want one with load %d for %q", cs, *in, cs[index], why, load, want)
	}
}
