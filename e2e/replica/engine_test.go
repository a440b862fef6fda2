package replica

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// firstToken returns the time from the request to the first event with text, and to the end.
func firstToken(t *testing.T, r *Replica, body string) (first, end time.Duration) {
	t.Helper()
	sent := time.Now()
	for _, e := range stream(t, r.URL()+"/v1/completions", body) {
		if first == 0 && e.data != nil {
			first = time.Unix(0, int64(e.data[SentField].(float64))).Sub(sent)
		}
	}
	return first, time.Since(sent)
}

// near fails the test when something is sooner than it can be, and returns an error when it is much later.
func near(t *testing.T, what string, got, want time.Duration) error {
	t.Helper()
	if got < want-5*time.Millisecond {
		t.Errorf("%s = %v, want about %v", what, got, want)
	}
	if got > want+150*time.Millisecond {
		return fmt.Errorf("%s = %v, want about %v", what, got, want)
	}
	return nil
}

// inTime fails the test when what f measures is late five times in a row, for the machine may be busy with other things.
func inTime(t *testing.T, f func() error) {
	t.Helper()
	var err error
	for range 5 {
		if err = f(); err == nil {
			return
		}
	}
	t.Error(err)
}

func TestEngine_prefillTakesUncachedTokensOnly(t *testing.T) {
	inTime(t, func() error {
		r := start(t, Options{PrefillRate: 4000, DecodeRate: 100})
		body := `{"stream":true,"max_tokens":11,"prompt":"` + strings.Repeat("x", 6404) + `"}` // 1,601 tokens
		cold, end := firstToken(t, r, body)
		warm, _ := firstToken(t, r, body)
		return errors.Join(near(t, "cold first token", cold, 400*time.Millisecond), near(t, "10 more tokens", end-cold, 100*time.Millisecond),
			near(t, "warm first token", warm, 0))
	})
}

func TestEngine_prefillIsSerial(t *testing.T) {
	inTime(t, func() error { return prefillIsSerial(t) })
}

func prefillIsSerial(t *testing.T) error {
	r := start(t, Options{PrefillRate: 4000})
	var mu sync.Mutex
	var last time.Duration
	var wg sync.WaitGroup
	begun := time.Now()
	for _, letter := range []string{"a", "b", "c"} {
		wg.Add(1)
		go func() {
			defer wg.Done()
			completion(t, r, strings.Repeat(letter, 1600)) // 100 ms each
			mu.Lock()
			defer mu.Unlock()
			last = max(last, time.Since(begun))
		}()
	}
	wg.Wait()
	if r.Peak() > 3 {
		t.Errorf("Peak = %d, want 3 at most", r.Peak())
	}
	eventually(t, "none runs", func() bool { return r.Running() == 0 }) // an answer is with its client a little before its end
	if r.Peak() < 3 {
		return fmt.Errorf("Peak = %d, want 3", r.Peak())
	}
	return near(t, "three prefills", last, 300*time.Millisecond)
}

// hold starts a request that runs until the returned function is called.
func hold(t *testing.T, url, body string) (leave func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		if resp, err := client.Do(req); err == nil {
			<-ctx.Done()
			resp.Body.Close()
		}
	}()
	return func() { cancel(); <-gone }
}

func TestEngine_abortFreesTheSlot(t *testing.T) {
	r := start(t, Options{MaxRunning: 1, DecodeRate: 1})
	url := r.URL() + "/v1/completions"
	for _, row := range []struct{ name, body string }{
		{"streamed", `{"prompt":"a","max_tokens":1000,"stream":true}`},
		{"plain", `{"prompt":"a","max_tokens":1000}`},
	} {
		aborted := r.Aborted()
		leave := hold(t, url, row.body)
		eventually(t, row.name+": running", func() bool { return r.Stats().Decoding == 1 })
		leaveQueued := hold(t, url, row.body)
		eventually(t, row.name+": one waits", func() bool { return r.Stats().Waiting == 1 })
		leaveQueued()
		eventually(t, row.name+": it left the queue", func() bool { return r.Stats().Waiting == 0 })
		leave()
		if tokens, _ := completion(t, r, "next"); tokens != 1 {
			t.Errorf("%s: the next request got %d prompt tokens", row.name, tokens)
		}
		eventually(t, row.name+": both counted", func() bool { return r.Aborted() == aborted+2 })
	}
	if list := r.Requests(); !list[0].Aborted || list[2].Aborted {
		t.Errorf("Aborted of the first and the third request = %v, %v, want true, false", list[0].Aborted, list[2].Aborted)
	}
}

func TestEngine_waitsForRoomInTheCache(t *testing.T) {
	r := start(t, Options{CacheTokens: 160, DecodeRate: 10})
	leave := hold(t, r.URL()+"/v1/completions", `{"prompt":"a","max_tokens":140}`)
	eventually(t, "running", func() bool { return r.Stats().Decoding == 1 })
	leaveSecond := hold(t, r.URL()+"/v1/completions", `{"prompt":"b","max_tokens":30}`)
	eventually(t, "the second waits for blocks", func() bool { return r.Stats().Waiting == 1 })
	leave()
	eventually(t, "the second runs", func() bool { return r.Stats().Decoding == 1 && r.Stats().Waiting == 0 })
	leaveSecond()
}

func TestMetrics(t *testing.T) {
	r := start(t, Options{Models: []string{"m"}, CacheTokens: 1600})
	prompt := strings.Repeat("x", 132)
	completion(t, r, prompt)
	completion(t, r, prompt)
	_, text := get(t, r.URL()+"/metrics")
	for _, line := range []string{
		`vllm:prefix_cache_queries_total{engine="0",model_name="m"} 66`,
		`vllm:prefix_cache_hits_total{engine="0",model_name="m"} 32`,
		`vllm:generation_tokens_total{engine="0",model_name="m"} 2`,
		`vllm:num_requests_running{engine="0",model_name="m"} 0`,
		`vllm:request_success_total{engine="0",finished_reason="length",model_name="m"} 2`,
		`block_size="16"`, `num_gpu_blocks="100"`, "process_start_time_seconds ",
	} {
		if !strings.Contains(text, line) {
			t.Errorf("no %s in\n%s", line, text)
		}
	}
}
