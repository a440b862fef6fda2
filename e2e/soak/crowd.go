package main

import (
	"context"
	"hash/fnv"
	"math/rand"
	"net/http"
	"sync"
	"time"
)

const (
	clients  = 240
	thinking = 2 * time.Second // mean time a user takes before the next turn
	// Of the requests in the storm, in hundredths.
	aborts   = 10
	nonsense = 5
)

// crowd has all clients talk until the time is over, and waits for their last answers.
func (s *stage) crowd(ctx context.Context, lasts time.Duration, storm bool, t *tally) {
	talking, enough := context.WithTimeout(ctx, lasts)
	defer enough()
	var wg sync.WaitGroup
	for c := range clients {
		wg.Add(1)
		go func() {
			defer wg.Done()
			pause := time.NewTimer(time.Duration(rand.Int63n(int64(thinking)))) // not all at once
			defer pause.Stop()
			for n := 0; ; n++ {
				talk := newTalk(c, n)
				for turn := range turns {
					select {
					case <-talking.Done():
						return
					case <-pause.C:
					}
					s.turn(ctx, talk, place{c, n, turn}, storm, t)
					pause.Reset(thinking/2 + time.Duration(rand.Int63n(int64(thinking))))
				}
			}
		}()
	}
	wg.Wait()
}

// place says which request it is, the same in calm and in storm.
type place struct {
	client, talk, turn int
}

// chance is a number from 0 to 99 that follows from the place.
func (p place) chance(what byte) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte{what, byte(p.client), byte(p.client >> 8), byte(p.talk), byte(p.talk >> 8), byte(p.turn)}) // never fails
	return int(h.Sum32() % 100)
}

// turn takes one turn of a conversation; in the storm with nonsense before it, or given up half-way.
func (s *stage) turn(ctx context.Context, talk *talk, at place, storm bool, t *tally) {
	p := plan{stream: at.chance('s') < 70}
	p.body = talk.request(at.turn, p.stream)
	if storm && at.chance('m') < nonsense {
		spoil := malformed[at.chance('k')%len(malformed)]
		t.add(at, s.sendCounted(ctx, talk.dialect, plan{body: spoil(p.body), bad: true}))
	}
	if storm && at.chance('a') < aborts {
		p.leave = leavesEarly
		if p.stream && at.chance('e') < 50 {
			p.leave = leavesInTheMiddle
		}
	}
	t.add(at, s.sendCounted(ctx, talk.dialect, p))
}

// sendCounted does not judge what the end of the whole soak broke off.
func (s *stage) sendCounted(ctx context.Context, d *dialect, p plan) reply {
	r := s.send(ctx, d, p)
	if ctx.Err() != nil {
		r.fate = left
	}
	return r
}

func newClient() *http.Client {
	return &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: clients}}
}
