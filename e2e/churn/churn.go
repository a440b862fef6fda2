// Package churn changes the servers of a Traefik service again and again while clients send chats through CART, and tells
// what it cost. Everything runs on 127.0.0.1.
package churn

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/cart-llm/cart/e2e/replica"
	"github.com/cart-llm/cart/e2e/traefik"
)

// Options tell how much is to happen.
type Options struct {
	Changes int           // of the list of servers
	Every   time.Duration // one
	Clients int
	Settle  time.Duration // before goroutines are counted at the end
	Out     io.Writer     // gets a line now and then; nil = none
}

// Report is what happened.
type Report struct {
	Changes, Seen  int // made, and lists that CART went over to
	Requests, Lost int
	Losses         []string // the first few
	Kept, Known    int      // prompts that went to who had them, of those known before
	Draining       int      // replicas that are left when nothing runs any more
	Load           int      // places that are still taken then
	Before, After  int      // goroutines of Traefik at rest
	Complaints     []string // lines of the log that should not be there
}

// Servers: the first few stay in the list all the time, any of the others come and go.
const (
	servers = 6
	staying = 2
)

// knownPrompts are sent before the churn to the servers that stay.
const knownPrompts = 20

// moreGoroutines is what the number may differ by: for 10 s after a reload there is one that waits to give up the handler
// that was replaced, and Go keeps connections.
const moreGoroutines = 20

// object is a piece of configuration.
type object = map[string]any

// stage is everything that runs.
type stage struct {
	o        Options
	traefik  *traefik.Traefik
	replicas []*replica.Replica
	random   *rand.Rand
	report   Report
}

// Run runs the churn from its start to the end of all that it started.
func Run(ctx context.Context, o Options) (r *Report, err error) {
	s := &stage{o: o, random: rand.New(rand.NewPCG(1, 2))}
	defer func() { err = errors.Join(err, s.tearDown()) }()
	if err := s.setUp(ctx); err != nil {
		return nil, err
	}
	homes, err := s.learn(ctx)
	if err != nil {
		return nil, err
	}
	if s.report.Before, err = s.atRest(ctx, 0); err != nil {
		return nil, err
	}
	if err := s.until(ctx, func() error { return s.follows(ctx, s.replicas[:staying]) }); err != nil {
		return nil, err
	}
	if err := s.churn(ctx); err != nil {
		return nil, err
	}
	if err := s.inspect(ctx, homes); err != nil {
		return nil, err
	}
	return &s.report, nil
}

func (s *stage) setUp(ctx context.Context) error {
	for range servers {
		one, err := replica.Start(replica.Options{DecodeRate: 200})
		if err != nil {
			return err
		}
		s.replicas = append(s.replicas, one)
	}
	var err error
	s.traefik, err = traefik.Start(ctx, traefik.Options{
		Static: object{"api": object{"debug": true}}, // for the goroutines
	})
	if err != nil {
		return err
	}
	if err := s.list(s.replicas[:staying]); err != nil {
		return err
	}
	err = s.traefik.Write("cart.yml", object{"http": object{
		"middlewares": object{"cart": object{"plugin": object{traefik.Alias: object{
			"discovery": object{"service": "vllm@file", "interval": "100ms", "api": object{"address": s.traefik.URLAPI()}},
			"health":    object{"interval": "1s"},
			"proxy":     object{"addDecisionHeaders": true},
		}}}},
		"routers": object{"cart": object{
			"rule": "PathPrefix(`/`)", "entryPoints": []string{traefik.EntryPoint}, "middlewares": []string{"cart"}, "service": "noop@internal",
		}},
	}})
	if err != nil {
		return err
	}
	if err := s.traefik.WaitApplied(ctx); err != nil {
		return err
	}
	return s.until(ctx, func() error { return s.follows(ctx, s.replicas[:staying]) })
}

// list makes these the servers, in one step.
func (s *stage) list(replicas []*replica.Replica) error {
	urls := []object{}
	for _, one := range replicas {
		urls = append(urls, object{"url": one.URL()})
	}
	return s.traefik.Write("workers.yml", object{"http": object{
		"services": object{"vllm": object{"loadBalancer": object{"servers": urls}}},
	}})
}

// learn sends the prompts that are to be known later, and returns who has them.
func (s *stage) learn(ctx context.Context) (homes map[string]string, err error) {
	homes = map[string]string{}
	for i := range knownPrompts {
		name := fmt.Sprintf("known before %d", i)
		peer, _, err := s.ask(ctx, name, false)
		if err != nil {
			return nil, err
		}
		homes[name] = peer
	}
	return homes, nil
}

