package cart

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// upload makes a request of which sent arrives and announced was promised, -1 for a chunked one. broken ends it.
func upload(sent string, announced int64, broken error) *http.Request {
	req := httptest.NewRequest(http.MethodPost, "/v1/completions", nil)
	req.ContentLength = announced
	if broken == nil {
		req.Body = io.NopCloser(strings.NewReader(sent))
		return req
	}
	reader, writer := io.Pipe()
	go func() {
		defer func() { recover() }()
		io.WriteString(writer, sent)
		writer.CloseWithError(broken)
	}()
	req.Body = reader
	return req
}

// read reads a request's body with that bound.
func read(req *http.Request, most int64) (string, *refusal) {
	ex := &exchange{req: req}
	if refused := readUpTo(ex, most); refused != nil {
		return "", refused
	}
	return ex.text.String(), nil
}

func TestReadBody_readsAllOrSaysWhyNot(t *testing.T) {
	small := strings.Repeat("x", 1000)
	big := strings.Repeat("0123456789abcdef", eagerBody/16+1) // longer than what is taken at once
	reset := errors.New("connection reset by peer")
	for _, row := range []struct {
		story     string
		sent      string
		announced int64
		broken    error
		most      int64
		refusal   string // "" = the whole body
	}{
		{"announced", small, 1000, nil, 1000, ""},
		{"chunked", small, -1, nil, 1000, ""},
		{"announced and long", big, int64(len(big)), nil, 4 << 20, ""},
		{"chunked and long", big, -1, nil, 4 << 20, ""},
		{"exactly the bound, chunked", big, -1, nil, int64(len(big)), ""},
		{"empty", "", 0, nil, 1000, ""},
		{"empty and chunked", "", -1, nil, 1000, ""},
		{"announced too long", small, 1000, nil, 999, refusedTooLarge},
		{"announced far too long", small, 1 << 40, nil, 999, refusedTooLarge},
		{"chunked too long", small, -1, nil, 999, refusedTooLarge},
		{"chunked and long, too long by one", big, -1, nil, int64(len(big) - 1), refusedTooLarge},
		{"less than announced", small, 1001, nil, 5000, refusedUpload},
		{"nothing of what was announced", "", 10, nil, 5000, refusedUpload},
		{"less than announced, long", big, int64(len(big) + 1), nil, 4 << 20, refusedUpload},
		{"broken off", small, 2000, reset, 5000, refusedUpload},
		{"broken off, chunked", small, -1, reset, 5000, refusedUpload},
		{"broken off, chunked, with the right error", small, -1, io.ErrUnexpectedEOF, 5000, refusedUpload},
		{"too slow", small, 2000, os.ErrDeadlineExceeded, 5000, refusedSlowUpload},
		{"too slow, chunked", small, -1, os.ErrDeadlineExceeded, 5000, refusedSlowUpload},
	} {
		body, refused := read(upload(row.sent, row.announced, row.broken), row.most)
		if row.refusal != "" {
			if refused == nil || refused.why != row.refusal || body != "" {
				t.Errorf("%s: readBody() = %d bytes, %v, want none and %s", row.story, len(body), refused, row.refusal)
			}
			continue
		}
		if refused != nil || body != row.sent {
			t.Errorf("%s: readBody() = %d bytes, %v, want the %d sent", row.story, len(body), refused, len(row.sent))
		}
	}
}

func TestReadBody_withoutABody(t *testing.T) {
	req := upload("", 10, nil)
	req.Body = nil
	if body, refused := read(req, 1000); body != "" || refused != nil {
		t.Errorf("readBody(no body) = %d bytes, %v, want none and no refusal", len(body), refused)
	}
}

func TestReadBody_letsAClientFinishThatAnnouncesALittleTooMuch(t *testing.T) {
	sent := strings.NewReader(strings.Repeat("x", 1500))
	req := upload("", 1500, nil)
	req.Body = io.NopCloser(sent)
	if _, refused := read(req, 1000); refused == nil || refused.why != refusedTooLarge || sent.Len() != 0 {
		t.Errorf("readBody(1500 of at most 1000) = %v with %d bytes unread, want %s with all read", refused, sent.Len(), refusedTooLarge)
	}
	// With Expect the client waits for leave to send.
	sent = strings.NewReader(strings.Repeat("x", 1500))
	req = upload("", 1500, nil)
	req.Body = io.NopCloser(sent)
	req.Header.Set("Expect", "100-continue")
	if _, refused := read(req, 1000); refused == nil || sent.Len() != 1500 {
		t.Errorf("readBody(1500 of at most 1000, 100-continue) left %d bytes unread, want all 1500", sent.Len())
	}
}

