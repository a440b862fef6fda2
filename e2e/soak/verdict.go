package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// findings are what the verdict goes by.
type findings struct {
	calm, storm   *tally
	workers       *workers // after the last request
	running       int      // requests that the replicas still work on
	before, after footprint
	log           string
	counts        *counts
}

// inspect looks at what is left when all clients are gone: first with CART in place, then with its router taken away.
func (s *stage) inspect(ctx context.Context, before footprint) (*findings, error) {
	f := &findings{before: before, counts: &s.counts}
	s.client.CloseIdleConnections()
	err := s.traefik.until(ctx, func() error {
		w, err := s.workers(ctx)
		if err != nil {
			return err
		}
		f.workers, f.running = w, 0
		for _, p := range s.replicas {
			n, err := p.running()
			if err != nil {
				return err
			}
			f.running += n
		}
		if w.load()+f.running > 0 {
			return fmt.Errorf("load %d, %d requests running", w.load(), f.running)
		}
		return nil
	})
	if f.workers == nil || ctx.Err() != nil {
		return nil, errors.Join(err, ctx.Err())
	}
	fmt.Println("Waiting for Traefik to come to rest without CART's router ...")
	if err := s.traefik.write(routing, nil); err != nil {
		return nil, err
	}
	// Idle connections to the replicas would be kept for another minute or more.
	for _, p := range s.replicas {
		p.stop()
	}
	sleep(ctx, time.Second)
	if f.after, err = s.traefik.settled(ctx, before); err != nil {
		return nil, err
	}
	f.log = s.traefik.log()
	return f, s.traefik.alive()
}

// row is one line of the verdict.
type row struct {
	what, got, want string
	ok              bool
}

// hitLoss is the share of the calm's hit ratio that the storm may cost.
const hitLoss = 0.05

func (f *findings) rows() []row {
	calm, storm, common := hitRatios(f.calm, f.storm)
	bad := badLines(f.log)
	c := f.counts
	requests := f.storm.all()
	retried := f.workers.Retries
	return []row{
		{"requests in the storm", fmt.Sprint(requests), "some", requests > 0},
		{"  left by their client", share(f.storm.of(left), requests), "about 10%", f.storm.of(left) > 0},
		{"  nonsense, answered with 400", share(f.storm.of(refused), requests), "about 5%", f.storm.of(refused) > 0},
		{"  broken by a kill after the first byte", fmt.Sprint(f.storm.of(broken)), "the replicas' own", true},
		{"  retried on another replica", fmt.Sprint(retried), "some", retried > 0},
		{"kills, flaps", fmt.Sprintf("%d, %d", c.kills.Load(), c.flaps.Load()), "some", c.kills.Load() > 0 && c.flaps.Load() > 0},
		{"reloads, changes of workers", fmt.Sprintf("%d, %d", c.reloads.Load(), c.changes.Load()), "some", c.changes.Load() > 0},
		{"errors in the calm", fmt.Sprint(f.calm.of(failed) + f.calm.of(broken)), "0", f.calm.of(failed)+f.calm.of(broken) == 0},
		{"errors in the storm", fmt.Sprint(f.storm.of(failed)), "0", f.storm.of(failed) == 0},
		{"load at the end, all replicas", fmt.Sprint(f.workers.load()), "0", f.workers.load() == 0},
		{"requests still running there", fmt.Sprint(f.running), "0", f.running == 0},
		{"goroutines before, after", fmt.Sprintf("%d, %d", f.before.goroutines, f.after.goroutines),
			fmt.Sprintf("at most %d more", moreGoroutines), f.after.goroutines <= f.before.goroutines+moreGoroutines},
		{"heap before, after", fmt.Sprintf("%.1f, %.1f MB", mega(f.before.heap), mega(f.after.heap)),
			fmt.Sprintf("at most %.0f MB more", mega(moreHeap)), f.after.heap <= f.before.heap+moreHeap},
		{"panics and reflect in the log", fmt.Sprintf("%d lines", len(bad)), "0 lines", len(bad) == 0},
		{fmt.Sprintf("hit ratio of %d common requests", common), fmt.Sprintf("%.1f%%, in calm %.1f%%", 100*storm, 100*calm),
			fmt.Sprintf("at least %.1f%%", 100*calm*(1-hitLoss)), common > 0 && storm >= calm*(1-hitLoss)},
	}
}

// verdict prints all rows, and what went wrong, and returns an error if anything did.
func (f *findings) verdict(out io.Writer) error {
	var wrong []string
	for _, r := range f.rows() {
		mark := "ok  "
		if !r.ok {
			mark = "FAIL"
			wrong = append(wrong, strings.TrimSpace(r.what))
		}
		fmt.Fprintf(out, "%s  %-42s %-26s want %s\n", mark, r.what, r.got, r.want)
	}
	for _, err := range append(f.calm.errors, f.storm.errors...) {
		fmt.Fprintf(out, "\nan error: %v", err)
	}
	for _, err := range f.storm.breaks {
		fmt.Fprintf(out, "\nbroken by a kill: %v", err)
	}
	for _, line := range badLines(f.log) {
		fmt.Fprintf(out, "\nin the log: %.300s", line)
	}
	fmt.Fprintln(out)
	if len(wrong) > 0 {
		return fmt.Errorf("not as it should be: %s", strings.Join(wrong, "; "))
	}
	fmt.Fprintln(out, "All is well.")
	return nil
}

// badLines are the lines of a log that tell of a panic or of the interpreter in trouble.
func badLines(log string) (bad []string) {
	for _, line := range strings.Split(log, "\n") {
		low := strings.ToLower(line)
		for _, sign := range []string{"panic", "reflect", "fatal error", "goroutine ", "plugins are disabled"} {
			if strings.Contains(low, sign) {
				bad = append(bad, line)
				break
			}
		}
	}
	return bad
}

func share(part, whole int) string { return fmt.Sprintf("%d (%s)", part, percent(part, whole)) }

func mega(bytes int) float64 { return float64(bytes) / (1 << 20) }
