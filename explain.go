package cart

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// explainAnswer is what POST /workers?explain=PATH tells: where a request with that path and body would go now, and why.
// Nothing is sent, and the tree learns nothing.
type explainAnswer struct {
	Path    string `json:"path"`
	Replica string `json:"replica"` // where it would go; "" = it would be refused
	Reason  string `json:"reason"`  // as in x-cart-reason; "" = it would be refused
	Refusal string `json:"refusal"` // why it would be refused; "" = it would not
	Because string `json:"because"` // the same in words, with the numbers it was decided by
	Policy  string `json:"policy"`
	// Model and salt separate prompts: what was learned for one is not known for another.
	Model      string           `json:"model"`
	Salted     bool             `json:"salted"`
	Characters int              `json:"characters"` // of the prompt
	Known      int              `json:"known"`      // of these, on the candidate that knows most
	Thresholds thresholdsAnswer `json:"thresholds"`
	Replicas   []explainReplica `json:"replicas"`
}

// explainReplica is a replica as the decision saw it.
type explainReplica struct {
	URL         string  `json:"url"`
	Candidate   bool    `json:"candidate"`
	Why         string  `json:"why"` // why it is no candidate, or why it is second choice
	Load        int     `json:"load"`
	MaxLoad     int     `json:"maxLoad"`
	LoadPenalty int     `json:"loadPenalty"`
	Matched     int     `json:"matched"` // characters of the prompt that it is thought to hold
	Ratio       float64 `json:"ratio"`
	// Queue and Cost are there with the policy cost, of candidates: characters to compute before, and what the policy compares.
	Queue *int `json:"queue,omitempty"`
	Cost  *int `json:"cost,omitempty"`
}

// asksToExplain says whether a POST asks where its body would go.
func asksToExplain(req *http.Request, set *settings) bool {
	return set.workersPath != "" && req.URL.Path == set.workersPath && strings.Contains(req.URL.RawQuery, "explain") &&
		req.URL.Query().Has("explain")
}

// serveExplain answers POST /workers?explain=PATH.
func serveExplain(ex *exchange) {
	rw, req, set := ex.rw, ex.req, ex.set
	path := req.URL.Query().Get("explain")
	if path == "" || path == "1" || path == "true" {
		path = "/v1/chat/completions"
	}
	if !set.explain {
		explainFailed(rw, req, http.StatusForbidden, "this is off: endpoints.explain has to be true")
		return
	}
	if !strings.HasPrefix(path, "/") {
		explainFailed(rw, req, http.StatusBadRequest,
			"explain has to be the path of the request, such as /v1/chat/completions, or 1 for that one")
		return
	}
	answer := &explainAnswer{Path: path, Policy: set.policy, Thresholds: thresholdsOf(set), Replicas: []explainReplica{}}
	failed := readUpTo(ex, set.maxBody)
	ex.body = ex.text.String()
	ex.long = len(ex.body) > keptLength
	if failed == nil && set.mediaStatus > 0 {
		failed = inspectMedia(req, ex.body, set.mediaStatus)
	}
	if failed != nil {
		answer.Refusal = failed.why
		answer.Because = failed.message
		writeJSON(rw, req, http.StatusOK, answer)
		return
	}
	ex.endpoint = routedPaths[path]
	ex.explained = answer
	ex.req = nil // nothing is sent, so no request to a replica is made of it
	if ex.endpoint != endpointOther && len(req.Header["Content-Encoding"]) == 0 {
		keyJobs <- ex
	} else {
		decideJobs <- ex
	}
	<-ex.done
	if answer.Because == "" {
		explainFailed(rw, req, http.StatusInternalServerError, "the decision failed: see the log")
		return
	}
	writeJSON(rw, req, http.StatusOK, answer)
}

func explainFailed(rw http.ResponseWriter, req *http.Request, status int, message string) {
	writeJSON(rw, req, status, openAIError{Error: openAIDetail{Message: message, Type: "invalid_request_error", Code: "explain"}})
}

// explain writes down a decision that decideLoop has come to but not carried out: index is that of the candidate, -1 if there
// is none. The caller holds the lock and has found the prompt in the tree.
func explain(p *pool, ex *exchange, cs []candidate, index int, why string) {
	e := ex.explained
	e.Characters = len(ex.key)
	model, salt, _ := strings.Cut(ex.space, "\x00")
	e.Model = model
	e.Salted = salt != ""
	now := time.Now().UnixNano()
	matched := map[int]int{}
	if index >= 0 && ex.endpoint != endpointOther && ex.key != "" {
		e.Known = p.in.matched
		matched = holders(p)
	}
	only := ""
	if ex.endpoint != endpointOther {
		only = partialModel(p, ex.space)
	}
	for _, r := range p.replicas {
		one := explainReplica{URL: r.worker.name, Candidate: index >= 0 && r.slot >= 0, Why: explainAbsence(r, only, now), Load: r.load,
			MaxLoad: r.worker.maxLoad, LoadPenalty: r.worker.loadPenalty, Matched: matched[r.id]}
		if e.Characters > 0 {
			one.Ratio = float64(one.Matched) / float64(e.Characters)
		}
		if one.Candidate && ex.set.costs && ex.endpoint != endpointOther {
			c := &cs[r.slot]
			queue, price := c.queue, c.price(p.in, len(cs))
			one.Queue = &queue
			one.Cost = &price
		}
		e.Replicas = append(e.Replicas, one)
	}
	if index < 0 {
		e.Refusal = ex.refusal
		e.Because = refusals[ex.refusal].message
		return
	}
	e.Replica = cs[index].replica.worker.name
	e.Reason = why
	if ex.set.costs {
		e.Because = explainCost(why, e, cs, index, p.in)
	}
	if e.Because == "" {
		e.Because = explainReason(why, e, &cs[index], &cs[p.in.least], &cs[p.in.holder%len(cs)])
	}
}

