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
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cart-llm/cart/e2e/process"
	"github.com/cart-llm/cart/e2e/proxies"
	"github.com/cart-llm/cart/e2e/report"
	"github.com/cart-llm/cart/e2e/traefik"
)

// streamsRun is what came of many streams at once through one target.
type streamsRun struct {
	delays   []time.Duration // from the backend's write to the client's read, of every event
	failed   int
	firstErr error
	cpu      time.Duration
	resident [2]int64 // memory without streams, and the most that was seen with them
	live     [2]live  // without streams and with all of them open, right after a collection; of the last round
}

// live is what Go's runtime tells of a process right after a collection, in bytes.
type live struct {
	heap, stacks, goroutines int64
}

// streamRounds is how often each target takes its turn, with a new process each time: later streams find a grown heap. In
// the last round there is a look inside, which begins with a collection: it has no part in the other figures.
const streamRounds = 4

// streamTarget is a target that is started for each round anew.
type streamTarget struct {
	name  string
	host  string
	start func(context.Context) (*process.Process, *traefik.Traefik, error)
	runs  []*streamsRun
}

// benchStreams opens as many streams through CART as through Traefik's own balancer and compares how late events come and what
// memory they take.
func benchStreams(ctx context.Context, s *stage, o *options, out io.Writer) error {
	if err := s.startBackends(ctx, o.interval); err != nil {
		return err
	}
	targets, err := s.streamTargets(ctx, o)
	if err != nil {
		return err
	}
	begin, load := time.Now(), process.LoadAverage()
	for round := range streamRounds {
		for i := range targets {
			t := targets[(i+round)%len(targets)]
			s.say("round %d of %d: %d streams through %s, %v", round+1, streamRounds, o.count, t.name, streamEvents*o.interval)
			run, err := s.streamRound(ctx, t, o, round)
			if err = errors.Join(err, ctx.Err()); err != nil {
				return fmt.Errorf("%s: %w", t.name, err)
			}
			t.runs = append(t.runs, run)
		}
	}
	reportStreams(out, targets, o, begin, load)
	return nil
}

func (s *stage) streamTargets(ctx context.Context, o *options) ([]*streamTarget, error) {
	// Traefik's debug endpoints tell the heap.
	options := traefik.Options{Static: object{"api": object{"debug": true}}}
	config := object{"maxLoad": o.count} // the default refuses more than 20 a replica
	targets := []*streamTarget{
		{name: wrr, host: proxies.BalancerHost(wrr), start: func(ctx context.Context) (*process.Process, *traefik.Traefik, error) {
			return proxies.Balancer(ctx, s.backendURLs(), options, wrr)
		}},
		{name: interpreted, start: func(ctx context.Context) (*process.Process, *traefik.Traefik, error) {
			return proxies.Plugin(ctx, s.backendURLs(), config, options)
		}},
	}
	if s.before == "" {
		return targets, nil
	}
	if err := sameBinary(ctx); err != nil {
		return nil, err
	}
	theirs := options
	theirs.Root = s.before
	return append(targets, &streamTarget{name: before, start: func(ctx context.Context) (*process.Process, *traefik.Traefik, error) {
		return proxies.Plugin(ctx, s.backendURLs(), config, theirs)
	}}), nil
}

// streamRound starts a target, leads streams through it and ends it.
func (s *stage) streamRound(ctx context.Context, t *streamTarget, o *options, round int) (run *streamsRun, err error) {
	p, api, err := t.start(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.Stop()) }()
	run = &streamsRun{}
	open := &target{name: t.name, proc: p, host: t.host, urls: []string{p.URL()}}
	if round < streamRounds-1 {
		return run, run.openStreams(ctx, open, o, func() error { return nil })
	}
	profiles := ""
	if o.profiles != "" {
		profiles = filepath.Join(o.profiles, t.name)
	}
	if run.live[0], err = lookInside(ctx, api, profiles, "idle"); err != nil {
		return nil, err
	}
	return run, run.openStreams(ctx, open, o, func() (err error) {
		run.live[1], err = lookInside(ctx, api, profiles, "streams")
		return err
	})
}

