package main

import (
	"fmt"
	"math/rand"
	"slices"
	"time"
)

// scenario is a workload and the replicas it is played to.
type scenario struct {
	name     string
	about    string
	load     float64 // share of the prefill rate that round-robin would use; 0 = as it comes
	atOnce   int     // so many conversations are led at a time, each turn when the one before has ended; 0 = turns have times
	model    *model  // of the replicas; nil = large
	replicas int
	slow     map[int]int // by index of the replica: how many times longer each of its steps takes
	unknown  bool        // CART is not told how much the caches hold
	turns    func(draw *rand.Rand) ([]turn, error)
}

// trace is one of the recorded ones.
type trace struct {
	name string
	bin  time.Duration // its times come in steps of so much
}

var (
	conversation = trace{name: "conversation", bin: 3 * time.Second}
	synthetic    = trace{name: "synthetic", bin: time.Millisecond}
)

// recorded returns the twelve scenarios that policies are compared by.
func recorded() []scenario {
	var out []scenario
	for _, t := range []trace{conversation, synthetic} {
		for _, n := range []int{4, 8} {
			for _, load := range []float64{0.5, 0.8, 0.95} {
				out = append(out, scenario{name: t.name, load: load, replicas: n, turns: t.scaled(n, load)})
			}
		}
	}
	return out
}

func (t trace) scaled(replicas int, load float64) func(*rand.Rand) ([]turn, error) {
	return func(draw *rand.Rand) ([]turn, error) {
		turns, err := loadTrace(t, draw)
		if err != nil {
			return nil, err
		}
		return scale(turns, large, replicas, load), nil
	}
}

// special returns what the recorded traces do not show. Where turns are marked, the figures are theirs alone.
func special() []scenario {
	const n = 8
	half := synthetic.scaled(n, 0.5)
	return []scenario{
		{name: "flash crowd", load: 0.5, replicas: n, turns: with(half, flashCrowd),
			about: "synthetic, and for a minute 20 requests a second about one new text of 8,000 tokens; figures of these"},
		{name: "burst", load: 0.5, replicas: n, turns: with(half, burst),
			about: "synthetic, and 200 equal new prompts of 8,000 tokens within a second; figures of these"},
		{name: "slow replica", load: 0.5, replicas: n, slow: map[int]int{0: 2}, turns: half,
			about: "synthetic, one of the replicas at half speed, which nobody is told"},
		{name: "tenants", load: 0.8, replicas: n, turns: func(draw *rand.Rand) ([]turn, error) {
			return scale(tenants(draw), large, n, 0.8), nil
		}, about: "24 tenants of popularity 1/rank with system prompts of 600 to 3,400 tokens, conversations of 1 to 8 turns"},
		{name: "whole answers", load: 0.8, replicas: n, turns: with(synthetic.scaled(n, 0.8), whole),
			about: "synthetic, no answer is streamed: CART sees no first byte"},
		{name: "fleet", atOnce: 24, model: &fleet, replicas: n, turns: func(draw *rand.Rand) ([]turn, error) {
			return fleetTalks(draw), nil
		}, about: "the workload *skewed* of make fleet, lengths and rates by four: 64 tenants of popularity 1/rank, 24 conversations at a time"},
		{name: "caches unknown", load: 0.8, replicas: n, turns: synthetic.scaled(n, 0.8), unknown: true,
			about: "synthetic without cacheTokens: what CART sent somewhere never fades"},
	}
}

// with changes the turns of a workload.
func with(turns func(*rand.Rand) ([]turn, error), change func([]turn, *rand.Rand) []turn) func(*rand.Rand) ([]turn, error) {
	return func(draw *rand.Rand) ([]turn, error) {
		out, err := turns(draw)
		if err != nil {
			return nil, err
		}
		return change(out, draw), nil
	}
}

// Blocks from here on belong to generated prompts; the traces' are far below.
const ownBlocks = 1 << 30

func flashCrowd(turns []turn, draw *rand.Rand) []turn {
	const text = 8192
	start := turns[len(turns)/2].at
	id := ownBlocks + text/blockTokens
	for at := start; at < start+time.Minute; at += time.Duration(draw.ExpFloat64() * float64(time.Second) / 20) {
		one := turn{at: at, input: text + 100, output: 200, marked: true}
		for i := 0; i < text/blockTokens; i++ {
			one.blocks = append(one.blocks, ownBlocks+i)
		}
		one.blocks = append(one.blocks, id) // a question of its own
		id++
		turns = append(turns, one)
	}
	return turns
}

