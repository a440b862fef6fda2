package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/cart-llm/cart/e2e/chats"
	"github.com/cart-llm/cart/e2e/compare"
	"github.com/cart-llm/cart/e2e/process"
	"github.com/cart-llm/cart/e2e/proxies"
	"github.com/cart-llm/cart/e2e/report"
)

const (
	metricsInterval = 10 * time.Second // CART's default between two looks at a replica's metrics
	calm            = 45 * time.Second // of load before the kill
	window          = 30 * time.Second // over which the cached share is told
	recovery        = 60 * time.Second // of load after the server is used again
	usedLimit       = 60 * time.Second // for it to be used again once it answers
	atOnce          = 15               // conversations: so many that two servers give up what they hold when there is a third one
)

// restarting is the part restart: one server is killed under load and started again.
type restarting struct {
	proxy  *proxies.Opened
	server *process.Process
	looks  looks

	begin            time.Time
	killed, answered time.Time // answered: the new process shows metrics
	used             time.Time // the first request that it got began
	ended            time.Time // the load
	after            chats.Samples
	turns            []chats.Turn
}

// looks are what CART said of the server in /workers over time.
type looks struct {
	mu  sync.Mutex
	all []look
}

type look struct {
	at     time.Time
	claims float64 // characters that the server is thought to hold
}

func restart(ctx context.Context, o *options, s *stack, out io.Writer) (err error) {
	if err := compare.ResetCaches(ctx, s.urls()); err != nil {
		return err
	}
	r := &restarting{begin: time.Now()}
	load := process.LoadAverage()
	if r.proxy, err = proxies.Open(ctx, o.rival, s.urls()); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.proxy.Stop()) }()

	loaded, end := context.WithCancel(ctx)
	defer end()
	w := chats.Even
	w.Talks = 2000 // more than there is time for
	turns := make(chan []chats.Turn, 1)
	go func() { turns <- chats.Drive(loaded, chats.Target{URL: r.proxy.URL()}, w.Conversations(77), atOnce) }()
	go r.watch(loaded, s.procs[0].URL())
	err = r.script(ctx, s)
	end()
	r.turns = <-turns
	if err != nil {
		return err
	}
	r.report(out, o.rival, load)
	return nil
}

// script is what happens to the server.
func (r *restarting) script(ctx context.Context, s *stack) error {
	say := func(format string, args ...any) { fmt.Fprintf(os.Stderr, "restart: "+format+"\n", args...) }
	say("%v of load", calm)
	pause(ctx, calm)
	old := s.procs[0]
	idle := awaitIdle(ctx, old.URL(), window)
	r.killed = time.Now()
	old.Kill()
	say("server killed, idle at that moment: %v", idle)
	var err error
	if r.server, err = s.engine.serve(old.Ports[0]); err != nil {
		return err
	}
	s.procs[0] = r.server
	if err := r.server.WaitHealthy(ctx, startLimit); err != nil {
		return err
	}
	if _, err := chats.Scrape(ctx, r.server.URL()); err != nil {
		return err
	}
	r.answered = time.Now()
	say("it answers again after %v", r.answered.Sub(r.killed).Round(time.Second))
	for end := r.answered.Add(usedLimit); r.used.IsZero() && time.Now().Before(end) && ctx.Err() == nil; {
		work, err := chats.WorkOf(ctx, []string{r.server.URL()})
		if err != nil {
			return err
		}
		if work[0].Prompt > 0 {
			r.used = time.Now()
		}
		pause(ctx, 100*time.Millisecond)
	}
	say("it is used again: %v; %v more of load", !r.used.IsZero(), recovery)
	pause(ctx, recovery)
	r.ended = time.Now()
	r.after, err = chats.Scrape(ctx, r.proxy.URL())
	return errors.Join(err, ctx.Err())
}

// awaitIdle waits for a moment at which a server has no request, so that its end cuts off none. It tells whether there was one.
func awaitIdle(ctx context.Context, address string, limit time.Duration) bool {
	for end := time.Now().Add(limit); time.Now().Before(end) && ctx.Err() == nil; {
		s, err := chats.Scrape(ctx, address)
		if err == nil && s["vllm:num_requests_running"]+s["vllm:num_requests_waiting"] == 0 {
			return true
		}
	}
	return false
}

// watch looks at /workers until ctx ends.
func (r *restarting) watch(ctx context.Context, server string) {
	for ctx.Err() == nil {
		body, err := process.GetBody(ctx, r.proxy.URL()+"/workers")
		var state struct {
			Workers []struct {
				URL    string  `json:"url"`
				Claims float64 `json:"claims"`
			} `json:"workers"`
		}
		if err == nil && json.Unmarshal(body, &state) == nil {
			for _, one := range state.Workers {
				if strings.TrimSuffix(one.URL, "/") == server {
					r.looks.add(look{time.Now(), one.Claims})
				}
			}
		}
		pause(ctx, 100*time.Millisecond)
	}
}

