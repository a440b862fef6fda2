package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/cart-llm/cart/e2e/process"
)

// cell is one line of the tables.
type cell struct {
	shape  *shape
	size   int
	conc   int
	target string
}

// results are the tallies of all rounds.
type results struct {
	cells  map[cell]*tally
	bodies map[string]int // mean length by shape and size
	notes  []string
}

func bodyKey(s *shape, size int) string { return fmt.Sprint(s.name, " ", size) }

// slot is one target with one workload: what a round measures in turn.
type slot struct {
	target *target
	work   *workload
	answer int // length of the right answer
}

// benchTargets is the main run. What was measured is reported even when it ends early.
func benchTargets(ctx context.Context, s *stage, o *options, out io.Writer) error {
	if err := s.startBackends(ctx, 0); err != nil {
		return err
	}
	if err := s.startTargets(ctx, o.targets); err != nil {
		return err
	}
	begin, load := time.Now(), process.LoadAverage()
	r := &results{cells: map[cell]*tally{}, bodies: map[string]int{}, notes: s.leftOut}
	speaks, err := s.preflight(ctx, o, r)
	if err != nil {
		return err
	}
	err = measure(ctx, s, o, r, speaks)
	if len(r.cells) > 0 {
		(&tables{out: out, options: o, results: r, targets: s.targets}).write(begin, load)
	}
	return err
}

func measure(ctx context.Context, s *stage, o *options, r *results, speaks map[string]bool) error {
	for _, conc := range o.conc {
		for _, size := range o.sizes {
			var slots []slot
			for _, sh := range o.shapes {
				work := newWorkload(sh, size)
				r.bodies[bodyKey(sh, size)] = work.meanBody()
				for _, t := range s.targets {
					if speaks[t.name+sh.name] {
						slots = append(slots, slot{target: t, work: work, answer: len(answers(s.word)[sh.path])})
					}
				}
			}
			s.say("%s, %d clients: %d rounds of %d turns, %v", sizeName(size), conc, o.rounds, len(slots),
				time.Duration(o.rounds*len(slots))*o.dur)
			if err := rounds(ctx, slots, conc, o, r); err != nil {
				return err
			}
		}
	}
	return nil
}

// rounds gives all slots their turns, so that a noisy moment of the machine hits all alike. Each round begins elsewhere.
func rounds(ctx context.Context, slots []slot, conc int, o *options, r *results) error {
	warmUp := max(o.dur/4, 100*time.Millisecond)
	for _, sl := range slots {
		if _, err := drive(ctx, sl.target, sl.work, sl.answer, conc, warmUp); err != nil {
			return err
		}
	}
	for round := 0; round < o.rounds; round++ {
		from := round * (len(slots)/o.rounds + 1)
		for i := range slots {
			sl := slots[(i+from)%len(slots)]
			now, err := drive(ctx, sl.target, sl.work, sl.answer, conc, o.dur)
			if err = errors.Join(err, ctx.Err()); err != nil {
				return err
			}
			r.add(cell{sl.work.shape, sl.work.size, conc, sl.target.name}, now)
		}
	}
	return nil
}

func (r *results) add(c cell, now *tally) {
	sum := r.cells[c]
	if sum == nil {
		sum = &tally{}
		r.cells[c] = sum
	}
	sum.latency = append(sum.latency, now.latency...)
	sum.failed += now.failed
	sum.clock += now.clock
	sum.cpu += now.cpu
	sum.resident = max(sum.resident, now.resident)
	if sum.firstErr == nil && now.firstErr != nil {
		sum.firstErr = now.firstErr
		r.notes = append(r.notes, fmt.Sprintf("%s, %s, %s, %d clients: %v", c.target, c.shape.name, sizeName(c.size), c.conc, now.firstErr))
	}
}

// preflight has every target answer one request of every shape. It proves that the process that bench started is the one
// that answers, and that this run's backends are behind it. A router that does not know a path is left out there.
func (s *stage) preflight(ctx context.Context, o *options, r *results) (speaks map[string]bool, err error) {
	speaks = map[string]bool{}
	_, before, err := callsSince(ctx, s.backends, nil)
	if err != nil {
		return nil, err
	}
	for _, t := range s.targets {
		if t.proc != nil {
			if err := t.proc.Prove(); err != nil {
				return nil, err
			}
		}
		for _, sh := range o.shapes {
			known, err := s.try(ctx, t, sh)
			if err != nil {
				return nil, fmt.Errorf("%s, %s: %w", t.name, sh.name, err)
			}
			speaks[t.name+sh.name] = known
			if !known {
				r.notes = append(r.notes, fmt.Sprintf("%s does not know %s and is left out there", t.name, sh.path))
			}
		}
		var extra map[string]int64
		if extra, before, err = callsSince(ctx, s.backends, before); err != nil {
			return nil, err
		}
		for _, sh := range o.shapes {
			delete(extra, sh.path)
		}
		delete(extra, "/health")
		for path, n := range extra {
			r.notes = append(r.notes, fmt.Sprintf("%s asks the backends for %s too: %d times for %d request(s) of the client",
				t.name, path, n, len(o.shapes)))
		}
	}
	return speaks, nil
}

// try sends one request and compares the answer with what this run's backends say.
func (s *stage) try(ctx context.Context, t *target, sh *shape) (known bool, err error) {
	if t.name == sglangRouter || t.name == vllmRouter {
		// A path that is not known may be refused while the body is still on its way, so it is asked for with hardly any.
		status, _, err := t.ask(ctx, sh.path, strings.NewReader("{}"), 2)
		if err != nil || status == http.StatusNotFound || status == http.StatusMethodNotAllowed {
			return false, err
		}
	}
	body, length := newTalk(newWorkload(sh, 4<<10)).next()
	status, got, err := t.ask(ctx, sh.path, body, length)
	if err != nil {
		return false, err
	}
	if want := answers(s.word)[sh.path]; status != http.StatusOK || !bytes.Equal(got, []byte(want)) {
		return false, fmt.Errorf("answer %d %.300q, want 200 %q", status, got, want)
	}
	return true, nil
}

// ask sends one request on a connection of its own.
func (t *target) ask(ctx context.Context, path string, body io.Reader, length int) (status int, answer []byte, err error) {
	transport := newTransport(1)
	defer transport.CloseIdleConnections()
	resp, err := post(ctx, transport, t, t.urls[0]+path, body, length)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	answer, err = io.ReadAll(resp.Body)
	return resp.StatusCode, answer, err
}
