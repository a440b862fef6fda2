package seeing

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cart-llm/cart/e2e/engine"
	"github.com/cart-llm/cart/e2e/replica"
	"github.com/cart-llm/cart/e2e/traefik"
)

// startTraefik runs the official binary with an access log as docs/operations.md has it.
func startTraefik(t *testing.T, config engine.Config) *traefik.Traefik {
	t.Helper()
	if !engine.Selected(engine.Traefik) {
		t.Skip("runs on the engine traefik alone")
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	tr, err := traefik.Start(ctx, traefik.Options{LogLevel: "ERROR", Static: map[string]any{"accessLog": map[string]any{
		"format": "json", "addInternals": true,
		"fields": map[string]any{"headers": map[string]any{"names": map[string]any{
			"X-Request-Id": "keep", "X-Routed-Peer": "keep", "X-Cart-Reason": "keep", "X-Cart-Match": "keep",
		}}},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the log:\n%.20000s", tr.Log())
		}
		if err := tr.Stop(); err != nil {
			t.Errorf("Stop() = %v", err)
		}
	})
	err = tr.Write("seeing.yml", map[string]any{"http": map[string]any{
		"routers": map[string]any{"llm": map[string]any{
			"rule": "PathPrefix(`/`)", "entryPoints": []string{traefik.EntryPoint}, "middlewares": []string{"cart"}, "service": "noop@internal",
		}},
		"middlewares": map[string]any{"cart": map[string]any{"plugin": map[string]any{traefik.Alias: config}}},
	}})
	if err == nil {
		err = tr.WaitApplied(ctx)
	}
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

// lines returns the lines of a log that are JSON with that message.
func lines(log, message string) []map[string]any {
	var out []map[string]any
	for _, line := range strings.Split(log, "\n") {
		var one map[string]any
		if json.Unmarshal([]byte(line), &one) == nil && one["msg"] == message {
			out = append(out, one)
		}
	}
	return out
}

func TestLog_decisionsJoinTheAccessLog(t *testing.T) {
	one, err := replica.Start(replica.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(one.Kill)
	tr := startTraefik(t, engine.Config{"workers": []any{engine.Config{"url": one.URL()}, engine.Config{"url": one.URL() + "/" + "x", "loadPenalty": 50}},
		"logLevel": "debug", "proxy": engine.Config{"addDecisionHeaders": true}, "health": engine.Config{"interval": 0}})
	const id, trace = "req-7f3a", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	for i := 0; i < 2; i++ {
		req, err := http.NewRequest(http.MethodPost, tr.URL()+"/v1/chat/completions", strings.NewReader(chatOf(strings.Repeat("a story. ", 200), false)))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-Request-Id", fmt.Sprint(id, i))
		req.Header.Set("Traceparent", trace)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Fatalf("POST of a chat = %s", resp.Status)
		}
	}
	var decision map[string]any
	eventually(t, 20*time.Second, func() error {
		for _, line := range lines(tr.Log(), "decision") {
			if line["requestId"] == id+"1" {
				decision = line
				return nil
			}
		}
		return fmt.Errorf("no decision line of %s1 in %s", id, tr.Log())
	})
	if decision["reason"] != "cache_hit" || decision["replica"] != one.URL() || decision["traceparent"] != trace ||
		decision["ratio"] != 1.0 || decision["matched"] != decision["total"] || decision["load"] != 1.0 || decision["leastLoad"] != 0.0 {
		t.Errorf("the decision line is %v", decision)
	}
	eventually(t, 20*time.Second, func() error {
		for _, text := range strings.Split(tr.AccessLog(), "\n") {
			var line map[string]any
			if json.Unmarshal([]byte(text), &line) != nil || line["request_X-Request-Id"] != id+"1" {
				continue
			}
			if line["downstream_X-Cart-Reason"] != "cache_hit" || line["downstream_X-Routed-Peer"] != one.URL() || line["downstream_X-Cart-Match"] != "1.00" {
				t.Errorf("the access log has %s, want CART's headers of it", text)
			}
			return nil
		}
		return fmt.Errorf("no line of %s1 in the access log %s", id, tr.AccessLog())
	})
}

// TestLog_aFloodOfRefusals wants at most 10 lines in each second, and every refusal accounted for. The plugin's own tests have
// a longer flood, without a network.
func TestLog_aFloodOfRefusals(t *testing.T) {
	const least, clients = 3200, 16
	tr := startTraefik(t, engine.Config{"workers": []any{}})
	begun := time.Now()
	var sent atomic.Int64
	var wg sync.WaitGroup
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: clients}}
	defer client.CloseIdleConnections()
	for i := 0; i < clients; i++ {
		wg.Add(1)
		go func() {
			defer wg.Done()
			// A fast machine refuses the least of them in half a second, and what is limited is lines a second.
			for sent.Load() < least || time.Since(begun) < 2*time.Second {
				resp, err := client.Post(tr.URL()+"/v1/chat/completions", "application/json", strings.NewReader(chatOf("x", false)))
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
				if resp.StatusCode != http.StatusServiceUnavailable {
					t.Errorf("status %d, want 503", resp.StatusCode)
					return
				}
				sent.Add(1)
			}
		}()
	}
	wg.Wait()
	took, flood := time.Since(begun), sent.Load()
	seconds := int(took/time.Second) + 2 // begun ones
	// The last of them is told of when the next second has begun.
	eventually(t, 20*time.Second, func() error {
		told := 0.0
		for _, line := range append(lines(tr.Log(), "request refused"), lines(tr.Log(), "log lines were left out")...) {
			told++
			if n, ok := line["droppedLines"].(float64); ok {
				told += n
			}
		}
		// The line that tells of the others, and the warnings on a start without workers, count too.
		if told < float64(flood) || told > float64(flood)+3 {
			return fmt.Errorf("the log accounts for %v refusals, want %d", told, flood)
		}
		return nil
	})
	// A line may be written just after the second in which it was let through. The warnings of the start use the same ten.
	if n := len(lines(tr.Log(), "request refused")); n > 10*(seconds+1) || n < 10 {
		t.Errorf("%d refusals wrote %d lines in %d seconds, want at most 10 in each", flood, n, seconds)
	} else {
		t.Logf("%d refusals in %v wrote %d lines", flood, took.Round(time.Millisecond), n)
	}
}
