package cart

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"
)

// explainer is a handler of a quiet pool of replicas http://a, http://b, ... that explains.
func explainer(t *testing.T, letters string) *handler {
	t.Helper()
	p := poolOf(t, letters)
	p.set.explain = true
	return newHandler(p, p.set, policies[p.set.policy])
}

func usePolicy(h *handler, name string) {
	h.set.policy = name
	h.set.costs = name == policyCost
	h.set.quick = h.set.costs || name == policyThreshold
	h.policy = policies[name]
}

// askWhy posts a body to be explained, as it would go to that path.
func askWhy(t *testing.T, h *handler, path, body string) (status int, answer explainAnswer, text string) {
	t.Helper()
	var got explainAnswer
	rec := httptest.NewRecorder()
	target := h.set.workersPath + "?explain=" + url.QueryEscape(path)
	h.ServeHTTP(rec, httptest.NewRequest(http.MethodPost, target, strings.NewReader(body)))
	if err := json.Unmarshal(rec.Body.Bytes(), &got); err != nil {
		t.Fatalf("POST %s = %d %q: %v", target, rec.Code, rec.Body.String(), err)
	}
	return rec.Code, got, rec.Body.String()
}

// chatWith is a chat whose only message is that text.
func chatWith(text string) string {
	return `{"model":"m","messages":[{"role":"user","content":"` + text + `"}]}`
}

// teach makes a replica the holder of a chat's prompt.
func teach(t *testing.T, h *handler, letter, body string) {
	t.Helper()
	space, key := keyOf(endpointChat, body)
	h.pool.tree.find(space, key)
	h.pool.tree.insert(space, key, byLetter(t, h.pool, letter).id)
}

func TestExplain_tellsWhereAndWhy(t *testing.T) {
	long := strings.Repeat("x", 400)
	for _, row := range []struct {
		story    string
		states   map[string]string // as bring knows them
		loads    map[string]int
		path     string
		body     string
		policy   string
		replica  string
		reason   string
		refusal  string
		because  string
		matchedA bool
	}{
		{"known", nil, map[string]int{"a": 1}, "/v1/chat/completions", chatWith(long + "tail"), "", "a", reasonHit, "",
			"at least cache.threshold 0.3; its load 1 is not too far above the least load 0", true},
		{"the plain number stands for chats", nil, map[string]int{"a": 1}, "1", chatWith(long), "", "a", reasonHit, "", "known on http://a", true},
		{"unknown", nil, map[string]int{"a": 2, "b": 1}, "/v1/chat/completions", chatWith(strings.Repeat("another ", 50)), "", "c", reasonMiss, "",
			"less than cache.threshold 0.3", true}, // how a message begins is known
		{"of another model", nil, map[string]int{"a": 2, "b": 1}, "/v1/chat/completions", strings.Replace(chatWith(long), `"m"`, `"n"`, 1), "", "c",
			reasonMiss, "", "nothing of its", false},
		{"too little of it", nil, map[string]int{"a": 2, "b": 1}, "/v1/chat/completions", chatWith(long + strings.Repeat("y", 4000)), "",
			"c", reasonMiss, "", "less than cache.threshold 0.3", true},
		{"the holder is too busy", map[string]string{"a": "roomy"}, map[string]int{"a": 12, "b": 1}, "/v1/chat/completions", chatWith(long), "", "c",
			reasonOverloaded, "", "more than 5 above the least load 0", true},
		{"no prompt", nil, map[string]int{"a": 1, "b": 1}, "/v1/chat/completions", `{}`, "", "c", reasonNoText, "", "no prompt was made out", false},
		{"another endpoint, another prompt", nil, map[string]int{"a": 1, "b": 1}, "/v1/completions", chatWith(long), "", "c", reasonNoText, "",
			"no prompt was made out", false},
		{"not routed", nil, map[string]int{"a": 1, "b": 1}, "/v1/embeddings", `{}`, "", "c", reasonPassthrough, "", "not routed by prompts", false},
		{"one is left", map[string]string{"a": "down", "b": "down"}, nil, "/v1/chat/completions", chatWith(long), "", "c", reasonOnlyOne, "",
			"the only candidate", true},
		{"none is left", map[string]string{"a": "down", "b": "down", "c": "down"}, nil, "/v1/chat/completions", chatWith(long), "", "", "",
			refusedNone, "no replica is usable", false},
		{"all are full", map[string]string{"a": "full", "b": "full", "c": "full"}, nil, "/v1/chat/completions", chatWith(long), "", "", "",
			refusedFull, "maxLoad", false},
		{"known, by cost", nil, nil, "/v1/chat/completions", chatWith(long + "tail"), policyCost, "a", reasonHit, "",
			"it costs least, or about the least and has the longest match: 4", true},
		{"unknown, by cost", nil, nil, "/v1/chat/completions", chatWith(strings.Repeat("another ", 50)), policyCost,
			"b", reasonPlaced, "", "the hash of its beginning prefers it", true},
		{"a baseline", nil, map[string]int{"a": 1, "b": 1}, "/v1/chat/completions", chatWith(long), policyLeastLoad, "c", reasonLeastLoad, "",
			"policy leastLoad chose it, with load 0", true},
	} {
		h := explainer(t, "abc")
		if row.policy != "" {
			usePolicy(h, row.policy)
		}
		teach(t, h, "a", chatWith(long))
		for letter, n := range row.loads {
			byLetter(t, h.pool, letter).load = n
		}
		for letter, state := range row.states {
			if state == "roomy" {
				byLetter(t, h.pool, letter).worker.maxLoad = 100
			} else {
				bring(byLetter(t, h.pool, letter), &exchange{}, state, time.Now().UnixNano())
			}
		}
		nodes, turn := h.pool.tree.nodes, h.pool.turn
		status, got, text := askWhy(t, h, row.path, row.body)
		if status != 200 || strings.TrimPrefix(got.Replica, "http://") != row.replica || got.Reason != row.reason || got.Refusal != row.refusal ||
			!strings.Contains(got.Because, row.because) || len(got.Replicas) != 3 {
			t.Errorf("%s: %d %s, want %q, %q%q because of %q", row.story, status, text, row.replica, row.reason, row.refusal, row.because)
			continue
		}
		if matched := got.Replicas[0].Matched > 0; matched != row.matchedA || got.Replicas[1].Matched+got.Replicas[2].Matched != 0 {
			t.Errorf("%s: matches in %s, want on a: %v", row.story, text, row.matchedA)
		}
		for i, letter := range []string{"a", "b", "c"} {
			r := byLetter(t, h.pool, letter)
			if got.Replicas[i].URL != "http://"+letter || got.Replicas[i].Load != r.load || requestsOf(r) != 0 {
				t.Errorf("%s: %+v, want %s as it is and no request sent", row.story, got.Replicas[i], letter)
			}
			if ill := row.states[letter]; (got.Replicas[i].Why != "") != (ill != "" && ill != "roomy") {
				t.Errorf("%s: why of %s = %q", row.story, letter, got.Replicas[i].Why)
			}
		}
		if h.pool.tree.nodes != nodes || h.pool.turn != turn || describe(h.pool, 0).Known.Count != 0 {
			t.Errorf("%s: the explanation left traces", row.story)
		}
	}
}

