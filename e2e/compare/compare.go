// Package compare has the same conversations led through one proxy after another to the same replicas, whose caches are
// emptied in between, and writes what came of it.
package compare

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/cart-llm/cart/e2e/chats"
	"github.com/cart-llm/cart/e2e/process"
	"github.com/cart-llm/cart/e2e/proxies"
)

// Run is a comparison.
type Run struct {
	*Options
	Replicas []string // addresses; they speak vLLM's HTTP
	Progress io.Writer

	results map[key]*Result
	leftOut []string // targets that could not be started, and why
	begin   time.Time
	load    string
}

type key struct{ workload, target string }

// Result is what came of all seeds of a workload with a target.
type Result struct {
	chats.Tally
	Wall     time.Duration
	Replicas []chats.Work  // what each replica did
	Cart     chats.Samples // what CART told in its metrics
}

// Do runs everything. What was measured can be reported even if it returns an error.
func (r *Run) Do(ctx context.Context) error {
	r.results = map[key]*Result{}
	r.begin, r.load = time.Now(), process.LoadAverage()
	for seed := range r.Seeds {
		for _, w := range r.Workloads {
			for i := range r.Targets {
				name := r.Targets[(i+seed*len(r.Targets)/r.Seeds)%len(r.Targets)] // each seed begins with another one
				if err := r.one(ctx, w, name, uint64(seed+1)); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// mostRepeats is how often a run is repeated that this machine stood still in.
const mostRepeats = 3

// one runs a workload through a target that knows nothing yet, to replicas that have cached nothing.
func (r *Run) one(ctx context.Context, w chats.Workload, name string, seed uint64) error {
	for range mostRepeats {
		stood, err := r.attempt(ctx, w, name, seed)
		if err != nil || stood < standstill {
			return err
		}
		r.say("%s, seed %d, %s: this process stood still for %v, so that is not counted", w.Name, seed, name, stood.Round(time.Second))
	}
	return fmt.Errorf("%s, %s: this process stood still in each of %d runs: the machine is not quiet enough", w.Name, name, mostRepeats)
}

// attempt returns how long this process stood still meanwhile; if it was for a standstill, nothing was counted.
func (r *Run) attempt(ctx context.Context, w chats.Workload, name string, seed uint64) (stood time.Duration, err error) {
	if err := ResetCaches(ctx, r.Replicas); err != nil {
		return 0, err
	}
	proxy, err := proxies.Open(ctx, name, r.Replicas)
	if err != nil {
		if ctx.Err() != nil || proxies.IsCart(name) {
			return 0, errors.Join(err, ctx.Err())
		}
		r.leave(name, err)
		return 0, nil
	}
	stood, err = r.measure(ctx, w, name, seed, proxy)
	return stood, errors.Join(err, proxy.Stop())
}

func (r *Run) measure(ctx context.Context, w chats.Workload, name string, seed uint64, proxy *proxies.Opened) (
	stood time.Duration, err error,
) {
	before, err := chats.WorkOf(ctx, r.Replicas)
	if err != nil {
		return 0, err
	}
	watch := watchStandstills()
	begin := time.Now()
	turns := chats.Drive(ctx, chats.Target{URL: proxy.URL(), Host: proxy.Host}, w.Conversations(seed), w.AtOnce)
	wall := time.Since(begin)
	if stood = watch(); stood >= standstill {
		return stood, ctx.Err()
	}
	if err := errors.Join(ctx.Err(), proxy.Alive()); err != nil {
		return 0, err
	}
	after, err := chats.WorkOf(ctx, r.Replicas)
	if err != nil {
		return 0, err
	}
	var told chats.Samples
	if proxies.IsCart(name) {
		if told, err = chats.Scrape(ctx, proxy.URL()); err != nil {
			return 0, err
		}
	}
	this := &chats.Tally{}
	this.Add(turns)
	r.say("%s, seed %d, %s: TTFT mean %.3f s, cached %.1f %%, %d errors, %v", w.Name, seed, name, this.Mean(), this.Share(), this.Errors,
		wall.Round(time.Second))
	r.result(w.Name, name).add(turns, wall, before, after, told)
	return stood, nil
}

func (s *Result) add(turns []chats.Turn, wall time.Duration, before, after []chats.Work, told chats.Samples) {
	s.Add(turns)
	s.Wall += wall
	if s.Replicas == nil {
		s.Replicas = make([]chats.Work, len(after))
		s.Cart = chats.Samples{}
	}
	for i := range after {
		did := after[i].Less(before[i])
		s.Replicas[i].Requests += did.Requests
		s.Replicas[i].Prompt += did.Prompt
		s.Replicas[i].Cached += did.Cached
	}
	for name, value := range told {
		s.Cart[name] += value
	}
}

// result is that of a workload and a target, empty at first.
func (r *Run) result(workload, target string) *Result {
	k := key{workload, target}
	if r.results[k] == nil {
		r.results[k] = &Result{}
	}
	return r.results[k]
}

// leave notes that a router of others could not be started.
func (r *Run) leave(name string, err error) {
	note := fmt.Sprintf("%s is left out: %v", name, err)
	for _, have := range r.leftOut {
		if have == note {
			return
		}
	}
	r.leftOut = append(r.leftOut, note)
	r.say("%s", note)
}

func (r *Run) say(format string, args ...any) { fmt.Fprintf(r.Progress, format+"\n", args...) }

// ResetCaches empties the replicas' caches once they have nothing to do.
func ResetCaches(ctx context.Context, replicas []string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for _, address := range replicas {
		for {
			s, err := chats.Scrape(ctx, address)
			if err != nil {
				return err
			}
			if s["vllm:num_requests_running"]+s["vllm:num_requests_waiting"] == 0 {
				break
			}
			time.Sleep(100 * time.Millisecond)
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, address+"/reset_prefix_cache", nil)
		if err != nil {
			return err
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("POST %s/reset_prefix_cache = %s, want 200", address, resp.Status)
		}
	}
	return nil
}
