// Package configs runs configurations as their authors write them, in each form that a provider of the official Traefik
// reads and as `cart migrate` makes them.
package configs

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cart-llm/cart/e2e/replica"
)

// startReplicas returns simulated replicas and their addresses.
func startReplicas(t *testing.T, n int) (all []*replica.Replica, urls []string) {
	t.Helper()
	for i := 0; i < n; i++ {
		one, err := replica.Start(replica.Options{Name: fmt.Sprint("replica ", i)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(one.Kill)
		all = append(all, one)
		urls = append(urls, one.URL())
	}
	return all, urls
}

// client keeps no connection, for each test has servers of its own.
var client = &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

// answer is what came back for a request.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// send asks for a path under a host name.
func send(ctx context.Context, method, address, host string, body []byte) (answer, error) {
	req, err := http.NewRequestWithContext(ctx, method, address, bytes.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	req.Host = host
	resp, err := client.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	content, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, content}, err
}

// chat asks a question with a long prompt that begins like no other chat's of another name.
func chat(t *testing.T, base, host, name string) answer {
	t.Helper()
	body, err := json.Marshal(map[string]any{"model": "sim", "max_tokens": 4, "messages": []map[string]string{
		{"role": "system", "content": strings.Repeat(name+" is what this is about. ", 100)},
		{"role": "user", "content": "What is it about?"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	a, err := send(t.Context(), http.MethodPost, base+"/v1/chat/completions", host, body)
	if err != nil || a.status != http.StatusOK {
		t.Fatalf("POST /v1/chat/completions of %s = %d %.300s, %v, want 200", host, a.status, a.body, err)
	}
	return a
}

// workers is what /workers shows.
type workers struct {
	Policy  string
	Workers []struct {
		URL     string
		MaxLoad int
	}
}

func readWorkers(ctx context.Context, base, host string) (workers, error) {
	var w workers
	a, err := send(ctx, http.MethodGet, base+"/workers", host, nil)
	if err == nil && a.status != http.StatusOK {
		err = fmt.Errorf("GET /workers of %s = %d %.300s, want 200", host, a.status, a.body)
	}
	if err != nil {
		return w, err
	}
	return w, json.Unmarshal(a.body, &w)
}

// has tells whether exactly these replicas are there, in whatever order.
func (w workers) has(urls ...string) error {
	var got []string
	for _, one := range w.Workers {
		got = append(got, one.URL)
	}
	if strings.Join(slices.Sorted(slices.Values(got)), " ") != strings.Join(slices.Sorted(slices.Values(urls)), " ") {
		return fmt.Errorf("/workers has %v, want %v", got, urls)
	}
	return nil
}

// maxLoad is that of a replica.
func (w workers) maxLoad(url string) int {
	for _, one := range w.Workers {
		if one.URL == url {
			return one.MaxLoad
		}
	}
	return 0
}

// eventually calls f until it returns nil, and fails the test when it does not within half a minute. What stops the whole
// machine for a while, test and server alike, counts little.
func eventually(t *testing.T, f func() error) {
	t.Helper()
	const within, most = 30 * time.Second, time.Second // most is what one try counts
	took := time.Duration(0)
	for {
		began := time.Now()
		err := f()
		if err == nil {
			return
		}
		if took > within {
			t.Fatalf("still after %v: %v", within, err)
		}
		time.Sleep(20 * time.Millisecond)
		took += min(most, time.Since(began))
	}
}

// lockedBuffer is written by a process while a test reads it.
type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
