package main

import (
	"container/heap"
	"container/list"
	"time"
)

// model is what an engine on its hardware can do.
type model struct {
	prefill int // tokens a second
	chunk   int // tokens of a prefill step
	cache   int // tokens of KV memory
	running int // sequences at a time
}

// large is a model of 70 billion parameters on four H100.
var large = model{prefill: 8000, chunk: 1024, cache: 450_000, running: 256}

const (
	blockTokens = 512 // of the traces' hashes
	decodeStep  = 18 * time.Millisecond
	decodeEach  = 100 * time.Microsecond // and for each sequence
)

// replica is a modelled engine: prompts are computed in the order they come, in chunks, at a fixed rate over the tokens
// that are not cached, while all running answers get a token with each step. A request takes memory for all of its tokens when
// it is begun. What is cached and not in use goes in the order of use, the ends of prompts first.
type replica struct {
	model
	clock *clock
	slow  int // factor on the length of each step

	cached map[int]*block
	idle   *list.List // blocks not in use, the least recently used first
	used   int        // blocks of memory, cached ones included

	waiting []*request
	current *request // being prefilled
	left    int      // tokens of it
	work    int      // tokens of prompts that it has computed or begun to compute
	steps   int
	decodes decodes
	busy    bool
}

type block struct {
	id   int
	pins int
	idle *list.Element
}

func newReplica(m model, c *clock) *replica {
	return &replica{model: m, clock: c, slow: 1, cached: map[int]*block{}, idle: list.New()}
}

// take queues a request.
func (r *replica) take(q *request) {
	r.waiting = append(r.waiting, q)
	r.begin()
}

// begin starts the next step, unless one runs or there is nothing to do.
func (r *replica) begin() {
	if r.busy {
		return
	}
	if r.current == nil && len(r.waiting) > 0 && len(r.decodes) < r.running && r.admit(r.waiting[0]) {
		r.current = r.waiting[0]
		r.waiting[0] = nil
		r.waiting = r.waiting[1:]
		r.left = max(1, r.current.input-r.current.hit)
		r.work += r.left
	}
	var step time.Duration
	switch {
	case r.current != nil:
		step = time.Duration(min(r.left, r.chunk)) * time.Second / time.Duration(r.prefill)
	case len(r.decodes) > 0:
		step = decodeStep + time.Duration(len(r.decodes))*decodeEach
	default:
		return
	}
	r.busy = true
	r.clock.after(time.Duration(r.slow)*step, r.end)
}

// end finishes a step.
func (r *replica) end() {
	r.busy = false
	r.steps++
	for len(r.decodes) > 0 && r.decodes[0].lastStep <= r.steps {
		r.finish(heap.Pop(&r.decodes).(*request))
	}
	if r.current != nil {
		r.left -= min(r.left, r.chunk)
		if r.left == 0 {
			q := r.current
			r.current = nil
			q.first()
			if q.output > 1 {
				q.lastStep = r.steps + q.output - 1
				heap.Push(&r.decodes, q)
			} else {
				r.finish(q)
			}
		}
	}
	r.begin()
}

func (r *replica) finish(q *request) {
	r.used -= q.private
	// The end first, so that it is the first to go.
	for i := len(q.blocks) - 1; i >= 0; i-- {
		b := r.cached[q.blocks[i]]
		b.pins--
		if b.pins == 0 {
			b.idle = r.idle.PushBack(b)
		}
	}
	q.done()
}

// admit takes memory for a request, if there is enough of it, and notes how much of the prompt is cached.
func (r *replica) admit(q *request) bool {
	known, idle := r.known(q.turn), 0
	for _, id := range q.blocks[:known] {
		if r.cached[id].pins == 0 {
			idle++
		}
	}
	total := max(len(q.blocks), (q.input+q.output+blockTokens-1)/blockTokens)
	free := r.cache/blockTokens - r.used
	if total-known > free+r.idle.Len()-idle {
		return false
	}
	for _, id := range q.blocks[:known] {
		r.pin(r.cached[id])
	}
	for ; total-known > free; free++ {
		oldest := r.idle.Remove(r.idle.Front()).(*block)
		delete(r.cached, oldest.id)
		r.used--
	}
	for _, id := range q.blocks[known:] {
		r.cached[id] = &block{id: id, pins: 1}
	}
	r.used += total - known
	q.private = total - len(q.blocks)
	q.hit = min(known*blockTokens, q.input)
	return true
}

// known returns how many blocks of a prompt are cached, from its beginning on.
func (r *replica) known(t turn) int {
	n := 0
	for n < len(t.blocks) && r.cached[t.blocks[n]] != nil {
		n++
	}
	return n
}

func (r *replica) pin(b *block) {
	if b.pins == 0 {
		r.idle.Remove(b.idle)
		b.idle = nil
	}
	b.pins++
}

// decodes are the running answers, the next to end first.
type decodes []*request

func (d decodes) Len() int           { return len(d) }
func (d decodes) Less(i, j int) bool { return d[i].lastStep < d[j].lastStep }
func (d decodes) Swap(i, j int)      { d[i], d[j] = d[j], d[i] }
func (d *decodes) Push(x any)        { *d = append(*d, x.(*request)) }
func (d *decodes) Pop() any {
	last := len(*d) - 1
	q := (*d)[last]
	(*d)[last] = nil
	*d = (*d)[:last]
	return q
}
