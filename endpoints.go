package cart

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// workersAnswer is what GET /workers tells. Counts are of this Traefik process, since the pool was made.
type workersAnswer struct {
	Pool    string           `json:"pool"`
	Policy  string           `json:"policy"`
	Usable  int              `json:"usable"`
	Tree    treeAnswer       `json:"tree"`
	Workers []workerAnswer   `json:"workers"`
	Reasons map[string]int64 `json:"reasons"`
	Refused map[string]int64 `json:"refused"`
	Retries int64            `json:"retries"`
	// ClientClosed counts the clients that left before the end of their answer.
	ClientClosed int64 `json:"clientClosed"`
	// Discovery is about the source of the replicas; absent when they are configured.
	Discovery *discoveryAnswer `json:"discovery,omitempty"`
}

type discoveryAnswer struct {
	Source      string   `json:"source"`
	State       string   `json:"state"` // starting, ok or failing: then the replicas are those of lastSuccess
	Error       string   `json:"error"`
	Interval    string   `json:"interval"`
	LastSuccess string   `json:"lastSuccess"` // "" = never
	Leaving     []string `json:"leaving"`     // no longer named; removed if they stay away
	Ignored     []string `json:"ignored"`     // servers that CART cannot use
	Unmatched   []string `json:"unmatched"`   // entries of workers for which there is no replica
}

type treeAnswer struct {
	Nodes int `json:"nodes"`
	// Bytes is what the process takes for the tree, the garbage collector's headroom included.
	Bytes    int   `json:"bytes"`
	MaxNodes int   `json:"maxNodes"`
	MaxBytes int   `json:"maxBytes"`
	Evicted  int64 `json:"evicted"`
}

type workerAnswer struct {
	URL        string `json:"url"`
	Healthy    bool   `json:"healthy"`
	Why        string `json:"why"` // why it is not healthy, or what the last probe said
	Breaker    string `json:"breaker"`
	PushedBack bool   `json:"pushedBack"`
	Draining   bool   `json:"draining"`
	Load       int    `json:"load"`
	MaxLoad    int    `json:"maxLoad"`
	Requests   int64  `json:"requests"` // attempts sent to it
	Hits       int64  `json:"hits"`
	Failures   int64  `json:"failures"`
	Claims     int    `json:"claims"` // characters of prompts it is thought to hold
}

type healthAnswer struct {
	Status string `json:"status"`
	Usable int    `json:"usable"`
}

// serveHealth tells whether there is a usable replica. It asks none.
func serveHealth(p *pool, rw http.ResponseWriter, req *http.Request) {
	now := time.Now().UnixNano()
	p.mu.Lock()
	answer := healthAnswer{Status: "ok", Usable: usableCount(p, now)}
	p.mu.Unlock()
	status := http.StatusOK
	if answer.Usable == 0 {
		answer.Status = "no replica is usable"
		status = http.StatusServiceUnavailable
	}
	writeJSON(rw, req, status, answer)
}

// serveWorkers tells the state of every replica. It asks none.
func serveWorkers(p *pool, rw http.ResponseWriter, req *http.Request) {
	writeJSON(rw, req, http.StatusOK, describe(p, time.Now().UnixNano()))
}

// describe copies the pool's state.
func describe(p *pool, now int64) *workersAnswer {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.tree
	answer := &workersAnswer{
		Pool: p.name, Policy: p.set.policy, Usable: usableCount(p, now), Retries: p.retries, ClientClosed: p.departed,
		Tree: treeAnswer{Nodes: t.nodes, Bytes: withHeadroom(t.bytes), MaxNodes: t.maxNodes, MaxBytes: p.set.maxBytes,
			Evicted: t.evicted},
		Workers: make([]workerAnswer, 0, len(p.replicas)+len(p.draining)),
		Reasons: map[string]int64{}, Refused: map[string]int64{}, Discovery: describeDiscovery(p),
	}
	for why, n := range p.reasons {
		answer.Reasons[why] = n
	}
	for why, n := range p.refused {
		answer.Refused[why] = n
	}
	for _, r := range p.replicas {
		answer.Workers = append(answer.Workers, describeReplica(r, t.claimed[r.id], now))
	}
	for _, r := range p.draining {
		answer.Workers = append(answer.Workers, describeReplica(r, 0, now))
	}
	return answer
}

