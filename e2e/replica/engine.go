package replica

import (
	"context"
	"errors"
	"hash"
	"hash/fnv"
	"sync"
	"time"
)

var errTooLong = errors.New("the prompt and the requested answer are longer than the KV cache")

// engine admits sequences in order of arrival, prefills them one at a time and decodes the running ones side by side. It
// lives as long as the process of its replica: a restart makes a new one.
type engine struct {
	opts Options

	mu         sync.Mutex
	cache      *cache
	queue      []*sequence // waiting for admission, in order of arrival
	running    int         // admitted and not yet closed
	prefilling bool        // one of the running ones has the prefill turn
	counts     counts
	steps      steps
}

// counts are the engine's totals since it started; they are what vLLM's counters show.
type counts struct {
	Prompt    int64 // prompt tokens of admitted sequences
	Cached    int64 // those of them found in the cache
	Generated int64 // answer tokens
	Finished  int64 // sequences that came to their end
	Aborted   int64 // sequences whose client went away
}

// sequence is one prompt with its answer. open, next and close are called in this order by one goroutine.
type sequence struct {
	e      *engine
	text   []byte   // the prompt, then the answer as it grows
	prompt int      // prompt tokens
	want   int      // answer tokens to produce
	cached int      // prompt tokens found in the cache, known after open
	done   int      // answer tokens produced
	script []string // the answer, if it is known beforehand

	seed     uint64
	hasher   hash.Hash64
	hashes   []uint64 // of the whole blocks of text, as far as chain has come
	lease    *lease
	admitted chan struct{} // closed by the engine
	first    time.Time     // when prefill ended
	stepped  stepped
}

func newEngine(o Options) *engine {
	return &engine{opts: o, cache: newCache(max(o.CacheTokens/o.BlockTokens, 1))}
}

// sequence prepares a prompt; space separates prompts that must never share blocks.
func (e *engine) sequence(space string, prompt []byte, want int, p *plan) *sequence {
	perToken := e.opts.CharsPerToken
	s := &sequence{e: e, want: want, hasher: fnv.New64a(), admitted: make(chan struct{})}
	if p != nil {
		s.script = p.tokens(perToken)
		s.want = min(want, len(s.script))
	}
	s.text = append(s.text, prompt...)
	_, _ = s.hasher.Write([]byte(space)) // hashes never fail
	s.chain()
	s.prompt = (len(prompt) + perToken - 1) / perToken
	s.seed = seedOf(s.text)
	return s
}

// fits tells whether the cache is large enough for the sequence; one that does not fit would wait for ever.
func (s *sequence) fits() bool { return s.needBlocks() <= s.e.cache.capacity }

// open waits for admission and for the prefill of what is not cached.
func (s *sequence) open(ctx context.Context) error {
	e := s.e
	if err := e.admit(ctx, s); err != nil {
		return err
	}
	if e.opts.StepTime > 0 {
		return e.prefillInSteps(ctx, s)
	}
	err := sleep(ctx, seconds(float64(s.prompt-s.cached), e.opts.PrefillRate))
	s.first = time.Now()
	e.mu.Lock()
	defer e.mu.Unlock()
	if err != nil {
		e.prefilling = false
		e.leaveLocked(s, true)
		return err
	}
	e.prefilledLocked(s)
	return nil
}

// prefilledLocked ends the prefill turn of a sequence, all of whose prompt is computed.
func (e *engine) prefilledLocked(s *sequence) {
	e.prefilling = false
	e.cache.fill(s.lease, s.hashes)
	e.admitLocked()
}

// next returns the next token of the answer when it is due, or false after the last one.
func (s *sequence) next(ctx context.Context) (string, bool, error) {
	if s.done == s.want {
		return "", false, nil
	}
	if err := s.due(ctx); err != nil {
		return "", false, err
	}
	var token string
	if s.script != nil {
		token = s.script[s.done]
	} else {
		token = word(s.seed, s.done, s.e.opts.CharsPerToken)
	}
	s.text = append(s.text, token...)
	s.done++
	return token, true, nil
}

