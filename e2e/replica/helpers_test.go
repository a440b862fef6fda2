package replica

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// start runs a replica for one test. Its client keeps no idle connections, so that each request meets the listener.
func start(t *testing.T, o Options) *Replica {
	t.Helper()
	r, err := Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Errorf("Close() = %v", err)
		}
	})
	return r
}

var client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 10 * time.Second}

func post(t *testing.T, url, body string) (int, string) {
	t.Helper()
	resp, err := client.Post(url, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	return read(t, resp)
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	resp, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	return read(t, resp)
}

func read(t *testing.T, resp *http.Response) (int, string) {
	t.Helper()
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// ask sends a request that must succeed and returns the decoded answer.
func ask(t *testing.T, url, body string) object {
	t.Helper()
	status, text := post(t, url, body)
	if status != http.StatusOK {
		t.Fatalf("POST %s = %d %s, want 200", url, status, text)
	}
	return decode(t, text)
}

func decode(t *testing.T, text string) object {
	t.Helper()
	var o object
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return o
}

// at walks through objects by key and lists by index.
func at(t *testing.T, v any, path ...any) any {
	t.Helper()
	for _, step := range path {
		switch s := step.(type) {
		case string:
			o, ok := v.(object)
			if !ok {
				t.Fatalf("%v: %q is not in an object", path, s)
			}
			v = o[s]
		case int:
			l, ok := v.([]any)
			if !ok || len(l) <= s {
				t.Fatalf("%v: %d is not in a list", path, s)
			}
			v = l[s]
		}
	}
	return v
}

// completion asks for one token after a prompt and returns prompt and cached tokens.
func completion(t *testing.T, r *Replica, prompt string) (int, int) {
	t.Helper()
	b, _ := json.Marshal(object{"prompt": prompt, "max_tokens": 1})
	u := at(t, ask(t, r.URL()+"/v1/completions", string(b)), "usage")
	return int(at(t, u, "prompt_tokens").(float64)),
		int(at(t, u, "prompt_tokens_details", "cached_tokens").(float64))
}

type event struct {
	name string
	data object // nil for [DONE]
	text string
}

// stream sends a request that must succeed and returns its events.
func stream(t *testing.T, url, body string) []event {
	t.Helper()
	resp, err := client.Post(url, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if got := resp.Header.Get("Content-Type"); !strings.HasPrefix(got, "text/event-stream") {
		t.Fatalf("Content-Type = %q, want text/event-stream", got)
	}
	var events []event
	var e event
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		line := lines.Text()
		switch {
		case strings.HasPrefix(line, "event: "):
			e.name = line[len("event: "):]
		case line == "data: [DONE]":
			e.text = "[DONE]"
		case strings.HasPrefix(line, "data: "):
			e.data = decode(t, line[len("data: "):])
		case line == "":
			events = append(events, e)
			e = event{}
		}
	}
	return events
}

// eventually waits for a condition that another goroutine brings about.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(3 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within 3 s: %s", what)
		}
	}
}
