// Package replica simulates one vLLM server over real HTTP: its endpoints and answers, its prefix cache, its queue and
// its speed, and the ways in which such a server fails. Tests and benches put a router in front of several of them.
//
// What it models: a block cache closed under prefixes with least-recently-used eviction, admission in order of arrival,
// prefill of uncached tokens one sequence at a time at a fixed rate, and decoding at a fixed rate per sequence, or in steps
// with chunks of prompts beside it. What it leaves out: preemption, attention's growth with the length of what was computed
// before, and any meaning of the text. A token is a fixed number of bytes.
package replica

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"syscall"
	"time"

	ports "github.com/cart-llm/cart/e2e/process"
)

// Replica is a simulated server at one address, which it keeps for life. Kill, Close and Restart end and begin processes
// at that address; the recorder and the faults belong to the replica and outlast them. It is safe for concurrent use.
type Replica struct {
	opts    Options
	rec     *recorder
	faults  faults
	control *http.Server // nil without Options.Control

	mu      sync.Mutex
	addr    string       // as bound the first time
	free    func() error // gives the port back that is held while nobody listens; nil = it is not
	process *process     // nil while the replica is down
	ctlAddr string
}

// Start runs a replica until Close or Kill.
func Start(o Options) (*Replica, error) {
	r := &Replica{opts: o.withDefaults(), rec: newRecorder()}
	r.addr = r.opts.Addr
	r.faults.onRefuse = r.refuse
	if err := r.Restart(); err != nil {
		return nil, err
	}
	if r.opts.Control != "" {
		if err := r.startControl(); err != nil {
			return nil, errors.Join(err, r.Close())
		}
	}
	return r, nil
}

// URL is the address as http://host:port, the same for life.
func (r *Replica) URL() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return "http://" + r.addr
}

// ControlURL is the address of the control listener, "" without one.
func (r *Replica) ControlURL() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ctlAddr == "" {
		return ""
	}
	return "http://" + r.ctlAddr
}

// Close shuts the replica down as SIGTERM does a well-behaved server: no new connections, running answers are finished
// (for at most 5 s), requests held by a fault are dropped.
func (r *Replica) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.control != nil {
		_ = r.control.Close() // only this package's own requests are on it
		r.control = nil
	}
	p := r.process
	r.process = nil
	if p == nil {
		return nil
	}
	p.stopListening()
	r.hold()
	return p.close()
}

// Kill ends the replica's process as kill -9 does: the port is closed and every connection is reset. The control
// listener stays.
//
// The port stays the replica's for the life of this process, as it does after Close: whoever got it by chance would answer
// for this one, or be asked by those who still look for it.
func (r *Replica) Kill() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.process != nil {
		r.process.kill()
		r.process = nil
		r.hold()
	}
}

// hold keeps the port from others while nobody listens. The caller holds the lock.
func (r *Replica) hold() {
	if free, err := ports.HoldPort(r.addr); err == nil && r.free == nil {
		r.free = free
	} // otherwise it is no IPv4 address, or another was faster, which listen will tell
}

// listen takes up the port. The caller holds the lock.
func (r *Replica) listen() (net.Listener, error) {
	if r.free != nil {
		_ = r.free()
		r.free = nil
	}
	return listen(r.addr)
}

// Restart begins a new process at the same address, with an empty cache. It is an error if one is running.
func (r *Replica) Restart() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.process != nil {
		return errors.New("replica: already running")
	}
	ln, err := r.listen()
	if err != nil {
		return err
	}
	r.addr = ln.Addr().String()
	r.process = newProcess(r, ln)
	if r.faults.refusing() {
		r.process.stopListening()
		r.hold()
	}
	return nil
}

// ResetCache empties the prefix cache, except for what running sequences hold.
func (r *Replica) ResetCache() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.process != nil {
		r.process.engine.reset()
	}
}

// refuse closes or reopens the listener; it is called when the faults change.
func (r *Replica) refuse(on bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.process == nil:
	case on:
		r.process.stopListening()
		r.hold()
	default:
		ln, err := r.listen()
		if err != nil {
			return err
		}
		r.process.listen(ln)
	}
	return nil
}

// engineGauges is the state of the running process, or zero.
func (r *Replica) engineGauges() gauges {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.process == nil {
		return gauges{}
	}
	return r.process.engine.gauges()
}

// listen waits up to 2 s for a port that is still taken: when a replica comes back, some client's outgoing connection may
// hold its port for a moment.
func listen(addr string) (net.Listener, error) {
	for end := time.Now().Add(2 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		ln, err := net.Listen("tcp", addr)
		if err == nil || !errors.Is(err, syscall.EADDRINUSE) || time.Now().After(end) {
			if err != nil {
				return nil, fmt.Errorf("replica: %w", err)
			}
			return ln, nil
		}
	}
}

func (r *Replica) startControl() error {
	ln, err := listen(r.opts.Control)
	if err != nil {
		return err
	}
	r.mu.Lock()
	r.ctlAddr = ln.Addr().String()
	r.control = &http.Server{Handler: http.HandlerFunc(r.serveSim), ReadHeaderTimeout: time.Minute}
	server := r.control
	r.mu.Unlock()
	go func() { _ = server.Serve(ln) }() // ends with Close
	return nil
}

// drain is how long Close waits for running answers.
const drain = 5 * time.Second

func shutdown(s *http.Server) error {
	ctx, cancel := context.WithTimeout(context.Background(), drain)
	defer cancel()
	return s.Shutdown(ctx)
}
