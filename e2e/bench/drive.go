package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/cart-llm/cart/e2e/process"
)

// tally is what came of driving a target.
type tally struct {
	latency  []time.Duration
	failed   int
	firstErr error
	clock    time.Duration
	cpu      time.Duration // of the proxy's process
	resident int64         // of the proxy's process, at the end
}

// drive has a number of clients send one request after another, each on its own connection, for a time.
func drive(ctx context.Context, t *target, w *workload, wantLength, conc int, lasts time.Duration) (*tally, error) {
	transport := newTransport(conc)
	defer transport.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(ctx, lasts+time.Minute)
	defer cancel()
	clients := make([]*client, conc)
	for i := range clients {
		address := t.urls[i%len(t.urls)] + w.shape.path
		clients[i] = &client{transport: transport, target: t, address: address, talk: newTalk(w), want: wantLength}
	}
	// Connections are made before the clock runs.
	together(clients, func(c *client) { _ = c.send(ctx) })
	sum := &tally{}
	cpuBefore, err := cpuOf(t)
	if err != nil {
		return nil, err
	}
	begin := time.Now()
	end := begin.Add(lasts)
	together(clients, func(c *client) { c.work(ctx, end) })
	sum.clock = time.Since(begin)
	cpuAfter, err := cpuOf(t)
	if err != nil {
		return nil, err
	}
	sum.cpu = cpuAfter - cpuBefore
	if t.proc != nil {
		if sum.resident, err = process.Resident(t.proc.Pid); err != nil {
			return nil, err
		}
	}
	for _, c := range clients {
		sum.latency = append(sum.latency, c.latency...)
		sum.failed += c.failed
		if sum.firstErr == nil {
			sum.firstErr = c.firstErr
		}
	}
	return sum, nil
}

func newTransport(conc int) *http.Transport {
	return &http.Transport{
		MaxIdleConnsPerHost: conc, MaxIdleConns: 0, DisableCompression: true, WriteBufferSize: 64 << 10,
		ResponseHeaderTimeout: 30 * time.Second,
	}
}

func cpuOf(t *target) (time.Duration, error) {
	if t.proc == nil {
		return 0, nil
	}
	if err := t.proc.Alive(); err != nil {
		return 0, err
	}
	return process.CPUTime(t.proc.Pid)
}

func together(clients []*client, f func(c *client)) {
	var wg sync.WaitGroup
	for _, c := range clients {
		wg.Add(1)
		go func() {
			defer wg.Done()
			f(c)
		}()
	}
	wg.Wait()
}

// client is one that sends a request when it has the answer to the one before.
type client struct {
	transport *http.Transport
	target    *target
	address   string
	talk      *talk
	want      int // length of an answer
	buffer    [1 << 10]byte

	latency  []time.Duration
	failed   int
	firstErr error
}

func (c *client) work(ctx context.Context, end time.Time) {
	for time.Now().Before(end) && ctx.Err() == nil {
		begin := time.Now()
		err := c.send(ctx)
		if err == nil {
			c.latency = append(c.latency, time.Since(begin))
			continue
		}
		c.failed++
		if c.firstErr == nil {
			c.firstErr = err
		}
		c.talk.forget()
		time.Sleep(time.Millisecond) // a target that refuses at once is not to be asked a million times
	}
}

// send has the next turn of the conversation and checks the answer.
func (c *client) send(ctx context.Context) error {
	body, length := c.talk.next()
	resp, err := post(ctx, c.transport, c.target, c.address, body, length)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	got := 0
	for {
		n, err := resp.Body.Read(c.buffer[:])
		got += n
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
	}
	if resp.StatusCode != http.StatusOK || got != c.want {
		return fmt.Errorf("answer %d of %d bytes, want 200 of %d", resp.StatusCode, got, c.want)
	}
	return nil
}

func post(ctx context.Context, tr *http.Transport, t *target, address string, body io.Reader, length int) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, body)
	if err != nil {
		return nil, err
	}
	req.ContentLength = int64(length)
	req.Host = t.host
	req.Header.Set("Content-Type", "application/json")
	return tr.RoundTrip(req)
}
