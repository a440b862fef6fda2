package scenarios

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/cart-llm/cart/e2e/engine"
	"github.com/cart-llm/cart/e2e/replica"
)

// metricsOften makes CART look at the replicas' metrics often enough for a test, and at their models.
var metricsOften = engine.Config{"health": engine.Config{
	"metrics": engine.Config{"interval": "200ms"}, "models": engine.Config{"interval": "200ms"},
}}

// waitWorker waits until /workers shows a replica as it should be; check says what is wrong with it.
func (r *rig) waitWorker(one *replica.Replica, check func(w workerState) error) {
	r.t.Helper()
	r.waitState(20*time.Second, func(s poolState) error {
		w, ok := s.worker(one.URL())
		if !ok {
			return fmt.Errorf("%s is not in /workers", one.URL())
		}
		return check(w)
	})
}

// TestRestartUnderLoad: a replica that is started again under load is not thought to hold anything any more by the first
// look at its metrics that tells, no request fails, and its cache is used again.
func TestRestartUnderLoad(t *testing.T) {
	began := time.Now()
	engine.Each(t, func(t *testing.T, kind engine.Kind) {
		r := start(t, kind, pool{
			size: 3, options: replica.Options{DecodeRate: 200, CacheTokens: 20000},
			config: engine.Merged(metricsOften, engine.Config{"circuitBreaker": engine.Config{"timeout": "200ms"}}),
		})
		for _, one := range r.replicas {
			r.waitWorker(one, func(w workerState) error {
				if w.ReportedCacheTokens != 20000 || w.CacheTokens == 0 {
					return fmt.Errorf("cache of %s = %d tokens told, %d used, want 20000", w.URL, w.ReportedCacheTokens, w.CacheTokens)
				}
				return nil
			})
		}
		mine := newChat("a conversation that is known before")
		victim := r.at(r.chat(mine).peer())
		time.Sleep(2*time.Second - time.Since(began)) // so that the starts of its processes differ by more than a clock may be set
		clients := startClients(r, 8)
		r.waitWorker(victim, func(w workerState) error {
			if w.Requests < 30 {
				return fmt.Errorf("requests to %s = %d, want 30", w.URL, w.Requests)
			}
			return nil
		})
		if err := victim.Close(); err != nil {
			t.Fatal(err)
		}
		looks := len(exchanges(victim, "/metrics")) // all at the one before
		if err := victim.Restart(); err != nil {
			t.Fatal(err)
		}
		// One look sees it. A second one is there so that what the first one saw has been taken in.
		eventually(t, 20*time.Second, func() error {
			if n := len(exchanges(victim, "/metrics")) - looks; n < 2 {
				return fmt.Errorf("%d looks at the metrics since the restart, want 2", n)
			}
			return nil
		})
		if w, _ := r.state().worker(victim.URL()); w.Restarts != 1 {
			t.Errorf("restarts of %s = %d after two looks at its metrics, want 1", w.URL, w.Restarts)
		}
		seen := len(generations(victim))
		eventually(t, 20*time.Second, func() error {
			if n := len(generations(victim)) - seen; n < 30 {
				return fmt.Errorf("%d requests to the replica since its restart, want 30", n)
			}
			return nil
		})
		for _, got := range clients.stop() {
			if got.status != http.StatusOK || got.err != nil {
				t.Errorf("a client got %d %.200q, %v, want 200", got.status, got.body, got.err)
			}
		}
		r.waitIdle()

		// Every other chat of the clients has been asked before, half of these with nothing in between.
		prompt, cached := 0, 0
		for _, x := range generations(victim)[seen:] {
			prompt += x.PromptTokens
			cached += x.CachedTokens
		}
		if cached*10 < prompt*3 {
			t.Errorf("after its restart the replica had %d of %d prompt tokens cached, want 30 %% or more", cached, prompt)
		}
		if a := r.chat(mine); a.reason() == "cache_hit" && a.peer() == victim.URL() {
			t.Errorf("a conversation from before the restart went to %s as %s", a.peer(), a.reason())
		}
		if w, _ := r.state().worker(victim.URL()); w.Restarts != 1 {
			t.Errorf("restarts of %s = %d in the end, want 1", w.URL, w.Restarts)
		}
	})
}

