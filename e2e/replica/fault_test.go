package replica

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"
)

const chatBody = `{"messages":[{"role":"user","content":"hi"}],"stream":true}`

func set(t *testing.T, r *Replica, list ...Fault) {
	t.Helper()
	if err := r.SetFault(list...); err != nil {
		t.Fatal(err)
	}
}

// try sends a chat and returns what came before the end and how it ended.
func try(r *Replica, body string) (status int, text string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.URL()+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b), err
}

func TestFault_refuse(t *testing.T) {
	r := start(t, Options{})
	get(t, r.URL()+"/health") // leaves an idle connection, which refusing closes
	set(t, r, Fault{Kind: Refuse})
	if _, _, err := try(r, chatBody); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("refuse: %v, want connection refused", err)
	}
	if err := r.ClearFault(); err != nil {
		t.Fatal(err)
	}
	if status, _, err := try(r, chatBody); status != 200 {
		t.Errorf("cleared: %d, %v", status, err)
	}
	set(t, r, Fault{Kind: Refuse, For: 30 * time.Millisecond})
	eventually(t, "refusing ends by itself", func() bool { _, _, err := try(r, chatBody); return err == nil })
}

func TestFault_hang(t *testing.T) {
	r := start(t, Options{})
	set(t, r, Fault{Kind: Hang})
	if _, _, err := try(r, chatBody); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("hang: %v, want a timeout", err)
	}
	if status, _ := get(t, r.URL()+"/health"); status != 200 {
		t.Errorf("GET /health under hang = %d, want 200", status)
	}
	set(t, r, Fault{Kind: HangHealth})
	if status, _, err := try(r, chatBody); status != 200 {
		t.Errorf("chat under hangHealth: %d, %v", status, err)
	}
	hold(t, r.URL()+"/health", "")() // it does not answer, and leaving works
}

func TestFault_cut(t *testing.T) {
	r := start(t, Options{})
	for _, row := range []struct {
		name   string
		fault  Fault
		status int
		events int
	}{
		{"before the headers", Fault{Kind: Cut}, 0, 0},
		{"after 3 events", Fault{Kind: Cut, Events: 3}, 200, 3},
		{"within the first event", Fault{Kind: Cut, Bytes: 10}, 200, 0},
	} {
		set(t, r, row.fault)
		status, text, err := try(r, chatBody)
		if err == nil || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: error %v, want a broken connection", row.name, err)
		}
		if events := strings.Count(text, "\n\n"); status != row.status || events != row.events {
			t.Errorf("%s: status %d and %d events, want %d and %d", row.name, status, events, row.status, row.events)
		}
		if row.fault.Bytes > 0 && len(text) != row.fault.Bytes {
			t.Errorf("%s: %d bytes, want %d", row.name, len(text), row.fault.Bytes)
		}
	}
	eventually(t, "the cut sequences are over", func() bool { return r.Stats().Decoding == 0 && r.Running() == 0 })
	if r.Aborted() != 0 {
		t.Errorf("Aborted() = %d, want 0: it was the replica that cut", r.Aborted())
	}
}

func TestFault_cutBody(t *testing.T) {
	r := start(t, Options{})
	set(t, r, Fault{Kind: CutBody, Bytes: 10, Count: 1})
	if _, _, err := try(r, chatBody); err == nil {
		t.Error("cutBody: no error")
	}
	if x := r.Requests()[0]; x.BodyBytes != 10 || x.Status != 0 {
		t.Errorf("recorded %d bytes and status %d, want 10 and 0", x.BodyBytes, x.Status)
	}
	if status, _, err := try(r, chatBody); status != 200 {
		t.Errorf("after the count: %d, %v", status, err)
	}
}

func TestFault_slow(t *testing.T) {
	r := start(t, Options{OutputTokens: 2})
	set(t, r, Fault{Kind: Slow, Delay: 60 * time.Millisecond, EventDelay: 20 * time.Millisecond})
	inTime(t, func() error {
		sent := time.Now()
		resp, err := client.Post(r.URL()+"/v1/chat/completions", "application/json", strings.NewReader(chatBody))
		if err != nil {
			t.Fatal(err)
		}
		headers := time.Since(sent)
		read(t, resp)
		return errors.Join(near(t, "headers", headers, 60*time.Millisecond), near(t, "5 events", time.Since(sent), 160*time.Millisecond))
	})
}

