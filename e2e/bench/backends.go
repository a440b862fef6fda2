package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cart-llm/cart/e2e/process"
)

// backends is how many replicas stand behind the targets. All live in one process that does next to nothing.
const backends = 4

// event is one of a stream's, with the time at which the backend wrote it.
type event struct {
	Sent int64 `json:"sent"` // ns of the Unix epoch
}

// streamEvents is the length of a stream.
const streamEvents = 50

// calls counts the requests of the backends' process by path.
type calls struct {
	mu     sync.Mutex
	byPath map[string]*atomic.Int64
}

// playBackends is the backends' process. Its arguments are a word that all its answers carry, so that an answer of
// another run's backends is told, and the time between two events of a stream.
func playBackends(args []string) error {
	if len(args) != 2 {
		return errors.New("want two arguments: the run's word and the interval of events")
	}
	interval, err := time.ParseDuration(args[1])
	if err != nil {
		return err
	}
	c := &calls{byPath: map[string]*atomic.Int64{}}
	var handlers []http.Handler
	for range backends {
		handlers = append(handlers, backend(args[0], interval, c))
	}
	return serveRole(handlers...)
}

func backend(word string, interval time.Duration, c *calls) http.Handler {
	mux := http.NewServeMux()
	for path, answer := range answers(word) {
		content, n := []byte(answer), c.of(path)
		mux.HandleFunc(path, func(rw http.ResponseWriter, req *http.Request) {
			n.Add(1)
			_, _ = io.Copy(io.Discard, req.Body) // a client that leaves is no concern of ours
			if interval > 0 && req.Method == http.MethodPost {
				serveStream(rw, req, interval)
				return
			}
			rw.Header().Set("Content-Type", "application/json")
			rw.Header().Set("Content-Length", strconv.Itoa(len(content)))
			_, _ = rw.Write(content)
		})
	}
	mux.HandleFunc("/bench-calls", func(rw http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(rw).Encode(c.all()) })
	mux.HandleFunc("/", func(rw http.ResponseWriter, req *http.Request) {
		c.of(req.URL.Path).Add(1)
		_, _ = io.Copy(io.Discard, req.Body)
		http.NotFound(rw, req)
	})
	return mux
}

// answers are what a backend says: to prompts, and to what the routers ask when they start.
func answers(word string) map[string]string {
	const usage = `"usage":{"prompt_tokens":5,"completion_tokens":1,"total_tokens":6}`
	info := `{"model_id":"m1","served_model_name":"m1","is_generation":true}`
	return map[string]string{
		"/v1/chat/completions": `{"id":"` + word + `","object":"chat.completion","created":1,"model":"m1","choices":[{"index":0,` +
			`"message":{"role":"assistant","content":"ok"},"finish_reason":"stop"}],` + usage + `}`,
		"/v1/completions": `{"id":"` + word + `","object":"text_completion","created":1,"model":"m1","choices":[{"index":0,` +
			`"text":"ok","logprobs":null,"finish_reason":"stop"}],` + usage + `}`,
		"/v1/messages": `{"id":"` + word + `","type":"message","role":"assistant","model":"m1","content":[{"type":"text",` +
			`"text":"ok"}],"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":5,"output_tokens":1}}`,
		"/v1/models":       `{"object":"list","data":[{"id":"m1","object":"model","created":1,"owned_by":"bench"}]}`,
		"/health":          `{}`,
		"/get_model_info":  info,
		"/model_info":      info,
		"/get_server_info": info,
		"/server_info":     info,
	}
}

// serveStream writes the events of one stream. The header goes out with the first of them, an interval after the request:
// an answer that begins while a Go proxy still looks for the end of the request's body can be cut off by it.
func serveStream(rw http.ResponseWriter, req *http.Request, interval time.Duration) {
	rw.Header().Set("Content-Type", "text/event-stream")
	out := http.NewResponseController(rw)
	every := time.NewTicker(interval)
	defer every.Stop()
	for range streamEvents {
		select {
		case <-req.Context().Done():
			return
		case <-every.C:
		}
		_, err := fmt.Fprintf(rw, "data: {\"sent\":%d,\"choices\":[{\"delta\":{\"content\":\"word \"}}]}\n\n", time.Now().UnixNano())
		if err != nil || out.Flush() != nil {
			return
		}
	}
	_, _ = io.WriteString(rw, "data: [DONE]\n\n")
}

func (c *calls) of(path string) *atomic.Int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.byPath[path]
	if n == nil {
		n = &atomic.Int64{}
		c.byPath[path] = n
	}
	return n
}

func (c *calls) all() map[string]int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := map[string]int64{}
	for path, n := range c.byPath {
		out[path] = n.Load()
	}
	return out
}

// callsSince asks the backends for their counts and returns what was added to before, and the new counts.
func callsSince(ctx context.Context, p *process.Process, before map[string]int64) (added, now map[string]int64, err error) {
	body, err := process.GetBody(ctx, p.URL()+"/bench-calls")
	if err != nil {
		return nil, nil, err
	}
	if err := json.Unmarshal(body, &now); err != nil {
		return nil, nil, err
	}
	added = map[string]int64{}
	for path, n := range now {
		if d := n - before[path]; d > 0 && strings.HasPrefix(path, "/") {
			added[path] = d
		}
	}
	return added, now, nil
}
