package main

import (
	"bytes"
	"math/rand"
	"strings"
	"testing"
	"time"
)

// answerOf runs one request on a replica of its own or after others, and returns when its first token and its end came.
func answerOf(c *clock, r *replica, blocks []int, input, output int) (first, end time.Duration) {
	start := c.now
	q := &request{turn: turn{input: input, output: output, blocks: blocks}}
	q.first = func() { first = time.Duration(c.now - start) }
	q.done = func() { end = time.Duration(c.now - start) }
	r.take(q)
	c.run()
	return first, end
}

// TestReplica_timeline holds the model against times worked out by hand.
func TestReplica_timeline(t *testing.T) {
	c := newClock()
	r := newReplica(large, c)
	blocks := []int{1, 2, 3, 4}
	for _, row := range []struct {
		story      string
		blocks     []int
		input      int
		output     int
		first, end time.Duration
	}{
		{"2,048 new tokens at 8,000 a second, then two steps of 18.1 ms", blocks, 2048, 3, 256 * time.Millisecond, 292200 * time.Microsecond},
		{"all of it cached: one token is computed all the same", blocks, 2048, 1, 125 * time.Microsecond, 125 * time.Microsecond},
		{"half of it cached", []int{1, 2, 5, 6}, 2048, 1, 128 * time.Millisecond, 128 * time.Millisecond},
	} {
		first, end := answerOf(c, r, row.blocks, row.input, row.output)
		if first != row.first || end != row.end {
			t.Errorf("%s: first token after %v, end after %v, want %v, %v", row.story, first, end, row.first, row.end)
		}
	}
	r.slow = 2
	if first, _ := answerOf(c, r, []int{7, 8}, 1024, 1); first != 256*time.Millisecond {
		t.Errorf("1,024 tokens at half speed: first token after %v, want 256 ms", first)
	}
}

// TestReplica_evictsEndsFirst: a cache that is too small loses what was used longest ago, from the end on.
func TestReplica_evictsEndsFirst(t *testing.T) {
	c := newClock()
	r := newReplica(model{prefill: 1024, chunk: 1024, cache: 5 * blockTokens, running: 8}, c)
	hit := func(blocks ...int) int {
		q := &request{turn: turn{input: len(blocks) * blockTokens, output: 1, blocks: blocks}, first: func() {}, done: func() {}}
		r.take(q)
		c.run()
		return q.hit / blockTokens
	}
	hit(1, 2)
	hit(11, 12, 13)
	if got := hit(1, 2); got != 1 {
		t.Errorf("blocks left of the older prompt of two = %d, want its first", got)
	}
	if r.used > 5 {
		t.Errorf("the cache of 5 blocks holds %d", r.used)
	}
}

// short is the beginning of a recorded trace, so that a test of the policies takes a second.
func short(t trace, replicas int, load float64) func(*rand.Rand) ([]turn, error) {
	return func(draw *rand.Rand) ([]turn, error) {
		turns, err := loadTrace(t, draw)
		if err != nil {
			return nil, err
		}
		return scale(turns[:700], large, replicas, load), nil
	}
}

// TestPolicies_rank: what docs/routing.md says of the policies, on a piece of the traces, with room for other draws of chance.
func TestPolicies_rank(t *testing.T) {
	ours := []string{"threshold", "cost"}
	all := append([]string{"leastLoad", "roundRobin"}, ours...)
	crowd := with(short(synthetic, 4, 0.5), flashCrowd)
	for _, row := range []struct {
		s         scenario
		policies  []string
		instances int
		cost      float64 // at most, against threshold
	}{
		{scenario{name: "synthetic", replicas: 4, turns: short(synthetic, 4, 0.8)}, all, 1, 0.85},
		{scenario{name: "conversation", replicas: 8, turns: short(conversation, 8, 0.8)}, all, 1, 0.85},
		{scenario{name: "conversation", replicas: 8, turns: short(conversation, 8, 0.8)}, ours, 4, 0.9},
		{scenario{name: "flash crowd", replicas: 4, turns: crowd}, ours, 1, 0.5},
	} {
		got := map[string]*result{}
		for _, policy := range row.policies {
			who := setup{policy: policy, instances: row.instances, seed: 1}
			r, err := row.s.play(who)
			if err != nil {
				t.Fatal(err)
			}
			got[policy] = r
		}
		if row.instances > 1 {
			again, err := row.s.play(setup{policy: "cost", instances: row.instances, seed: 1})
			if err != nil || *again != *got["cost"] {
				t.Errorf("%v: cost = %+v, then %+v, %v: a replay has to give the same each time", &row.s, *got["cost"], again, err)
			}
		}
		story := func(policy string) string { return row.s.name + ", " + policy }
		if got["cost"].mean > row.cost*got["threshold"].mean {
			t.Errorf("%s: mean %.2f s, want at most %.2f times threshold's %.2f", story("cost"), got["cost"].mean, row.cost, got["threshold"].mean)
		}
		if len(row.policies) == len(ours) {
			continue
		}
		if got["leastLoad"].mean > got["roundRobin"].mean {
			t.Errorf("%s: mean %.2f s, want less than roundRobin's %.2f", story("leastLoad"), got["leastLoad"].mean, got["roundRobin"].mean)
		}
		if got["threshold"].hit < got["leastLoad"].hit || got["cost"].hit < got["leastLoad"].hit {
			t.Errorf("%s: hit ratios %.3f of threshold and %.3f of cost, want more than leastLoad's %.3f", row.s.name, got["threshold"].hit,
				got["cost"].hit, got["leastLoad"].hit)
		}
	}
}

