package chats

import (
	"fmt"
	"math"
	"time"

	"github.com/cart-llm/cart/e2e/report"
)

// Tally is what came of runs of the same kind.
type Tally struct {
	First          []time.Duration // of the turns without an error
	Prompt, Cached int             // tokens
	Errors         int
	FirstErr       error
	Means          []float64 // mean time to the first event of each run, in seconds
}

// Add adds the turns of a run.
func (t *Tally) Add(turns []Turn) {
	var sum time.Duration
	n := 0
	for _, u := range turns {
		if u.Err != nil {
			t.Errors++
			if t.FirstErr == nil {
				t.FirstErr = u.Err
			}
			continue
		}
		t.First = append(t.First, u.First)
		t.Prompt += u.Prompt
		t.Cached += u.Cached
		sum += u.First
		n++
	}
	if n > 0 {
		t.Means = append(t.Means, sum.Seconds()/float64(n))
	}
}

// Mean is the mean time to the first event in seconds, NaN of nothing.
func (t *Tally) Mean() float64 {
	if t == nil || len(t.First) == 0 {
		return math.NaN()
	}
	var sum time.Duration
	for _, d := range t.First {
		sum += d
	}
	return sum.Seconds() / float64(len(t.First))
}

// Quantile is one of the times to the first event, in seconds, NaN of nothing.
func (t *Tally) Quantile(q float64) float64 {
	if t == nil || len(t.First) == 0 {
		return math.NaN()
	}
	return report.Quantile(t.First, q).Seconds()
}

// Share is the share of the prompts' tokens that was cached, in percent, NaN of nothing.
func (t *Tally) Share() float64 {
	if t == nil || t.Prompt == 0 {
		return math.NaN()
	}
	return 100 * float64(t.Cached) / float64(t.Prompt)
}

// TableHead begins the table of which Row writes the lines. more are further columns.
func TableHead(more ...string) string {
	head := "| target | TTFT mean s | p50 s | p99 s | cached tokens | errors | mean of each seed s | mean/sglang | p99/sglang |"
	line := "|---|--:|--:|--:|--:|--:|---|--:|--:|"
	for _, column := range more {
		head += " " + column + " |"
		line += "--:|"
	}
	return head + "\n" + line + "\n"
}

// Row is a line of the table. than is what the ratios are to.
func (t *Tally) Row(name string, than *Tally, more ...string) string {
	each := ""
	for _, mean := range t.Means {
		each += fmt.Sprintf("%.3f ", mean)
	}
	row := fmt.Sprintf("| %s | %.3f | %.3f | %.3f | %.1f %% | %d | %s| %s | %s |", name, t.Mean(), t.Quantile(0.5), t.Quantile(0.99),
		t.Share(), t.Errors, each, report.Ratio(t.Mean(), than.Mean()), report.Ratio(t.Quantile(0.99), than.Quantile(0.99)))
	for _, cell := range more {
		row += " " + cell + " |"
	}
	return row + "\n"
}
