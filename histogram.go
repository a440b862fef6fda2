package cart

import "time"

// histogram counts durations by the first bound that is not below them, as Prometheus does. Pools and replicas have some, so
// their lock guards it. The loops count in their own statements, for a call costs more than all of them.
type histogram struct {
	counts []int64 // one more than there are bounds: the last is for what is above them all
	sum    time.Duration
}

const (
	us = time.Microsecond
	ms = time.Millisecond
)

// Bounds of the histograms.
var (
	decisionBounds = []time.Duration{50 * us, 100 * us, 250 * us, 500 * us, ms, 2500 * us, 5 * ms, 10 * ms, 25 * ms, 50 * ms,
		100 * ms, time.Second}
	firstByteBounds = []time.Duration{10 * ms, 20 * ms, 50 * ms, 100 * ms, 200 * ms, 350 * ms, 500 * ms, 750 * ms, time.Second,
		1500 * ms, 2500 * ms, 5 * time.Second, 10 * time.Second, 30 * time.Second, time.Minute}
	// The same in nanoseconds, for searches; as fractions, for an int of 32 bits holds two seconds of them.
	decisionNanos  = nanosOf(decisionBounds)
	firstByteNanos = nanosOf(firstByteBounds)
	// And in seconds, as they are shown.
	decisionSeconds  = secondsOf(decisionBounds)
	firstByteSeconds = secondsOf(firstByteBounds)
	// knownBounds are shares of a prompt: the last tenth of it that is known ends there.
	knownBounds = []float64{0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1}
)

// prompts sums up what was known of the prompts that requests were decided by.
type prompts struct {
	counts     []int64 // of requests, by the tenths that were known, rounded up
	thousandth int64   // the shares that were known, summed up
	characters int64   // of all prompts
	known      int64   // of these, known on the candidate that knew most
	matched    int64   // and known on the one that was chosen
}

func (p *prompts) answer() histogramAnswer {
	return histogramAnswer{Sum: float64(p.thousandth) / 1000, Counts: append([]int64(nil), p.counts...), Bounds: knownBounds}
}

func newHistogram(bounds []time.Duration) *histogram {
	return &histogram{counts: make([]int64, len(bounds)+1)}
}

// histogramAnswer is a histogram in the answer of /workers: how many values were at most as large as each bound and larger
// than the one before; the last count is of those above all bounds.
type histogramAnswer struct {
	Count  int64     `json:"count"`
	Sum    float64   `json:"sum"`
	Counts []int64   `json:"counts"`
	Bounds []float64 `json:"bounds"`
}

// answer copies the histogram; the caller has the bounds in seconds.
func (h *histogram) answer(bounds []float64) histogramAnswer {
	return histogramAnswer{Sum: float64(h.sum) / 1e9, Counts: append([]int64(nil), h.counts...), Bounds: bounds}
}

// total fills in Count. It is apart from the copy, which is made under the pool's lock.
func (h *histogramAnswer) total() {
	for _, n := range h.Counts {
		h.Count += n
	}
}

func nanosOf(bounds []time.Duration) []float64 {
	out := make([]float64, len(bounds))
	for i, bound := range bounds {
		out[i] = float64(bound)
	}
	return out
}

func secondsOf(bounds []time.Duration) []float64 {
	out := make([]float64, len(bounds))
	for i, bound := range bounds {
		out[i] = bound.Seconds()
	}
	return out
}
