package scenarios

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"sync"
	"time"
)

// request is what a client sends. The zero value is GET / over HTTP/1.1.
type request struct {
	method  string
	path    string
	host    string
	header  http.Header
	body    []byte
	chunked bool // no Content-Length
	h2      bool // HTTP/2 over TLS
}

// answer is what it gets.
type answer struct {
	status int
	header http.Header
	body   []byte
	err    error // of the exchange, or of reading the body to its end
	resp   *http.Response
}

func (a answer) peer() string   { return a.header.Get("x-routed-peer") }
func (a answer) reason() string { return a.header.Get("x-cart-reason") }

// send sends a request and returns when the headers of the answer are there.
func (r *rig) send(ctx context.Context, q request) (*http.Response, error) {
	client, address := r.e.Client(), r.e.URL()
	if q.h2 {
		client, address = r.e.ClientTLS(), r.e.URLTLS()
	}
	if q.method == "" {
		q.method = http.MethodGet
	}
	req, err := http.NewRequestWithContext(ctx, q.method, address+q.path, bytes.NewReader(q.body))
	if err != nil {
		return nil, err
	}
	if q.chunked {
		req.ContentLength = -1
		req.GetBody = nil
		req.Body = io.NopCloser(bytes.NewReader(q.body))
	}
	for name, values := range q.header {
		req.Header[name] = values
	}
	if req.Host = q.host; q.host == "" {
		req.Host = r.host
	}
	return client.Do(req)
}

// do sends a request and reads the whole answer.
func (r *rig) do(q request) answer {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	resp, err := r.send(ctx, q)
	if err != nil {
		return answer{err: err, header: http.Header{}}
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return answer{status: resp.StatusCode, header: resp.Header, body: body, err: err, resp: resp}
}

func (r *rig) get(path string) answer { return r.do(request{path: path}) }

func (r *rig) post(path string, body []byte) answer {
	return r.do(request{method: http.MethodPost, path: path, body: body})
}

// chat posts a chat and fails the test unless it is answered with 200.
func (r *rig) chat(c *chat) answer {
	r.t.Helper()
	return r.mustPost("/v1/chat/completions", c.body())
}

func (r *rig) mustPost(path string, body []byte) answer {
	r.t.Helper()
	a := r.post(path, body)
	if a.err != nil || a.status != http.StatusOK {
		r.t.Fatalf("POST %s = %d %.300s, %v, want 200", path, a.status, a.body, a.err)
	}
	return a
}

// held is a streamed answer that is left open.
type held struct {
	answer
	cancel context.CancelFunc
	once   sync.Once
}

// hold starts a streamed chat and returns once its headers are there. It stays open, as long as the replica is slow
// enough, until release or the end of the test.
func (r *rig) hold(c *chat) *held {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	//nolint:bodyclose // release closes it
	resp, err := r.send(ctx, request{method: http.MethodPost, path: "/v1/chat/completions", body: c.stream().body()})
	if err != nil {
		cancel()
		r.t.Fatalf("POST of a stream: %v", err)
	}
	h := &held{answer: answer{status: resp.StatusCode, header: resp.Header, resp: resp}, cancel: cancel}
	r.t.Cleanup(h.release)
	if resp.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(resp.Body)
		r.t.Fatalf("POST of a stream = %d %s, want 200", resp.StatusCode, body)
	}
	return h
}

func (h *held) release() {
	h.once.Do(func() {
		h.cancel()
		_ = h.resp.Body.Close()
	})
}