// due waits until the next token may be there.
func (s *sequence) due(ctx context.Context) error {
	if s.e.opts.StepTime > 0 {
		return s.e.token(ctx, s)
	}
	return sleep(ctx, time.Until(s.first.Add(seconds(float64(s.done), s.e.opts.DecodeRate))))
}

// close ends a sequence that open let in, at its end or earlier. Blocks of the answer stay in the cache too.
func (s *sequence) close() {
	chain := s.chain()
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	s.e.cache.fill(s.lease, chain)
	s.e.leaveLocked(s, s.done < s.want)
}

// chain returns the chained hashes of the whole blocks of the text so far.
func (s *sequence) chain() []uint64 {
	size := s.e.opts.BlockTokens * s.e.opts.CharsPerToken
	for from := len(s.hashes) * size; from+size <= len(s.text); from += size {
		_, _ = s.hasher.Write(s.text[from : from+size]) // its state carries what came before, which is the chaining
		s.hashes = append(s.hashes, s.hasher.Sum64())
	}
	return s.hashes
}

func (s *sequence) needBlocks() int {
	n := s.e.opts.BlockTokens
	return (s.prompt + s.want + n - 1) / n
}

// admit puts the sequence in the queue and waits for its turn.
func (e *engine) admit(ctx context.Context, s *sequence) error {
	e.mu.Lock()
	e.queue = append(e.queue, s)
	e.admitLocked()
	e.mu.Unlock()

	select {
	case <-s.admitted:
		return nil
	case <-ctx.Done():
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for i, q := range e.queue {
		if q == s {
			e.queue = append(e.queue[:i], e.queue[i+1:]...)
			e.counts.Aborted++
			e.admitLocked() // it may have been the head that did not fit
			return ctx.Err()
		}
	}
	// It was admitted in this very moment.
	if e.opts.StepTime > 0 {
		e.abandonLocked(s)
	} else {
		e.prefilling = false
		e.leaveLocked(s, true)
	}
	return ctx.Err()
}

// admitLocked lets the head of the queue in as long as there is a place, nobody prefills, and its blocks fit.
func (e *engine) admitLocked() {
	for len(e.queue) > 0 && e.running < e.opts.MaxRunning && !e.prefilling {
		s := e.queue[0]
		// The last token is always computed, since it yields the first of the answer.
		limit := (s.prompt - 1) / e.opts.BlockTokens
		s.lease = e.cache.acquire(s.chain(), limit, s.needBlocks())
		if s.lease == nil {
			return
		}
		s.cached = len(s.lease.blocks) * e.opts.BlockTokens
		e.queue = e.queue[1:]
		e.running++
		e.prefilling = true
		e.counts.Prompt += int64(s.prompt)
		e.counts.Cached += int64(s.cached)
		if e.opts.StepTime > 0 {
			e.beginLocked(s)
		}
		close(s.admitted)
	}
}

func (e *engine) leaveLocked(s *sequence, aborted bool) {
	delete(e.steps.decoding, s)
	e.cache.release(s.lease)
	e.running--
	e.counts.Generated += int64(s.done)
	if aborted {
		e.counts.Aborted++
	} else {
		e.counts.Finished++
	}
	e.admitLocked()
}

// reset empties the prefix cache, except for what running sequences hold.
func (e *engine) reset() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.cache.reset()
}

// gauges are the engine's state at one moment.
type gauges struct {
	counts
	Running int     // sequences in prefill or decode
	Waiting int     // sequences not yet admitted
	Busy    float64 // share of the KV cache held by running sequences
	Blocks  int     // capacity of the KV cache
}

func (e *engine) gauges() gauges {
	e.mu.Lock()
	defer e.mu.Unlock()
	return gauges{counts: e.counts, Running: e.running, Waiting: len(e.queue), Busy: e.cache.busy(), Blocks: e.cache.capacity}
}

// seconds is the time n units take at a rate; a rate of 0 takes none.
func seconds(n, rate float64) time.Duration {
	if rate <= 0 || n <= 0 {
		return 0
	}
	return time.Duration(n / rate * float64(time.Second))
}

// sleep waits for d or for the end of ctx, whichever comes first.
func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
