package cases

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"strconv"
	"strings"
	"sync"
	"time"
)

// query is a request as it is to be put on the wire.
type query struct {
	method string
	target string
	header header
	body   []byte
	chunks [][]byte // sent with chunked transfer coding in place of body
	bare   bool     // no framing header at all; what of it there is stands in header
}

// post is a POST of JSON.
func post(target, body string) query {
	return query{method: "POST", target: target, header: header{{"Content-Type", "application/json"}}, body: []byte(body)}
}

func get(target string) query { return query{method: "GET", target: target} }

// reply is an answer as it came off the wire.
type reply struct {
	status  int
	header  header
	trailer header
	interim []int
	body    []byte
	reads   []stamp // of the body without framing
	headAt  time.Time
	err     error // of the exchange, or of reading the body to its end

	resp *http.Response // of HTTP/2
}

func (a *reply) peer() string { return a.header.get("x-routed-peer") }

func (a *reply) String() string {
	return fmt.Sprintf("%d %q, error %v, headers %v", a.status, cut(a.body), a.err, a.header)
}

func cut(b []byte) string {
	if len(b) > 300 {
		return fmt.Sprintf("%s... (%d bytes)", b[:300], len(b))
	}
	return string(b)
}

// wire is a client's connection over which one request goes.
type wire struct {
	conn net.Conn
	in   *bufio.Reader
	mu   sync.Mutex
	got  *reply
	done chan struct{}
}

// dial opens a connection to the engine.
func (r *rig) dial() *wire {
	r.t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(r.e.URL(), "http://"))
	if err != nil {
		r.t.Fatal(err)
	}
	w := &wire{conn: c, in: bufio.NewReaderSize(c, 64<<10), got: &reply{}, done: make(chan struct{})}
	r.t.Cleanup(func() { c.Close() })
	return w
}

// headOf is the text of a request's head.
func (r *rig) headOf(q query) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: %s\r\n", q.method, q.target, r.host)
	for _, f := range q.header {
		fmt.Fprintf(&b, "%s: %s\r\n", f[0], f[1])
	}
	switch {
	case q.bare:
	case q.chunks != nil:
		if q.header.get("Transfer-Encoding") == "" {
			b.WriteString("Transfer-Encoding: chunked\r\n")
		}
	case q.body != nil && q.header.get("Content-Length") == "":
		fmt.Fprintf(&b, "Content-Length: %d\r\n", len(q.body))
	}
	b.WriteString("\r\n")
	return b.String()
}

// begin sends a request on a connection of its own and reads the answer in the background.
func (r *rig) begin(q query) *wire {
	r.t.Helper()
	w := r.dial()
	go func() {
		defer close(w.done)
		// An answer may come before everything is sent.
		go w.write(r.headOf(q), q)
		w.read(q.method)
	}()
	return w
}

func (w *wire) write(head string, q query) {
	if q.chunks == nil {
		if _, err := io.WriteString(w.conn, head); err == nil {
			w.conn.Write(q.body)
		}
		return
	}
	io.WriteString(w.conn, head)
	for _, c := range q.chunks {
		fmt.Fprintf(w.conn, "%x\r\n%s\r\n", len(c), c)
		time.Sleep(5 * time.Millisecond) // so that they come apart
	}
	io.WriteString(w.conn, "0\r\n\r\n")
}

// read reads one answer.
func (w *wire) read(method string) {
	a := w.got
	for {
		status, h, err := readStatus(w.in)
		w.mu.Lock()
		a.status, a.header, a.err, a.headAt = status, h, err, time.Now()
		if err == nil && status < 200 && status != 101 {
			a.interim = append(a.interim, status)
			w.mu.Unlock()
			continue
		}
		w.mu.Unlock()
		if err != nil || status == 101 || status == 204 || status == 304 || method == "HEAD" {
			return
		}
		break
	}
	chunked := strings.EqualFold(a.header.get("Transfer-Encoding"), "chunked")
	var err error
	switch length := a.header.get("Content-Length"); {
	case chunked:
		if err = w.readBody(httputil.NewChunkedReader(w.in)); err == nil {
			a.trailer, err = readFields(w.in)
		}
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
	case length != "":
		n, _ := strconv.ParseInt(length, 10, 64)
		limited := &io.LimitedReader{R: w.in, N: n}
		if err = w.readBody(limited); err == nil && limited.N > 0 {
			err = io.ErrUnexpectedEOF
		}
	default:
		err = w.readBody(w.in)
	}
	w.mu.Lock()
	a.err = err
	w.mu.Unlock()
}