func (l *looks) add(one look) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, one)
}

// claims are those of the last look before a moment.
func (l *looks) claims(at time.Time) float64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	claims := 0.0
	for _, one := range l.all {
		if one.at.After(at) {
			break
		}
		claims = one.claims
	}
	return claims
}

// dropped is when the claims fell to less than half of what they were at a moment, and to what; zero if they never did.
func (l *looks) dropped(since time.Time) (time.Time, float64) {
	half := l.claims(since) / 2
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, one := range l.all {
		if one.at.After(since) && one.claims < half {
			return one.at, one.claims
		}
	}
	return time.Time{}, math.NaN()
}

func (r *restarting) report(out io.Writer, rival, load string) {
	report.Head(out, "A server restarts under load", r.begin, load)
	fmt.Fprintf(out, "%d vLLM servers behind %s in the official Traefik; conversations as in %s, %d at a time without end.\n"+
		"One server is killed (kill -9) and started again at the same address with an empty cache. Times are from the kill.\n\n",
		servers, rival, chats.Even.Name, atOnce)
	at := func(t time.Time) string {
		if t.IsZero() {
			return "never"
		}
		return fmt.Sprintf("%.1f s", t.Sub(r.killed).Seconds())
	}
	dropped, left := r.looks.dropped(r.killed)
	before, outage, back, last := r.share(r.killed.Add(-window), r.killed), r.share(r.killed, r.answered),
		r.share(r.used, r.used.Add(window)), r.share(r.ended.Add(-window), r.ended)
	cut, errs, first := r.errors()
	fmt.Fprintf(out, "| what | when | |\n|---|--:|---|\n")
	fmt.Fprintf(out, "| claims on the server before | 0.0 s | %.0f characters |\n", r.looks.claims(r.killed))
	fmt.Fprintf(out, "| the new process answers | %s | claims %.0f |\n", at(r.answered), r.looks.claims(r.answered))
	fmt.Fprintf(out, "| claims dropped | %s | to %.0f |\n", at(dropped), left)
	fmt.Fprintf(out, "| it gets its first request | %s | |\n", at(r.used))
	fmt.Fprintf(out, "| cached tokens, %v before | | %.1f %% |\n", window, before)
	fmt.Fprintf(out, "| cached tokens without the server | | %.1f %% |\n", outage)
	fmt.Fprintf(out, "| cached tokens, %v after its first request | | %.1f %% |\n", window, back)
	fmt.Fprintf(out, "| cached tokens, the last %v | | %.1f %% |\n", window, last)
	fmt.Fprintf(out, "| retries | | %.0f |\n", r.after["cart_retries_total"])
	fmt.Fprintf(out, "| answers under way on the server at the kill, which nobody can save | | %d |\n", cut)
	fmt.Fprintf(out, "| other errors | | %d of %d requests |\n", errs, len(r.turns))
	if first != nil {
		fmt.Fprintf(out, "\nThe first of them: %v\n", first)
	}
	late := math.Inf(1)
	if !dropped.IsZero() {
		late = dropped.Sub(r.answered).Seconds()
	}
	report.Limits(out, []report.Limit{
		{Text: "claims dropped within a metrics interval and a second of the new process's first answer, s", Got: late, Most: true,
			Than: (metricsInterval + time.Second).Seconds(), How: "dropped " + at(dropped) + ", answers " + at(r.answered)},
		{Text: "cached share at the end less that before, points", Got: last - before, Than: -3, How: fmt.Sprintf("%.1f, %.1f %%", last, before)},
		{Text: "errors but for what was under way", Got: float64(errs), Most: true, How: fmt.Sprintf("of %d requests", len(r.turns))},
	})
}

// share is the cached share of the requests that began between two moments, in percent.
func (r *restarting) share(from, to time.Time) float64 {
	t := &chats.Tally{}
	for _, u := range r.turns {
		if u.Begun.After(from) && u.Begun.Before(to) && u.Err == nil {
			t.Add([]chats.Turn{u})
		}
	}
	return t.Share()
}

// errors counts the answers that the kill cut off, and all other errors.
func (r *restarting) errors() (cut, others int, first error) {
	for _, u := range r.turns {
		switch {
		case u.Err == nil:
		case u.Begun.Before(r.killed) && u.Begun.Add(u.Whole).After(r.killed) && strings.TrimSuffix(u.Peer, "/") == r.server.URL():
			cut++
		default:
			others++
			if first == nil {
				first = u.Err
			}
		}
	}
	return cut, others, first
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