// TestExplain_agreesWithTheDecision compares both over many states.
func TestExplain_agreesWithTheDecision(t *testing.T) {
	for _, name := range []string{policyThreshold, policyLeastLoad, policyRoundRobin} {
		h := explainer(t, "abcd")
		usePolicy(h, name)
		for _, r := range h.pool.replicas {
			r.worker.maxLoad = 1000
		}
		for i := 0; i < 60; i++ {
			body := chatWith(strings.Repeat("abcdefgh"[i%7:i%7+1], 50) + strings.Repeat("z", i%50))
			_, want, text := askWhy(t, h, "/v1/chat/completions", body)
			ex := ask(h.pool, "")
			ex.policy = h.policy
			ex.space, ex.key = keyOf(endpointChat, body)
			a := take(t, h.pool, ex, 0)
			// Which one of equals it is, is chance.
			load := map[string]int{}
			for _, one := range want.Replicas {
				load[one.URL] = one.Load
			}
			if a.load-1 != load[want.Replica] || a.why != want.Reason || a.matched > want.Known || a.total != want.Characters {
				t.Errorf("%s, %d: decided %s for %s, %d of %d, explained %s", name, i, a.worker.name, a.why, a.matched, a.total, text)
			}
			if i%3 > 0 {
				endWith(h.pool, ex, a, 200, nil, 0)
			}
		}
	}
}

func TestExplain_refusesWhatItCannotExplain(t *testing.T) {
	h := explainer(t, "a")
	if status, _, text := askWhy(t, h, "chat", "{}"); status != 400 || !strings.Contains(text, "such as /v1/chat/completions") {
		t.Errorf("explain=chat: %d %s, want 400 and what is allowed", status, text)
	}
	h.set.maxBody = 10
	h.set.eagerBody = 10
	if _, got, text := askWhy(t, h, "1", chatWith("too long")); got.Refusal != refusedTooLarge || got.Replica != "" {
		t.Errorf("a long body: %s, want the refusal that it would get", text)
	}
	h.set.maxBody = 1000
	h.set.mediaStatus = 422
	picture := `{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"http://x/y.png"}}]}]}`
	if _, got, text := askWhy(t, h, "1", picture); got.Refusal != refusedMedia {
		t.Errorf("a remote picture: %s, want the refusal that it would get", text)
	}
	h.set.explain = false
	if status, _, text := askWhy(t, h, "1", "{}"); status != 403 || !strings.Contains(text, "endpoints.explain") {
		t.Errorf("explain when it is off: %d %s, want 403 and how to turn it on", status, text)
	}
	if n := requestsOf(byLetter(t, h.pool, "a")); n != 0 {
		t.Errorf("%d requests went to the replica, want none", n)
	}
}

func TestExplainState_tellsWhatKeepsRequestsAway(t *testing.T) {
	now := second(100)
	w := &worker{maxLoad: 2}
	for _, row := range []struct {
		r    replica
		want string
	}{
		{replica{up: true, load: 1}, ""},
		{replica{why: "GET /health answered 500"}, "down: GET /health answered 500"},
		{replica{up: true, breaker: breaker{state: breakerOpen, openUntil: now + 1}}, "its circuit breaker is open"},
		{replica{up: true, breaker: breaker{state: breakerHalfOpen, probing: true}}, "its circuit breaker is halfOpen"},
		{replica{up: true, load: 2, pushedUntil: now + 1}, "at its maxLoad"},
		{replica{up: true, pushedUntil: now + int64(2500*time.Millisecond)}, "wants to be left alone for 2.5s"},
	} {
		r := row.r
		r.worker = w
		if got := explainState(&r, now); got != row.want {
			t.Errorf("explainState(%+v) = %q, want %q", row.r, got, row.want)
		}
	}
}