// TestOutageKeepsClaims: who does not answer for a while has not lost its cache.
func TestOutageKeepsClaims(t *testing.T) {
	engine.Each(t, func(t *testing.T, kind engine.Kind) {
		r := start(t, kind, pool{size: 2, config: metricsOften})
		c := newChat("a conversation")
		home := r.at(r.chat(c).peer())
		if err := home.SetFault(replica.Fault{Kind: replica.Status, Path: "*", Status: 500}); err != nil {
			t.Fatal(err)
		}
		r.waitHealthy(home, false)
		if err := home.ClearFault(); err != nil {
			t.Fatal(err)
		}
		r.waitHealthy(home, true)
		looks := len(exchanges(home, "/metrics"))
		eventually(t, 20*time.Second, func() error {
			if n := len(exchanges(home, "/metrics")) - looks; n < 2 {
				return fmt.Errorf("%d looks at the metrics, want 2", n)
			}
			return nil
		})
		if a := r.chat(c); a.peer() != home.URL() || a.reason() != "cache_hit" {
			t.Errorf("after the outage the conversation went to %s (%s), want %s (cache_hit)", a.peer(), a.reason(), home.URL())
		}
		if w, _ := r.state().worker(home.URL()); w.Restarts != 0 {
			t.Errorf("restarts = %d, want 0", w.Restarts)
		}
	})
}

// TestResetPassingBy: a request that empties a replica's cache empties what CART thinks of it, and of no other.
func TestResetPassingBy(t *testing.T) {
	engine.Each(t, func(t *testing.T, kind engine.Kind) {
		r := start(t, kind, pool{size: 2})
		for _, path := range []string{"/reset_prefix_cache", "/sleep?level=1"} {
			chats := map[string]*chat{} // one for each replica, by its address
			for i := 0; len(chats) < 2; i++ {
				c := newChat(fmt.Sprintf("%s %d", path, i))
				chats[r.chat(c).peer()] = c
			}
			a := r.mustPost(path, nil)
			for home, c := range chats {
				want := "cache_hit"
				if home == a.peer() {
					want = "miss"
				}
				again := r.do(request{method: "POST", path: "/v1/chat/completions", body: c.body()})
				if again.reason() != want || again.status != 200 {
					t.Errorf("after POST %s to %s: a chat of %s = %d, %s, want 200, %s", path, a.peer(), home, again.status, again.reason(), want)
				}
			}
		}
		resets := 0
		for _, w := range r.state().Workers {
			resets += w.CacheResets
		}
		if resets != 2 {
			t.Errorf("cacheResets of all = %d, want 2", resets)
		}
	})
}

// TestCachedTokens: what is expected of the caches is what the answers tell, in all dialects, whole and streamed.
func TestCachedTokens(t *testing.T) {
	turn := func(name string, n int, rest string) []byte {
		var said []string
		for i := 0; i < 2*n+1; i++ {
			said = append(said, fmt.Sprintf(`{"role":%q,"content":%q}`, []string{"user", "assistant"}[i%2], text(fmt.Sprint(name, i), 1500)))
		}
		return []byte(`{"model":"sim","max_tokens":3,` + rest + strings.Join(said, ",") + `]}`)
	}
	engine.Each(t, func(t *testing.T, kind engine.Kind) {
		r := start(t, kind, pool{size: 2})
		sent := 0
		for i := 0; i < 3; i++ {
			for name, dialect := range map[string]struct{ path, rest string }{
				"chat":             {"/v1/chat/completions", `"messages":[`},
				"streamed chat":    {"/v1/chat/completions", `"stream":true,"stream_options":{"include_usage":true},"messages":[`},
				"messages":         {"/v1/messages", `"system":"` + text("system", 2000) + `","messages":[`},
				"streamed message": {"/v1/messages", `"stream":true,"messages":[`},
				"response":         {"/v1/responses", `"input":[`},
				"streamed resp.":   {"/v1/responses", `"stream":true,"input":[`},
			} {
				for n := 0; n < 4; n++ {
					r.mustPost(dialect.path, turn(fmt.Sprint(name, i), n, dialect.rest))
					sent++
				}
			}
		}
		actual := 0
		for _, one := range r.replicas {
			for _, x := range generations(one) {
				actual += x.CachedTokens
			}
		}
		var sum struct{ answers, prompt, predicted, actual int }
		r.waitState(20*time.Second, func(s poolState) error {
			sum.answers, sum.prompt, sum.predicted, sum.actual = 0, 0, 0, 0
			for _, w := range s.Workers {
				sum.answers += w.CachedTokens.Answers
				sum.prompt += w.CachedTokens.Prompt
				sum.predicted += w.CachedTokens.Predicted
				sum.actual += w.CachedTokens.Actual
			}
			if sum.answers != sent {
				return fmt.Errorf("%d answers of %d were read", sum.answers, sent)
			}
			return nil
		})
		if sum.actual != actual || actual == 0 {
			t.Errorf("cached tokens in /workers = %d, the replicas counted %d", sum.actual, actual)
		}
		if off := float64(sum.predicted-sum.actual) / float64(sum.actual); off < -0.1 || off > 0.1 {
			t.Errorf("predicted %d cached tokens, actual %d: off by %.1f %%, want within 10 %%", sum.predicted, sum.actual, 100*off)
		}
		t.Logf("of %d prompt tokens %d were expected to be cached, %d were", sum.prompt, sum.predicted, sum.actual)
		metrics := string(r.get("/metrics").body)
		for name, want := range map[string]int{"cart_reported_prompt_tokens_total": sum.prompt, "cart_predicted_cached_tokens_total": sum.predicted,
			"cart_actual_cached_tokens_total": sum.actual} {
			got := 0.0
			for _, line := range strings.Split(metrics, "\n") {
				if strings.HasPrefix(line, name+"{") {
					var value float64
					if _, err := fmt.Sscan(line[strings.LastIndex(line, " ")+1:], &value); err != nil {
						t.Errorf("%s: %v", line, err)
					}
					got += value
				}
			}
			if got != float64(want) {
				t.Errorf("%s of all = %v, want %d", name, got, want)
			}
		}
	})
}

