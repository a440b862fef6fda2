package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
)

// write writes one table of all, the comparison of threshold and cost, and what the special scenarios are.
func write(out io.Writer, o *options, recorded, special []*line) {
	fmt.Fprintf(out, "Hit ratio / mean / 99th percentile of the time to first token in seconds; geometric means of %d draws.\n\n", o.seeds)
	fmt.Fprintf(out, "| workload | replicas | load | instances | %s |\n|---|---|---|---|%s\n", strings.Join(o.policies, " | "),
		strings.Repeat("---|", len(o.policies)))
	for _, l := range append(slices.Clone(recorded), special...) {
		load := "" // what comes of the conversations
		if l.scenario.load > 0 {
			load = fmt.Sprintf("%.0f %%", 100*l.scenario.load)
		}
		fmt.Fprintf(out, "| %s | %d | %s | %d |", l.scenario.name, l.scenario.replicas, load, l.instances)
		for _, p := range o.policies {
			if len(l.results[p]) == 0 {
				fmt.Fprint(out, " |")
				continue
			}
			r := average(l.results[p])
			fmt.Fprintf(out, " %.3f / %s / %s |", r.hit, seconds(r.mean), seconds(r.p99))
		}
		fmt.Fprintln(out)
	}
	for _, n := range o.instances {
		fmt.Fprintf(out, "| **geometric mean** | | | %d |", n)
		for _, p := range o.policies {
			all := of(recorded, n, p)
			if len(all) == 0 {
				fmt.Fprint(out, " |")
				continue
			}
			r := average(all)
			fmt.Fprintf(out, " **%.2f / %.2f** |", r.mean, r.p99)
		}
		fmt.Fprintln(out)
	}
	fmt.Fprintln(out)
	if slices.Contains(o.policies, "threshold") && slices.Contains(o.policies, "cost") {
		for _, n := range o.instances {
			t, c := average(of(recorded, n, "threshold")), average(of(recorded, n, "cost"))
			fmt.Fprintf(out, "cost against threshold over the recorded traces, instances %d: mean x%.3f, p99 x%.3f\n\n", n,
				c.mean/t.mean, c.p99/t.p99)
		}
	}
	for _, l := range special {
		fmt.Fprintf(out, "- **%s**: %s\n", l.scenario.name, l.scenario.about)
	}
}

// seconds writes a time to some hundredth of it.
func seconds(t float64) string {
	if t < 1 {
		return fmt.Sprintf("%.3f", t)
	}
	return fmt.Sprintf("%.2f", t)
}

// of returns all results of a policy with that many instances.
func of(lines []*line, instances int, policy string) []*result {
	var out []*result
	for _, l := range lines {
		if l.instances == instances {
			out = append(out, l.results[policy]...)
		}
	}
	return out
}

// average returns the mean hit ratio and the geometric means of the times.
func average(results []*result) *result {
	out := &result{}
	n := float64(len(results))
	for _, r := range results {
		out.hit += r.hit / n
		out.mean += math.Log(r.mean) / n
		out.p99 += math.Log(r.p99) / n
	}
	out.mean = math.Exp(out.mean)
	out.p99 = math.Exp(out.p99)
	return out
}
