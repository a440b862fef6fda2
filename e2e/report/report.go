// Package report has what the reports of measurements share: their heads, quantiles, ratios, and the limits kept or missed.
package report

import (
	"fmt"
	"io"
	"math"
	"runtime"
	"slices"
	"time"

	"github.com/cart-llm/cart/e2e/process"
)

// Head tells what the figures are worth.
func Head(out io.Writer, title string, begin time.Time, load string) {
	fmt.Fprintf(out, "# %s\n\n%s, %d cores, %s, %s. Load average before: %s. Took %v.\n\n",
		title, process.Machine(), runtime.NumCPU(), runtime.Version(),
		begin.UTC().Format("2006-01-02 15:04 UTC"), load, time.Since(begin).Round(time.Second))
}

// Quantile sorts what it is given.
func Quantile(all []time.Duration, q float64) time.Duration {
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[int(q*float64(len(all)-1))]
}

// Ratio writes a / b, or a dash where one of them was not measured.
func Ratio(a, b float64) string {
	if math.IsNaN(a) || math.IsNaN(b) || b == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", a/b)
}