// explainAbsence says what keeps requests for a model from a replica, "" if nothing does. The model may be "", for any.
func explainAbsence(r *replica, model string, now int64) string {
	if model != "" && !r.lists(model) {
		return "it does not list the model " + strconv.Quote(model)
	}
	return explainState(r, now)
}

// explainState says what keeps requests from a replica, "" if nothing does.
func explainState(r *replica, now int64) string {
	switch {
	case !r.up:
		return "down: " + r.why
	case !r.breaker.allows(now):
		return "its circuit breaker is " + r.breaker.state.String()
	case r.load >= r.worker.maxLoad:
		return "at its maxLoad"
	case r.leaving:
		return "its source no longer names it"
	case r.pushedUntil > now:
		left := time.Duration(r.pushedUntil - now).Round(100 * time.Millisecond)
		return "wants to be left alone for " + left.String()
	}
	return ""
}

// explainReason puts a decision into words.
func explainReason(why string, e *explainAnswer, chosen, least, holder *candidate) string {
	t := &e.Thresholds
	share := 0.0
	if e.Characters > 0 {
		share = float64(e.Known) / float64(e.Characters)
	}
	known := fmt.Sprintf("%d of %d characters (%.2f) are known on %s", e.Known, e.Characters, share, holder.replica.worker.name)
	switch why {
	case reasonHit:
		enough := fmt.Sprintf("at least cache.threshold %g", t.Threshold)
		if share < t.Threshold {
			enough = fmt.Sprintf("at least cache.matchAbsThreshold %d", t.MatchAbsThreshold)
		}
		return fmt.Sprintf("%s, %s; its load %d is not too far above the least load %d", known, enough, holder.load, least.load)
	case reasonOverloaded:
		return fmt.Sprintf("%s, but its load %d is more than %d above the least load %d and more than %g times it", known, holder.load,
			t.BalanceAbsThreshold, least.load, t.BalanceRelThreshold)
	case reasonMiss:
		if e.Known == 0 {
			return fmt.Sprintf("nothing of its %d characters is known on a candidate; least load %d", e.Characters, least.load)
		}
		return fmt.Sprintf("%s, less than cache.threshold %g and cache.matchAbsThreshold %d; least load %d", known, t.Threshold,
			t.MatchAbsThreshold, least.load)
	case reasonNoText:
		return fmt.Sprintf("no prompt was made out in the body; least load %d", least.load)
	case reasonOnlyOne:
		return "it is the only candidate"
	case reasonPassthrough:
		return fmt.Sprintf("the path is not routed by prompts; least load %d", least.load)
	}
	return fmt.Sprintf("policy %s chose it, with load %d and %d of %d characters known on it", e.Policy, chosen.load, chosen.matched,
		e.Characters)
}

// explainCost puts a decision of the policy cost into words, those that it has reasons of its own for.
func explainCost(why string, e *explainAnswer, cs []candidate, index int, in *prompt) string {
	chosen := &cs[index]
	here := fmt.Sprintf("%d of %d characters are known there, %d are queued before and %d answers are under way", chosen.matched,
		e.Characters, chosen.queue, chosen.load-chosen.waiting)
	switch why {
	case reasonHit:
		return "it costs least, or about the least and has the longest match: " + here
	case reasonMiss:
		return "nothing is known on a candidate, and it costs least: " + here
	case reasonOverloaded:
		return fmt.Sprintf("%d characters are known on %s, but it costs less: %s", in.matched, cs[in.holder].replica.worker.name, here)
	case reasonPlaced:
		return "nothing is known that is this conversation's own; the hash of its beginning prefers it, and it costs about the " +
			"least: " + here
	}
	return ""
}

// holders returns how long a match each id has along the path of the last find, of what has not faded.
func holders(p *pool) map[int]int {
	out := map[int]int{}
	for i, n := range p.tree.path {
		noteHolders(p, n, p.tree.depth[i], out)
	}
	if p.tree.part != nil {
		noteHolders(p, p.tree.part, p.tree.match, out)
	}
	return out
}

func noteHolders(p *pool, n *node, depth int, out map[int]int) {
	for i := range n.claims {
		if r := p.byID[n.claims[i].id]; r != nil && n.claims[i].stamp-r.age.faded >= int64(depth) {
			out[r.id] = depth
		}
	}
}
