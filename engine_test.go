package cart

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// vllmPage is what vLLM tells, as far as it counts, with some of what stands around it.
const vllmPage = `# HELP python_info Python platform information
# TYPE python_info gauge
python_info{implementation="CPython",major="3",minor="12"} 1.0
# HELP process_start_time_seconds Start time of the process since unix epoch in seconds.
# TYPE process_start_time_seconds gauge
process_start_time_seconds 1.76451234532e+09
# HELP vllm:prompt_tokens_total Number of prefill tokens processed.
# TYPE vllm:prompt_tokens_total counter
vllm:prompt_tokens_total{engine="0",model_name="a} b"} 1200.0
vllm:prompt_tokens_created{engine="0",model_name="a} b"} 1.7e+09
# TYPE vllm:cache_config_info gauge
vllm:cache_config_info{block_size="128",cache_dtype="auto",engine="0",kv_cache_size_tokens="12288",num_gpu_blocks="96"} 1.0
`

func TestReadMetrics(t *testing.T) {
	for _, row := range []struct {
		story   string
		text    string
		known   bool
		started float64
		tokens  int64
		counts  map[string]float64
	}{
		{"nothing", "", false, 0, 0, nil},
		{"another server's page", "<html>\n<p>process_start_time_seconds 5\n", false, 0, 0, nil},
		{"an unknown engine", "my:tokens_total 5\n", false, 0, 0, nil},
		{"vLLM", vllmPage, true, 1.76451234532e+09, 12288, map[string]float64{"vllm:prompt_tokens_total": 1200}},
		{"an older vLLM", `vllm:cache_config_info{block_size="16",num_gpu_blocks="1000"} 1.0`, true, 0, 16000, nil},
		{"one that does not know yet", `vllm:cache_config_info{block_size="16",num_gpu_blocks="None",kv_cache_size_tokens="None"} 1.0`, true, 0, 0, nil},
		{"two engines in one server", "vllm:cache_config_info{engine=\"0\",kv_cache_size_tokens=\"100\"} 1\n" +
			"vllm:cache_config_info{engine=\"1\",kv_cache_size_tokens=\"50\"} 1\nvllm:prompt_tokens_total{engine=\"0\"} 3\n" +
			"vllm:prompt_tokens_total{engine=\"1\"} 4\n", true, 0, 150, map[string]float64{"vllm:prompt_tokens_total": 7}},
		{"SGLang", "sglang:max_total_num_tokens{model_name=\"m\",tp_rank=\"0\",dp_rank=\"0\"} 471258.0\n" +
			"sglang:max_total_num_tokens{model_name=\"m\",tp_rank=\"1\",dp_rank=\"0\"} 471258.0\n" +
			"sglang:generation_tokens_total{model_name=\"m\"} 7.5e+06\n", true, 0, 471258, map[string]float64{"sglang:generation_tokens_total": 7.5e6}},
		{"llama.cpp", "# TYPE llamacpp:prompt_tokens_total counter\nllamacpp:prompt_tokens_total 12\nllamacpp:n_decode_total 3\n", true, 0, 0,
			map[string]float64{"llamacpp:prompt_tokens_total": 12, "llamacpp:n_decode_total": 3}},
		{"numbers that are none", "process_start_time_seconds NaN\nvllm:prompt_tokens_total -1\nllamacpp:n_decode_total many\n" +
			"sglang:num_requests_total\nvllm:generation_tokens_total{x=\"1\" 5\nsglang:prompt_tokens_total +Inf\n", false, 0, 0, nil},
		{"more than there is", `vllm:cache_config_info{kv_cache_size_tokens="99999999999999999999"} 1`, true, 0, 0, nil},
		{"the same line for ever", strings.Repeat("llamacpp:n_decode_total 1\n", 5000), true, 0, 0, map[string]float64{"llamacpp:n_decode_total": maxRounds}},
	} {
		got := readMetrics(row.text)
		if got.known != row.known || got.started != row.started || got.tokens != row.tokens || len(got.counts) != len(row.counts) {
			t.Errorf("%s: readMetrics() = %v, start %v, %d tokens, counts %v, want %v, %v, %d, %v", row.story, got.known, got.started,
				got.tokens, got.counts, row.known, row.started, row.tokens, row.counts)
		}
		for name, want := range row.counts {
			if got.counts[name] != want {
				t.Errorf("%s: %s = %v, want %v", row.story, name, got.counts[name], want)
			}
		}
	}
}

