package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cart-llm/cart/e2e/replica"
)

// When things break, counted from the storm's beginning. A replica that dies takes with it what its cache held, so that
// too many deaths would cost hits whatever the router does.
var (
	killing   = rhythm{first: 4 * time.Second, every: 15 * time.Second} // comes back after downFor
	flapping  = rhythm{first: 2 * time.Second, every: 8 * time.Second}
	reloading = rhythm{first: 5 * time.Second, every: 5 * time.Second}
)

const (
	downFor     = 2 * time.Second
	calmAgain   = 4 * time.Second // before the end nothing new breaks
	flapper     = replicas - 1    // index of the replica that flaps
	comer       = replicas - 2    // of the one that is taken out of the configuration and put back
	mayBeKilled = replicas - 2    // the first so many are killed in turn: at most two are in trouble at once, which two retries bear
)

// rhythm is when an event happens.
type rhythm struct {
	first, every time.Duration
}

// counts are the events so far.
type counts struct {
	kills, flaps, reloads, changes atomic.Int64
}

func (c *counts) String() string {
	if c.reloads.Load()+c.kills.Load()+c.flaps.Load() == 0 {
		return ""
	}
	return fmt.Sprintf("  | kills %d  flaps %d  reloads %d  worker changes %d",
		c.kills.Load(), c.flaps.Load(), c.reloads.Load(), c.changes.Load())
}

// blow lets things break for that time and then puts all right again.
func (s *stage) blow(ctx context.Context, lasts time.Duration) error {
	all := []struct {
		when rhythm
		what func(context.Context, int) error
	}{{killing, s.killOne}, {flapping, s.flap}, {reloading, s.reload}}
	errs := make([]error, len(all))
	var wg sync.WaitGroup
	for i, event := range all {
		wg.Add(1)
		go func() {
			defer wg.Done()
			errs[i] = event.when.repeat(ctx, lasts-calmAgain, event.what)
		}()
	}
	wg.Wait()
	return errors.Join(append(errs, s.route(stormName, s.replicas))...)
}

// repeat calls what at its times, with 0, 1, 2 and so on.
func (r rhythm) repeat(ctx context.Context, lasts time.Duration, what func(context.Context, int) error) error {
	began := time.Now()
	for n := 0; ; n++ {
		at := r.first + time.Duration(n)*r.every
		if at > lasts || !sleep(ctx, time.Until(began.Add(at))) {
			return nil
		}
		if err := what(ctx, n); err != nil {
			return err
		}
	}
}

// sleep says whether the time went by before the end of ctx.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

func (s *stage) killOne(ctx context.Context, n int) error {
	p := s.replicas[n%mayBeKilled]
	if err := p.kill(); err != nil {
		return err
	}
	s.counts.kills.Add(1)
	sleep(ctx, downFor)
	return p.restart(ctx)
}

// flaps are the ways in which the flapping replica is unwell, in turn.
var flaps = []struct {
	fault replica.Fault
	lasts time.Duration
}{
	{replica.Fault{Kind: replica.Refuse}, 500 * time.Millisecond},
	{replica.Fault{Kind: replica.Status}, 500 * time.Millisecond},
	{replica.Fault{Kind: replica.Status, Path: "/health"}, 2500 * time.Millisecond}, // long enough to be found out
}

func (s *stage) flap(ctx context.Context, n int) error {
	p, how := s.replicas[flapper], &flaps[n%len(flaps)]
	if err := p.set(&how.fault); err != nil {
		return err
	}
	s.counts.flaps.Add(1)
	sleep(ctx, how.lasts)
	return p.set(nil)
}

// reload changes the workers two times out of four: one out, then in again. The other times it is a router that has
// nothing to do with them, for which Traefik builds all middlewares anew as well.
func (s *stage) reload(_ context.Context, n int) error {
	s.counts.reloads.Add(1)
	switch n % 4 {
	case 0:
		s.counts.changes.Add(1)
		return s.route(stormName, append(append([]*victim{}, s.replicas[:comer]...), s.replicas[comer+1:]...))
	case 1:
		s.counts.changes.Add(1)
		return s.route(stormName, s.replicas)
	}
	return s.traefik.write(unrelated, unrelatedRouter(n))
}
