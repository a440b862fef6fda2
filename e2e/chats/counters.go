package chats

import (
	"bytes"
	"context"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/cart-llm/cart/e2e/process"
)

// Samples are sums over all labels of what an address exposes for Prometheus, by name.
type Samples map[string]float64

// Scrape reads the metrics of a server. Histograms and summaries are left out.
func Scrape(ctx context.Context, address string) (Samples, error) {
	text, err := process.GetBody(ctx, address+"/metrics")
	if err != nil {
		return nil, err
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	sums := Samples{}
	for name, family := range families {
		for _, one := range family.GetMetric() {
			sums[name] += value(one)
		}
	}
	return sums, nil
}

func value(m *dto.Metric) float64 {
	switch {
	case m.Counter != nil:
		return m.Counter.GetValue()
	case m.Gauge != nil:
		return m.Gauge.GetValue()
	default:
		return m.Untyped.GetValue()
	}
}

// Work is what a replica has done, by its own counters.
type Work struct {
	Requests, Prompt, Cached float64 // answers that came to their end; tokens
}

// WorkOf reads the counters of replicas that speak vLLM's metrics.
func WorkOf(ctx context.Context, replicas []string) ([]Work, error) {
	var all []Work
	for _, address := range replicas {
		s, err := Scrape(ctx, address)
		if err != nil {
			return nil, err
		}
		all = append(all, Work{
			s["vllm:request_success_total"], s["vllm:prefix_cache_queries_total"], s["vllm:prefix_cache_hits_total"],
		})
	}
	return all, nil
}

// Less is what was done since before.
func (w Work) Less(before Work) Work {
	return Work{w.Requests - before.Requests, w.Prompt - before.Prompt, w.Cached - before.Cached}
}