func TestHear_restarts(t *testing.T) {
	for _, row := range []struct {
		story         string
		before, after string
		want          bool
	}{
		{"the same", vllmPage, vllmPage, false},
		{"it has worked", "llamacpp:n_decode_total 5\n", "llamacpp:n_decode_total 6\n", false},
		{"started later", "process_start_time_seconds 100\n", "process_start_time_seconds 102\n", true},
		{"started earlier, so it is another one", "process_start_time_seconds 100\n", "process_start_time_seconds 50\n", true},
		{"the clock was set", "process_start_time_seconds 100\n", "process_start_time_seconds 101\n", false},
		{"the start is told for the first time", "llamacpp:n_decode_total 5\n", "llamacpp:n_decode_total 5\nprocess_start_time_seconds 7\n", false},
		{"a counter fell", "llamacpp:n_decode_total 5\nllamacpp:prompt_tokens_total 9\n", "llamacpp:n_decode_total 6\nllamacpp:prompt_tokens_total 8\n", true},
		{"a counter is gone", "sglang:prompt_tokens_total 9\n", "sglang:max_total_num_tokens 100\n", true},
		{"nothing was counted before", "sglang:max_total_num_tokens 100\n", "sglang:max_total_num_tokens 100\nsglang:prompt_tokens_total 1\n", false},
		{"nonsense in between", "llamacpp:n_decode_total 5\n", "<html>", false},
		{"nothing known before", "", vllmPage, false},
	} {
		p := poolOf(t, "ab")
		a, b := byLetter(t, p, "a"), byLetter(t, p, "b")
		learn(p.tree, "m", "a prompt", a.id)
		learn(p.tree, "m", "a prompt", b.id)
		before, after := readMetrics(row.before), readMetrics(row.after)
		p.hear(a, &before)
		a.breaker = breaker{state: breakerOpen, openUntil: 1 << 60}
		p.hear(a, &after)
		if got := a.breaker.allows(5); got != row.want {
			t.Errorf("%s: the breaker that opened before allows a probe: %v, want %v", row.story, got, row.want)
		}
		restarts, want := int64(0), 8
		if row.want {
			restarts, want = 1, 0
		}
		if got := held(p.tree, "m", "a prompt", a.id); got != want || a.engine.restarts != restarts {
			t.Errorf("%s: %d characters held after %d restarts, want %d after %d", row.story, got, a.engine.restarts, want, restarts)
		}
		if got := held(p.tree, "m", "a prompt", b.id); got != 8 {
			t.Errorf("%s: the other replica holds %d characters, want its 8", row.story, got)
		}
	}
}

// TestDropClaims: requests that are under way when a replica's claims are dropped end as they would have.
func TestDropClaims_underRequests(t *testing.T) {
	p := poolOf(t, "a")
	a := byLetter(t, p, "a")
	learn(p.tree, "m", "old", a.id)
	failing, good := ask(p, "old and new"), ask(p, "another one")
	first, second := take(t, p, failing, 0), take(t, p, good, 0)
	p.dropClaims(a)
	if a.load != 2 || p.byID[a.id] != a || len(p.byID) != 1 || p.tree.claimed[a.id] != 0 {
		t.Errorf("after dropClaims() load %d, %d ids, %d characters claimed, want 2, 1, 0", a.load, len(p.byID), p.tree.claimed[a.id])
	}
	endWith(p, failing, first, 0, nil, 0)
	if a.breaker.failures != 1 || a.failures != 1 {
		t.Errorf("a failure of a request from before counts %d times for the breaker, want once", a.breaker.failures)
	}
	if next, _ := choose(p, failing, 0); next != nil {
		t.Errorf("choose(a retry) = %s, but the replica has to count as tried, whatever it holds", letterOf(next))
	}
	endWith(p, good, second, 200, nil, 0)
	if a.breaker.failures != 0 || a.load != 0 {
		t.Errorf("a success of a request from before leaves %d failures, load %d, want none", a.breaker.failures, a.load)
	}
	take(t, p, ask(p, "old"), 0)
	if got := held(p.tree, "m", "old", a.id); got != 3 {
		t.Errorf("what is sent there afterwards is held for %d characters, want 3", got)
	}
	now, next, day := time.Now(), time.Now().Add(time.Hour), -1
	for p.tidy(now, &next, &day) {
	}
	if len(p.tree.claimed) != 1 {
		t.Errorf("after tidy(): claims of %d ids, want those of the new one only", len(p.tree.claimed))
	}
}