// TestAdapters: requests for a LoRA adapter go to replicas that have it, wherever else there is room.
func TestAdapters(t *testing.T) {
	engine.Each(t, func(t *testing.T, kind engine.Kind) {
		r := start(t, kind, pool{size: 3, config: metricsOften, options: replica.Options{Models: []string{"base"}}})
		of := func(model string) *chat {
			c := newChat("adapters " + model)
			c.Model = model
			return c
		}
		lists := func(one *replica.Replica, want string) {
			t.Helper()
			r.waitWorker(one, func(w workerState) error {
				if got := strings.Join(w.Models, " "); got != want {
					return fmt.Errorf("models of %s = %q, want %q", w.URL, got, want)
				}
				return nil
			})
		}
		for _, one := range r.replicas {
			lists(one, "base")
		}
		if a := r.post("/v1/chat/completions", of("tuned").body()); a.status != 404 {
			t.Errorf("a model that nobody has = %d, want the replica's 404", a.status)
		}
		home := r.at(r.mustPost("/v1/load_lora_adapter", []byte(`{"lora_name":"tuned","lora_path":"/tuned"}`)).peer())
		lists(home, "base tuned")
		served := map[string]bool{}
		for i := 0; i < 12; i++ {
			c := of("tuned")
			c.Messages[0].Content = text(fmt.Sprint("unrelated ", i), 500)
			if a := r.chat(c); a.peer() != home.URL() {
				t.Errorf("the adapter was asked for at %s, want at %s", a.peer(), home.URL())
			}
		}
		// One in fifty million runs would leave a replica out by chance.
		for i := 0; i < 48; i++ {
			c := of("base")
			c.Messages[0].Content = text(fmt.Sprint("unrelated ", i), 500)
			served[r.chat(c).peer()] = true
		}
		if len(served) != 3 {
			t.Errorf("the base model was asked for at %d replicas, want at all 3", len(served))
		}
		other := r.other(home.URL())
		resp, err := http.Post(other.URL()+"/v1/load_lora_adapter", "application/json", strings.NewReader(`{"lora_name":"tuned"}`))
		if err != nil || resp.StatusCode != 200 {
			t.Fatalf("loading the adapter = %v, %v", resp, err)
		}
		_ = resp.Body.Close()
		lists(other, "base tuned")
		home.Kill()
		if a := r.chat(of("tuned")); a.peer() != other.URL() {
			t.Errorf("with one gone the adapter was asked for at %s, want at %s", a.peer(), other.URL())
		}
		if err := home.Restart(); err != nil {
			t.Fatal(err)
		}
		lists(home, "base") // an adapter does not outlive its process
		for i := 0; i < 6; i++ {
			if a := r.chat(of("tuned")); a.peer() != other.URL() {
				t.Errorf("the adapter was asked for at %s, want at %s", a.peer(), other.URL())
			}
		}
	})
}

// TestMetricsAreNotNeeded: replicas that tell nothing, or nonsense without end, serve as well as others.
func TestMetricsAreNotNeeded(t *testing.T) {
	engine.Each(t, func(t *testing.T, kind engine.Kind) {
		r := start(t, kind, pool{size: 2, config: metricsOften})
		for i, fault := range []replica.Fault{{Kind: replica.Status, Status: 404}, {Kind: replica.Hang}} {
			metrics, models := fault, fault
			metrics.Path, models.Path = "/metrics", "/v1/models"
			if err := r.replicas[i].SetFault(metrics, models); err != nil {
				t.Fatal(err)
			}
		}
		for i := 0; i < 8; i++ {
			c := newChat(fmt.Sprintf("conversation %d", i))
			first := r.chat(c)
			if again := r.chat(c); again.peer() != first.peer() || again.reason() != "cache_hit" {
				t.Errorf("the chat went to %s (%s), then to %s, want it to stay", again.peer(), again.reason(), first.peer())
			}
		}
		for _, w := range r.state().Workers {
			if !w.Healthy || w.Restarts != 0 {
				t.Errorf("%s in /workers = %+v, want it healthy", w.URL, w)
			}
		}
	})
}
