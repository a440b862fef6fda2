package cart

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"
)

type benchMessage struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

type benchChat struct {
	Model    string         `json:"model"`
	Messages []benchMessage `json:"messages"`
	Stream   bool           `json:"stream"`
}

// chatOf returns a chat of about size bytes in ten turns with escaped quotes; n makes its last turn its own.
func chatOf(size, n int) []byte {
	text := strings.Repeat("The quick brown fox said: \"hello\"\nand went its way. ", size/500+1)[:size/10]
	c := benchChat{Model: "m"}
	for i := 0; i < 9; i++ {
		role := "user"
		if i%2 == 1 {
			role = "assistant"
		}
		c.Messages = append(c.Messages, benchMessage{Role: role, Content: strconv.Itoa(i) + text})
	}
	c.Messages = append(c.Messages, benchMessage{Role: "user", Content: "turn " + strconv.Itoa(n)})
	body, _ := json.Marshal(c)
	return body
}

func benchPool(b testing.TB, replicas int, policy string) (*pool, *handler) {
	b.Helper()
	c := CreateConfig()
	c.Policy = policy
	c.Health.Interval = "0"
	c.Health.Metrics.Interval = "0"
	c.Health.Models.Interval = "0"
	c.MaxLoad = "1000"
	for i := 0; i < replicas; i++ {
		c.Workers = append(c.Workers, WorkerConfig{URL: "http://127.0.0.1:" + strconv.Itoa(10000+i)})
	}
	set, err := validate(c)
	if err != nil {
		b.Fatalf("validate() = %v", err)
	}
	p := newPool("bench", set)
	p.apply(set, "")
	return p, newHandler(p, set, policies[set.policy])
}

func BenchmarkKey(b *testing.B) {
	for _, size := range []int{1 << 10, 32 << 10, 128 << 10, 1 << 20} {
		body := string(chatOf(size, 1))
		b.Run("body="+strconv.Itoa(size), func(b *testing.B) {
			for i := 0; i < b.N; i++ {
				keyOf(endpointChat, body)
			}
		})
	}
}

func BenchmarkDecision(b *testing.B) {
	for _, row := range []struct{ policy, answer string }{
		{policyThreshold, "streamed"}, {policyCost, "streamed"}, {policyCost, "whole"},
	} {
		for _, size := range []int{1 << 10, 32 << 10, 128 << 10} {
			_, h := benchPool(b, 8, row.policy)
			body := string(chatOf(size, 1))
			if row.answer == "streamed" {
				body = strings.Replace(body, `"stream":false`, streamOn, 1)
			}
			b.Run("policy="+row.policy+"/answer="+row.answer+"/body="+strconv.Itoa(size), func(b *testing.B) {
				took := make([]float64, b.N)
				for i := 0; i < b.N; i++ {
					took[i] = float64(decide(h, body))
				}
				sort.Float64s(took)
				b.ReportMetric(took[b.N/2], "p50-ns") // of the decision, without its end
			})
		}
	}
}

// decide makes one decision, the lesson for the tree included, tells how long that took, and ends it well.
func decide(h *handler, body string) time.Duration {
	ex := &exchange{route: h.route, endpoint: endpointChat, body: body, done: make(chan int, 1), cancel: func() {},
		begun: time.Now(), waits: true}
	keyJobs <- ex
	<-ex.done
	took := time.Since(ex.begun)
	ex.attempt = ex.chosen
	ex.answered = true
	ex.result = outcomeSuccess
	ex.op = opEnd
	decideJobs <- ex
	<-ex.done
	return took
}

// BenchmarkReplicas is the decision on growing conversations by the number of replicas, of which each holds the system prompt.
func BenchmarkReplicas(b *testing.B) {
	for _, policy := range []string{policyThreshold, policyCost} {
		for _, replicas := range []int{4, 8, 32, 128, 256} {
			_, h := benchPool(b, replicas, policy)
			bodies := make([]string, 4*replicas)
			for i := range bodies {
				bodies[i] = string(chatOf(8<<10, i))
				decide(h, bodies[i])
			}
			b.Run("policy="+policy+"/replicas="+strconv.Itoa(replicas), func(b *testing.B) {
				for i := 0; i < b.N; i++ {
					decide(h, bodies[i%len(bodies)])
				}
			})
		}
	}
}

// BenchmarkNodes is the decision on known conversations by the size of the tree. A million nodes take minutes to make: they
// are there with FULL=1.
func BenchmarkNodes(b *testing.B) {
	sizes := []int{1e3, 1e4, 1e5}
	if os.Getenv("FULL") != "" {
		sizes = append(sizes, 1e6)
	}
	p, h := benchPool(b, 8, policyThreshold)
	p.tree.maxNodes = 2e6
	p.tree.maxBytes = 4 << 30
	var bodies []string
	n := 0
	for _, size := range sizes {
		for p.tree.nodes < size {
			body := `{"model":"m","messages":[{"role":"user","content":"` + strconv.Itoa(n*7919%1000003) + strings.Repeat(" and so on", 40) + `"}]}`
			decide(h, body)
			if n%101 == 0 {
				bodies = append(bodies, body)
			}
			n++
		}
		b.Run("nodes="+strconv.Itoa(size), func(b *testing.B) {
			for i := 0; i < b.N; i++ {
				decide(h, bodies[i*31%len(bodies)])
			}
		})
	}
}