// engineStub is a replica of which the answers to what it is asked in the background can be changed.
type engineStub struct {
	mu      sync.Mutex
	pages   map[string]string
	asked   map[string]int
	headers http.Header
}

func (s *engineStub) set(path, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pages[path] = text
}

func (s *engineStub) askedFor(path string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked[path]
}

func (s *engineStub) answer(rw http.ResponseWriter, req *http.Request) {
	s.mu.Lock()
	page, ok := s.pages[req.URL.Path]
	s.asked[req.URL.Path]++
	s.headers = req.Header.Clone()
	s.mu.Unlock()
	if !ok {
		rw.WriteHeader(http.StatusNotFound)
		return
	}
	rw.Write([]byte(page))
}

func startStub(t *testing.T) (*engineStub, string) {
	t.Helper()
	s := &engineStub{pages: map[string]string{}, asked: map[string]int{}}
	return s, startReplica(t, func(rw http.ResponseWriter, req *http.Request) { s.answer(rw, req) })
}

func TestEngine_isAskedInTheBackground(t *testing.T) {
	a, urlA := startStub(t)
	b, urlB := startStub(t)
	chat := `{"choices":[]}`
	a.set("/v1/chat/completions", chat)
	b.set("/v1/chat/completions", chat)
	a.set("/metrics", vllmPage)
	a.set("/v1/models", `{"object":"list","data":[{"id":"m"},{"id":"adapter"}]}`)
	b.set("/metrics", strings.Repeat("x", metricsMost+1))
	c := twoReplicas(urlA, urlB)
	c.Workers[0].Headers = map[string]string{"Authorization": "Bearer key"}
	c.Health.Metrics.Interval = "20ms"
	c.Health.Models.Interval = "20ms"
	url := serve(t, c)
	eventually(t, "the first replica's capacity and models are known", func() bool {
		w := state(t).Workers[0]
		return w.CacheTokens == 12288 && strings.Join(w.Models, " ") == "adapter m"
	})
	eventually(t, "the second one is asked again and again", func() bool { return b.askedFor("/metrics") > 2 && b.askedFor("/v1/models") > 2 })
	if w := state(t).Workers[1]; w.CacheTokens != 0 || w.Models != nil || !w.Healthy {
		t.Errorf("the second replica, which tells nothing: %d tokens, models %v, healthy %v, want 0, null, true", w.CacheTokens, w.Models, w.Healthy)
	}
	a.mu.Lock()
	if got := a.headers.Get("Authorization"); got != "Bearer key" {
		t.Errorf("the question's Authorization = %q, want the worker's", got)
	}
	a.mu.Unlock()

	post(t, url+"/v1/chat/completions", aChat)
	if w := state(t).Workers[0]; w.Claims == 0 {
		t.Fatalf("claims after a request = 0, want some")
	}
	a.set("/metrics", strings.Replace(vllmPage, "1.76451234532e+09", "1.76451239932e+09", 1))
	eventually(t, "the restart is seen", func() bool {
		w := state(t).Workers[0]
		return w.Restarts == 1 && w.Claims == 0
	})
	post(t, url+"/v1/chat/completions", aChat)
	a.set("/metrics", "not the engine")
	a.set("/v1/models", "[]")
	asked := a.askedFor("/metrics")
	eventually(t, "it is asked three times more", func() bool { return a.askedFor("/metrics") > asked+3 })
	if w := state(t).Workers[0]; w.Restarts != 1 || w.Claims == 0 || w.CacheTokens != 12288 || len(w.Models) != 2 {
		t.Errorf("after nonsense: %d restarts, %d claims, %d tokens, models %v, want all as it was", w.Restarts, w.Claims, w.CacheTokens, w.Models)
	}
}

