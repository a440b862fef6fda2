package main

import (
	"fmt"
	"sync"
	"time"
)

// tally is what came of all requests of calm or storm.
type tally struct {
	mu             sync.Mutex
	began          time.Time
	fates          [failed + 1]int
	prompt, cached int // tokens of those answered
	tokens         map[place]tokens
	errors         []error // the first few
	breaks         []error
}

type tokens struct {
	prompt, cached int
}

func newTally() *tally { return &tally{began: time.Now(), tokens: map[place]tokens{}} }

// kept is how many errors of a kind are shown.
const kept = 5

func (t *tally) add(at place, r reply) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.fates[r.fate]++
	switch r.fate {
	case answered:
		t.prompt += r.prompt
		t.cached += r.cached
		t.tokens[at] = tokens{r.prompt, r.cached}
	case broken:
		if len(t.breaks) < kept {
			t.breaks = append(t.breaks, r.why)
		}
	case failed:
		if len(t.errors) < kept {
			t.errors = append(t.errors, fmt.Errorf("after %.1f s, client %d: %w", time.Since(t.began).Seconds(), at.client, r.why))
		}
	}
}

func (t *tally) of(f fate) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.fates[f]
}

func (t *tally) all() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := 0
	for _, k := range t.fates {
		n += k
	}
	return n
}

func (t *tally) line(name string) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return fmt.Sprintf("%-5s %4.0f s  answered %5d  left %4d  nonsense refused %4d  broken %3d  errors %d  hits %s",
		name, time.Since(t.began).Seconds(), t.fates[answered], t.fates[left], t.fates[refused], t.fates[broken], t.fates[failed],
		percent(t.cached, t.prompt))
}

// hitRatios returns the share of prompt tokens found in caches in both runs, over the requests that both had answered.
func hitRatios(calm, storm *tally) (inCalm, inStorm float64, common int) {
	var c, s tokens
	for at, one := range calm.tokens {
		other, both := storm.tokens[at]
		if !both {
			continue
		}
		common++
		c.prompt += one.prompt
		c.cached += one.cached
		s.prompt += other.prompt
		s.cached += other.cached
	}
	return ratio(c.cached, c.prompt), ratio(s.cached, s.prompt), common
}

func ratio(part, whole int) float64 {
	if whole == 0 {
		return 0
	}
	return float64(part) / float64(whole)
}

func percent(part, whole int) string { return fmt.Sprintf("%.1f%%", 100*ratio(part, whole)) }