func burst(turns []turn, draw *rand.Rand) []turn {
	const text = 8192
	start := turns[len(turns)/2].at
	for n := 0; n < 200; n++ {
		one := turn{at: start + time.Duration(draw.Int63n(int64(time.Second))), input: text, output: 200, marked: true}
		for i := 0; i < text/blockTokens; i++ {
			one.blocks = append(one.blocks, ownBlocks+i)
		}
		turns = append(turns, one)
	}
	return turns
}

func whole(turns []turn, _ *rand.Rand) []turn {
	for i := range turns {
		turns[i].whole = true
	}
	return turns
}

// tenants makes conversations that begin with the system prompt of a tenant. Turns of one are half a minute apart or more,
// before scaling.
func tenants(draw *rand.Rand) []turn {
	const count, conversations = 24, 1500
	id := ownBlocks
	fresh := func(blocks []int, n int) []int {
		out := append([]int(nil), blocks...)
		for ; n > 0; n-- {
			out = append(out, id)
			id++
		}
		return out
	}
	systems := make([][]int, count)
	for i := range systems {
		systems[i] = fresh(nil, 1+draw.Intn(7))
	}
	var out []turn
	for n := 0; n < conversations; n++ {
		blocks := systems[byRank(draw, count)]
		at := time.Duration(draw.Int63n(int64(time.Hour)))
		for left := 1 + draw.Intn(8); left > 0; left-- {
			blocks = fresh(blocks, 1+draw.Intn(4)) // the answer before and the next question
			out = append(out, turn{at: at, input: len(blocks) * blockTokens, output: 100 + draw.Intn(400), blocks: blocks})
			at += 30*time.Second + time.Duration(draw.ExpFloat64()*float64(time.Minute))
		}
	}
	return byTime(out)
}

// fleet is a replica of make fleet, lengths and rates by four, so that its blocks are of the length that the traces' are.
var fleet = model{prefill: 16_000, chunk: 4096, cache: 96 * blockTokens, running: 256}

// fleetTalks makes conversations of four turns without pauses.
func fleetTalks(draw *rand.Rand) []turn {
	const count, talks, turns = 64, 240, 4
	id := ownBlocks
	fresh := func() int {
		id++
		return id
	}
	systems := make([]turn, count)
	for i := range systems {
		s := &systems[i]
		s.input = 2400 + draw.Intn(11_200)
		for len(s.blocks) < s.input/blockTokens {
			s.blocks = append(s.blocks, fresh())
		}
	}
	var out []turn
	for talk := range talks {
		one := systems[byRank(draw, count)]
		one.talk = talk
		one.output = 16
		for range turns {
			one.input += 260 // the answer before and the next question
			one.blocks = slices.Clone(one.blocks)
			for len(one.blocks) < one.input/blockTokens {
				one.blocks = append(one.blocks, fresh())
			}
			sent := one
			sent.blocks = append(slices.Clone(one.blocks), fresh()) // the last one is not full: the next turn has another
			out = append(out, sent)
		}
	}
	return out
}

// byRank draws a number below n, of which number i has a share that goes with 1/(i+1).
func byRank(draw *rand.Rand, n int) int {
	sum := 0.0
	for i := range n {
		sum += 1 / float64(i+1)
	}
	which := draw.Float64() * sum
	sum = 0
	for i := range n {
		sum += 1 / float64(i+1)
		if sum >= which {
			return i
		}
	}
	return n - 1
}

// hardware returns the model of the replicas.
func (s *scenario) hardware() model {
	if s.model != nil {
		return *s.model
	}
	return large
}

func (s *scenario) String() string {
	return fmt.Sprintf("%s, %d replicas, %.0f %%", s.name, s.replicas, 100*s.load)
}

// play makes the workload and plays it. Equal setups give equal results.
func (s *scenario) play(who setup) (*result, error) {
	turns, err := s.turns(rand.New(rand.NewSource(who.seed)))
	if err != nil {
		return nil, err
	}
	return play(s, turns, who)
}