// churn makes all the changes while the clients send.
func (s *stage) churn(ctx context.Context) error {
	crowd := s.startCrowd(ctx)
	defer crowd.stop()
	began := time.Now()
	listed := make([]bool, servers)
	for i := range s.o.Changes {
		// One of those that come and go does so; every fifth time all that are there leave at once.
		now := s.replicas[:staying:staying]
		turn := staying + s.random.IntN(servers-staying)
		listed[turn] = !listed[turn]
		for j := staying; j < servers; j++ {
			if i%5 == 4 && j != turn {
				listed[j] = false
			}
			if listed[j] {
				now = append(now, s.replicas[j])
			}
		}
		if err := s.list(now); err != nil {
			return err
		}
		s.report.Changes++
		if s.o.Out != nil && (i+1)%100 == 0 {
			fmt.Fprintf(s.o.Out, "%4.0f s  %4d changes  %5d requests  %d lost\n",
				time.Since(began).Seconds(), i+1, crowd.sent.Load(), crowd.lost.Load())
		}
		if err := sleepUntil(ctx, began.Add(time.Duration(i+1)*s.o.Every)); err != nil {
			return err
		}
	}
	return nil
}

// inspect looks at what is left when the last change was made and the last client is gone.
func (s *stage) inspect(ctx context.Context, homes map[string]string) error {
	r := &s.report
	if err := s.list(s.replicas[:staying]); err != nil {
		return err
	}
	// Errors show in the report.
	_ = s.until(ctx, func() error {
		if err := s.follows(ctx, s.replicas[:staying]); err != nil {
			return err
		}
		w, err := s.workers(ctx)
		if err != nil {
			return err
		}
		r.Load, r.Draining = w.load(), w.draining()
		if r.Load+r.Draining > 0 {
			return fmt.Errorf("load %d, %d draining", r.Load, r.Draining)
		}
		return nil
	})
	for name, home := range homes {
		r.Known++
		peer, why, err := s.ask(ctx, name, false)
		if err != nil {
			return err
		}
		if peer == home && why == "cache_hit" {
			r.Kept++
		}
	}
	err := sleepUntil(ctx, time.Now().Add(s.o.Settle))
	if err != nil {
		return err
	}
	if r.After, err = s.atRest(ctx, r.Before); err != nil {
		return err
	}
	for _, line := range strings.Split(s.traefik.Log(), "\n") {
		if strings.Contains(line, `"replicas found"`) {
			r.Seen++
		}
		for _, sign := range []string{"panic", "reflect", "fatal error", "Error in Go routine", "discovery failed"} {
			if strings.Contains(line, sign) {
				r.Complaints = append(r.Complaints, line)
				break
			}
		}
	}
	return nil
}

// Wrong tells what is not as it should be.
func (r *Report) Wrong() []string {
	var out []string
	check := func(ok bool, format string, args ...any) {
		if !ok {
			out = append(out, fmt.Sprintf(format, args...))
		}
	}
	check(r.Requests > 0, "no requests were sent")
	check(r.Lost == 0, "requests lost = %d of %d, want 0: %s", r.Lost, r.Requests, strings.Join(r.Losses, "; "))
	check(25*r.Seen > r.Changes, "lists that CART went over to = %d of %d changes, too few to show anything", r.Seen, r.Changes)
	check(r.Kept == r.Known, "prompts that went to who had them = %d of %d, want all", r.Kept, r.Known)
	check(r.Load == 0, "load at the end = %d, want 0", r.Load)
	check(r.Draining == 0, "replicas draining at the end = %d, want 0", r.Draining)
	check(r.After <= r.Before+moreGoroutines, "goroutines before, after = %d, %d, want at most %d more", r.Before, r.After, moreGoroutines)
	check(len(r.Complaints) == 0, "lines in the log that should not be there = %q", slices.Compact(r.Complaints))
	return out
}

func (r *Report) String() string {
	return fmt.Sprintf("%d changes of the provider, of which CART saw %d lists\n%d requests, %d lost\n"+
		"%d of %d prompts still went to who had them\ngoroutines before %d, after %d\nload at the end %d, draining %d",
		r.Changes, r.Seen, r.Requests, r.Lost, r.Kept, r.Known, r.Before, r.After, r.Load, r.Draining)
}

func (s *stage) tearDown() error {
	var err error
	if s.traefik != nil {
		err = s.traefik.Stop()
	}
	for _, one := range s.replicas {
		one.Kill()
	}
	return err
}
