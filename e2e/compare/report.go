package compare

import (
	"fmt"
	"io"
	"math"
	"sort"
	"strings"

	"github.com/cart-llm/cart/e2e/chats"
	"github.com/cart-llm/cart/e2e/proxies"
	"github.com/cart-llm/cart/e2e/report"
)

// Column is a further one of the tables.
type Column struct {
	Head string
	Cell func(s *Result) string
}

// Report writes the tables of all workloads. about says what the replicas are.
func (r *Run) Report(out io.Writer, title, about string, columns ...Column) {
	report.Head(out, title, r.begin, r.load)
	fmt.Fprintf(out, "%s\n\nEach question has %d words, each answer %d tokens, streamed. Seeds: %d, each with texts of its own; caches are\n"+
		"emptied and the proxy is started anew before each run. TTFT is the time to the first event at the client, errors excluded.\n\n",
		about, chats.QuestionWords, chats.AnswerTokens, r.Seeds)
	for _, name := range r.Targets {
		fmt.Fprintf(out, "- **%s**: %s\n", name, proxies.About(name))
	}
	columns = append(columns, Column{"requests by replica", spread})
	for _, w := range r.Workloads {
		fmt.Fprintf(out, "\n## %s\n\n%s.\n\n", w.Name, w.About())
		r.table(out, w.Name, columns)
		r.told(out, w.Name)
	}
	if len(r.leftOut) > 0 {
		fmt.Fprintf(out, "\n## Notes\n\n- %s\n", strings.Join(r.leftOut, "\n- "))
	}
}

func (r *Run) table(out io.Writer, workload string, columns []Column) {
	var heads []string
	for _, c := range columns {
		heads = append(heads, c.Head)
	}
	fmt.Fprint(out, chats.TableHead(heads...))
	than := r.Of(workload, proxies.SGLangRouter)
	var errs []string
	for _, name := range r.Targets {
		s := r.Of(workload, name)
		if s == nil {
			continue
		}
		var cells []string
		for _, c := range columns {
			cells = append(cells, c.Cell(s))
		}
		fmt.Fprint(out, s.Row(name, than.tally(), cells...))
		if s.FirstErr != nil {
			errs = append(errs, fmt.Sprintf("%s: %v", name, s.FirstErr))
		}
	}
	if len(errs) > 0 {
		fmt.Fprintf(out, "\nFirst errors:\n\n- %s\n", strings.Join(errs, "\n- "))
	}
}

// spread is how many requests each replica had, the most first.
func spread(s *Result) string {
	var counts []int
	for _, w := range s.Replicas {
		counts = append(counts, int(w.Requests))
	}
	sort.Sort(sort.Reverse(sort.IntSlice(counts)))
	return strings.Trim(fmt.Sprint(counts), "[]")
}

// Of is what came of a workload with a target, nil if nothing did.
func (r *Run) Of(workload, target string) *Result { return r.results[key{workload, target}] }

func (s *Result) tally() *chats.Tally {
	if s == nil {
		return nil
	}
	return &s.Tally
}

// told writes what CART's own metrics say of the cache beside what the replicas told.
func (r *Run) told(out io.Writer, workload string) {
	for _, name := range r.Targets {
		s := r.Of(workload, name)
		if s == nil || !proxies.IsCart(name) {
			continue
		}
		fmt.Fprintf(out, "\n%s expected %s of the prompts' characters to be cached on the chosen replica; the replicas found %.1f %% of their\n"+
			"tokens cached.", name, percent(s.Cart["cart_matched_characters_total"], s.Cart["cart_prompt_characters_total"]), s.Share())
		for _, series := range s.predictions() {
			fmt.Fprintf(out, " `%s` %.0f.", series, s.Cart[series])
		}
		if p := s.PredictedOverActual(); !math.IsNaN(p) {
			fmt.Fprintf(out, " Predicted over actual: %.3f.", p)
		}
		fmt.Fprintln(out)
	}
}

// predictions are the series in which CART compares what it expects to be cached with what the replicas tell.
func (s *Result) predictions() []string {
	var names []string
	for name := range s.Cart {
		if strings.HasPrefix(name, "cart_") && (strings.Contains(name, "predicted") || strings.Contains(name, "actual")) {
			names = append(names, name)
		}
	}
	sort.Strings(names)
	return names
}

// PredictedOverActual is CART's prediction of cached tokens over what the replicas told it, by its own metrics; NaN if they
// do not have it.
func (s *Result) PredictedOverActual() float64 {
	predicted, actual := math.NaN(), math.NaN()
	for _, name := range s.predictions() {
		if !strings.HasSuffix(name, "_total") {
			continue
		}
		if strings.Contains(name, "predicted") {
			predicted = s.Cart[name]
		} else {
			actual = s.Cart[name]
		}
	}
	return predicted / actual
}

func percent(part, whole float64) string {
	if whole == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f %%", 100*part/whole)
}

// Limits that compare targets.

// AtMost is a limit on the ratio of a figure of two targets; NaN if one of them was not run.
func (r *Run) AtMost(workload, what, a, b string, than float64, figure func(t *chats.Tally) float64) report.Limit {
	x, y := figure(r.Of(workload, a).tally()), figure(r.Of(workload, b).tally())
	return report.Limit{
		Text: fmt.Sprintf("%s: %s of %s <= %g x %s", workload, what, a, than, b),
		Got:  x / y, Most: true, Than: than, How: fmt.Sprintf("%.3f / %.3f s", x, y),
	}
}

// Cached is a limit on the cached share of a less that of b, in points.
func (r *Run) Cached(workload, a, b string, than float64) report.Limit {
	x, y := r.Of(workload, a).tally().Share(), r.Of(workload, b).tally().Share()
	return report.Limit{
		Text: fmt.Sprintf("%s: cached share of %s - %s >= %g points", workload, a, b, than),
		Got:  x - y, Than: than, How: fmt.Sprintf("%.1f, %.1f %%", x, y),
	}
}

// Mean and P99 are figures for AtMost.
func Mean(t *chats.Tally) float64 { return t.Mean() }

// P99 is the 99th percentile of the times to the first event.
func P99(t *chats.Tally) float64 { return t.Quantile(0.99) }

// Errors is a limit on the errors of a target over all workloads: none.
func (r *Run) Errors(target string) report.Limit {
	n, errs := 0, 0
	for _, w := range r.Workloads {
		if s := r.Of(w.Name, target); s != nil {
			n += len(s.First)
			errs += s.Errors
		}
	}
	l := report.Limit{Text: "errors of " + target, Got: float64(errs), Most: true, How: fmt.Sprintf("of %d requests", n+errs)}
	if n+errs == 0 {
		l.Got = math.NaN()
	}
	return l
}

// Better is the one of two targets that answers sooner over all workloads, "" if neither was run.
func (r *Run) Better(targets ...string) string {
	best, least := "", math.Inf(1)
	for _, name := range targets {
		product := 1.0
		for _, w := range r.Workloads {
			product *= r.Of(w.Name, name).tally().Mean()
		}
		if product < least {
			best, least = name, product
		}
	}
	return best
}
