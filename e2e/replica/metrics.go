package replica

import (
	"fmt"
	"net/http"
	"strings"
)

// metrics answers GET /metrics with the part of vLLM's metrics that routers read, under vLLM's names.
func (p *process) metrics(w http.ResponseWriter) {
	g := p.engine.gauges()
	model := p.opts.defaultModel()
	var b strings.Builder
	write := func(kind, name, help string, value float64) {
		labels := fmt.Sprintf(`{engine="0",model_name=%q}`, model)
		if !strings.HasPrefix(name, "vllm:") {
			labels = ""
		}
		fmt.Fprintf(&b, "# HELP %s %s\n# TYPE %s %s\n%s%s %v\n", name, help, name, kind, name, labels, value)
	}
	write("gauge", "process_start_time_seconds", "Start time of the process since unix epoch in seconds.",
		float64(p.started.UnixMicro())/1e6)
	write("gauge", "vllm:num_requests_running", "Number of requests in model execution batches.", float64(g.Running))
	write("gauge", "vllm:num_requests_waiting", "Number of requests waiting to be processed.", float64(g.Waiting))
	write("gauge", "vllm:kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage.", g.Busy)
	write("counter", "vllm:prefix_cache_queries_total", "Prefix cache queries, in terms of number of queried tokens.",
		float64(g.Prompt))
	write("counter", "vllm:prefix_cache_hits_total", "Prefix cache hits, in terms of number of cached tokens.",
		float64(g.Cached))
	write("counter", "vllm:prompt_tokens_total", "Number of prefill tokens processed.", float64(g.Prompt))
	write("counter", "vllm:generation_tokens_total", "Number of generation tokens processed.", float64(g.Generated))

	name := "vllm:request_success_total"
	fmt.Fprintf(&b, "# HELP %s Count of successfully processed requests.\n# TYPE %s counter\n", name, name)
	line := func(reason string, n int64) {
		fmt.Fprintf(&b, "%s{engine=\"0\",finished_reason=%q,model_name=%q} %d\n", name, reason, model, n)
	}
	line("length", g.Finished)
	line("abort", g.Aborted)
	name = "vllm:cache_config_info"
	fmt.Fprintf(&b, "# HELP %s Information of the LLMEngine CacheConfig\n# TYPE %s gauge\n", name, name)
	fmt.Fprintf(&b, "%s{block_size=\"%d\",cache_dtype=\"auto\",enable_prefix_caching=\"True\",engine=\"0\","+
		"kv_cache_size_tokens=\"%d\",num_gpu_blocks=\"%d\"} 1\n",
		name, p.opts.BlockTokens, g.Blocks*p.opts.BlockTokens, g.Blocks)

	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	writeBody(w, http.StatusOK, "", []byte(b.String()))
}