// openStreams opens streams, all of which are open at the same time for a while, and reads them to their end. look is called
// when that has lasted for long.
func (run *streamsRun) openStreams(ctx context.Context, t *target, o *options, look func() error) error {
	transport := newTransport(o.count)
	defer transport.CloseIdleConnections()
	work := newWorkload(allShapes[0], 1<<10).streaming()
	var err error
	if run.resident[0], err = process.Resident(t.proc.Pid); err != nil {
		return err
	}
	cpuBefore, err := cpuOf(t)
	if err != nil {
		return err
	}
	var mu sync.Mutex
	var readers sync.WaitGroup
	for range o.count {
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
		time.Sleep(time.Second / time.Duration(o.count)) // all are open after a second or so
	}
	done := make(chan struct{})
	go func() {
		readers.Wait()
		close(done)
	}()
	late := time.After(streamEvents * o.interval * 3 / 4)
	sample := time.NewTicker(200 * time.Millisecond)
	defer sample.Stop()
	for {
		select {
		case <-done:
			cpuAfter, cpuErr := cpuOf(t)
			run.cpu = cpuAfter - cpuBefore
			return errors.Join(err, cpuErr)
		case <-late:
			err = look()
		case <-sample.C:
			now, err := process.Resident(t.proc.Pid)
			if err != nil {
				return t.proc.Alive()
			}
			run.resident[1] = max(run.resident[1], now)
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

// lookInside has Traefik collect its garbage and tells what is left. With a name for them it keeps the profiles.
func lookInside(ctx context.Context, api *traefik.Traefik, profiles, when string) (live, error) {
	pages := make([][]byte, 3)
	// What pools lend stays for one more collection.
	for i, page := range []string{"heap?gc=1", "heap?gc=1&debug=1", "goroutine?debug=1"} {
		var err error
		if pages[i], err = process.GetBody(ctx, api.URLAPI()+"/debug/pprof/"+page); err != nil {
			return live{}, err
		}
	}
	var found live
	for _, number := range []struct {
		page   int
		format string
		value  *int64
	}{{1, "\n# HeapAlloc = %d", &found.heap}, {1, "\n# Stack = %d", &found.stacks}, {2, "goroutine profile: total %d", &found.goroutines}} {
		text := string(pages[number.page])
		before, _, _ := strings.Cut(number.format, "%d")
		if _, err := fmt.Sscanf(text[max(0, strings.Index(text, before)):], number.format, number.value); err != nil {
			return live{}, fmt.Errorf("no %q in Traefik's profile: %w", before, err)
		}
	}
	if profiles == "" {
		return found, nil
	}
	return found, errors.Join(os.WriteFile(profiles+"-"+when+"-heap.pb.gz", pages[0], 0o644),
		os.WriteFile(profiles+"-"+when+"-goroutines.txt", pages[2], 0o644))
}

func reportStreams(out io.Writer, targets []*streamTarget, o *options, begin time.Time, load string) {
	report.Head(out, "CART: many streams at once", begin, load)
	fmt.Fprintf(out, "%d streams of %d events, one every %v; %d rounds by turns, each with a new process. The delay of an event is from\n"+
		"the backend's write to the client's read. Memory is that with all streams open less that before, by stream: the median of\n"+
		"the rounds for resident memory at its most; heap and stacks right after a collection, in one more round.\n\n",
		o.count, streamEvents, o.interval, streamRounds-1)
	fmt.Fprintf(out, "| target | events | delay p50 ms | p99 ms | max ms | CPU us/event | idle MiB | RSS KiB/stream (rounds) | "+
		"live heap KiB/stream | stacks KiB/stream | goroutines/stream | errors |\n|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n")
	p99, memory := map[string]float64{}, map[string]float64{}
	var errs []error
	for _, t := range targets {
		var all []time.Duration
		var cpu time.Duration
		var idle, resident []float64
		failed := 0
		for _, run := range t.runs[:streamRounds-1] {
			all = append(all, run.delays...)
			cpu += run.cpu
			failed += run.failed
			if run.firstErr != nil {
				errs = append(errs, fmt.Errorf("%s: %w", t.name, run.firstErr))
			}
			idle = append(idle, mebi(run.resident[0]))
			resident = append(resident, float64(run.resident[1]-run.resident[0])/1024/float64(o.count))
		}
		idly, busy := t.runs[streamRounds-1].live[0], t.runs[streamRounds-1].live[1]
		each := func(idly, busy int64) float64 { return float64(busy-idly) / float64(o.count) }
		p99[t.name] = micros(report.Quantile(all, 0.99)) / 1000
		memory[t.name] = median(resident)
		fmt.Fprintf(out, "| %s | %d | %.1f | %.1f | %.1f | %.0f | %.0f | %.1f (%.0f) | %.1f | %.1f | %.2f | %d |\n", t.name, len(all),
			micros(report.Quantile(all, 0.5))/1000, p99[t.name], micros(report.Quantile(all, 1))/1000, micros(cpu)/float64(len(all)),
			median(idle), memory[t.name], resident, each(idly.heap, busy.heap)/1024, each(idly.stacks, busy.stacks)/1024,
			each(idly.goroutines, busy.goroutines), failed)
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

func median(all []float64) float64 {
	sorted := slices.Sorted(slices.Values(all))
	return sorted[len(sorted)/2]
}
