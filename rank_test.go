package cart

import (
	"math/rand"
	"strings"
	"testing"
	"time"
)

// wantedChoice is the rule of R1 to R6 in plain words: the loads from which the choice may be, and its reason.
type wantedChoice struct {
	why     string
	load    int // of the chosen replica, penalty included, before the choice
	matched int // of the longest match that a usable replica has
}

// wanted says how the policy threshold has to choose, counted from the pool's state without any shortcut.
func wanted(p *pool, ex *exchange, now int64) (wantedChoice, bool) {
	in := *p.in
	in.set = ex.set
	in.total = len(ex.key)
	in.matched = 0
	var cs []candidate
	for _, r := range p.replicas {
		if !r.up || r.breaker.state != breakerClosed || r.pushedUntil > now {
			continue
		}
		if r.load >= r.worker.maxLoad {
			continue
		}
		c := candidate{replica: r, load: r.load + r.worker.loadPenalty, matched: held(p.tree, ex.space, ex.key, r.id)}
		cs = append(cs, c)
		n := len(cs) - 1
		if n == 0 || c.load < cs[in.least].load {
			in.least = n
		}
		if c.matched > in.matched || (c.matched == in.matched && c.matched > 0 && c.load < cs[in.holder].load) {
			in.matched = c.matched
			in.holder = n
		}
	}
	if len(cs) == 0 {
		return wantedChoice{}, false
	}
	i, why := threshold(cs, &in)
	return wantedChoice{why: why, load: cs[i].load, matched: in.matched}, true
}

// checkRanked compares what the quick choice goes by with the replicas' state.
func checkRanked(t *testing.T, story string, p *pool, now int64) {
	t.Helper()
	if now >= p.rankedUntil {
		return
	}
	open := 0
	for i, r := range p.replicas {
		if r.place != i {
			t.Fatalf("%s: replica %d has place %d", story, i, r.place)
		}
		load := r.load + r.worker.loadPenalty
		if load > mostRanked {
			load = mostRanked
		}
		if !r.up || r.breaker.state != breakerClosed || r.pushedUntil > now || r.load >= r.worker.maxLoad {
			load = notRanked
		}
		if got := int(p.loads[i]); got != load {
			t.Fatalf("%s: the rank of replica %d is %d, want %d", story, i, got, load)
		}
		if p.loads[i] != notRanked {
			open++
			if int(p.loads[i]) < p.least {
				t.Fatalf("%s: replica %d has %d, less than the least of %d", story, i, p.loads[i], p.least)
			}
		}
	}
	if open != p.open {
		t.Fatalf("%s: %d replicas can be chosen, want %d", story, p.open, open)
	}
}

const allLetters = "abcdefghijklmnopqrstuvwxyz0123456789"

func TestChoose_quickIsTheSameRule(t *testing.T) {
	all := 0
	for seed := int64(1); seed <= 12; seed++ {
		draw := rand.New(rand.NewSource(seed))
		letters := allLetters[:1+draw.Intn(len(allLetters))]
		p := poolOf(t, letters)
		prompts := []string{"a system prompt, and a question", "a system prompt, and another question", "something else", "x", ""}
		var running []*exchange
		now := second(0)
		quick := 0
		for step := 0; step < 250; step++ {
			now += int64(time.Duration(draw.Intn(300)) * time.Millisecond)
			story := letters + ", step " + string(rune('0'+step%10))
			switch r := p.replicas[draw.Intn(len(p.replicas))]; draw.Intn(40) {
			case 0:
				r.up = !r.up
				p.rankedUntil = 0 // as a probe's end does
			case 1:
				setLetters(t, p, letters[draw.Intn(len(letters)):])
			case 2:
				letters = allLetters[:1+draw.Intn(len(allLetters))]
				setLetters(t, p, letters)
			}
			for len(running) > 0 && draw.Intn(2) == 0 {
				i := draw.Intn(len(running))
				ex := running[i]
				running = append(running[:i], running[i+1:]...)
				endWith(p, ex, ex.attempt, []int{200, 200, 200, 200, 200, 200, 429, 500, 0}[draw.Intn(9)], nil, now)
				checkRanked(t, story, p, now)
			}
			ex := ask(p, prompts[draw.Intn(len(prompts))]+strings.Repeat("!", draw.Intn(4)))
			want, sure := wanted(p, ex, now)
			a, _ := choose(p, ex, now)
			checkRanked(t, story, p, now)
			if a == nil {
				if sure {
					t.Fatalf("%s: choose() = none, want one with load %d", story, want.load)
				}
				continue
			}
			ex.attempt = a
			running = append(running, ex)
			if !sure || now >= p.rankedUntil {
				continue // a last resort, or a breaker's probe
			}
			quick++
			if load := a.load - 1 + a.worker.loadPenalty; a.why != want.why || load != want.load {
				t.Fatalf("%s: choose() = %q at load %d, want %q at load %d", story, a.why, load, want.why, want.load)
			}
			if a.why == reasonHit && a.matched != want.matched {
				t.Fatalf("%s: choose() = a hit of %d characters, want %d", story, a.matched, want.matched)
			}
		}
		all += quick
		checkTree(t, p.tree)
	}
	if all < 1000 {
		t.Errorf("only %d of 3000 choices were quick", all)
	}
}
