package cases

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http/httputil"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cart-llm/cart/e2e/process"
)

// mock is a replica that keeps the bytes of what it is sent and answers by script, down to single bytes and resets. It
// speaks HTTP/1.1 by itself, for net/http would tidy up what these cases are about.
type mock struct {
	ln   net.Listener
	addr string

	mu       sync.Mutex
	script   script
	probe    script // answers health probes; nil = 200
	early    script // called before the body is read; it takes over if it writes or closes
	seen     []*exchange
	probes   []*exchange
	conns    map[net.Conn]bool
	closed   bool
	free     func() error // gives up the port, which is held while closed
	live     int          // exchanges under way, probes left out
	peak     int
	accepted int
}

// script answers one request.
type script func(x *exchange)

// header is a list of fields in the order and spelling of the wire.
type header [][2]string

func (h header) values(name string) []string {
	var out []string
	for _, f := range h {
		if strings.EqualFold(f[0], name) {
			out = append(out, f[1])
		}
	}
	return out
}

func (h header) get(name string) string {
	if v := h.values(name); len(v) > 0 {
		return v[0]
	}
	return ""
}

// stamp says when the first end bytes of something had been written or read.
type stamp struct {
	at  time.Time
	end int
}

// exchange is one request and the answer to it.
type exchange struct {
	replica *mock
	method  string
	target  string
	header  header
	trailer header
	body    []byte // as received so far; without the chunk framing
	bodyErr error
	began   time.Time
	gone    chan struct{} // closed when the other side closes while the script runs

	conn   net.Conn
	in     *bufio.Reader
	framed bool // the answer's body is chunked

	mu     sync.Mutex
	sent   []byte // the answer's body, without framing
	writes []stamp
	headAt time.Time
	wrote  bool
	dead   bool // the script has closed the connection
	done   bool
}

func startMock(t testing.TB) *mock {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m := &mock{ln: ln, addr: ln.Addr().String(), conns: map[net.Conn]bool{}}
	go m.accept(ln)
	t.Cleanup(m.stop)
	return m
}

func (m *mock) url() string { return "http://" + m.addr }

func (m *mock) accept(ln net.Listener) {
	for {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		m.mu.Lock()
		if m.closed {
			m.mu.Unlock()
			c.Close()
			continue
		}
		m.conns[c] = true
		m.accepted++
		m.mu.Unlock()
		go m.serve(c)
	}
}

// stop closes the port and all connections. The port stays this mock's, to the end of all tests: they run side by side, and
// another's mock that got it would answer for this one. After its test a pool that is not gone yet may still probe it.
func (m *mock) stop() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return
	}
	m.closed = true
	m.ln.Close()
	if free, err := process.HoldPort(m.addr); err == nil {
		m.free = free
	} // otherwise another was faster, which restart or the test itself will tell
	for c := range m.conns {
		if tcp, ok := c.(*net.TCPConn); ok {
			tcp.SetLinger(0)
		}
		c.Close()
	}
}

// restart opens the port again.
func (m *mock) restart(t testing.TB) {
	t.Helper()
	m.mu.Lock()
	if m.free != nil {
		_ = m.free()
		m.free = nil
	}
	m.mu.Unlock()
	for i := 0; ; i++ {
		ln, err := net.Listen("tcp", m.addr)
		if err == nil {
			m.mu.Lock()
			m.ln, m.closed = ln, false
			m.mu.Unlock()
			go m.accept(ln)
			return
		}
		if i == 200 {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// does sets the script for all requests from now on.
func (m *mock) does(s script) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.script = s
}

// answersProbes sets the script for health probes.
func (m *mock) answersProbes(s script) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.probe = s
}

// doesEarly sets the script that sees a request before its body is read.
func (m *mock) doesEarly(s script) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.early = s
}

// requests returns what it was sent, probes left out.
func (m *mock) requests() []*exchange {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]*exchange(nil), m.seen...)
}

// probed returns the probes it was sent.
func (m *mock) probed() []*exchange {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]*exchange(nil), m.probes...)
}

func (m *mock) forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.seen, m.probes, m.peak = nil, nil, m.live
}

// isProbe tells a request of the router's own from one that it passes on, which always says for whom.
func isProbe(x *exchange) bool {
	return x.method == "GET" && x.header.get("X-Forwarded-For") == ""
}

func (m *mock) serve(c net.Conn) {
	defer func() {
		c.Close()
		m.mu.Lock()
		delete(m.conns, c)
		m.mu.Unlock()
	}()
	in := bufio.NewReaderSize(c, 64<<10)
	for m.serveOne(c, in) {
	}
}

// serveOne takes one request and says whether the connection can take another.
func (m *mock) serveOne(c net.Conn, in *bufio.Reader) bool {
	x := &exchange{replica: m, conn: c, in: in, gone: make(chan struct{})}
	var err error
	if x.method, x.target, x.header, err = readHead(in); err != nil {
		return false
	}
	x.began = time.Now()
	m.mu.Lock()
	s, early, probe := m.script, m.early, isProbe(x)
	if probe {
		s, early = m.probe, nil
		m.probes = append(m.probes, x)
	} else {
		m.seen = append(m.seen, x)
		m.live++
		m.peak = max(m.peak, m.live)
	}
	m.mu.Unlock()
	if s == nil {
		s = func(x *exchange) { x.json(200, `{"ok":true}`) }
	}
	defer func() {
		x.mu.Lock()
		x.done = true
		x.mu.Unlock()
		if !probe {
			m.mu.Lock()
			m.live--
			m.mu.Unlock()
		}
	}()
	if early != nil {
		if early(x); x.wrote || x.dead {
			return false
		}
	}
	if x.header.get("Expect") != "" {
		io.WriteString(c, "HTTP/1.1 100 Continue\r\n\r\n")
	}
	if err := x.readBody(); err != nil {
		x.mu.Lock()
		x.bodyErr = err
		x.mu.Unlock()
		return false
	}
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		if _, err := in.Peek(1); err != nil {
			close(x.gone)
		}
	}()
	s(x)
	if x.dead {
		c.Close()
	}
	<-watched
	return !x.dead
}

