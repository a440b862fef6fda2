package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cart-llm/cart/e2e/process"
	"github.com/cart-llm/cart/e2e/proxies"
	"github.com/cart-llm/cart/e2e/report"
	"github.com/cart-llm/cart/e2e/traefik"
)

const (
	treeBound   = 256 << 20 // bytes, cache.maxTreeBytes
	pushClients = 8
	lastPushes  = 5000 // requests of one client at the end, each of which evicts

	slowDecision = 0.005 // seconds
)

// memoryMix is how the pushed bytes are shared out among lengths of bodies: short prompts are many small nodes.
var memoryMix = []struct {
	size  int
	share float64
}{{2 << 10, 0.1}, {16 << 10, 0.3}, {128 << 10, 0.6}}

// memoryState is what the process and CART say at one moment.
type memoryState struct {
	when     string
	resident int64
	heap     int64 // live, right after a collection
	tree     int64 // bytes, as /workers tells
	nodes    int64
	evicted  int64
}

// benchMemory pushes far more distinct prompts through CART than its tree may hold.
func benchMemory(ctx context.Context, s *stage, o *options, out io.Writer) error {
	if err := s.startBackends(ctx, 0); err != nil {
		return err
	}
	// Traefik's debug endpoints tell the heap.
	p, t, err := proxies.Plugin(ctx, s.backendURLs(), object{"cache": object{"maxTreeBytes": treeBound}},
		traefik.Options{Static: object{"api": object{"debug": true}}})
	if _, err = s.keep(p, err); err != nil {
		return err
	}
	m := &memoryRun{stage: s, target: &target{name: interpreted, proc: p, urls: []string{p.URL()}}, traefik: t}
	begin, load := time.Now(), process.LoadAverage()
	if err := m.run(ctx, o.push); err != nil {
		return errors.Join(err, p.Alive())
	}
	m.report(out, begin, load)
	return nil
}

type memoryRun struct {
	stage   *stage
	target  *target
	traefik *traefik.Traefik

	states []memoryState
	peak   int64 // resident, of the whole life of the process
	pushed atomic.Int64
	full   []time.Duration // round trips while every insert evicts
	quick  float64         // share of their decisions that took less than slowDecision
	empty  []time.Duration // the same before the tree was full
	failed int
	err    error
}

func (m *memoryRun) run(ctx context.Context, push int64) error {
	small := newWorkload(allShapes[0], 2<<10)
	if err := m.note(ctx, "idle"); err != nil {
		return err
	}
	m.empty = m.alone(ctx, small, lastPushes/5)
	for _, part := range []float64{0.25, 0.75} {
		var wg sync.WaitGroup
		for _, mix := range memoryMix {
			bytes := int64(float64(push) * part * mix.share)
			m.stage.say("pushing %s in prompts of %s", sizeName(int(bytes)>>20<<20), sizeName(mix.size))
			m.push(ctx, &wg, newWorkload(allShapes[0], mix.size), bytes)
			wg.Wait()
		}
		if err := m.note(ctx, fmt.Sprintf("%.1f GiB pushed", float64(m.pushed.Load())/(1<<30))); err != nil {
			return err
		}
	}
	before, err := m.decisions(ctx)
	if err != nil {
		return err
	}
	m.full = m.alone(ctx, newWorkload(allShapes[0], 16<<10), lastPushes)
	if err := m.note(ctx, "at the end"); err != nil {
		return err
	}
	after, err := m.decisions(ctx)
	if err != nil {
		return err
	}
	m.quick = after.below(slowDecision) - before.below(slowDecision)
	m.quick /= float64(after.Count - before.Count)
	m.peak, err = process.PeakResident(m.target.proc.Pid)
	return err
}

// decisionTimes is the histogram of /workers of how long requests waited for their decision.
type decisionTimes struct {
	Count  int64
	Counts []int64
	Bounds []float64 // seconds
}

// below returns how many decisions took at most that long, which has to be one of the bounds.
func (d *decisionTimes) below(seconds float64) float64 {
	n := int64(0)
	for i, bound := range d.Bounds {
		if bound <= seconds {
			n += d.Counts[i]
		}
	}
	return float64(n)
}

func (m *memoryRun) decisions(ctx context.Context) (*decisionTimes, error) {
	body, err := process.GetBody(ctx, m.target.urls[0]+"/workers")
	if err != nil {
		return nil, err
	}
	var workers struct{ DecisionSeconds decisionTimes }
	if err := json.Unmarshal(body, &workers); err != nil {
		return nil, err
	}
	return &workers.DecisionSeconds, nil
}

// push sends that many bytes of conversations of which every body is the first: no two share more than a system prompt.
func (m *memoryRun) push(ctx context.Context, wg *sync.WaitGroup, w *workload, bytes int64) {
	var left atomic.Int64
	left.Store(bytes)
	var mu sync.Mutex
	for range pushClients {
		wg.Add(1)
		go func() {
			defer wg.Done()
			c := m.client(w)
			for ctx.Err() == nil && left.Add(-int64(w.size)) > -int64(w.size) {
				m.sendFirst(ctx, c)
			}
			mu.Lock()
			defer mu.Unlock()
			m.failed += c.failed
			m.err = errors.Join(m.err, c.firstErr)
		}()
	}
}