func TestFault_statusMatchCount(t *testing.T) {
	r := start(t, Options{})
	set(t, r,
		Fault{Kind: Status, Status: 429, Headers: map[string]string{"Retry-After": "3"}, Match: "poison", Count: 2},
		Fault{Kind: Status, Status: 503, Path: "/health"})
	poison := strings.Replace(chatBody, "hi", "poison", 1)
	for i, row := range []struct {
		body   string
		status int
	}{{chatBody, 200}, {poison, 429}, {poison, 429}, {poison, 200}} {
		if status, _, err := try(r, row.body); status != row.status {
			t.Errorf("request %d: %d, %v, want %d", i, status, err, row.status)
		}
	}
	if status, _ := get(t, r.URL()+"/health"); status != 503 {
		t.Errorf("GET /health = %d, want 503", status)
	}
}

func TestFault_overHTTP(t *testing.T) {
	r := start(t, Options{Control: "127.0.0.1:0"})
	status, text := post(t, r.ControlURL()+"/_sim/fault", `[{"kind":"refuse"},{"kind":"slow","delay":"1ms"}]`)
	if status != http.StatusNoContent {
		t.Fatalf("POST /_sim/fault = %d %s", status, text)
	}
	if _, _, err := try(r, chatBody); err == nil {
		t.Error("refuse over HTTP: no error")
	}
	req, _ := http.NewRequest(http.MethodDelete, r.ControlURL()+"/_sim/fault", nil)
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	read(t, resp)
	if status, _, err := try(r, chatBody); status != 200 {
		t.Errorf("cleared: %d, %v", status, err)
	}
	for _, bad := range []string{`{"kind":"nonsense"}`, `{"kind":"cut","evnts":1}`, `{"kind":"slow","delay":"soon"}`, ``} {
		if status, _ := post(t, r.URL()+"/_sim/fault", bad); status != 400 {
			t.Errorf("fault %s: %d, want 400", bad, status)
		}
	}
	_, stats := get(t, r.URL()+"/_sim/stats?exchanges=1")
	if s := decode(t, stats); s["requests"] != 1.0 || len(s["exchanges"].([]any)) != 1 {
		t.Errorf("stats = %s", stats)
	}
}

func TestFault_JSONRoundTrip(t *testing.T) {
	want := Fault{Kind: Slow, Path: "*", Match: "m", Count: 2, For: time.Second, Delay: time.Millisecond,
		EventDelay: 2 * time.Second, Events: 1, Bytes: 2, Status: 503, Headers: map[string]string{"A": "b"}, Body: "x"}
	b, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var got Fault
	if err := json.Unmarshal(b, &got); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%s = %+v, %v, want %+v", b, got, err, want)
	}
}

func TestKillAndRestart(t *testing.T) {
	r := start(t, Options{DecodeRate: 50})
	started := func() string {
		_, text := get(t, r.URL()+"/metrics")
		_, after, _ := strings.Cut(text, "\nprocess_start_time_seconds ")
		value, _, _ := strings.Cut(after, "\n")
		return value
	}
	prompt := strings.Repeat("x", 132)
	completion(t, r, prompt)
	before, url := started(), r.URL()

	resp, err := client.Post(url+"/v1/completions", "application/json",
		strings.NewReader(`{"prompt":"a","stream":true,"max_tokens":1000}`))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewReader(resp.Body)
	if _, err := lines.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	r.Kill()
	if _, err := io.Copy(io.Discard, lines); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the stream ended with %v, want a reset", err)
	}
	if _, _, err := try(r, chatBody); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("after Kill: %v, want connection refused", err)
	}
	eventually(t, "the killed request is over", func() bool { return r.Running() == 0 })
	if r.Aborted() != 0 {
		t.Errorf("Aborted() = %d, want 0: the client stayed", r.Aborted())
	}
	if err := r.Restart(); err != nil {
		t.Fatal(err)
	}
	if r.URL() != url || started() == before {
		t.Errorf("restarted at %s with start time %s, want %s and another time than %s", r.URL(), started(), url, before)
	}
	if _, cached := completion(t, r, prompt); cached != 0 {
		t.Errorf("cached = %d after a restart, want 0", cached)
	}
}
