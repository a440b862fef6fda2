// Command fleet compares CART with Traefik's own balancers and sglang-router before eight simulated replicas, in real time:
//
//	fleet                         two workloads of multi-turn chats, as Markdown tables, with the limits kept or missed
//	fleet -workloads skewed -seeds 1 -targets cart-cost,sglang-router      a part of it
//
// The replicas wait instead of computing, so that each has a capacity of its own, as servers with a GPU each have and as real
// engines on this machine's few cores have not. A figure says something only beside the others of its run. Everything
// listens on 127.0.0.1.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"time"

	"github.com/cart-llm/cart/e2e/chats"
	"github.com/cart-llm/cart/e2e/compare"
	"github.com/cart-llm/cart/e2e/process"
	"github.com/cart-llm/cart/e2e/proxies"
	"github.com/cart-llm/cart/e2e/replica"
	"github.com/cart-llm/cart/e2e/report"
)

const (
	threshold = "cart-threshold"
	cost      = "cart-cost"
)

func main() {
	f := flag.NewFlagSet("fleet", flag.ContinueOnError)
	parsed := compare.Flags(f, []string{proxies.WRR, proxies.LeastTime, proxies.SGLangRouter, threshold, cost}, 2)
	if err := f.Parse(os.Args[1:]); err != nil {
		os.Exit(process.ExitUsage)
	}
	o, err := parsed()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(process.ExitUsage)
	}
	// The client and the replicas live in this process; its garbage collections would show as the proxies' latency.
	debug.SetGCPercent(400)
	process.RunMain("fleet", func(ctx context.Context) error { return run(ctx, o) })
}

// replicas is how many there are.
const replicas = 8

// large is one replica, about a model of 70 billion parameters with 8-bit weights on two H100: it computes 4,000 tokens of
// prompts a second and takes 18 ms for a step of all answers. With this rate round robin, which finds least in the caches, keeps
// the replicas busy with prompts for about two thirds of the time, which is as much as one would plan for. Its cache is to the
// workloads' prompts what that of a server of e2e/real is.
var large = replica.Options{
	PrefillRate: 4000, ChunkTokens: 1024, StepTime: 18 * time.Millisecond, StepEach: 100 * time.Microsecond,
	BlockTokens: 128, CacheTokens: 96 * 128, Overhead: 5 * time.Millisecond,
}

func run(ctx context.Context, o *compare.Options) (err error) {
	out, done, err := o.Output()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, done()) }()
	for i := range o.Workloads {
		o.Workloads[i] = o.Workloads[i].For(replicas)
	}
	r := &compare.Run{Options: o, Progress: os.Stderr}
	for range replicas {
		one, err := replica.Start(large)
		if err != nil {
			return err
		}
		defer one.Close()
		r.Replicas = append(r.Replicas, one.URL())
	}
	err = r.Do(ctx)
	write(out, r)
	return err
}

func write(out io.Writer, r *compare.Run) {
	about := fmt.Sprintf("%d simulated replicas, each with about the capacity of a 70B model in 8 bits on two H100 (%.0f prompt tokens/s\n"+
		"in chunks of %d, one prompt after another; steps of %v + %v a sequence; a prefix cache of %d tokens), behind one proxy.\n"+
		"The clients are a closed network: a fixed number of conversations goes round without pauses between the queues of the replicas'\n"+
		"prefills and the decoding, which hardly queues. Load is the share of its time that a replica computes prompts: the mean of all,\n"+
		"and the busiest.", len(r.Replicas), large.PrefillRate, large.ChunkTokens, large.StepTime, large.StepEach, large.CacheTokens)
	r.Report(out, "CART before a fleet", about, compare.Column{Head: "load", Cell: load})
	report.Limits(out, limits(r))
}

// load is the utilisation of the prefill of all replicas, and of the busiest one.
func load(s *compare.Result) string {
	sum, most := 0.0, 0.0
	for _, w := range s.Replicas {
		busy := (w.Prompt - w.Cached) / large.PrefillRate / s.Wall.Seconds()
		sum += busy
		most = max(most, busy)
	}
	return fmt.Sprintf("%.2f, %.2f", sum/float64(len(s.Replicas)), most)
}

func limits(r *compare.Run) []report.Limit {
	var all []report.Limit
	for _, w := range r.Workloads {
		than := 0.8
		if w.Name == chats.Even.Name {
			than = 1
		}
		all = append(all,
			r.AtMost(w.Name, "TTFT mean", cost, proxies.SGLangRouter, than, compare.Mean),
			r.AtMost(w.Name, "TTFT p99", cost, proxies.SGLangRouter, than, compare.P99),
			r.Cached(w.Name, cost, proxies.SGLangRouter, -1))
	}
	return append(all, r.Errors(threshold), r.Errors(cost))
}