func TestWatchedBody_givesUpWhenNothingComes(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	reader, writer := io.Pipe()
	body := newWatchedBody(reader, 50*time.Millisecond, func() { cancel() })
	go func() {
		defer func() { recover() }()
		<-ctx.Done()
		writer.CloseWithError(ctx.Err())
	}()
	if _, err := body.Read(make([]byte, 10)); !errors.Is(err, context.Canceled) {
		t.Errorf("Read() of a silent body = %v, want it given up", err)
	}
	body.Close()
}

func TestWatchedBody_isNotGivenUpWhileNobodyReads(t *testing.T) {
	gaveUp := make(chan bool, 1)
	body := newWatchedBody(io.NopCloser(bytes.NewReader([]byte("ab"))), 200*time.Millisecond, func() { gaveUp <- true })
	one := make([]byte, 1)
	if n, err := body.Read(one); n != 1 || err != nil {
		t.Fatalf("Read() = %d, %v, want 1 byte", n, err)
	}
	// The client takes its time: longer than the silence allowed to the replica.
	select {
	case <-gaveUp:
		t.Error("the body was given up between two reads")
	case <-time.After(500 * time.Millisecond):
	}
	if n, err := body.Read(one); n != 1 || err != nil || one[0] != 'b' {
		t.Errorf("Read() after a pause = %d, %v, want the next byte", n, err)
	}
	if err := body.Close(); err != nil {
		t.Errorf("Close() = %v", err)
	}
}

// streamOf returns a stream that sends an event whenever it is told to, its context and what gives it up.
func streamOf(t *testing.T, events chan string) (*http.Response, context.Context, func()) {
	t.Helper()
	url := startReplica(t, func(rw http.ResponseWriter, req *http.Request) {
		rw.(http.Flusher).Flush()
		for event := range events {
			io.WriteString(rw, event)
			rw.(http.Flusher).Flush()
		}
	})
	ctx, cancel := context.WithCancel(context.Background())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	return res, ctx, cancel
}

// TestSilence: a stream is given up when nothing of it comes for long, and not when its client is slow.
func TestSilence(t *testing.T) {
	for _, reads := range []bool{true, false} {
		trySilence(t, time.Second/2, reads, true, 20*time.Millisecond)
		trySilence(t, time.Second/2, reads, false, 20*time.Millisecond)
	}
	trySilence(t, 1500*time.Millisecond, true, true, 1200*time.Millisecond) // the lock's ways cost a question up to two events
}

func trySilence(t *testing.T, wait time.Duration, reads, alive bool, every time.Duration) {
	t.Helper()
	const event = "data: event\n\n"
	events := make(chan string, 1000)
	res, ctx, cancel := streamOf(t, events)
	var gaveUp int32
	begin := time.Now()
	s := newSilence(ctx, res.Body, wait, func() {
		atomic.StoreInt32(&gaveUp, 1)
		cancel()
	})
	got := make(chan int64, 1)
	read := func() {
		n, _ := io.Copy(io.Discard, res.Body)
		got <- n
	}
	if reads {
		go read()
	}
	var sent int64
	for ctx.Err() == nil && (!alive || time.Since(begin) < 6*wait) {
		if alive {
			events <- event
			sent += int64(len(event))
		}
		time.Sleep(every)
	}
	took := time.Since(begin)
	if up := atomic.LoadInt32(&gaveUp) == 1; up == alive || took < mostSilence*wait {
		t.Errorf("alive: %v, somebody reads: %v: given up = %v after %v, want %v, not before %v", alive, reads, up, took, !alive, mostSilence*wait)
	}
	close(events)
	if !reads {
		read()
	}
	if n := <-got; alive && n != sent {
		t.Errorf("somebody reads: %v: %d bytes came, want %d", reads, n, sent)
	}
	cancel()
	s.timer.Stop()
	res.Body.Close()
}

// TestSilence_endsWithTheStream: nothing goes on when the attempt has ended, or the body.
func TestSilence_endsWithTheStream(t *testing.T) {
	for _, broken := range []bool{false, true} {
		ctx, cancel := context.WithCancel(context.Background())
		s := newSilence(ctx, strings.NewReader("an event"), time.Hour, func() {})
		if s.timer.Stop(); s.timer.Stop() {
			t.Error("the timer runs after it was stopped")
		}
		s.ask()
		if !s.timer.Stop() {
			t.Error("the timer does not run while the stream does")
		}
		if broken {
			s.body = strings.NewReader("") // read to its end
		} else {
			cancel()
		}
		s.ask()
		if s.timer.Stop() {
			t.Errorf("the timer runs again after the end of the stream (of its body: %v)", broken)
		}
		cancel()
	}
}
