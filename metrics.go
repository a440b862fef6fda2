package cart

import (
	"net/http"
	"sort"
	"strconv"
	"strings"
	"time"
)

// exposition writes metrics in Prometheus' text format. Labels are the pool, the replica, and what comes from a fixed list,
// so that the number of series does not depend on what clients send.
type exposition struct {
	out  strings.Builder
	pool string // the label that every series has
	name string // of the family under way
}

// serveMetrics tells what GET /workers tells to Prometheus.
func serveMetrics(p *pool, rw http.ResponseWriter, req *http.Request) {
	text := metricsText(describe(p, time.Now().UnixNano()))
	head := rw.Header()
	head.Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	head.Set("Cache-Control", "no-store")
	head.Set("Content-Length", strconv.Itoa(len(text)))
	rw.WriteHeader(http.StatusOK)
	if req.Method != http.MethodHead {
		rw.Write([]byte(text))
	}
}

// metricsText writes the pool's state, family by family.
func metricsText(s *workersAnswer) string {
	w := &exposition{pool: `pool="` + labelValue(s.Pool) + `"`}
	w.requests(s)
	w.replicas(s)
	w.breakers(s)
	w.answers(s)
	w.family("cart_decision_seconds", "histogram", "Time that routed requests waited for their decision, after their body was read.")
	w.histogram("", &s.Decisions)
	w.prompts(s)
	w.shadow(s)
	w.family("cart_characters_per_token", "gauge", "Characters of prompts that make a token, as learnt from the answers.")
	w.sample("", s.PerToken)
	w.tree(s)
	w.family("cart_client_departures_total", "counter", "Clients that left before the end of their answer.")
	w.sample("", float64(s.ClientClosed))
	w.family("cart_log_lines_dropped_total", "counter", "Log lines left out because there were too many in a second.")
	w.sample(`level="debug"`, float64(s.LinesDropped.Debug))
	w.sample(`level="warn"`, float64(s.LinesDropped.Warn))
	return w.out.String()
}

func (w *exposition) requests(s *workersAnswer) {
	w.family("cart_requests_total", "counter", "Attempts sent to a replica, by the reason for which it was chosen.")
	for i := range s.Workers {
		one := &s.Workers[i]
		replica := replicaLabel(one)
		for _, why := range reasonsOf(one.Reasons) {
			w.sample(replica+`,reason="`+labelValue(why)+`"`, float64(one.Reasons[why]))
		}
	}
	w.family("cart_refusals_total", "counter", "Requests that CART refused itself, by the reason.")
	whys := make([]string, 0, len(refusals))
	for why := range refusals {
		whys = append(whys, why)
	}
	sort.Strings(whys)
	for _, why := range whys {
		w.sample(`reason="`+why+`"`, float64(s.Refused[why]))
	}
	w.family("cart_retries_total", "counter", "Attempts on another replica after one had failed.")
	w.sample("", float64(s.Retries))
}

// replicas writes the families with one value for each replica.
func (w *exposition) replicas(s *workersAnswer) {
	w.family("cart_usable_replicas", "gauge", "Replicas that would take a request now.")
	w.sample("", float64(s.Usable))
	for _, f := range []struct {
		name, kind, help string
		value            func(one *workerAnswer) float64
	}{
		{"cart_replica_up", "gauge", "1 if the health probe finds the replica well.",
			func(one *workerAnswer) float64 { return asNumber(one.Healthy) }},
		{"cart_replica_downs_total", "counter", "How often the health probe took the replica out.",
			func(one *workerAnswer) float64 { return float64(one.Downs) }},
		{"cart_replica_load", "gauge", "Requests in flight to the replica.",
			func(one *workerAnswer) float64 { return float64(one.Load) }},
		{"cart_replica_max_load", "gauge", "Load at which the replica takes no further routed request.",
			func(one *workerAnswer) float64 { return float64(one.MaxLoad) }},
		{"cart_replica_pushed_back", "gauge", "1 while the replica wants to be left alone, after a 429, 503 or 529.",
			func(one *workerAnswer) float64 { return asNumber(one.PushedBack) }},
		{"cart_replica_draining", "gauge", "1 if the replica was removed and still has requests.",
			func(one *workerAnswer) float64 { return asNumber(one.Draining) }},
		{"cart_replica_failures_total", "counter", "Attempts that counted against the replica.",
			func(one *workerAnswer) float64 { return float64(one.Failures) }},
		{"cart_replica_claimed_characters", "gauge", "Characters of prompts that the replica is thought to hold.",
			func(one *workerAnswer) float64 { return float64(one.Claims) }},
		{"cart_replica_waiting", "gauge", "Requests whose answers have not begun, with the policy cost.",
			func(one *workerAnswer) float64 { return float64(one.Waiting) }},
		{"cart_replica_queued_characters", "gauge", "Characters of their prompts that the replica is not thought to hold.",
			func(one *workerAnswer) float64 { return float64(one.Queue) }},
		{"cart_replica_cache_tokens", "gauge",
			"Tokens of what this process sends that the replica's cache is taken to hold, 0 if that is unknown.",
			func(one *workerAnswer) float64 { return float64(one.CacheTokens) }},
		{"cart_replica_restarts_total", "counter", "Restarts that were seen in the replica's own metrics. Each drops its claims.",
			func(one *workerAnswer) float64 { return float64(one.Restarts) }},
		{"cart_replica_cache_resets_total", "counter", "Requests through CART that emptied the replica's cache. Each drops its claims.",
			func(one *workerAnswer) float64 { return float64(one.CacheResets) }},
		{"cart_reported_prompt_tokens_total", "counter", "Tokens of prompts, over the answers that told how many of them were cached.",
			func(one *workerAnswer) float64 { return float64(one.CachedTokens.Prompt) }},
		{"cart_predicted_cached_tokens_total", "counter", "Of these, expected to be cached.",
			func(one *workerAnswer) float64 { return float64(one.CachedTokens.Predicted) }},
		{"cart_actual_cached_tokens_total", "counter", "Of these, cached, as the answers told.",
			func(one *workerAnswer) float64 { return float64(one.CachedTokens.Actual) }},
	} {
		w.family(f.name, f.kind, f.help)
		for i := range s.Workers {
			w.sample(replicaLabel(&s.Workers[i]), f.value(&s.Workers[i]))
		}
	}
}

