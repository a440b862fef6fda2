package main

import (
	"sort"
	"sync"
	"time"
)

// outcome is what came of one pass over the conversations. It is safe for concurrent use.
type outcome struct {
	mu         sync.Mutex
	begun      time.Time
	took       time.Duration // set at the end
	ttfts      []time.Duration
	sum        time.Duration // of ttfts
	prompt     int           // tokens
	cached     int           // tokens
	peers      map[string]int
	errors     int
	firstError error
}

func (o *outcome) add(a *answer) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ttfts = append(o.ttfts, a.ttft)
	o.sum += a.ttft
	o.prompt += a.prompt
	o.cached += a.cached
	o.peers[a.peer]++
}

func (o *outcome) fail(err error, requests int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.errors += requests
	if o.firstError == nil {
		o.firstError = err
	}
}

func (o *outcome) finish() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.took = time.Since(o.begun)
	sort.Slice(o.ttfts, func(i, j int) bool { return o.ttfts[i] < o.ttfts[j] })
}

// elapsed is the time so far, or all of it.
func (o *outcome) elapsed() time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.took > 0 {
		return o.took
	}
	return time.Since(o.begun)
}

// done is the number of requests that are over, well or badly.
func (o *outcome) done() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.ttfts) + o.errors
}

func (o *outcome) failed() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.errors
}

// hitRatio is the share of prompt tokens the replicas found in their caches.
func (o *outcome) hitRatio() float64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.prompt == 0 {
		return 0
	}
	return float64(o.cached) / float64(o.prompt)
}

// mean is that of the time to first token.
func (o *outcome) mean() time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.ttfts) == 0 {
		return 0
	}
	return o.sum / time.Duration(len(o.ttfts))
}

// quantile is the time to first token that the share q of the requests did not exceed; only after the end.
func (o *outcome) quantile(q float64) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.ttfts) == 0 {
		return 0
	}
	return o.ttfts[int(q*float64(len(o.ttfts)-1)+0.5)]
}

func (o *outcome) requestsOf(peer string) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.peers[peer]
}
