package main

import (
	"context"
	"fmt"
	"math/rand"
	"net/http"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/cart-llm/cart"
)

// setup is who decides in a scenario.
type setup struct {
	policy    string
	instances int // of Traefik, each of which sees only the requests that pass it
	seed      int64
}

// request is a turn under way on a replica.
type request struct {
	turn
	hit      int // tokens found in the replica's cache
	private  int // blocks of memory that nobody else can use
	lastStep int // of its replica
	first    func()
	done     func()
}

// result is what came of it. Times are seconds to the first token.
type result struct {
	hit, mean, p99 float64
}

// router is the part of CART that decides.
type router interface {
	Seed(seed uint64)
	Replay(prompt string, streamed bool, now int64) (worker int, began func(), ended func(now int64))
}

// played counts the routers, for pools of one name are one pool.
var played atomic.Int64

func newRouter(s *scenario, who setup) (router, context.CancelFunc, error) {
	c := cart.CreateConfig()
	c.Policy = who.policy
	c.Cost.Instances = strconv.Itoa(who.instances)
	c.MaxLoad = "1000000" // the modelled replicas queue
	c.Health.Interval = "0"
	c.Cache.EvictionInterval = "0"
	c.LogLevel = "error"
	for i := 0; i < s.replicas; i++ {
		w := cart.WorkerConfig{URL: fmt.Sprintf("http://vllm-%d:8000", i)}
		if !s.unknown {
			w.CacheTokens = strconv.Itoa(s.hardware().cache)
		}
		c.Workers = append(c.Workers, w)
	}
	ctx, cancel := context.WithCancel(context.Background())
	h, err := cart.New(ctx, http.NotFoundHandler(), c, fmt.Sprintf("replay-%d", played.Add(1)))
	if err != nil {
		cancel()
		return nil, nil, err
	}
	return h.(router), cancel, nil
}

// play sends the turns through CART to modelled replicas, all in one goroutine and in the time of a clock of its own.
func play(s *scenario, turns []turn, who setup) (*result, error) {
	draw := rand.New(rand.NewSource(who.seed))
	p := &playing{clock: newClock(), turns: turns}
	for i := 0; i < s.replicas; i++ {
		r := newReplica(s.hardware(), p.clock)
		r.slow = max(1, s.slow[i])
		p.replicas = append(p.replicas, r)
	}
	for i := 0; i < who.instances && who.policy != oracle; i++ {
		r, cancel, err := newRouter(s, who)
		if err != nil {
			return nil, err
		}
		defer cancel()
		r.Seed(draw.Uint64())
		p.routers = append(p.routers, r)
	}
	marked := slices.ContainsFunc(turns, func(t turn) bool { return t.marked })
	send := func(t turn, then func()) {
		worker, began, ended := p.choose(t, draw)
		if worker < 0 {
			p.refused++
			then()
			return
		}
		p.send(t, worker, began, ended, t.marked || !marked, then)
	}
	if s.atOnce > 0 {
		p.lead(turns, s.atOnce, send)
	} else {
		for _, t := range turns {
			p.clock.after(t.at, func() { send(t, func() {}) })
		}
	}
	p.clock.run()
	if p.unanswered != 0 || p.refused != 0 {
		return nil, fmt.Errorf("%v with %s: %d requests were not answered, %d refused", s, who.policy, p.unanswered, p.refused)
	}
	return p.result(), nil
}

// playing is the state of a play.
type playing struct {
	clock      *clock
	turns      []turn
	replicas   []*replica
	routers    []router
	unanswered int
	refused    int

	waits      []float64 // of the requests that count
	hit, total int
}

// lead has conversations led, so many at a time: a turn begins when the one before has been answered, and a conversation when
// another has ended.
func (p *playing) lead(turns []turn, atOnce int, send func(turn, func())) {
	next := 0
	var client func()
	client = func() {
		from := next
		for next < len(turns) && turns[next].talk == turns[from].talk {
			next++
		}
		talk := turns[from:next]
		var ask func()
		ask = func() {
			if len(talk) == 0 {
				if next < len(turns) {
					client()
				}
				return
			}
			one := talk[0]
			talk = talk[1:]
			send(one, func() { p.clock.after(between, ask) })
		}
		ask()
	}
	for i := 0; i < atOnce && next < len(turns); i++ {
		client()
	}
}

// between is the time a client takes from the end of an answer to its next question.
const between = 3 * time.Millisecond

// choose has a router, one by chance of those there are, pick a replica, or the oracle.
func (p *playing) choose(t turn, draw *rand.Rand) (worker int, began func(), ended func(now int64)) {
	if len(p.routers) == 0 {
		return p.foresee(t), func() {}, func(int64) {}
	}
	return p.routers[draw.Intn(len(p.routers))].Replay(t.prompt(), !t.whole, p.clock.now)
}

// send gives a turn to a replica.
func (p *playing) send(t turn, worker int, began func(), ended func(now int64), counts bool, then func()) {
	p.unanswered++
	sent := p.clock.now
	q := &request{turn: t}
	q.first = func() {
		if counts {
			p.waits = append(p.waits, time.Duration(p.clock.now-sent).Seconds())
		}
		if !t.whole {
			began()
		}
	}
	q.done = func() {
		p.unanswered--
		ended(p.clock.now)
		if counts {
			p.hit += q.hit
			p.total += q.input
		}
		then()
	}
	p.replicas[worker].take(q)
}

func (p *playing) result() *result {
	out := &result{hit: float64(p.hit) / float64(p.total)}
	slices.Sort(p.waits)
	for _, w := range p.waits {
		out.mean += w / float64(len(p.waits))
	}
	out.p99 = p.waits[len(p.waits)*99/100]
	return out
}
