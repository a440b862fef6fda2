package replica

import (
	"strings"
	"sync"
	"testing"
	"time"
)

func TestSteps_promptsInChunksAnswersBeside(t *testing.T) {
	// A prompt of 1,000 tokens takes 10 chunks of 40 ms; a step without a chunk takes 20 ms.
	r := start(t, Options{StepTime: 18 * time.Millisecond, StepEach: 2 * time.Millisecond, ChunkTokens: 100, PrefillRate: 2500})
	long := `{"stream":true,"max_tokens":6,"prompt":"` + strings.Repeat("x", 4004) + `"}` // 1,001 tokens
	first, end := firstToken(t, r, long)
	near(t, "cold first token", first, 400*time.Millisecond)
	near(t, "5 more tokens", end-first, 100*time.Millisecond)
	first, _ = firstToken(t, r, long)
	near(t, "warm first token", first, 4*time.Millisecond)

	// While another prompt is computed, an answer gets a token with each of its chunks.
	var wg sync.WaitGroup
	wg.Add(1)
	go func() {
		defer wg.Done()
		_, end := firstToken(t, r, `{"stream":true,"max_tokens":9,"prompt":"short"}`)
		if end < 240*time.Millisecond { // 320 ms, less what came before the prompt; without it they take 160 ms
			t.Errorf("8 tokens beside a prompt took %v, want about 320ms", end)
		}
	}()
	eventually(t, "it runs", func() bool { return r.Stats().Decoding == 1 })
	firstToken(t, r, `{"stream":true,"max_tokens":1,"prompt":"`+strings.Repeat("y", 4000)+`"}`)
	wg.Wait()
}

func TestSteps_promptsOneAfterAnother(t *testing.T) {
	r := start(t, Options{StepTime: 5 * time.Millisecond, PrefillRate: 4000})
	var wg sync.WaitGroup
	begun := time.Now()
	for _, letter := range []string{"a", "b", "c"} {
		wg.Add(1)
		go func() {
			defer wg.Done()
			completion(t, r, strings.Repeat(letter, 1600)) // 100 ms each
		}()
	}
	wg.Wait()
	if took := time.Since(begun); took < 300*time.Millisecond {
		t.Errorf("three prompts took %v, want 300ms at least", took)
	}
}

func TestSteps_abortGoesOn(t *testing.T) {
	r := start(t, Options{StepTime: 2 * time.Millisecond, PrefillRate: 100, ChunkTokens: 5, MaxRunning: 2})
	url := r.URL() + "/v1/completions"
	for _, row := range []struct{ name, body string }{
		{"in its prompt", `{"prompt":"` + strings.Repeat("p", 40000) + `"}`},
		{"in its answer", `{"prompt":"a","max_tokens":100000,"stream":true}`},
	} {
		aborted := r.Aborted()
		leave := hold(t, url, row.body)
		eventually(t, row.name+": running", func() bool { return r.Stats().Decoding == 1 })
		leave()
		eventually(t, row.name+": gone", func() bool { return r.Aborted() == aborted+1 && r.Stats().Decoding == 0 })
		if tokens, _ := completion(t, r, "next"); tokens != 1 {
			t.Errorf("%s: the next request got %d prompt tokens", row.name, tokens)
		}
	}
}