// alone sends requests one after another and returns how long each took.
func (m *memoryRun) alone(ctx context.Context, w *workload, count int) []time.Duration {
	c := m.client(w)
	for i := 0; i < count && ctx.Err() == nil; i++ {
		m.sendFirst(ctx, c)
	}
	m.failed += c.failed
	m.err = errors.Join(m.err, c.firstErr)
	return c.latency
}

func (m *memoryRun) client(w *workload) *client {
	return &client{
		transport: newTransport(1), target: m.target, address: m.target.urls[0] + w.shape.path, talk: newTalk(w),
		want: len(answers(m.stage.word)[w.shape.path]),
	}
}

// sendFirst sends the last body of a conversation that nobody has begun: all of it is new.
func (m *memoryRun) sendFirst(ctx context.Context, c *client) {
	c.talk.begin()
	c.talk.turn = len(c.talk.of.ends) - 1
	m.pushed.Add(int64(c.talk.of.ends[c.talk.turn]))
	begin := time.Now()
	if err := c.send(ctx); err != nil {
		c.failed++
		if c.firstErr == nil {
			c.firstErr = err
		}
		c.talk.forget()
		return
	}
	c.latency = append(c.latency, time.Since(begin))
}

// note adds the state of the moment.
func (m *memoryRun) note(ctx context.Context, when string) error {
	state := memoryState{when: when}
	var err error
	// Before the collection, which gives memory back that the process had.
	if state.resident, err = process.Resident(m.target.proc.Pid); err != nil {
		return err
	}
	if _, err := process.GetBody(ctx, m.traefik.URLAPI()+"/debug/pprof/heap?gc=1"); err != nil {
		return err
	}
	var vars struct {
		Memstats struct{ HeapAlloc int64 }
	}
	if err := m.traefik.API(ctx, "/debug/vars", &vars); err != nil {
		return err
	}
	state.heap = vars.Memstats.HeapAlloc
	body, err := process.GetBody(ctx, m.target.urls[0]+"/workers")
	if err != nil {
		return err
	}
	var workers struct {
		Tree struct{ Bytes, Nodes, Evicted int64 }
	}
	if err := json.Unmarshal(body, &workers); err != nil {
		return err
	}
	state.tree, state.nodes, state.evicted = workers.Tree.Bytes, workers.Tree.Nodes, workers.Tree.Evicted
	m.states = append(m.states, state)
	return nil
}

func (m *memoryRun) report(out io.Writer, begin time.Time, load string) {
	report.Head(out, "CART: memory under a bound", begin, load)
	fmt.Fprintf(out, "maxTreeBytes %d MiB; prompts of %s, %s and %s, all distinct, pushed by %d clients through CART\n"+
		"in the official Traefik. Heap is what is live right after a collection.\n\n", treeBound>>20,
		sizeName(memoryMix[0].size), sizeName(memoryMix[1].size), sizeName(memoryMix[2].size), pushClients)
	fmt.Fprintf(out, "| when | RSS MiB | heap MiB | tree by /workers MiB | nodes | evicted |\n|---|--:|--:|--:|--:|--:|\n")
	for _, s := range m.states {
		fmt.Fprintf(out, "| %s | %.0f | %.1f | %.1f | %d | %d |\n", s.when, mebi(s.resident), mebi(s.heap), mebi(s.tree), s.nodes, s.evicted)
	}
	idle, last := m.states[0], m.states[len(m.states)-1]
	fmt.Fprintf(out, "\nIn use at the end: %.1f MiB more than idle, of %.1f MiB by /workers.", mebi(last.heap-idle.heap), mebi(last.tree))
	fmt.Fprintf(out, " Peak RSS %.0f MiB. %d requests failed. Round trips of one client:\n\n", mebi(m.peak), m.failed)
	m.trips(out, "with room in the tree, 2 KB", m.empty)
	m.trips(out, "when every insert evicts, 16 KB", m.full)
	if m.err != nil {
		fmt.Fprintf(out, "\nFirst errors: %v\n", m.err)
	}
	// What the process takes at its peak: the heap in use and the headroom that the garbage collector needs with it.
	growth := float64(m.peak - idle.resident)
	report.Limits(out, []report.Limit{
		{Text: "4. peak RSS above idle, in MiB, <= 256 + 25 %", Got: mebi(m.peak - idle.resident), Most: true, Than: 320,
			How: fmt.Sprintf("%.0f - %.0f MiB", mebi(m.peak), mebi(idle.resident))},
		{Text: "4. bytes by /workers / growth of the process >= 0.8", Got: float64(last.tree) / growth, Than: 0.8,
			How: fmt.Sprintf("%.1f / %.1f MiB", mebi(last.tree), growth/(1<<20))},
		{Text: "4. bytes by /workers / growth of the process <= 1.2", Got: float64(last.tree) / growth, Most: true, Than: 1.2,
			How: fmt.Sprintf("%.1f / %.1f MiB", mebi(last.tree), growth/(1<<20))},
		{Text: "4. share of decisions that took < 5 ms while every insert evicts >= 0.99", Got: m.quick, Than: 0.99,
			How: fmt.Sprintf("%d requests", len(m.full))},
	})
}

func (m *memoryRun) trips(out io.Writer, when string, all []time.Duration) {
	fmt.Fprintf(out, "- %s: p50 %.0f us, p99 %.0f us\n", when, micros(report.Quantile(all, 0.5)), micros(report.Quantile(all, 0.99)))
}