// TestOracle_sees: it goes where the queue and what is missing are least, as they are.
func TestOracle_sees(t *testing.T) {
	p := &playing{clock: newClock()}
	for range 2 {
		p.replicas = append(p.replicas, newReplica(large, p.clock))
	}
	put := func(i int, blocks ...int) {
		q := &request{turn: turn{input: len(blocks) * blockTokens, output: 1, blocks: blocks}, first: func() {}, done: func() {}}
		p.replicas[i].take(q)
	}
	ask := func(blocks ...int) int { return p.foresee(turn{input: len(blocks) * blockTokens, blocks: blocks}) }
	put(0, 1, 2, 3, 4)
	p.clock.run()
	if got := ask(9, 10); got != 1 {
		t.Errorf("a new prompt goes to %d, want 1, which has computed less", got)
	}
	if got := ask(1, 2, 3, 4, 5); got != 0 {
		t.Errorf("a continuation goes to %d, want 0, which has it", got)
	}
	put(0, 11, 12, 13)
	if got := ask(1, 2, 3, 4, 5); got != 0 {
		t.Errorf("a continuation behind three blocks goes to %d, want 0: elsewhere there are four more to compute, which count twice", got)
	}
	put(0, 21, 22, 23, 24, 25, 26)
	if got := ask(1, 2, 3, 4, 5); got != 1 {
		t.Errorf("a continuation behind nine blocks goes to %d, want 1", got)
	}
	if got := ask(21, 22, 23, 24, 25, 26); got != 0 {
		t.Errorf("a prompt that waits already goes to %d, want 0, which will have computed it", got)
	}
	p.clock.run()
}

// TestLead_oneTurnAfterTheOther: conversations are led so many at a time, and their turns wait for each other.
func TestLead_oneTurnAfterTheOther(t *testing.T) {
	p := &playing{clock: newClock()}
	var turns []turn
	for talk := range 5 {
		for range 3 {
			turns = append(turns, turn{talk: talk})
		}
	}
	open := map[int]bool{}
	sent, most := 0, 0
	p.lead(turns, 2, func(one turn, then func()) {
		if open[one.talk] {
			t.Errorf("conversation %d has two turns under way", one.talk)
		}
		open[one.talk] = true
		sent++
		most = max(most, len(open))
		p.clock.after(time.Second, func() {
			delete(open, one.talk)
			then()
		})
	})
	p.clock.run()
	if sent != len(turns) || most != 2 {
		t.Errorf("%d turns were sent, at most %d at a time, want all %d, 2 at a time", sent, most, len(turns))
	}
}

// TestWrite_isOneTable: every scenario is a row with a figure for each policy.
func TestWrite_isOneTable(t *testing.T) {
	o := &options{policies: []string{"threshold", "cost"}, instances: []int{1}, seeds: 2}
	results := map[string][]*result{"threshold": {{0.5, 4, 40}, {0.5, 1, 10}}, "cost": {{0.5, 1, 10}, {0.5, 1, 10}}}
	lines := []*line{{scenario: scenario{name: "a", replicas: 4, load: 0.8}, instances: 1, results: results}}
	var out bytes.Buffer
	write(&out, o, lines, nil)
	for _, want := range []string{"| a | 4 | 80 % | 1 | 0.500 / 2.00 / 20.00 | 0.500 / 1.00 / 10.00 |", "mean x0.500, p99 x0.500"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("write() = %s, want %q in it", &out, want)
		}
	}
}
