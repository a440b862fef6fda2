package main

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/cart-llm/cart/e2e/replica"
)

func TestWorkload_isTheSameEachTime(t *testing.T) {
	a, b := newWorkload(), newWorkload()
	if !reflect.DeepEqual(a, b) {
		t.Error("two workloads differ")
	}
	if len(a.list) != tenants*conversations || a.requests() != tenants*conversations*turns {
		t.Errorf("%d conversations, %d requests", len(a.list), a.requests())
	}
	systems := map[string]int{}
	for _, talk := range a.list {
		systems[talk.system]++
	}
	if len(systems) != tenants {
		t.Errorf("%d different system prompts, want %d", len(systems), tenants)
	}
}

// small is a workload of two conversations with the same system prompt.
func small() *workload {
	talk := &conversation{system: strings.Repeat("s", 640), says: []string{"one", "two"}, thinks: make([]time.Duration, 2)}
	return &workload{list: []*conversation{talk, talk}}
}

func TestDrive_countsWhatTheReplicaSays(t *testing.T) {
	r, err := replica.Start(replica.Options{Models: []string{model}})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	o := drive(context.Background(), small(), front{url: r.URL(), client: http.DefaultClient}, func(*outcome) {})
	s := r.Stats()
	if o.done() != 4 || o.failed() != 0 || o.requestsOf("") != 4 {
		t.Errorf("done %d, failed %d, peers %v: %v", o.done(), o.failed(), o.peers, o.firstError)
	}
	if int64(o.prompt) != s.PromptTokens || int64(o.cached) != s.CachedTokens || o.cached == 0 {
		t.Errorf("prompt, cached = %d, %d, the replica says %d, %d", o.prompt, o.cached, s.PromptTokens, s.CachedTokens)
	}
	if o.mean() <= 0 || o.quantile(0) > o.quantile(0.5) || o.quantile(0.5) > o.quantile(1) {
		t.Errorf("mean %v, quantiles %v", o.mean(), o.ttfts)
	}
}

func TestDrive_failuresEndTheConversation(t *testing.T) {
	for name, answer := range map[string]string{
		"no end":   "data: {\"choices\":[{\"delta\":{\"content\":\"x\"}}]}\n\n",
		"no usage": "data: {\"choices\":[{\"delta\":{\"content\":\"x\"}}]}\n\ndata: [DONE]\n\n",
		"not JSON": "data: oops\n\n",
		"status":   "",
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if answer == "" {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
			w.Write([]byte(answer))
		}))
		o := drive(context.Background(), small(), front{url: server.URL, client: server.Client()}, func(*outcome) {})
		server.Close()
		if o.failed() != 4 || o.firstError == nil {
			t.Errorf("%s: failed %d of 4, %v", name, o.failed(), o.firstError)
		}
	}
}

// made is an outcome with one request.
func made(ttft time.Duration, cached, failed int) *outcome {
	o := &outcome{peers: map[string]int{}}
	o.add(&answer{ttft: ttft, prompt: 100, cached: cached})
	if failed > 0 {
		o.fail(errors.New("broken"), failed)
	}
	o.finish()
	return o
}

func TestJudge(t *testing.T) {
	plain := made(time.Second, 50, 0)
	for _, row := range []struct {
		name string
		cart *outcome
		want string // in the error, "" for none
	}{
		{"better", made(600*time.Millisecond, 60, 0), ""},
		{"not much faster", made(601*time.Millisecond, 60, 0), "did not win: its mean time"},
		{"no more hits", made(100*time.Millisecond, 50, 0), "did not win: its hit ratio"},
		{"a failure", made(100*time.Millisecond, 90, 1), "1 requests failed\nbroken"},
	} {
		err := judge(plain, row.cart)
		if row.want == "" && err != nil || row.want != "" && (err == nil || !strings.Contains(err.Error(), row.want)) {
			t.Errorf("%s: judge() = %v, want %q", row.name, err, row.want)
		}
	}
}

func TestTerminal_plainInAFile(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	out, w, o := newTerminal(f), newWorkload(), made(99*time.Second, 100, others())
	out.introduce(w)
	out.waiting("a", "b")
	for i := 0; i < 10; i++ {
		out.progress(ways[0], w, o)
	}
	out.endProgress(ways[0], w, o)
	out.table([]*outcome{o, o}, []string{"a", "b", "c", "d"})
	text, err := os.ReadFile(f.Name())
	if err != nil {
		t.Fatal(err)
	}
	if strings.ContainsAny(string(text), "\x1b\r") {
		t.Errorf("control characters in a file: %q", text)
	}
	if n := strings.Count(string(text), "384/384"); n != 1 {
		t.Errorf("%d progress lines, want the last one only", n)
	}
	if width := utf8.RuneCountInString(out.progressLine(ways[0], w, o)); width > 79 {
		t.Errorf("the progress line is %d columns wide, want at most 79", width)
	}
}

// others is the number of requests besides the one of made.
func others() int { return newWorkload().requests() - 1 }
