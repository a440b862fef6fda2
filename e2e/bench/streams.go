package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/cart-llm/cart/e2e/process"
	"github.com/cart-llm/cart/e2e/proxies"
	"github.com/cart-llm/cart/e2e/report"
)

// streamsRun is what came of many streams at once through one target.
type streamsRun struct {
	delays   []time.Duration // from the backend's write to the client's read, of every event
	failed   int
	firstErr error
	before   int64 // resident memory without streams
	during   int64 // with all of them open, the most that was seen
	cpu      time.Duration
}

// streamRounds is how often both targets take their turn. Memory is that of the first: later ones find a grown heap.
const streamRounds = 2

// benchStreams opens as many streams through CART as through Traefik's own balancer and compares how late events come.
func benchStreams(ctx context.Context, s *stage, o *options, out io.Writer) error {
	if err := s.startBackends(ctx, o.interval); err != nil {
		return err
	}
	balancer, err := s.startBalancer(ctx)
	if err != nil {
		return err
	}
	plugin, err := s.startInterpreted(ctx, object{"maxLoad": o.count}) // the default refuses more than 20 a replica
	if err != nil {
		return err
	}
	s.targets = []*target{
		{name: wrr, proc: balancer, host: proxies.BalancerHost(wrr), urls: []string{balancer.URL()}},
		{name: interpreted, proc: plugin, urls: []string{plugin.URL()}},
	}
	begin, load := time.Now(), process.LoadAverage()
	runs := map[string][]*streamsRun{}
	for round := range streamRounds {
		for i := range s.targets {
			t := s.targets[(i+round)%len(s.targets)]
			s.say("round %d of %d: %d streams through %s, %v", round+1, streamRounds, o.count, t.name, streamEvents*o.interval)
			run, err := s.openStreams(ctx, t, o.count)
			if err = errors.Join(err, ctx.Err()); err != nil {
				return err
			}
			runs[t.name] = append(runs[t.name], run)
		}
	}
	reportStreams(out, s, o, runs, begin, load)
	return nil
}

// openStreams opens streams, all of which are open at the same time for a while, and reads them to their end.
func (s *stage) openStreams(ctx context.Context, t *target, count int) (*streamsRun, error) {
	if err := t.proc.Prove(); err != nil {
		return nil, err
	}
	transport := newTransport(count)
	defer transport.CloseIdleConnections()
	work := newWorkload(allShapes[0], 1<<10).streaming()
	run := &streamsRun{}
	var err error
	if run.before, err = process.Resident(t.proc.Pid); err != nil {
		return nil, err
	}
	cpuBefore, err := cpuOf(t)
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex
	var readers sync.WaitGroup
	for range count {
		readers.Add(1)
		go func() {
			defer readers.Done()
			delays, err := readStream(ctx, transport, t, work)
			mu.Lock()
			defer mu.Unlock()
			run.delays = append(run.delays, delays...)
			if err != nil {
				run.failed++
				if run.firstErr == nil {
					run.firstErr = err
				}
			}
		}()
		time.Sleep(time.Second / time.Duration(count)) // all are open after a second or so
	}
	done := make(chan struct{})
	go func() {
		readers.Wait()
		close(done)
	}()
	for sample := time.NewTicker(200 * time.Millisecond); ; {
		select {
		case <-done:
			sample.Stop()
			cpuAfter, err := cpuOf(t)
			run.cpu = cpuAfter - cpuBefore
			return run, err
		case <-sample.C:
			now, err := process.Resident(t.proc.Pid)
			if err != nil {
				return nil, t.proc.Alive()
			}
			run.during = max(run.during, now)
		}
	}
}

// readStream reads one stream and returns how late each event was.
func readStream(ctx context.Context, tr *http.Transport, t *target, w *workload) ([]time.Duration, error) {
	body, length := newTalk(w).next()
	resp, err := post(ctx, tr, t, t.urls[0]+w.shape.path, body, length)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("answer %d, want 200", resp.StatusCode)
	}
	var delays []time.Duration
	ended := false
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		data, ok := bytes.CutPrefix(lines.Bytes(), []byte("data: "))
		switch {
		case !ok:
		case string(data) == "[DONE]":
			ended = true
		default:
			now := time.Now()
			var e event
			if err := json.Unmarshal(data, &e); err != nil {
				return delays, err
			}
			delays = append(delays, now.Sub(time.Unix(0, e.Sent)))
		}
	}
	if err := lines.Err(); err != nil {
		return delays, fmt.Errorf("after %d events: %w", len(delays), err)
	}
	if !ended || len(delays) != streamEvents {
		return delays, fmt.Errorf("%d events, ended: %v; want %d and the end", len(delays), ended, streamEvents)
	}
	return delays, nil
}

func reportStreams(out io.Writer, s *stage, o *options, runs map[string][]*streamsRun, begin time.Time, load string) {
	report.Head(out, "CART: many streams at once", begin, load)
	fmt.Fprintf(out, "%d streams of %d events, one every %v; %d rounds by turns. The delay of an event is from the backend's write to the\n"+
		"client's read. Memory is resident memory with all streams open less that before, of the first round.\n\n",
		o.count, streamEvents, o.interval, streamRounds)
	fmt.Fprintf(out, "| target | events | delay p50 ms | p99 ms | max ms | CPU us/event | idle MiB | KiB per stream | errors |\n")
	fmt.Fprintf(out, "|---|--:|--:|--:|--:|--:|--:|--:|--:|\n")
	p99, memory := map[string]float64{}, map[string]float64{}
	var errs []error
	for _, t := range s.targets {
		var all []time.Duration
		var cpu time.Duration
		failed := 0
		for _, run := range runs[t.name] {
			all = append(all, run.delays...)
			cpu += run.cpu
			failed += run.failed
			if run.firstErr != nil {
				errs = append(errs, fmt.Errorf("%s: %w", t.name, run.firstErr))
			}
		}
		first := runs[t.name][0]
		p99[t.name] = micros(report.Quantile(all, 0.99)) / 1000
		memory[t.name] = float64(first.during-first.before) / 1024 / float64(o.count)
		fmt.Fprintf(out, "| %s | %d | %.1f | %.1f | %.1f | %.0f | %.0f | %.1f | %d |\n", t.name, len(all), micros(report.Quantile(all, 0.5))/1000,
			p99[t.name], micros(report.Quantile(all, 1))/1000, micros(cpu)/float64(len(all)), mebi(first.before), memory[t.name], failed)
	}
	if err := errors.Join(errs...); err != nil {
		fmt.Fprintf(out, "\nFirst errors: %v\n", err)
	}
	report.Limits(out, []report.Limit{
		{Text: "5. event delay p99 in ms, CART's less wrr's <= 200", Got: p99[interpreted] - p99[wrr], Most: true, Than: 200,
			How: fmt.Sprintf("%.1f - %.1f ms", p99[interpreted], p99[wrr])},
		{Text: "5. memory per stream <= 1.5 x wrr", Got: memory[interpreted] / memory[wrr], Most: true, Than: 1.5,
			How: fmt.Sprintf("%.1f / %.1f KiB", memory[interpreted], memory[wrr])},
	})
}
