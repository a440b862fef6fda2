package report

import (
	"fmt"
	"io"
	"math"
)

// Limit is one that was set, with what was measured.
type Limit struct {
	Text string
	Got  float64 // NaN: not measured
	Most bool    // Got is to be at most Than, else at least
	Than float64
	How  string // the figures behind Got
}

// Met tells whether the limit is kept.
func (l Limit) Met() bool {
	if l.Most {
		return l.Got <= l.Than
	}
	return l.Got >= l.Than
}

// Limits writes which limits are met.
func Limits(out io.Writer, all []Limit) {
	fmt.Fprintf(out, "\n## Limits\n\n")
	met, measured := 0, 0
	for _, l := range all {
		if math.IsNaN(l.Got) {
			fmt.Fprintf(out, "- not measured: %s\n", l.Text)
			continue
		}
		measured++
		verdict := "**not met**"
		if l.Met() {
			met++
			verdict = "met"
		}
		fmt.Fprintf(out, "- %s: %s: %.2f (%s)\n", verdict, l.Text, l.Got, l.How)
	}
	fmt.Fprintf(out, "\n%d of %d limits measured are met.\n", met, measured)
}