type benchTransport struct{}

func (benchTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	io.Copy(io.Discard, req.Body)
	return &http.Response{StatusCode: 200, ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{}, Request: req,
		Body: io.NopCloser(strings.NewReader("ok")), ContentLength: 2}, nil
}

// noNetwork returns connections that lead to benchTransport, or to what streams.
func noNetwork(to http.RoundTripper) *http.Transport {
	transport := &http.Transport{}
	transport.RegisterProtocol("http", to)
	return transport
}

type benchStream struct{}

func (benchStream) RoundTrip(req *http.Request) (*http.Response, error) {
	io.Copy(io.Discard, req.Body)
	return &http.Response{StatusCode: 200, ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{"Content-Type": {"text/event-stream"}},
		Request: req, Body: io.NopCloser(strings.NewReader("data: x\n\n")), ContentLength: -1}, nil
}

// benchUsage answers as engines do, with the tokens of the prompt at the end.
type benchUsage struct{ events int }

func (u *benchUsage) RoundTrip(req *http.Request) (*http.Response, error) {
	io.Copy(io.Discard, req.Body)
	text := `{"id":"chatcmpl-1","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"` +
		strings.Repeat("word ", 60) + `"},"finish_reason":"stop"}],` + benchTokens
	res := &http.Response{StatusCode: 200, ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{"Content-Type": {"application/json"}}, Request: req}
	res.ContentLength = int64(len(text))
	var body io.Reader = strings.NewReader(text)
	if u.events > 0 {
		var events []io.Reader
		for i := 0; i < u.events; i++ {
			events = append(events, strings.NewReader(`data: {"id":"chatcmpl-1","object":"chat.completion.chunk","choices":[{"delta":{"content":"word"}}]}`+"\n\n"))
		}
		events = append(events, strings.NewReader(`data: {"id":"chatcmpl-1","choices":[],`+benchTokens+"\n\n"), strings.NewReader("data: [DONE]\n\n"))
		body = io.MultiReader(events...)
		res.ContentLength = -1
		res.Header.Set("Content-Type", "text/event-stream")
	}
	res.Body = io.NopCloser(body)
	return res, nil
}

const benchTokens = `"usage":{"prompt_tokens":260,"total_tokens":320,"completion_tokens":60,"prompt_tokens_details":{"cached_tokens":240}}}`

// BenchmarkExchange is BenchmarkServe with the judgement of the answer: without tokens of the prompt, and with them.
func BenchmarkExchange(b *testing.B) {
	for _, name := range []string{"whole", "stream", "usage", "stream-usage", "long-stream-usage"} {
		var to http.RoundTripper = benchTransport{}
		switch name {
		case "stream":
			to = benchStream{}
		case "usage":
			to = &benchUsage{}
		case "stream-usage":
			to = &benchUsage{events: 10}
		case "long-stream-usage":
			to = &benchUsage{events: 210}
		}
		p, h := benchPool(b, 4, policyThreshold)
		for _, r := range p.replicas {
			setTransport(r, to)
		}
		body := chatOf(1<<10, 1)
		b.Run("answer="+name, func(b *testing.B) {
			for i := 0; i < b.N; i++ {
				req := httptest.NewRequest(http.MethodPost, "/v1/chat/completions", bytes.NewReader(body))
				h.ServeHTTP(httptest.NewRecorder(), req)
			}
		})
	}
}

// setTransport puts an answer in place of the network.
func setTransport(r *replica, to http.RoundTripper) {
	var transport http.RoundTripper = &replicaTransport{transport: noNetwork(to), bulk: noNetwork(to)}
	r.worker.proxy.Transport = transport
}

// BenchmarkDescribe is a request to /workers or /metrics, as far as the pool's lock is held.
func BenchmarkDescribe(b *testing.B) {
	for _, replicas := range []int{8, 256} {
		p, _ := benchPool(b, replicas, policyThreshold)
		b.Run("replicas="+strconv.Itoa(replicas), func(b *testing.B) {
			for i := 0; i < b.N; i++ {
				copyState(p, int64(i))
			}
		})
	}
}

// BenchmarkServe is the whole of ServeHTTP without a network: what CART adds to a request.
func BenchmarkServe(b *testing.B) {
	for _, size := range []int{1 << 10, 32 << 10} {
		p, h := benchPool(b, 4, policyThreshold)
		for _, r := range p.replicas {
			r.worker.proxy.Transport = benchTransport{}
		}
		body := chatOf(size, 1)
		b.Run("body="+strconv.Itoa(size), func(b *testing.B) {
			for i := 0; i < b.N; i++ {
				req := httptest.NewRequest(http.MethodPost, "/v1/chat/completions", bytes.NewReader(body))
				h.ServeHTTP(httptest.NewRecorder(), req)
			}
		})
	}
}
