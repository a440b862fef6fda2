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
	// Steps follow one another on a clock of their own: none is early, and a late one has the next ones catch up.
	first, end := firstToken(t, r, long)
	atLeast(t, "cold first token", first, 400*time.Millisecond)
	atLeast(t, "5 more tokens", end, 500*time.Millisecond)
	eventually(t, "a warm first token", func() bool {
		first, _ := firstToken(t, r, long)
		return first < 200*time.Millisecond // it takes 4 ms, on a machine that is not busy
	})

	// While another prompt is computed, an answer gets a token with each of its chunks.
	var wg sync.WaitGroup
	wg.Add(1)
	go func() {
		defer wg.Done()
		_, end := firstToken(t, r, `{"stream":true,"max_tokens":100,"prompt":"short"}`)
		atLeast(t, "99 tokens, 10 of them beside a prompt", end, 2180*time.Millisecond) // else 1,980 ms
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
	atLeast(t, "three prompts", time.Since(begun), 300*time.Millisecond)
}

func atLeast(t *testing.T, what string, got, want time.Duration) {
	t.Helper()
	if got < want-5*time.Millisecond {
		t.Errorf("%s took %v, want %v at least", what, got, want)
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
