package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// crowd is the load: clients that have one conversation after another, each with the system prompt of a tenant.
type crowd struct {
	clients  int
	tenants  int
	turns    int
	system   int           // characters of a tenant's system prompt
	says     int           // characters that a turn adds
	hot      float64       // share of the conversations that are the first tenant's, beyond its fair one
	thinks   time.Duration // at most, before a turn
	volatile bool          // each prompt begins with what no other begins with
	seed     int64
}

// usual is a load under which all is well.
var usual = crowd{clients: 10, tenants: 12, turns: 5, system: 9600, says: 600, thinks: 150 * time.Millisecond, seed: 1}

type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// run goes on until ctx ends and returns how many requests were answered, and how many were not.
func (c *crowd) run(ctx context.Context, address string) (answered, failed int64) {
	var good, bad atomic.Int64
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: c.clients}}
	defer client.CloseIdleConnections()
	var wg sync.WaitGroup
	for i := 0; i < c.clients; i++ {
		rnd := rand.New(rand.NewSource(c.seed + int64(i)))
		wg.Add(1)
		go func() {
			defer wg.Done()
			for n := 0; ctx.Err() == nil; n++ {
				c.converse(ctx, rnd, func(messages []message) bool {
					err := ask(ctx, client, address, messages)
					switch {
					case ctx.Err() != nil:
						return false
					case err != nil:
						bad.Add(1)
						return pause(ctx, 100*time.Millisecond)
					}
					good.Add(1)
					return pause(ctx, time.Duration(rnd.Int63n(int64(c.thinks))))
				})
			}
		}()
	}
	wg.Wait()
	return good.Load(), bad.Load()
}

// converse has the turns of one conversation, as long as say returns true.
func (c *crowd) converse(ctx context.Context, rnd *rand.Rand, say func([]message) bool) {
	tenant := rnd.Intn(c.tenants)
	if rnd.Float64() < c.hot {
		tenant = 0
	}
	system := text(rand.New(rand.NewSource(int64(tenant))), c.system)
	var messages []message
	for turn := 0; turn < c.turns && ctx.Err() == nil; turn++ {
		messages = append(messages, message{"user", text(rnd, c.says)})
		all := append([]message{{"system", system}}, messages...)
		if c.volatile {
			all[0].Content = fmt.Sprintf("It is %s, request %d. %s", time.Now().Format(time.RFC3339Nano), rnd.Int63(), system)
		}
		if !say(all) {
			return
		}
		messages = append(messages, message{"assistant", text(rnd, 80)})
	}
}

// ask sends a chat as a stream and reads it to its end.
func ask(ctx context.Context, client *http.Client, address string, messages []message) error {
	body, err := json.Marshal(map[string]any{"model": "m", "messages": messages, "max_tokens": 12, "stream": true})
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address+"/v1/chat/completions", bytes.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d", resp.StatusCode)
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// text is n characters of words that depend on nothing but rnd.
func text(rnd *rand.Rand, n int) string {
	var b strings.Builder
	for b.Len() < n {
		for k := 2 + rnd.Intn(6); k > 0; k-- {
			b.WriteByte(byte('a' + rnd.Intn(26)))
		}
		b.WriteByte(' ')
	}
	return b.String()[:n]
}