func describeReplica(r *replica, claims int, now int64) workerAnswer {
	why := r.why
	if r.reported {
		why = "Traefik's own health check says that it is down"
	}
	return workerAnswer{
		URL: r.worker.name, Healthy: r.up, Why: why, Breaker: r.breaker.state.String(),
		PushedBack: r.pushedUntil > now, Draining: r.draining, Load: r.load, MaxLoad: r.worker.maxLoad,
		Requests: r.requests, Hits: r.hits, Failures: r.failures, Claims: claims,
	}
}

// usableCount counts the replicas that would take a request. The caller holds the lock.
func usableCount(p *pool, now int64) int {
	n := 0
	for _, r := range p.replicas {
		if r.usable(now, true) {
			n++
		}
	}
	return n
}

func writeJSON(rw http.ResponseWriter, req *http.Request, status int, answer interface{}) {
	body, err := json.Marshal(answer)
	if err != nil {
		http.Error(rw, "cannot be shown", http.StatusInternalServerError)
		return
	}
	head := rw.Header()
	head.Set("Content-Type", "application/json")
	head.Set("Cache-Control", "no-store")
	head.Set("Content-Length", strconv.Itoa(len(body)))
	rw.WriteHeader(status)
	if req.Method != http.MethodHead {
		rw.Write(body)
	}
}

// modelList is the last good answer to GET /v1/models. It is given again only to who shows the same credentials.
type modelList struct {
	body        []byte
	header      http.Header
	credentials string
	until       time.Time
}

const (
	modelsFresh = 10 * time.Minute
	modelsMost  = 1 << 20 // bytes; a longer list passes but is not kept
)

// serveModels answers GET or HEAD /v1/models from the kept list, if there is a fresh one. turn counts the configurations,
// so that an answer that was asked for under an older one is not kept.
func serveModels(p *pool, rw http.ResponseWriter, req *http.Request) (turn int, served bool) {
	p.mu.Lock()
	kept, turn := p.models, p.modelsTurn
	p.mu.Unlock()
	if kept == nil || kept.credentials != credentials(req) || time.Now().After(kept.until) {
		return turn, false
	}
	head := rw.Header()
	for name, values := range kept.header {
		head[name] = values
	}
	head.Set("Content-Length", strconv.Itoa(len(kept.body)))
	rw.WriteHeader(http.StatusOK)
	if req.Method != http.MethodHead {
		rw.Write(kept.body)
	}
	return turn, true
}

// keepModels keeps a replica's answer to GET /v1/models and lets it pass.
func keepModels(ex *exchange, res *http.Response) error {
	body, err := io.ReadAll(io.LimitReader(res.Body, modelsMost+1))
	if err != nil {
		return err
	}
	if len(body) > modelsMost {
		rest := res.Body
		res.Body = &joinedBody{reader: io.MultiReader(bytes.NewReader(body), rest), body: rest}
		return nil
	}
	res.Body.Close()
	res.Body = io.NopCloser(bytes.NewReader(body))
	control := strings.ToLower(strings.Join(res.Header["Cache-Control"], ","))
	if len(res.Header["Content-Encoding"]) > 0 || len(res.Header["Set-Cookie"]) > 0 || strings.Contains(control, "no-store") ||
		strings.Contains(control, "private") {
		return nil
	}
	kept := &modelList{body: body, credentials: ex.credentials, until: time.Now().Add(modelsFresh)}
	kept.header = res.Header.Clone()
	for _, name := range []string{"Content-Length", "Date", "X-Routed-Peer"} {
		kept.header.Del(name)
	}
	dropHopByHop(kept.header)
	p := ex.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.modelsTurn == ex.modelsTurn {
		p.models = kept
	}
	return nil
}

// joinedBody is a body of which the beginning has been read already.
type joinedBody struct {
	reader io.Reader
	body   io.Closer
}

func (b *joinedBody) Read(p []byte) (int, error) { return b.reader.Read(p) }

func (b *joinedBody) Close() error { return b.body.Close() }

// credentials returns what a request shows to be let in.
func credentials(req *http.Request) string {
	var all []string
	for _, name := range []string{"Authorization", "X-Api-Key", "Api-Key", "Cookie"} {
		all = append(all, strings.Join(req.Header[name], "\n"))
	}
	return strings.Join(all, "\x00")
}
