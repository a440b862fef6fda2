package cart

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func TestWait_growsAndStaysBounded(t *testing.T) {
	standard := &backoff{initial: 100 * time.Millisecond, max: 5 * time.Second, multiplier: 2, jitter: 0.25}
	for _, row := range []struct {
		story string
		b     *backoff
		n     int
		draw  float64
		want  time.Duration
	}{
		{"the first", standard, 0, 0.5, 100 * time.Millisecond},
		{"twice as long", standard, 1, 0.5, 200 * time.Millisecond},
		{"twice as long again", standard, 2, 0.5, 400 * time.Millisecond},
		{"the last below the bound", standard, 5, 0.5, 3200 * time.Millisecond},
		{"the bound", standard, 6, 0.5, 5 * time.Second},
		{"far beyond the bound", standard, 99, 0.5, 5 * time.Second},
		{"the least draw", standard, 0, 0, 75 * time.Millisecond},
		{"the greatest draw", standard, 0, 1, 125 * time.Millisecond},
		{"no jitter", &backoff{initial: time.Second, max: 5 * time.Second, multiplier: 2}, 1, 0, 2 * time.Second},
		{"no growth", &backoff{initial: time.Second, max: 5 * time.Second, multiplier: 1}, 50, 0.5, time.Second},
		{"no wait", &backoff{max: 5 * time.Second, multiplier: 100, jitter: 1}, 50, 1, 0},
		{"none by the bound", &backoff{initial: time.Second, multiplier: 2}, 3, 0.5, 0},
		{"full jitter", &backoff{initial: time.Second, max: 5 * time.Second, multiplier: 2, jitter: 1}, 0, 0, 0},
		{"the steepest growth", &backoff{initial: time.Second, max: time.Minute, multiplier: 100}, 100, 0.5, time.Minute},
	} {
		if got := wait(row.b, row.n, row.draw); got != row.want {
			t.Errorf("%s: wait(%d, draw %v) = %v, want %v", row.story, row.n, row.draw, got, row.want)
		}
	}
}

func TestRetryAfter_readsSecondsAndDates(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, row := range []struct {
		value string
		want  time.Duration
	}{
		{"", time.Second},
		{"5", 5 * time.Second},
		{"0", 0},
		{"30", 30 * time.Second},
		{"31", 30 * time.Second},
		{"2000000000", 30 * time.Second},
		{"-5", 0},
		{"soon", time.Second},
		{"1.5", time.Second},
		{"5s", time.Second},
		{"Fri, 02 Jan 2026 03:04:15 GMT", 10 * time.Second},
		{"Friday, 02-Jan-26 03:04:15 GMT", 10 * time.Second},
		{"Fri Jan  2 03:04:15 2026", 10 * time.Second},
		{"Fri, 02 Jan 2026 03:14:05 GMT", 30 * time.Second},
		{"Fri, 02 Jan 2026 03:04:05 GMT", 0},
		{"Thu, 01 Jan 2026 03:04:05 GMT", 0},
		{"Fri, 99 Jan 2026 03:04:15 GMT", time.Second},
	} {
		h := http.Header{}
		if row.value != "" {
			h.Set("Retry-After", row.value)
		}
		if got := retryAfter(h, now); got != row.want {
			t.Errorf("retryAfter(%q) = %v, want %v", row.value, got, row.want)
		}
	}
}

func TestRetryAfter_isAtMost30sHoweverLongTheNumber(t *testing.T) {
	h := http.Header{"Retry-After": []string{"99999999999999999999"}}
	if got := retryAfter(h, time.Now()); got != 30*time.Second {
		t.Errorf("retryAfter(%q) = %v, want 30s", h.Get("Retry-After"), got)
	}
}

func TestPause_endsWithTheClient(t *testing.T) {
	gone, leave := context.WithCancel(context.Background())
	leave()
	for _, row := range []struct {
		story string
		ctx   context.Context
		d     time.Duration
		want  bool
	}{
		{"no wait", context.Background(), 0, true},
		{"less than none", context.Background(), -time.Second, true},
		{"a short one", context.Background(), time.Millisecond, true},
		{"no wait, the client is gone", gone, 0, false},
		{"a long one, the client is gone", gone, time.Hour, false},
	} {
		if got := pause(row.ctx, row.d); got != row.want {
			t.Errorf("%s: pause(%v) = %v, want %v", row.story, row.d, got, row.want)
		}
	}
}

func TestMayRetry_isARule(t *testing.T) {
	gone, leave := context.WithCancel(context.Background())
	leave()
	set := &settings{maxRetries: 2}
	for _, row := range []struct {
		story string
		tried []int
		route route
		ctx   context.Context
		want  bool
	}{
		{"after the first try", []int{1}, route{set: set, replayable: true}, context.Background(), true},
		{"after the second", []int{1, 2}, route{set: set, replayable: true}, context.Background(), true},
		{"after the third", []int{1, 2, 3}, route{set: set, replayable: true}, context.Background(), false},
		{"a body that is gone", []int{1}, route{set: set}, context.Background(), false},
		{"a client that is gone", []int{1}, route{set: set, replayable: true}, gone, false},
		{"no retries", []int{1}, route{set: &settings{}, replayable: true}, context.Background(), false},
	} {
		req := httptest.NewRequest(http.MethodPost, "/v1/chat/completions", nil).WithContext(row.ctx)
		if got := mayRetry(&exchange{route: row.route, tried: row.tried, req: req}); got != row.want {
			t.Errorf("%s: mayRetry() = %v, want %v", row.story, got, row.want)
		}
	}
}

// keptRequest is a transport that keeps the last request it was given.
type keptRequest struct {
	req  *http.Request
	body string
}

func (k *keptRequest) RoundTrip(req *http.Request) (*http.Response, error) {
	k.req = req
	body, err := io.ReadAll(req.Body)
	k.body = string(body)
	return &http.Response{StatusCode: 204, Header: http.Header{}, Body: http.NoBody, Request: req}, err
}

func TestForward_givesTheWholeBodyEachTime(t *testing.T) {
	for _, body := range []string{"a body", "\x00\xff"} {
		p, h := benchPool(t, 1, policyThreshold)
		kept := &keptRequest{}
		p.replicas[0].worker.proxy.Transport = kept
		req := httptest.NewRequest(http.MethodPost, "/v1/completions", strings.NewReader(body))
		req.ContentLength = -1
		req.TransferEncoding = []string{"chunked"}
		h.ServeHTTP(httptest.NewRecorder(), req)
		got := kept.req
		if kept.body != body || got.ContentLength != int64(len(body)) || got.TransferEncoding != nil {
			t.Fatalf("body %q goes on as %q, length %d, encoding %v, want it with its length", body, kept.body, got.ContentLength,
				got.TransferEncoding)
		}
		again, err := got.GetBody()
		if err != nil {
			t.Fatalf("body %q: GetBody() = %v", body, err)
		}
		if all, err := io.ReadAll(again); err != nil || string(all) != body {
			t.Errorf("body %q: GetBody() reads %q, %v", body, all, err)
		}
	}
}

func TestAttempt_shareOfThePrompt(t *testing.T) {
	for _, row := range []struct {
		matched, total int
		want           float64
	}{{0, 0, 0}, {0, 10, 0}, {5, 10, 0.5}, {10, 10, 1}} {
		a := &attempt{matched: row.matched}
		if got := a.share(row.total); got != row.want {
			t.Errorf("share(%d of %d) = %v, want %v", row.matched, row.total, got, row.want)
		}
	}
}