// readBody reads what the head announces.
func (x *exchange) readBody() error {
	if x.chunked() {
		var err error
		if err = x.readInto(httputil.NewChunkedReader(x.in)); err == nil {
			x.trailer, err = readFields(x.in)
		}
		return err
	}
	n, _ := strconv.ParseInt(x.header.get("Content-Length"), 10, 64)
	limited := &io.LimitedReader{R: x.in, N: n - int64(len(x.body))}
	if err := x.readInto(limited); err != nil {
		return err
	}
	if limited.N > 0 {
		return io.ErrUnexpectedEOF
	}
	return nil
}

func (x *exchange) readInto(r io.Reader) error {
	block := make([]byte, 64<<10)
	for {
		n, err := r.Read(block)
		x.mu.Lock()
		x.body = append(x.body, block[:n]...)
		x.mu.Unlock()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (x *exchange) chunked() bool { return x.header.get("Transfer-Encoding") != "" }

// received returns the request's body as far as it has come.
func (x *exchange) received() []byte {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.body
}

// raw writes bytes as they are.
func (x *exchange) raw(text string) {
	x.wrote = true
	if _, err := io.WriteString(x.conn, text); err != nil {
		x.dead = true
	}
}

func headText(status int, h header) string {
	var b strings.Builder
	fmt.Fprintf(&b, "HTTP/1.1 %d Status\r\n", status)
	for _, f := range h {
		fmt.Fprintf(&b, "%s: %s\r\n", f[0], f[1])
	}
	return b.String()
}

// answer sends a whole answer with its length.
func (x *exchange) answer(status int, h header, body string) {
	x.mu.Lock()
	x.headAt = time.Now()
	x.sent = append(x.sent, body...)
	x.writes = append(x.writes, stamp{time.Now(), len(x.sent)})
	x.mu.Unlock()
	head := headText(status, h)
	if status != 204 && status != 304 {
		head += fmt.Sprintf("Content-Length: %d\r\n", len(body))
	}
	if x.method == "HEAD" || status == 204 || status == 304 {
		body = ""
	}
	x.raw(head + "\r\n" + body)
}

func (x *exchange) json(status int, body string) {
	x.answer(status, header{{"Content-Type", "application/json"}}, body)
}

// open begins an answer whose body comes in chunks.
func (x *exchange) open(status int, h header) {
	x.framed = true
	x.mu.Lock()
	x.headAt = time.Now()
	x.mu.Unlock()
	x.raw(headText(status, h) + "Transfer-Encoding: chunked\r\n\r\n")
}

// events begins an event stream.
func (x *exchange) events() { x.open(200, header{{"Content-Type", "text/event-stream"}}) }

// chunk sends a piece of a body that was begun by open, or of one without chunks that was begun by raw.
func (x *exchange) chunk(text string) bool {
	x.mu.Lock()
	x.sent = append(x.sent, text...)
	x.writes = append(x.writes, stamp{time.Now(), len(x.sent)})
	x.mu.Unlock()
	if x.framed {
		text = fmt.Sprintf("%x\r\n%s\r\n", len(text), text)
	}
	x.raw(text)
	return !x.dead
}

// end ends a body of chunks.
func (x *exchange) end(trailer ...[2]string) {
	text := "0\r\n"
	for _, f := range trailer {
		text += f[0] + ": " + f[1] + "\r\n"
	}
	x.raw(text + "\r\n")
}

// close closes the connection as an orderly process does.
func (x *exchange) close() {
	x.dead = true
	x.conn.Close()
}

// reset closes it with an RST.
func (x *exchange) reset() {
	if tcp, ok := x.conn.(*net.TCPConn); ok {
		tcp.SetLinger(0)
	}
	x.close()
}

// wait waits and says whether the other side is still there.
func (x *exchange) wait(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-x.gone:
		x.dead = true
		return false
	}
}

// until waits for a channel or the other side's leaving.
func (x *exchange) until(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	case <-x.gone:
		x.dead = true
		return false
	}
}

// readHead reads the head of a request.
func readHead(in *bufio.Reader) (method, target string, h header, err error) {
	line, err := readLine(in)
	if err != nil {
		return "", "", nil, err
	}
	parts := strings.SplitN(line, " ", 3)
	if len(parts) != 3 {
		return "", "", nil, fmt.Errorf("request line %q", line)
	}
	h, err = readFields(in)
	return parts[0], parts[1], h, err
}

// readFields reads header fields up to the blank line.
func readFields(in *bufio.Reader) (header, error) {
	var h header
	for {
		line, err := readLine(in)
		if err != nil || line == "" {
			return h, err
		}
		name, value, ok := strings.Cut(line, ":")
		if !ok {
			return h, fmt.Errorf("header line %q", line)
		}
		h = append(h, [2]string{name, strings.TrimSpace(value)})
	}
}

func readLine(in *bufio.Reader) (string, error) {
	line, err := in.ReadBytes('\n')
	if err != nil {
		return "", err
	}
	return string(bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r"))), nil
}
