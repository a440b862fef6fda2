package replica

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"time"
)

// process is one life of a replica, from its start to Close or Kill.
type process struct {
	r         *Replica
	opts      Options
	engine    *engine
	endpoints map[string]endpoint
	adapters  adapters
	started   time.Time
	server    *http.Server
	ending    chan struct{} // closed when the process is told to end; lets go of requests that a fault holds

	mu     sync.Mutex
	ln     net.Listener // nil while connections are refused
	conns  map[*conn]struct{}
	killed bool
}

func newProcess(r *Replica, ln net.Listener) *process {
	p := &process{
		r: r, opts: r.opts, engine: newEngine(r.opts), started: time.Now(),
		ending: make(chan struct{}), conns: map[*conn]struct{}{},
	}
	p.endpoints = p.table()
	p.server = &http.Server{
		Handler:           http.HandlerFunc(p.serve),
		ReadHeaderTimeout: time.Minute,
		ErrorLog:          log.New(io.Discard, "", 0), // resets on command are no news
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, c)
		},
	}
	p.listen(ln)
	return p
}

func (p *process) listen(ln net.Listener) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ln != nil {
		_ = ln.Close()
		return
	}
	p.ln = ln
	p.server.SetKeepAlivesEnabled(true)
	go func() { _ = p.server.Serve(&listener{ln, p}) }() // ends with its listener
}

// stopListening refuses new connections and closes idle ones; running exchanges go on.
func (p *process) stopListening() {
	p.mu.Lock()
	if p.ln != nil {
		_ = p.ln.Close()
		p.ln = nil
	}
	p.mu.Unlock()
	// Not under the lock: this closes idle connections, which take it.
	p.server.SetKeepAlivesEnabled(false)
}

func (p *process) close() error {
	close(p.ending)
	err := shutdown(p.server)
	if errors.Is(err, context.DeadlineExceeded) {
		err = p.server.Close()
	}
	if errors.Is(err, net.ErrClosed) {
		err = nil // stopListening was before
	}
	for _, c := range p.open() {
		_ = c.Close() // upgraded connections are not the server's any more
	}
	return err
}

func (p *process) kill() {
	p.mu.Lock()
	p.killed = true
	if p.ln != nil {
		_ = p.ln.Close()
	}
	p.mu.Unlock()
	for _, c := range p.open() {
		c.reset()
	}
	close(p.ending)
	_ = p.server.Close()
}

func (p *process) isKilled() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.killed
}

func (p *process) open() []*conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []*conn
	for c := range p.conns {
		all = append(all, c)
	}
	return all
}

// listener hands out connections the process knows of, so that it can reset them.
type listener struct {
	net.Listener
	p *process
}

func (l *listener) Accept() (net.Conn, error) {
	raw, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: raw, p: l.p}
	l.p.mu.Lock()
	l.p.conns[c] = struct{}{}
	killed := l.p.killed
	l.p.mu.Unlock()
	if killed { // it was accepted while the process died
		c.reset()
	}
	return c, nil
}

type conn struct {
	net.Conn
	p *process
}

type connKey struct{}

func (c *conn) Close() error {
	c.p.mu.Lock()
	delete(c.p.conns, c)
	c.p.mu.Unlock()
	return c.Conn.Close()
}

// reset closes the connection with a TCP reset in place of an orderly end.
func (c *conn) reset() {
	if tcp, ok := c.Conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}

// resetConn resets the connection of a request and ends its handler.
func resetConn(r *http.Request) {
	if c, ok := r.Context().Value(connKey{}).(*conn); ok {
		c.reset()
	}
	panic(http.ErrAbortHandler)
}
