package cart

import (
	"math"
	"strconv"
	"strings"
)

// engineMetrics is what CART understands of an engine's metrics.
type engineMetrics struct {
	known   bool               // there was something
	started float64            // start of its process, in seconds of the Unix epoch; 0 = not told
	counts  map[string]float64 // counters by name, each the sum over its labels
	tokens  int64              // that its prefix cache holds; 0 = not told
	block   int64              // tokens that are cached together, or not at all; 0 = not told
}

// startSlack is by how many seconds the start of a process may differ between two readings: some systems work it out from
// their time of boot, which moves by a second when the clock is set.
const startSlack = 1.5

// risingCounters are counters that only rise as long as a process lives. An engine that leaves out what it has not counted
// yet is one that has counted nothing.
var risingCounters = []string{
	"vllm:prompt_tokens_total", "vllm:generation_tokens_total", "vllm:prefix_cache_queries_total",
	"sglang:prompt_tokens_total", "sglang:generation_tokens_total", "sglang:num_requests_total",
	"llamacpp:prompt_tokens_total", "llamacpp:tokens_predicted_total", "llamacpp:n_decode_total",
}

// restarted says whether a later reading is of another process.
func (m *engineMetrics) restarted(later *engineMetrics) bool {
	if m.started > 0 && later.started > 0 && math.Abs(later.started-m.started) > startSlack {
		return true
	}
	for name, count := range m.counts {
		if later.counts[name] < count {
			return true
		}
	}
	return false
}

// readMetrics finds what CART understands in metrics in Prometheus' text format. It searches for the few names it knows, for
// vLLM writes thousands of lines.
func readMetrics(text string) engineMetrics {
	text = "\n" + text
	told := engineMetrics{counts: map[string]float64{}}
	for _, one := range samples(text, "process_start_time_seconds") {
		told.started = one.value
		told.known = true
	}
	for _, name := range risingCounters {
		for _, one := range samples(text, name) {
			told.counts[name] += one.value
			told.known = true
		}
	}
	// Engines inside of one server have a cache each, and tell of themselves under a label. Those that share the work on a
	// token tell of the same cache.
	caches := map[string]float64{}
	for _, one := range samples(text, "vllm:cache_config_info") {
		tokens := one.number("kv_cache_size_tokens")
		if tokens <= 0 {
			tokens = one.number("num_gpu_blocks") * one.number("block_size")
		}
		told.block = int64(one.number("block_size"))
		caches[one.label("engine")] = tokens
	}
	for _, one := range samples(text, "sglang:max_total_num_tokens") {
		caches[one.label("dp_rank")] = one.value
	}
	for _, one := range samples(text, "sglang:page_size") {
		if one.value < tokensMost {
			told.block = int64(one.value)
		}
	}
	sum := 0.0
	for _, tokens := range caches {
		told.known = true
		sum += tokens
	}
	if sum > 0 && sum < tokensMost {
		told.tokens = int64(sum)
	}
	return told
}

// metricSample is one line of metrics in text.
type metricSample struct {
	labels string // as written, without the braces
	value  float64
}

// samples returns the samples of a metric, of which the text begins with an end of line.
func samples(text, name string) []metricSample {
	var out []metricSample
	name = "\n" + name
	for i := 0; i < maxRounds; i++ {
		at := strings.Index(text, name)
		if at < 0 {
			break
		}
		text = text[at+len(name):]
		line := text
		if end := strings.IndexByte(line, '\n'); end >= 0 {
			line = line[:end]
		}
		one := metricSample{}
		if strings.HasPrefix(line, "{") {
			// A brace in a label's value is no end; behind the last one stands nothing but numbers.
			end := strings.LastIndexByte(line, '}')
			if end < 0 {
				continue
			}
			one.labels = line[1:end]
			line = line[end+1:]
		} else if !strings.HasPrefix(line, " ") && !strings.HasPrefix(line, "\t") {
			continue // a longer name
		}
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		value, err := strconv.ParseFloat(fields[0], 64)
		if err != nil || value < 0 || math.IsNaN(value) || math.IsInf(value, 0) {
			continue
		}
		one.value = value
		out = append(out, one)
	}
	return out
}

// label returns a label's value as it is written, "" if there is none.
func (s metricSample) label(name string) string {
	_, value, found := strings.Cut(","+s.labels, ","+name+`="`)
	if !found {
		return ""
	}
	value, _, _ = strings.Cut(value, `"`)
	return value
}

// number returns a label's value as a number, 0 if it is none.
func (s metricSample) number(name string) float64 {
	value, err := strconv.ParseFloat(s.label(name), 64)
	if err != nil || !(value > 0 && value < tokensMost) {
		return 0
	}
	return value
}
