package cart

import (
	"bytes"
	"encoding/json"
	"io"
	"math"
	"net/http"
	"path"
	"strconv"
	"strings"
	"time"
)

// workersAnswer is what GET /workers tells. Counts are of this Traefik process, since the pool was made.
type workersAnswer struct {
	Pool       string           `json:"pool"`
	Now        float64          `json:"now"` // seconds of the Unix epoch
	Policy     string           `json:"policy"`
	Thresholds thresholdsAnswer `json:"thresholds"`
	Usable     int              `json:"usable"`
	Tree       treeAnswer       `json:"tree"`
	Workers    []workerAnswer   `json:"workers"`
	Reasons    map[string]int64 `json:"reasons"`
	Refused    map[string]int64 `json:"refused"`
	Retries    int64            `json:"retries"`
	// ClientClosed counts the clients that left before the end of their answer.
	ClientClosed int64            `json:"clientClosed"`
	Decisions    histogramAnswer  `json:"decisionSeconds"`
	Known        histogramAnswer  `json:"knownRatio"`
	Characters   charactersAnswer `json:"characters"`
	// PerToken is how many characters of prompts make a token, as learnt from answers that tell of tokens.
	PerToken      float64          `json:"charactersPerToken"`
	LastDecisions []decisionAnswer `json:"lastDecisions"` // newest first
	LinesDropped  droppedAnswer    `json:"logLinesDropped"`
	// Discovery is about the source of the replicas; absent when they are configured.
	Discovery *discoveryAnswer `json:"discovery,omitempty"`
	// Shadow is there only while the policy watches.
	Shadow *shadowAnswer `json:"shadow,omitempty"`
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

// thresholdsAnswer is what the policy goes by.
type thresholdsAnswer struct {
	Threshold           float64 `json:"threshold"`
	MatchAbsThreshold   int     `json:"matchAbsThreshold"`
	BalanceAbsThreshold int     `json:"balanceAbsThreshold"`
	BalanceRelThreshold float64 `json:"balanceRelThreshold"`
}

// charactersAnswer is characters on the wire.
type charactersAnswer struct {
	Prompt  int64 `json:"prompt"`
	Known   int64 `json:"known"`
	Matched int64 `json:"matched"`
}

// decisionAnswer is one of the latest decisions. It tells nothing of the prompt but its length.
type decisionAnswer struct {
	At      float64 `json:"at"` // seconds of the Unix epoch
	Reason  string  `json:"reason"`
	Replica string  `json:"replica"`
	Load    int     `json:"load"`
	Matched int     `json:"matched"`
	Total   int     `json:"total"`
}

type droppedAnswer struct {
	Debug int64 `json:"debug"`
	Warn  int64 `json:"warn"`
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

	Since           float64          `json:"since"` // when it came, or went up or down last; seconds of the Unix epoch
	Downs           int64            `json:"downs"` // how often the health probe took it out
	BreakerOpenings int64            `json:"breakerOpenings"`
	LoadPenalty     int              `json:"loadPenalty"`
	Reasons         map[string]int64 `json:"reasons"` // of the requests
	FirstByte       firstByteAnswer  `json:"firstByteSeconds"`

	// Waiting counts the requests whose answers have not begun, Queue the characters of their prompts that are not known there:
	// with the policy cost only.
	Waiting     int   `json:"waiting"`
	Queue       int   `json:"queue"`
	CacheTokens int64 `json:"cacheTokens"` // that its cache is taken to hold of what this process sends; 0 = unknown
	Shadowed    int64 `json:"shadowed"`    // requests that the policy would have sent to it while it only watched

	// What the replica tells of itself: 0 and null = unknown.
	ToldTokens   int64        `json:"reportedCacheTokens"` // that its prefix cache holds
	Models       []string     `json:"models"`              // that it lists, the first hundred of them
	CachedTokens cachedAnswer `json:"cachedTokens"`
	Restarts     int64        `json:"restarts"`    // seen in its metrics; each drops its claims
	CacheResets  int64        `json:"cacheResets"` // asked for through CART; likewise
}

// cachedAnswer is in tokens, over the answers that told how many of their prompt's were cached.
type cachedAnswer struct {
	Answers   int64 `json:"answers"`
	Prompt    int64 `json:"prompt"`
	Predicted int64 `json:"predicted"`
	Actual    int64 `json:"actual"`
}

// firstByteAnswer is how long good answers to routed requests took to begin: of hits, and of all others.
type firstByteAnswer struct {
	Hit   histogramAnswer `json:"hit"`
	Other histogramAnswer `json:"other"`
}

type healthAnswer struct {
	Status string `json:"status"`
	Usable int    `json:"usable"`
}

// endpoints reads the paths of CART's own answers, which have to differ.
func (v *validator) endpoints(s *settings, c *EndpointsConfig) {
	v.unknown("endpoints.", c.Unknown)
	s.healthPath = v.ownPath("endpoints.health", c.Health)
	s.workersPath = v.ownPath("endpoints.workers", c.Workers)
	s.metricsPath = v.ownPath("endpoints.metrics", c.Metrics)
	s.explain = v.boolean("endpoints.explain", c.Explain)
	if s.workersPath != "" && s.workersPath == s.healthPath {
		v.fail("endpoints.workers", c.Workers, "a path that differs from endpoints.health")
	}
	if s.metricsPath != "" && (s.metricsPath == s.healthPath || s.metricsPath == s.workersPath) {
		v.fail("endpoints.metrics", c.Metrics, "a path that differs from endpoints.health and endpoints.workers")
	}
}

// ownPath reads the path of one of CART's own answers. Requests are compared with it letter by letter, in the form that they
// have after Traefik cleaned and decoded them: any other form would be an answer that nobody can ever get.
func (v *validator) ownPath(key, value string) string {
	faults := len(v.faults)
	out := v.path(key, value, true)
	clean := path.Clean(out)
	if clean != "/" && strings.HasSuffix(out, "/") {
		clean += "/"
	}
	if out != "" && len(v.faults) == faults && (strings.ContainsAny(out, "?#%") || out != clean) {
		v.fail(key, out, "a path such as /health, without ?, #, %, // and dots")
	}
	return out
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

// serveWorkers tells the state of every replica, a browser by a page. It asks none.
func serveWorkers(p *pool, rw http.ResponseWriter, req *http.Request) {
	if wantsPage(req) {
		servePage(rw, req)
		return
	}
	rw.Header().Set("Vary", "Accept")
	writeJSON(rw, req, http.StatusOK, describe(p, time.Now().UnixNano()))
}

// describe tells the pool's state.
func describe(p *pool, now int64) *workersAnswer {
	answer := copyState(p, now)
	answer.Decisions.total()
	answer.Known.total()
	for i := range answer.Workers {
		one := &answer.Workers[i]
		one.FirstByte.Hit.total()
		one.FirstByte.Other.total()
		for why, n := range one.Reasons {
			one.Requests += n
			answer.Reasons[why] += n
		}
	}
	return answer
}

// describedAtOnce is how many replicas are copied before the lock is given up for a moment, so that no request waits long.
const describedAtOnce = 16

// copyState copies the pool's state under its lock, and leaves to describe what does not need it.
func copyState(p *pool, now int64) *workersAnswer {
	answer, listed := copyPool(p, now)
	for from := 0; from < len(listed); from += describedAtOnce {
		to := from + describedAtOnce
		if to > len(listed) {
			to = len(listed)
		}
		copyReplicas(p, answer, listed[from:to], now)
	}
	return answer
}

func copyPool(p *pool, now int64) (answer *workersAnswer, listed []*replica) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t, set, n := p.tree, p.set, p.prompts
	answer = &workersAnswer{
		Pool: p.name, Now: float64(now) / 1e9, Policy: set.policy, Usable: usableCount(p, now), Retries: p.retries,
		ClientClosed: p.departed,
		Thresholds:   thresholdsOf(set),
		Tree: treeAnswer{Nodes: t.nodes, Bytes: withHeadroom(t.bytes), MaxNodes: t.maxNodes, MaxBytes: set.maxBytes,
			Evicted: t.evicted},
		Workers:       make([]workerAnswer, 0, len(p.replicas)+len(p.draining)),
		Reasons:       copyCounts(p.reasons),
		Refused:       copyCounts(p.refused),
		Decisions:     p.deciding.answer(decisionSeconds),
		Known:         n.answer(),
		Characters:    charactersAnswer{Prompt: n.characters, Known: n.known, Matched: n.matched},
		PerToken:      p.charactersPerToken(),
		LastDecisions: lastAnswers(p),
		Shadow:        p.shadow.answer(set),
		Discovery:     describeDiscovery(p),
	}
	answer.LinesDropped.Debug, answer.LinesDropped.Warn = p.log.lost()
	listed = append(append([]*replica(nil), p.replicas...), p.draining...)
	return answer, listed
}

func copyReplicas(p *pool, answer *workersAnswer, some []*replica, now int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range some {
		claims := 0
		if !r.draining {
			claims = p.tree.claimed[r.id]
		}
		one := describeReplica(r, claims, now)
		one.CacheTokens = int64(math.Round(float64(r.age.room) / p.charactersPerToken()))
		answer.Workers = append(answer.Workers, one)
	}
}

func thresholdsOf(set *settings) thresholdsAnswer {
	return thresholdsAnswer{Threshold: set.threshold, MatchAbsThreshold: set.matchAbs, BalanceAbsThreshold: set.balanceAbs,
		BalanceRelThreshold: set.balanceRel}
}

func describeReplica(r *replica, claims int, now int64) workerAnswer {
	why := r.why
	if r.reported {
		why = "Traefik's own health check says that it is down"
	}
	if room := r.age.room; room > 0 && int64(claims) > room {
		claims = int(room) // the rest has faded
	}
	return workerAnswer{
		URL: r.worker.name, Healthy: r.up, Why: why, Breaker: r.breaker.state.String(),
		PushedBack: r.pushedUntil > now, Draining: r.draining, Load: r.load, MaxLoad: r.worker.maxLoad,
		Hits: r.reasons[reasonHit], Failures: r.failures, Claims: claims,
		Since: float64(r.since.UnixNano()) / 1e9, Downs: r.downs, BreakerOpenings: r.breaker.opened,
		LoadPenalty: r.worker.loadPenalty, Reasons: copyCounts(r.reasons),
		FirstByte: firstByteAnswer{Hit: r.hitFirst.answer(firstByteSeconds), Other: r.first.answer(firstByteSeconds)},
		Waiting:   r.waiting + r.whole.count, Queue: r.queue + r.whole.left(now),
		Shadowed:   r.shadowed,
		ToldTokens: r.engine.told.tokens, Models: r.modelNames(), Restarts: r.engine.restarts, CacheResets: r.engine.resets,
		CachedTokens: cachedAnswer{Answers: r.cached.answers, Prompt: r.cached.prompt, Predicted: r.cached.predicted,
			Actual: r.cached.actual},
	}
}

// lastAnswers describes the latest decisions, newest first, but for those that led to a replica that is gone. The caller holds
// the lock.
func lastAnswers(p *pool) []decisionAnswer {
	out := []decisionAnswer{}
	for n := p.decided; n > p.decided-lastDecisions && n > 0; n-- {
		a := p.last[n%lastDecisions]
		if a.replica.draining && a.replica.load == 0 {
			continue
		}
		out = append(out, decisionAnswer{At: float64(a.at) / 1e9, Reason: a.why, Replica: a.worker.name, Load: a.load,
			Matched: a.matched, Total: a.total})
	}
	return out
}

func copyCounts(counts map[string]int64) map[string]int64 {
	out := map[string]int64{}
	for why, n := range counts {
		out[why] = n
	}
	return out
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
