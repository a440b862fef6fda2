package churn

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cart-llm/cart/e2e/replica"
)

var client = &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 64}}

// crowd are clients that send chats, every other one as a stream, until they are stopped.
type crowd struct {
	s          *stage
	done       chan struct{}
	wait       sync.WaitGroup
	sent, lost atomic.Int64
	mu         sync.Mutex // guards losses
	losses     []string
}

func (s *stage) startCrowd(ctx context.Context) *crowd {
	c := &crowd{s: s, done: make(chan struct{})}
	for i := range s.o.Clients {
		c.wait.Add(1)
		go func() {
			defer c.wait.Done()
			c.client(ctx, i)
		}()
	}
	return c
}

func (c *crowd) client(ctx context.Context, i int) {
	for n := 0; ctx.Err() == nil; n++ {
		select {
		case <-c.done:
			return
		default:
		}
		// Some prompts come again, so that replicas which have left are missed.
		_, _, err := c.s.ask(ctx, fmt.Sprintf("client %d, chat %d", i, n%40), n%2 == 0)
		if ctx.Err() != nil {
			return
		}
		c.sent.Add(1)
		if err != nil {
			c.lost.Add(1)
			c.mu.Lock()
			c.losses = append(c.losses, err.Error())
			c.mu.Unlock()
		}
	}
}

// stop ends the clients and reports what they met.
func (c *crowd) stop() {
	close(c.done)
	c.wait.Wait()
	r := &c.s.report
	r.Requests, r.Lost = int(c.sent.Load()), int(c.lost.Load())
	r.Losses = c.losses[:min(5, len(c.losses))]
}

// ask sends a chat and reads the answer to its end.
func (s *stage) ask(ctx context.Context, name string, stream bool) (peer, reason string, err error) {
	body, err := json.Marshal(object{"model": "sim", "max_tokens": 8, "stream": stream, "messages": []object{
		{"role": "system", "content": strings.Repeat(name+". ", 100)}, {"role": "user", "content": "Go on."},
	}})
	if err != nil {
		return "", "", err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.traefik.URL()+"/v1/chat/completions", bytes.NewReader(body))
	if err != nil {
		return "", "", err
	}
	resp, err := client.Do(req)
	if err != nil {
		return "", "", err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	peer = resp.Header.Get("x-routed-peer")
	switch {
	case err != nil:
		return "", "", fmt.Errorf("the answer of %s broke off after %d bytes: %w", peer, len(answer), err)
	case resp.StatusCode != http.StatusOK:
		return "", "", fmt.Errorf("status %d from %q: %.200s", resp.StatusCode, peer, answer)
	case stream && !bytes.Contains(answer, []byte("[DONE]")):
		return "", "", fmt.Errorf("the stream of %s ended early", peer)
	}
	return peer, resp.Header.Get("x-cart-reason"), nil
}

// workers is what /workers says.
type workers struct {
	Workers []struct {
		URL      string
		Load     int
		Healthy  bool
		Draining bool
	}
	Discovery struct{ Leaving []string }
}

func (w *workers) load() (sum int) {
	for _, one := range w.Workers {
		sum += one.Load
	}
	return sum
}

func (w *workers) draining() (n int) {
	for _, one := range w.Workers {
		if one.Draining {
			n++
		}
	}
	return n
}

func (s *stage) workers(ctx context.Context) (*workers, error) {
	text, err := get(ctx, s.traefik.URL()+"/workers")
	if err != nil {
		return nil, err
	}
	var w workers
	return &w, json.Unmarshal(text, &w)
}

// follows returns an error unless CART has exactly these replicas, and all are well.
func (s *stage) follows(ctx context.Context, replicas []*replica.Replica) error {
	w, err := s.workers(ctx)
	if err != nil {
		return err
	}
	var got, want []string
	for _, one := range w.Workers {
		if !one.Draining && one.Healthy {
			got = append(got, one.URL)
		}
	}
	for _, one := range replicas {
		want = append(want, one.URL())
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) || len(w.Discovery.Leaving) > 0 {
		return fmt.Errorf("replicas = %q, leaving %q, want %q", got, w.Discovery.Leaving, want)
	}
	return nil
}

var goroutineTotal = regexp.MustCompile(`goroutine profile: total (\d+)`)

// atRest returns Traefik's goroutines when they are about as few as before, or after half a minute how many there are.
// Without a number before it waits until they stay about the same.
func (s *stage) atRest(ctx context.Context, before int) (now int, err error) {
	const aFew = 3
	for end := time.Now().Add(30 * time.Second); ; {
		// Each idle connection has goroutines there, for a minute and a half.
		client.CloseIdleConnections()
		for _, one := range s.replicas {
			if err := errors.Join(one.SetFault(replica.Fault{Kind: replica.Refuse}), one.SetFault()); err != nil {
				return 0, err
			}
		}
		if err := sleepUntil(ctx, time.Now().Add(200*time.Millisecond)); err != nil {
			return 0, err
		}
		last := now
		if now, err = s.goroutines(ctx); err != nil {
			return 0, err
		}
		same := before == 0 && last > 0 && now >= last-aFew && now <= last+aFew
		if same || before > 0 && now <= before+moreGoroutines || time.Now().After(end) {
			return now, nil
		}
	}
}

func (s *stage) goroutines(ctx context.Context) (int, error) {
	text, err := get(ctx, s.traefik.URLAPI()+"/debug/pprof/goroutine?debug=1")
	if err != nil {
		return 0, err
	}
	found := goroutineTotal.FindSubmatch(text)
	if found == nil {
		return 0, errors.New("no number of goroutines in /debug/pprof/goroutine")
	}
	return strconv.Atoi(string(found[1]))
}

func get(ctx context.Context, url string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("GET %s: %s", url, resp.Status)
	}
	return text, err
}

// until calls f until it returns nil, for at most half a minute.
func (s *stage) until(ctx context.Context, f func() error) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		err := f()
		if err == nil {
			return nil
		}
		if gone := sleepUntil(ctx, time.Now().Add(20*time.Millisecond)); gone != nil {
			return errors.Join(gone, err)
		}
	}
}

func sleepUntil(ctx context.Context, t time.Time) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(time.Until(t)):
		return nil
	}
}