func TestEngine_offAsksNothing(t *testing.T) {
	a, urlA := startStub(t)
	a.set("/v1/chat/completions", `{}`)
	url := serve(t, twoReplicas(urlA, deadAddress(t)))
	post(t, url+"/v1/chat/completions", aChat)
	time.Sleep(250 * time.Millisecond) // two looks of the loop
	if m, l := a.askedFor("/metrics"), a.askedFor("/v1/models"); m+l != 0 {
		t.Errorf("with both intervals 0 the replica was asked %d and %d times, want never", m, l)
	}
}

// TestErrand_due: a replica that is back is asked at once.
func TestErrand_due(t *testing.T) {
	start := time.Unix(1000, 0)
	r := &replica{up: true, since: start}
	e := &errand{}
	at := func(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }
	check := func(seconds int, want bool) {
		t.Helper()
		if got := e.due(r, 10*time.Second, at(seconds)); got != want {
			t.Errorf("due() after %d s = %v, want %v", seconds, got, want)
		}
	}
	check(1, true)
	check(20, false) // still asking
	e.asking = false
	check(20, true)
	e.asking = false
	check(25, false)
	r.up = false
	r.since = at(26)
	check(27, false)
	check(30, true) // down, but the time has come
	e.asking = false
	r.up = true
	r.since = at(32)
	check(33, true)
	e.asking = false
	check(34, false)
}

func TestManaged_dropsWhatTheReplicaLost(t *testing.T) {
	for _, row := range []struct {
		method, path string
		status       int
		resets       int64
	}{
		{http.MethodPost, "/reset_prefix_cache", 200, 1},
		{http.MethodPost, "/sleep", 200, 1},
		{http.MethodGet, "/flush_cache", 200, 1},
		{http.MethodPost, "/update_weights_from_disk", 200, 1},
		{http.MethodPost, "/reset_prefix_cache", 404, 0},
		{http.MethodPost, "/flush_cache", 302, 0},
		{http.MethodHead, "/flush_cache", 200, 0},
		{http.MethodPost, "/wake_up", 200, 0},
	} {
		answer := func(rw http.ResponseWriter, req *http.Request) {
			if req.URL.Path == row.path {
				rw.WriteHeader(row.status)
			}
		}
		a, b := startReplica(t, answer), startReplica(t, answer)
		url := serve(t, twoReplicas(a, b))
		post(t, url+"/v1/chat/completions", aChat)
		p := registered(t.Name())
		p.mu.Lock()
		learn(p.tree, "m", "a prompt", p.replicas[1].id)
		p.mu.Unlock()
		req, _ := http.NewRequest(row.method, url+row.path+"?level=1", nil)
		res, err := http.DefaultTransport.RoundTrip(req)
		if err != nil || res.StatusCode != row.status {
			t.Fatalf("%s %s = %v, %v, want %d", row.method, row.path, res, err, row.status)
		}
		res.Body.Close()
		checkIdle(t)
		s := state(t).Workers
		if s[0].CacheResets != row.resets || (s[0].Claims == 0) != (row.resets > 0) || s[1].Claims == 0 || s[1].CacheResets != 0 {
			t.Errorf("after %s %s = %d: %d resets, %d and %d claims, want %d resets of the first alone", row.method, row.path, row.status,
				s[0].CacheResets, s[0].Claims, s[1].Claims, row.resets)
		}
		leavePool(t)
	}
}

func TestManaged_otherModelsAreAskedForAtOnce(t *testing.T) {
	a, urlA := startStub(t)
	a.set("/v1/models", `{"data":[{"id":"m"}]}`)
	a.set("/v1/load_lora_adapter", "done")
	c := twoReplicas(urlA, deadAddress(t))
	c.Health.Models.Interval = "1h"
	url := serve(t, c)
	eventually(t, "the models are known", func() bool { return len(state(t).Workers[0].Models) == 1 })
	a.set("/v1/models", `{"data":[{"id":"m"},{"id":"n"}]}`)
	post(t, url+"/v1/load_lora_adapter", `{}`)
	eventually(t, "the new model is known", func() bool { return len(state(t).Workers[0].Models) == 2 })
}
