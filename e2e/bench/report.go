package main

import (
	"fmt"
	"io"
	"math"
	"time"

	"github.com/cart-llm/cart/e2e/report"
)

// tables writes the results as Markdown.
type tables struct {
	out     io.Writer
	options *options
	results *results
	targets []*target
}

func (r *tables) printf(format string, args ...any) { fmt.Fprintf(r.out, format, args...) }

func (r *tables) write(begin time.Time, load string) {
	report.Head(r.out, "CART beside other proxies", begin, load)
	o := r.options
	r.printf("%d rounds of %v for each line; client, proxy and %d instant backends share the machine. Compare within one table only.\n\n",
		o.rounds, o.dur, backends)
	for _, t := range r.targets {
		r.printf("- **%s**: %s\n", t.name, targetAbout[t.name])
	}
	r.printf("\n")
	for _, sh := range o.shapes {
		r.printf("- **%s**: %s (%s", sh.name, sh.about, sh.path)
		for _, size := range o.sizes {
			if mean, ok := r.results.bodies[bodyKey(sh, size)]; ok {
				r.printf("; %s: mean body %d B", sizeName(size), mean)
			}
		}
		r.printf(")\n")
	}
	r.printf("\nA conversation has %d turns, each body extends the one before; %d system prompts. The last four columns are ratios: p50 and\n"+
		"req/s as multiples of sglang-router's and of wrr's.\n", turns, tenants)
	for _, sh := range o.shapes {
		for _, conc := range o.conc {
			r.table(sh, conc)
		}
	}
	r.notes()
	report.Limits(r.out, limits(r.results, o))
}

func (r *tables) table(sh *shape, conc int) {
	clients := fmt.Sprintf("%d clients", conc)
	if conc == 1 {
		clients = "1 client"
	}
	r.printf("\n## %s, %s\n\n", sh.name, clients)
	r.printf("| body | target | p50 us | p99 us | req/s | CPU us/req | RSS MiB | errors | p50/sglang | req/sglang | p50/wrr | req/wrr |\n")
	r.printf("|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n")
	for _, size := range r.options.sizes {
		for _, t := range r.targets {
			f := r.results.of(cell{sh, size, conc, t.name})
			if f.requests == 0 && f.failed == 0 {
				continue
			}
			sglang := r.results.of(cell{sh, size, conc, sglangRouter})
			own := r.results.of(cell{sh, size, conc, wrr})
			cpu, rss := "-", "-"
			if t.proc != nil {
				cpu, rss = fmt.Sprintf("%.0f", f.cpu), fmt.Sprintf("%.0f", f.rss)
			}
			r.printf("| %s | %s | %.0f | %.0f | %.0f | %s | %s | %d | %s | %s | %s | %s |\n", sizeName(size), t.name, f.p50, f.p99, f.rate,
				cpu, rss, f.failed, report.Ratio(f.p50, sglang.p50), report.Ratio(f.rate, sglang.rate),
				report.Ratio(f.p50, own.p50), report.Ratio(f.rate, own.rate))
		}
	}
}

func (r *tables) notes() {
	if len(r.results.notes) == 0 {
		return
	}
	r.printf("\n## Notes\n\n")
	for _, note := range r.results.notes {
		r.printf("- %s\n", note)
	}
}

// figures are what a tally comes to: times in microseconds, memory in MiB. NaN where nothing was measured.
type figures struct {
	requests, failed    int
	p50, p99, rate, cpu float64
	rss                 float64
}

func (r *results) of(c cell) figures {
	t := r.cells[c]
	if t == nil || len(t.latency) == 0 {
		f := figures{p50: math.NaN(), p99: math.NaN(), rate: math.NaN(), cpu: math.NaN(), rss: math.NaN()}
		if t != nil {
			f.failed = t.failed
		}
		return f
	}
	n := len(t.latency)
	return figures{
		requests: n, failed: t.failed,
		p50: micros(report.Quantile(t.latency, 0.5)), p99: micros(report.Quantile(t.latency, 0.99)),
		rate: float64(n) / t.clock.Seconds(), cpu: micros(t.cpu) / float64(n), rss: mebi(t.resident),
	}
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

func mebi(n int64) float64 { return float64(n) / (1 << 20) }
