package replica

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"sync"
	"time"
)

// Bounds of the recorder.
const (
	maxExchanges = 4096
	maxBody      = 1 << 20  // a longer body is kept as its hash only
	maxBodies    = 64 << 20 // all kept bodies together; the oldest go first
)

// Exchange is one request as the replica saw it.
type Exchange struct {
	Method string
	Target string // request target as received, undecoded
	Proto  string
	Host   string
	Header http.Header // without Host, which Go takes out

	ContentLength int64 // as declared, -1 if unknown
	Chunked       bool  // the body came in chunks
	BodyBytes     int64
	BodySHA256    string // in hex
	Body          []byte // nil if it is 1 MiB or longer, or dropped to bound memory
	Trailer       http.Header

	Start, End   time.Time // End is zero while the exchange runs
	Status       int       // 0 if the headers of an answer were never written
	Aborted      bool      // the client went away before the end
	PromptTokens int
	CachedTokens int
	AnswerTokens int
}

// Stats are totals since the replica was first started; restarts do not reset them.
type Stats struct {
	Name            string `json:"name"`
	Requests        int64  `json:"requests"` // generation requests and embeddings, finished or not
	PromptTokens    int64  `json:"promptTokens"`
	CachedTokens    int64  `json:"cachedTokens"`
	GeneratedTokens int64  `json:"generatedTokens"`
	Aborted         int64  `json:"aborted"` // requests whose client went away
	Running         int    `json:"running"` // requests in flight, queued ones included
	Peak            int    `json:"peak"`    // the most there ever were
	Decoding        int    `json:"decoding"`
	Waiting         int    `json:"waiting"`
}

// recorder remembers recent exchanges, within bounds.
type recorder struct {
	mu     sync.Mutex
	recent []*Exchange // oldest first
	bodies int         // bytes of their bodies
	stats  Stats
}

func newRecorder() *recorder { return &recorder{} }

// Requests returns copies of the recent exchanges, oldest first, without those of /_sim. Their maps and bodies are shared
// and must not be changed.
func (r *Replica) Requests() []Exchange {
	r.rec.mu.Lock()
	defer r.rec.mu.Unlock()
	out := make([]Exchange, 0, len(r.rec.recent))
	for _, x := range r.rec.recent {
		out = append(out, *x)
	}
	return out
}

// Stats returns the totals.
func (r *Replica) Stats() Stats {
	g := r.engineGauges()
	r.rec.mu.Lock()
	defer r.rec.mu.Unlock()
	s := r.rec.stats
	s.Name, s.Decoding, s.Waiting = r.opts.Name, g.Running, g.Waiting
	return s
}

// Aborted is the number of requests whose client went away.
func (r *Replica) Aborted() int64 { return r.Stats().Aborted }

// Running is the number of requests in flight, queued ones included.
func (r *Replica) Running() int { return r.Stats().Running }

// Peak is the largest number of requests that were in flight at once.
func (r *Replica) Peak() int { return r.Stats().Peak }

// begin records a request; load tells whether it counts as one of generation.
func (c *recorder) begin(r *http.Request, load bool) *Exchange {
	x := &Exchange{
		Method: r.Method, Target: r.RequestURI, Proto: r.Proto, Host: r.Host, Header: r.Header.Clone(),
		ContentLength: r.ContentLength, Chunked: len(r.TransferEncoding) > 0, Start: time.Now(),
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.recent = append(c.recent, x)
	if len(c.recent) > maxExchanges {
		c.forgetLocked(maxExchanges / 8)
	}
	if load {
		c.stats.Requests++
		c.stats.Running++
		c.stats.Peak = max(c.stats.Peak, c.stats.Running)
	}
	return x
}

// forgetLocked drops the n oldest exchanges.
func (c *recorder) forgetLocked(n int) {
	for _, x := range c.recent[:n] {
		c.bodies -= len(x.Body)
		x.Body = nil
	}
	c.recent = append([]*Exchange(nil), c.recent[n:]...)
}

// body adds what was read of the request's body.
func (c *recorder) body(x *Exchange, body []byte, trailer http.Header) {
	sum := sha256.Sum256(body)
	c.mu.Lock()
	defer c.mu.Unlock()
	x.BodyBytes, x.BodySHA256, x.Trailer = int64(len(body)), hex.EncodeToString(sum[:]), trailer
	if len(body) >= maxBody {
		return
	}
	x.Body = body
	c.bodies += len(body)
	for i := 0; c.bodies > maxBodies && i < len(c.recent); i++ {
		c.bodies -= len(c.recent[i].Body)
		c.recent[i].Body = nil
	}
}

func (c *recorder) tokens(x *Exchange, results []result) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range results {
		x.PromptTokens += r.usage.prompt
		x.CachedTokens += r.usage.cached
		x.AnswerTokens += r.usage.answer
	}
	c.stats.PromptTokens += int64(x.PromptTokens)
	c.stats.CachedTokens += int64(x.CachedTokens)
	c.stats.GeneratedTokens += int64(x.AnswerTokens)
}

func (c *recorder) end(x *Exchange, load bool, status int, aborted bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	x.End, x.Status, x.Aborted = time.Now(), status, aborted
	if load {
		c.stats.Running--
		if aborted {
			c.stats.Aborted++
		}
	}
}