func (w *exposition) breakers(s *workersAnswer) {
	w.family("cart_breaker_state", "gauge", "1 for the state that the replica's circuit breaker is in.")
	for i := range s.Workers {
		one := &s.Workers[i]
		for _, state := range []breakerState{breakerClosed, breakerOpen, breakerHalfOpen} {
			name := state.String()
			w.sample(replicaLabel(one)+`,state="`+name+`"`, asNumber(one.Breaker == name))
		}
	}
	w.family("cart_breaker_openings_total", "counter", "How often the replica's circuit breaker opened.")
	for i := range s.Workers {
		w.sample(replicaLabel(&s.Workers[i]), float64(s.Workers[i].BreakerOpenings))
	}
}

func (w *exposition) answers(s *workersAnswer) {
	w.family("cart_first_byte_seconds", "histogram",
		"Time to the first byte of a good answer to a routed request, of hits (decided as cache_hit) and of all others.")
	for i := range s.Workers {
		one := &s.Workers[i]
		w.histogram(replicaLabel(one)+`,decision="hit"`, &one.FirstByte.Hit)
		w.histogram(replicaLabel(one)+`,decision="other"`, &one.FirstByte.Other)
	}
}

func (w *exposition) prompts(s *workersAnswer) {
	w.family("cart_known_ratio", "histogram", "Share of each prompt that was known on the candidate that knew most of it.")
	w.histogram("", &s.Known)
	w.family("cart_prompt_characters_total", "counter", "Characters of all prompts that requests were routed by.")
	w.sample("", float64(s.Characters.Prompt))
	w.family("cart_known_characters_total", "counter", "Of these, known on the candidate that knew most.")
	w.sample("", float64(s.Characters.Known))
	w.family("cart_matched_characters_total", "counter", "Of these, known on the replica that was chosen.")
	w.sample("", float64(s.Characters.Matched))
}

func (w *exposition) tree(s *workersAnswer) {
	w.family("cart_tree_nodes", "gauge", "Nodes of the prefix tree.")
	w.sample("", float64(s.Tree.Nodes))
	w.family("cart_tree_max_nodes", "gauge", "Bound of cart_tree_nodes.")
	w.sample("", float64(s.Tree.MaxNodes))
	w.family("cart_tree_bytes", "gauge", "Memory of the prefix tree.")
	w.sample("", float64(s.Tree.Bytes))
	w.family("cart_tree_max_bytes", "gauge", "Bound of cart_tree_bytes.")
	w.sample("", float64(s.Tree.MaxBytes))
	w.family("cart_tree_evicted_nodes_total", "counter", "Nodes evicted to keep within the bounds.")
	w.sample("", float64(s.Tree.Evicted))
}

// family begins a metric.
func (w *exposition) family(name, kind, help string) {
	w.name = name
	w.out.WriteString("# HELP " + name + " " + help + "\n# TYPE " + name + " " + kind + "\n")
}

// sample writes one value of the family under way; labels may be empty.
func (w *exposition) sample(labels string, value float64) {
	w.line("", labels, value)
}

func (w *exposition) line(suffix, labels string, value float64) {
	if labels != "" {
		labels = "," + labels
	}
	w.out.WriteString(w.name + suffix + "{" + w.pool + labels + "} " + formatFloat(value) + "\n")
}

// histogram writes one histogram of the family under way.
func (w *exposition) histogram(labels string, h *histogramAnswer) {
	below := labels
	if below != "" {
		below += ","
	}
	count := int64(0)
	for i, bound := range h.Bounds {
		count += h.Counts[i]
		w.line("_bucket", below+`le="`+formatFloat(bound)+`"`, float64(count))
	}
	w.line("_bucket", below+`le="+Inf"`, float64(h.Count))
	w.line("_sum", labels, h.Sum)
	w.line("_count", labels, float64(h.Count))
}

// reasonsOf returns all reasons there are, those of the list first, so that each has a series from the start.
func reasonsOf(counts map[string]int64) []string {
	all := append([]string(nil), allReasons...)
	for why := range counts {
		known := false
		for _, one := range allReasons {
			known = known || one == why
		}
		if !known {
			all = append(all, why)
		}
	}
	sort.Strings(all[len(allReasons):])
	return all
}

func replicaLabel(one *workerAnswer) string {
	return `replica="` + labelValue(one.URL) + `"`
}

// labelValue escapes a label's value.
func labelValue(value string) string {
	if strings.ContainsAny(value, "\\\"\n") {
		value = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(value)
	}
	return value
}

func formatFloat(value float64) string {
	return strconv.FormatFloat(value, 'g', -1, 64)
}

func asNumber(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}