func (w *wire) readBody(in io.Reader) error {
	block := make([]byte, 32<<10)
	for {
		n, err := in.Read(block)
		w.mu.Lock()
		if n > 0 {
			w.got.body = append(w.got.body, block[:n]...)
			w.got.reads = append(w.got.reads, stamp{time.Now(), len(w.got.body)})
		}
		w.mu.Unlock()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func readStatus(in *bufio.Reader) (int, header, error) {
	line, err := readLine(in)
	if err != nil {
		return 0, nil, err
	}
	parts := strings.SplitN(line, " ", 3)
	if len(parts) < 2 || !strings.HasPrefix(parts[0], "HTTP/1.") {
		return 0, nil, fmt.Errorf("status line %q", line)
	}
	status, err := strconv.Atoi(parts[1])
	if err != nil {
		return 0, nil, fmt.Errorf("status line %q", line)
	}
	h, err := readFields(in)
	return status, h, err
}

// so far is a copy of the answer as it stands.
func (w *wire) soFar() reply {
	w.mu.Lock()
	defer w.mu.Unlock()
	return *w.got
}

// wait returns the whole answer.
func (w *wire) wait(within time.Duration) reply {
	select {
	case <-w.done:
	case <-time.After(within):
		a := w.soFar()
		a.err = fmt.Errorf("no end of the answer within %v (error so far: %w)", within, a.err)
		w.close()
		return a
	}
	w.close()
	return w.soFar()
}

// waitBody waits until n bytes of the answer's body are there.
func (r *rig) waitBody(w *wire, n int) {
	r.t.Helper()
	r.eventually(10*time.Second, func() error {
		if a := w.soFar(); len(a.body) < n {
			return fmt.Errorf("%d bytes of the answer are there, want %d: %v", len(a.body), n, &a)
		}
		return nil
	})
}

func (w *wire) close() {
	if w.conn != nil {
		w.conn.Close()
	}
}

// reset closes the connection with an RST.
func (w *wire) reset() {
	if tcp, ok := w.conn.(*net.TCPConn); ok {
		tcp.SetLinger(0)
	}
	w.conn.Close()
}

// do sends a request over HTTP/1.1 and reads the whole answer.
func (r *rig) do(q query) reply {
	r.t.Helper()
	return r.begin(q).wait(60 * time.Second)
}

// do2 does the same over HTTP/2.
func (r *rig) do2(ctx context.Context, q query) reply {
	w := &wire{got: &reply{}, done: make(chan struct{})}
	r.read2(ctx, q, w)
	return w.soFar()
}

// begin2 begins a request over HTTP/2; cancel ends it.
func (r *rig) begin2(q query) (w *wire, cancel context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	r.t.Cleanup(cancel)
	w = &wire{got: &reply{}, done: make(chan struct{})}
	go func() {
		defer close(w.done)
		r.read2(ctx, q, w)
	}()
	return w, cancel
}

func (r *rig) read2(ctx context.Context, q query, w *wire) {
	req, err := http.NewRequestWithContext(ctx, q.method, r.e.URLTLS()+q.target, bytes.NewReader(q.body))
	if err != nil {
		w.got.err = err
		return
	}
	req.Host = r.host
	for _, f := range q.header {
		req.Header.Add(f[0], f[1])
	}
	resp, err := r.e.ClientTLS().Do(req)
	w.mu.Lock()
	a := w.got
	a.err, a.headAt = err, time.Now()
	if err == nil {
		a.status, a.resp = resp.StatusCode, resp
		a.header = flat(resp.Header)
	}
	w.mu.Unlock()
	if err != nil {
		return
	}
	defer resp.Body.Close()
	err = w.readBody(resp.Body)
	w.mu.Lock()
	a.err, a.trailer = err, flat(resp.Trailer)
	w.mu.Unlock()
}

func flat(h http.Header) header {
	var out header
	for name, values := range h {
		for _, v := range values {
			out = append(out, [2]string{name, v})
		}
	}
	return out
}
