package replica

import (
	"context"
	"time"
)

// steps is the state of an engine that works in steps. The engine's lock is held around every use.
type steps struct {
	running  bool                   // a goroutine makes steps, as it does for as long as there is work
	current  *sequence              // whose prompt is being computed
	left     int                    // tokens of it
	chunk    int                    // tokens that the present step computes
	chunkOf  *sequence              // whose they are
	decoding map[*sequence]struct{} // those whose answers grow
}

// stepped is what steps have made of a sequence.
type stepped struct {
	prefilled bool
	tokens    int           // of the answer
	news      chan struct{} // gets something after a change
}

// beginLocked has the prompt of a sequence that was admitted computed next.
func (e *engine) beginLocked(s *sequence) {
	s.stepped.news = make(chan struct{}, 1)
	e.steps.current = s
	e.steps.left = max(1, s.prompt-s.cached)
	if !e.steps.running {
		e.steps.running = true
		go e.makeSteps() // it ends when there is nothing to do
	}
}

// prefillInSteps waits until the prompt of an admitted sequence is computed.
func (e *engine) prefillInSteps(ctx context.Context, s *sequence) error {
	err := e.await(ctx, s, func() bool { return s.stepped.prefilled })
	if err != nil {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.abandonLocked(s)
	}
	return err
}

// token waits until a step has made the next token.
func (e *engine) token(ctx context.Context, s *sequence) error {
	return e.await(ctx, s, func() bool { return s.stepped.tokens > s.done })
}

func (e *engine) await(ctx context.Context, s *sequence, done func() bool) error {
	for {
		e.mu.Lock()
		is := done()
		e.mu.Unlock()
		if is {
			return ctx.Err()
		}
		select {
		case <-s.stepped.news:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// abandonLocked takes a sequence out whose client has gone before it was open.
func (e *engine) abandonLocked(s *sequence) {
	if !s.stepped.prefilled {
		e.prefilling = false
		e.steps.current = nil
	}
	e.leaveLocked(s, true)
}

// makeSteps makes one step after the other while there is work. Each begins when the one before was due to end, so that what
// a timer is late by is not added up.
func (e *engine) makeSteps() {
	end := time.Now()
	for {
		e.mu.Lock()
		lasts, work := e.stepLocked()
		e.steps.running = work
		e.mu.Unlock()
		if !work {
			return
		}
		end = end.Add(lasts)
		time.Sleep(time.Until(end))
		e.mu.Lock()
		e.stepEndsLocked()
		e.mu.Unlock()
	}
}

// stepLocked begins a step and tells how long it takes; work is false if there is nothing to do.
func (e *engine) stepLocked() (lasts time.Duration, work bool) {
	st := &e.steps
	st.chunk = 0
	switch {
	case st.current != nil:
		st.chunk = min(st.left, e.opts.ChunkTokens)
		st.chunkOf = st.current
		lasts = seconds(float64(st.chunk), e.opts.PrefillRate)
	case len(st.decoding) > 0:
		lasts = e.opts.StepTime + time.Duration(len(st.decoding))*e.opts.StepEach
	default:
		return 0, false
	}
	return lasts, true
}

// stepEndsLocked gives out what the step has made.
func (e *engine) stepEndsLocked() {
	st := &e.steps
	for s := range st.decoding {
		s.advance()
	}
	s := st.current
	if s == nil || s != st.chunkOf {
		return // there was no prompt, or its client has gone
	}
	st.left -= st.chunk
	if st.left > 0 {
		return
	}
	st.current = nil
	s.stepped.prefilled = true
	if st.decoding == nil {
		st.decoding = map[*sequence]struct{}{}
	}
	st.decoding[s] = struct{}{}
	s.advance() // the first token comes of the prompt's last
	e.prefilledLocked(s)
}

// advance adds a token. The last one takes a sequence out of the steps; it stays in the cache until it is closed.
func (s *sequence) advance() {
	s.stepped.tokens++
	if s.stepped.tokens >= s.want {
		delete(s.e.steps.decoding, s)
	}
	select {
	case s.stepped.news <- struct{}{}:
	default: // it has not seen the news before this
	}
}
