package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"os"

	"github.com/cart-llm/cart/e2e/chats"
	"github.com/cart-llm/cart/e2e/compare"
	"github.com/cart-llm/cart/e2e/proxies"
	"github.com/cart-llm/cart/e2e/report"
)

// compareAll is the part compare.
func compareAll(ctx context.Context, o *options, s *stack, out io.Writer) error {
	r := &compare.Run{Options: o.Options, Replicas: s.urls(), Progress: os.Stderr}
	err := r.Do(ctx)
	about := fmt.Sprintf("%d vLLM 0.32 servers on the CPU, a thread each, a tiny Llama with random weights, each with a prefix cache of %d\n"+
		"blocks of 128 tokens. They share the machine's cores with the client and the proxy: hits show, balance hardly does.",
		servers, blocks)
	r.Report(out, "CART before real engines", about)
	report.Limits(out, limits(r))
	return err
}

// limits are those of the better of CART's policies, for it is that which a user would choose.
func limits(r *compare.Run) []report.Limit {
	better := r.Better(threshold, cost)
	if better == "" {
		better = threshold
	}
	var all []report.Limit
	for _, w := range r.Workloads {
		all = append(all,
			r.Cached(w.Name, better, proxies.SGLangRouter, -0.5),
			r.AtMost(w.Name, "TTFT mean", better, proxies.SGLangRouter, 1.05, compare.Mean))
		if w.Name == chats.Even.Name {
			all = append(all, r.AtMost(w.Name, "TTFT mean", better, proxies.LeastTime, 0.8, compare.Mean))
		}
	}
	for _, name := range []string{threshold, cost} {
		for _, w := range r.Workloads {
			if s := r.Of(w.Name, name); s != nil {
				ratio := s.PredictedOverActual()
				all = append(all, report.Limit{
					Text: fmt.Sprintf("%s: %s's predicted cached tokens differ by <= 10 %% from the actual ones", w.Name, name),
					Got:  math.Abs(ratio - 1), Most: true, Than: 0.1, How: fmt.Sprintf("predicted/actual = %.3f", ratio),
				})
			}
		}
		all = append(all, r.Errors(name))
	}
	return all
}
