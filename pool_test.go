package cart

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// The tests make and leave pools within a second.
func init() { leaveGrace = 300 * time.Millisecond }

// poolOf makes a pool of replicas http://a, http://b, ... one for each letter, without background work.
func poolOf(t *testing.T, letters string) *pool {
	t.Helper()
	c := CreateConfig()
	c.MaxLoad = "3"
	for _, letter := range letters {
		c.Workers = append(c.Workers, WorkerConfig{URL: "http://" + string(letter)})
	}
	return quietPool(t, c)
}

// setLetters makes these the pool's replicas.
func setLetters(t *testing.T, p *pool, letters string) {
	t.Helper()
	p.setWorkers(poolOf(t, letters).set.workers)
}

// byLetter returns a replica, draining ones included.
func byLetter(t *testing.T, p *pool, letter string) *replica {
	t.Helper()
	for _, r := range p.replicas {
		if r.worker.name == "http://"+letter {
			return r
		}
	}
	for _, r := range p.draining {
		if r.worker.name == "http://"+letter {
			return r
		}
	}
	t.Fatalf("no replica %q", letter)
	return nil
}

func letterOf(a *attempt) string {
	if a == nil {
		return ""
	}
	return strings.TrimPrefix(a.worker.name, "http://")
}

// ask makes a routed request with that prompt.
func ask(p *pool, key string) *exchange {
	return &exchange{
		route: route{pool: p, set: p.set, policy: policies[p.set.policy], buffered: true, replayable: true},
		req:   httptest.NewRequest(http.MethodPost, "/v1/chat/completions", nil), endpoint: endpointChat,
		done: make(chan int, 1), space: "m", key: key,
	}
}

// requestsOf returns how many attempts were sent to a replica.
func requestsOf(r *replica) int64 {
	n := int64(0)
	for _, count := range r.reasons {
		n += count
	}
	return n
}

// take chooses and fails the test if there is no replica.
func take(t *testing.T, p *pool, ex *exchange, now int64) *attempt {
	t.Helper()
	a, refusal := choose(p, ex, now)
	if a == nil {
		t.Fatalf("choose() = none, %q, want a replica", refusal)
	}
	ex.attempt = a
	return a
}

// endWith ends an attempt as an answer with that status would, 0 for a broken connection. next is the retry taken, or nil.
func endWith(p *pool, ex *exchange, a *attempt, status int, next *attempt, now int64) {
	ex.status = status
	ex.answered = status > 0 && status < 400
	ex.broken = status == 0
	ex.pushed = 0
	ex.result = outcomeNeutral
	switch {
	case status == 429 || status == 503 || status == 529:
		ex.pushed = 10 * time.Second
	case status >= 500 || status == 0:
		ex.result = outcomeFailure
	case status < 400:
		ex.result = outcomeSuccess
	}
	ex.next = next
	release(ex, a, now)
}

func TestChoose_goesByGrades(t *testing.T) {
	now := second(0)
	for _, row := range []struct {
		story  string
		states map[string]string // by letter: down, open, probing, ripe (open, time over), pushed, full, tried
		want   string            // the letters it may be
		refuse string
	}{
		{"all fine", nil, "abc", ""},
		{"one is down", map[string]string{"a": "down"}, "bc", ""},
		{"one is full", map[string]string{"b": "full"}, "ac", ""},
		{"one was tried", map[string]string{"c": "tried"}, "ab", ""},
		{"one was pushed back", map[string]string{"a": "pushed"}, "bc", ""},
		{"all were pushed back", map[string]string{"a": "pushed", "b": "pushed", "c": "pushed"}, "abc", ""},
		{"pushed back is better than full", map[string]string{"a": "pushed", "b": "full", "c": "full"}, "a", ""},
		{"pushed back is better than down or tried", map[string]string{"a": "pushed", "b": "down", "c": "tried"}, "a", ""},
		{"pushed back is better than open", map[string]string{"a": "pushed", "b": "open", "c": "open"}, "a", ""},
		{"an open breaker", map[string]string{"a": "open"}, "bc", ""},
		{"a breaker that is probing", map[string]string{"a": "probing"}, "bc", ""},
		{"a breaker that may probe again", map[string]string{"a": "ripe", "b": "down", "c": "down"}, "a", ""},
		{"nothing but open breakers", map[string]string{"a": "open", "b": "open", "c": "down"}, "ab", ""},
		{"nothing but open and probing", map[string]string{"a": "open", "b": "probing", "c": "down"}, "ab", ""},
		{"open ones do not help a full one", map[string]string{"a": "open", "b": "open", "c": "full"}, "", refusedFull},
		{"open ones do not help a retry", map[string]string{"a": "open", "b": "open", "c": "tried"}, "", refusedNone},
		{"all open and full", map[string]string{"a": "open-full", "b": "down", "c": "down"}, "", refusedFull},
		{"all full", map[string]string{"a": "full", "b": "full", "c": "full"}, "", refusedFull},
		{"full or down", map[string]string{"a": "full", "b": "down", "c": "down"}, "", refusedFull},
		{"all down", map[string]string{"a": "down", "b": "down", "c": "down"}, "", refusedNone},
		{"all tried", map[string]string{"a": "tried", "b": "tried", "c": "tried"}, "", refusedNone},
	} {
		got := ""
		for try := 0; try < 40; try++ {
			p := poolOf(t, "abc")
			p.seed = uint64(try) * 0x9e3779b97f4a7c15
			ex := ask(p, "")
			for letter, state := range row.states {
				bring(byLetter(t, p, letter), ex, state, now)
			}
			a, refusal := choose(p, ex, now)
			if a != nil {
				refusal = ""
			}
			if refusal != row.refuse {
				t.Errorf("%s: choose() = %q, refusal %q, want %q", row.story, letterOf(a), refusal, row.refuse)
				break
			}
			if letter := letterOf(a); !strings.Contains(got, letter) {
				got += letter
			}
		}
		if !sameLetters(got, row.want) {
			t.Errorf("%s: choose() = one of %q, want one of %q, each of them sooner or later", row.story, got, row.want)
		}
	}
}

func bring(r *replica, ex *exchange, state string, now int64) {
	switch state {
	case "down":
		r.up = false
	case "open", "open-full":
		r.breaker = breaker{state: breakerOpen, openUntil: now + 1}
	case "ripe":
		r.breaker = breaker{state: breakerOpen, openUntil: now}
	case "probing":
		r.breaker = breaker{state: breakerHalfOpen, probing: true}
	case "pushed":
		r.pushedUntil = now + 1
	case "tried":
		ex.tried = append(ex.tried, r.life)
	}
	if strings.HasSuffix(state, "full") {
		r.load = r.worker.maxLoad
	}
}

func sameLetters(a, b string) bool {
	if len(a) != len(b) {
		return false
	}
	for _, letter := range a {
		if !strings.ContainsRune(b, letter) {
			return false
		}
	}
	return true
}

func TestChoose_withoutReplicas(t *testing.T) {
	p := quietPool(t, CreateConfig())
	if a, refusal := choose(p, ask(p, "abc"), second(0)); a != nil || refusal != refusedNone {
		t.Errorf("choose(no workers) = %v, %q, want none, %q", a, refusal, refusedNone)
	}
	if p.tree.nodes != 0 {
		t.Errorf("choose(no workers) taught the tree %d nodes, want none", p.tree.nodes)
	}
}

func TestChoose_otherPathsPassWhenAllAreFull(t *testing.T) {
	p := poolOf(t, "a")
	r := byLetter(t, p, "a")
	r.load = 3
	ex := ask(p, "")
	ex.endpoint = endpointOther
	a := take(t, p, ex, second(0))
	if a.why != reasonPassthrough || r.load != 4 {
		t.Errorf("choose(another path) = %q with load %d, want %q with 4", a.why, r.load, reasonPassthrough)
	}
	if a, refusal := choose(p, ask(p, ""), second(0)); a != nil || refusal != refusedFull {
		t.Errorf("choose(a routed request, all full) = %v, %q, want none, %q", a, refusal, refusedFull)
	}
}

func TestChoose_comparesLoadWithPenalty(t *testing.T) {
	c := CreateConfig()
	c.Workers = []WorkerConfig{{URL: "http://a", LoadPenalty: "2"}, {URL: "http://b"}}
	p := quietPool(t, c)
	got := ""
	for i := 0; i < 6; i++ {
		a := take(t, p, ask(p, ""), second(0))
		got += letterOf(a)
	}
	// b until it has two more than a, then by turns.
	if !strings.HasPrefix(got, "bb") || strings.Count(got, "b") != 4 {
		t.Errorf("choose() six times = %q, want b twice and then each twice", got)
	}
}

func TestChoose_countsAndTellsReasons(t *testing.T) {
	p := poolOf(t, "ab")
	now := second(0)
	first := take(t, p, ask(p, "a prompt"), now)
	if first.why != reasonMiss || first.load != 1 || first.others != 1 || first.matched != 0 {
		t.Errorf("the first choose() = %+v, want a miss at load 1 with another candidate", *first)
	}
	again := take(t, p, ask(p, "a prompt and more"), now)
	if letterOf(again) != letterOf(first) || again.why != reasonHit || again.matched != 8 || again.load != 2 {
		t.Errorf("choose(the same beginning) = %s, %q, matched %d, want %s, %q, 8", letterOf(again), again.why, again.matched, letterOf(first), reasonHit)
	}
	none := take(t, p, ask(p, ""), now)
	if letterOf(none) == letterOf(first) || none.why != reasonNoText {
		t.Errorf("choose(no prompt) = %s, %q, want the idle one and %q", letterOf(none), none.why, reasonNoText)
	}
	ex := ask(p, "a prompt")
	ex.tried = []int{first.life}
	retry := take(t, p, ex, now)
	if letterOf(retry) == letterOf(first) || retry.why != reasonRetry || retry.others != 0 {
		t.Errorf("choose(a retry) = %s, %q, want the other one and %q", letterOf(retry), retry.why, reasonRetry)
	}
	for why, want := range map[string]int64{reasonMiss: 1, reasonHit: 1, reasonNoText: 1, reasonRetry: 1} {
		if got := describe(p, second(0)).Reasons[why]; got != want {
			t.Errorf("reasons[%q] = %d, want %d", why, got, want)
		}
	}
	if p.retries != 1 || first.replica.reasons[reasonHit] != 1 || requestsOf(first.replica) != 2 {
		t.Errorf("retries, hits, requests = %d, %d, %d, want 1, 1, 2", p.retries, first.replica.reasons[reasonHit], requestsOf(first.replica))
	}
}

func TestChoose_theLeastLoadedOfSeveralHolders(t *testing.T) {
	p := poolOf(t, "abc")
	now := second(0)
	learn(p.tree, "m", "a long prompt", byLetter(t, p, "a").id)
	learn(p.tree, "m", "a long prompt", byLetter(t, p, "b").id)
	byLetter(t, p, "a").load = 2
	byLetter(t, p, "b").load = 1
	if a := take(t, p, ask(p, "a long prompt"), now); letterOf(a) != "b" || a.why != reasonHit {
		t.Errorf("choose() = %s, %q, want the less loaded holder b and %q", letterOf(a), a.why, reasonHit)
	}
}

func TestChoose_theHolderOfAShorterMatchWhenTheBestIsNoCandidate(t *testing.T) {
	p := poolOf(t, "abc")
	learn(p.tree, "m", "0123456789", byLetter(t, p, "a").id)
	learn(p.tree, "m", "01234567", byLetter(t, p, "b").id)
	learn(p.tree, "m", "01", byLetter(t, p, "c").id)
	byLetter(t, p, "a").up = false
	byLetter(t, p, "b").load = 2
	if a := take(t, p, ask(p, "0123456789"), second(0)); letterOf(a) != "b" || a.matched != 8 {
		t.Errorf("choose() = %s with %d known, want b with 8", letterOf(a), a.matched)
	}
}

func TestRelease_givesThePlaceBackOnce(t *testing.T) {
	p := poolOf(t, "ab")
	now := second(0)
	for i, status := range []int{200, 404, 429, 500, 0} {
		ex := ask(p, "")
		a := take(t, p, ex, now)
		if a.replica.load != 1 {
			t.Errorf("round %d: load after choose() = %d, want 1", i, a.replica.load)
		}
		endWith(p, ex, a, status, nil, now)
		for _, r := range p.replicas {
			if r.load != 0 {
				t.Errorf("after an answer %d: load of %s = %d, want 0", status, r.worker.name, r.load)
			}
			r.pushedUntil = 0
		}
	}
}

func TestRelease_keepsClaimsOfAnsweredRequestsOnly(t *testing.T) {
	for _, row := range []struct {
		status int
		want   int
	}{{200, 8}, {304, 8}, {400, 0}, {404, 0}, {429, 0}, {500, 0}, {503, 0}, {0, 0}} {
		p := poolOf(t, "a")
		ex := ask(p, "a prompt")
		a := take(t, p, ex, second(0))
		if got := held(p.tree, "m", "a prompt", a.id); got != 8 {
			t.Errorf("in flight: held = %d, want 8: the tree learns at dispatch", got)
		}
		endWith(p, ex, a, row.status, nil, second(1))
		if got := held(p.tree, "m", "a prompt", a.id); got != row.want {
			t.Errorf("after an answer %d: held = %d, want %d", row.status, got, row.want)
		}
		checkTree(t, p.tree)
	}
}

func TestRelease_aFailureTakesBackTheNewTurnOnly(t *testing.T) {
	p := poolOf(t, "a")
	ex := ask(p, "turn 1")
	endWith(p, ex, take(t, p, ex, second(0)), 200, nil, second(0))
	ex = ask(p, "turn 1, turn 2")
	a := take(t, p, ex, second(1))
	endWith(p, ex, a, 0, nil, second(1))
	if got := held(p.tree, "m", "turn 1, turn 2", a.id); got != 6 {
		t.Errorf("after a failed second turn: held = %d, want the first turn's 6", got)
	}
}

func TestRelease_pushesBackWhoAsksForIt(t *testing.T) {
	p := poolOf(t, "ab")
	now := second(0)
	ex := ask(p, "")
	a := take(t, p, ex, now)
	endWith(p, ex, a, 429, nil, now)
	if a.replica.pushedUntil != second(10) || a.replica.breaker.failures != 0 || a.replica.failures != 0 {
		t.Errorf("after 429: pushed until %d, %d failures, want 10 s from now and none", a.replica.pushedUntil, a.replica.failures)
	}
	for i := 0; i < 3; i++ {
		if b := take(t, p, ask(p, ""), second(9)); b.replica == a.replica {
			t.Errorf("choose() at 9 s = %s, want the other one", letterOf(b))
		}
	}
	if b := take(t, p, ask(p, ""), second(10)); b.replica != a.replica {
		t.Errorf("choose() at 10 s = %s, want %s again, now the idle one", letterOf(b), letterOf(a))
	}
}

// charged returns what counts against a replica at its breaker.
func charged(t *testing.T, p *pool, letter string) int {
	t.Helper()
	return byLetter(t, p, letter).breaker.failures
}

func TestRelease_chargesFailuresToWhomTheyBelong(t *testing.T) {
	for _, row := range []struct {
		story    string
		statuses []int // attempt by attempt
		want     []int // failures charged, attempt by attempt
	}{
		{"one failure", []int{500}, []int{1}},
		{"a failure, then an answer", []int{500, 200}, []int{1, 0}},
		{"the same failure twice is the request's own", []int{500, 500}, []int{0, 0}},
		{"three times", []int{500, 500, 500}, []int{0, 0, 0}},
		{"different failures are not", []int{500, 502}, []int{1, 1}},
		{"two of three the same", []int{500, 502, 500}, []int{0, 1, 0}},
		{"broken connections are the replica's", []int{0, 0}, []int{1, 1}},
		{"a broken connection and a failure", []int{0, 500}, []int{1, 1}},
		{"a failure, then a refusal", []int{500, 400}, []int{1, 0}},
		{"backpressure is no failure", []int{503, 429}, []int{0, 0}},
		{"backpressure, then a failure", []int{529, 500}, []int{0, 1}},
		{"a refusal", []int{404}, []int{0}},
	} {
		p := poolOf(t, "abc")
		now := second(0)
		ex := ask(p, "")
		a := take(t, p, ex, now)
		var letters []string
		for i, status := range row.statuses {
			letters = append(letters, letterOf(a))
			var next *attempt
			if i+1 < len(row.statuses) {
				next = take(t, p, ex, now)
			}
			endWith(p, ex, a, status, next, now)
			a = next
		}
		for i, letter := range letters {
			if got := charged(t, p, letter); got != row.want[i] {
				t.Errorf("%s: answers %v: attempt %d is charged %d, want %d", row.story, row.statuses, i, got, row.want[i])
			}
		}
	}
}

// failTimes lets a replica fail that often on requests of their own.
func failTimes(t *testing.T, p *pool, letter string, n int, now int64) {
	t.Helper()
	for i := 0; i < n; i++ {
		ex := ask(p, "")
		for _, r := range p.replicas {
			if r.worker.name != "http://"+letter {
				ex.tried = append(ex.tried, r.life)
			}
		}
		endWith(p, ex, take(t, p, ex, now), 0, nil, now)
	}
}

func TestRelease_opensTheBreaker(t *testing.T) {
	p := poolOf(t, "ab")
	failTimes(t, p, "a", 4, second(0))
	if got := byLetter(t, p, "a").breaker.state; got != breakerClosed {
		t.Errorf("after 4 failures: breaker = %v, want closed", got)
	}
	failTimes(t, p, "a", 1, second(0))
	if got := byLetter(t, p, "a").breaker.state; got != breakerOpen {
		t.Errorf("after 5 failures: breaker = %v, want open", got)
	}
	for i := 0; i < 3; i++ {
		if a := take(t, p, ask(p, ""), second(29)); letterOf(a) != "b" {
			t.Errorf("choose() with an open breaker = %s, want b", letterOf(a))
		}
	}
	// Half open: one request probes, the second waits for how it ends.
	ex := ask(p, "")
	probe := take(t, p, ex, second(30))
	if letterOf(probe) != "a" || !probe.probe {
		t.Fatalf("choose() when the breaker may probe = %s, probe %v, want the idle a as the probe", letterOf(probe), probe.probe)
	}
	if a, refusal := choose(p, ask(p, ""), second(31)); a != nil || refusal != refusedFull {
		t.Errorf("choose() while a probes and b is full = %s, %q, want none, %q", letterOf(a), refusal, refusedFull)
	}
	endWith(p, ex, probe, 200, nil, second(32))
	ex = ask(p, "")
	probe = take(t, p, ex, second(33))
	endWith(p, ex, probe, 200, nil, second(33))
	if got := byLetter(t, p, "a").breaker.state; got != breakerClosed {
		t.Errorf("after two good probes: breaker = %v, want closed", got)
	}
}

func TestRelease_theLastReplicaIsNotEjected(t *testing.T) {
	p := poolOf(t, "a")
	failTimes(t, p, "a", 20, second(0))
	if got := byLetter(t, p, "a").breaker.state; got != breakerClosed {
		t.Errorf("a lone replica after 20 failures: breaker = %v, want closed", got)
	}
	p = poolOf(t, "ab")
	failTimes(t, p, "a", 5, second(0))
	failTimes(t, p, "b", 20, second(1))
	if a, b := byLetter(t, p, "a").breaker.state, byLetter(t, p, "b").breaker.state; a != breakerOpen || b != breakerClosed {
		t.Errorf("two replicas that fail: breakers = %v, %v, want open, closed", a, b)
	}
	p = poolOf(t, "ab")
	byLetter(t, p, "b").up = false
	failTimes(t, p, "a", 20, second(0))
	if got := byLetter(t, p, "a").breaker.state; got != breakerClosed {
		t.Errorf("the only one that is up, after 20 failures: breaker = %v, want closed", got)
	}
}

func TestSetWorkers_keepsWhoStays(t *testing.T) {
	p := poolOf(t, "abc")
	now := second(0)
	b := byLetter(t, p, "b")
	learn(p.tree, "m", "a prompt", b.id)
	b.load = 2
	b.up = false
	b.breaker.failures = 3
	b.reasons[reasonMiss] = 9
	id := b.id
	setLetters(t, p, "xbc")
	if got := byLetter(t, p, "b"); got != b || b.id != id || b.load != 2 || b.up || b.breaker.failures != 3 || requestsOf(b) != 9 {
		t.Errorf("setWorkers() changed who stays: %+v", *got)
	}
	if got := held(p.tree, "m", "a prompt", id); got != 8 {
		t.Errorf("setWorkers() took the claims of who stays: held = %d, want 8", got)
	}
	if len(p.replicas) != 3 || len(p.draining) != 0 || len(p.byID) != 3 || p.byID[id] != b {
		t.Errorf("setWorkers(3) has %d replicas, %d draining, %d by id, want 3, 0, 3", len(p.replicas), len(p.draining), len(p.byID))
	}
	x := byLetter(t, p, "x")
	if !x.up || x.load != 0 || x.draining || x.id <= id+1 {
		t.Errorf("setWorkers() made %+v, want a new replica up, idle, with an id of its own", *x)
	}
	if !x.usable(now, false) {
		t.Errorf("a new replica is not usable")
	}
}

func TestSetWorkers_takesNewSettingsOfAWorker(t *testing.T) {
	p := poolOf(t, "a")
	r := byLetter(t, p, "a")
	r.load = 1
	workers := poolOf(t, "a").set.workers
	workers[0].maxLoad = 9
	p.setWorkers(workers)
	if byLetter(t, p, "a") != r || r.worker.maxLoad != 9 || r.load != 1 {
		t.Errorf("setWorkers(maxLoad 9) = maxLoad %d, load %d, want 9 with load 1 as before", r.worker.maxLoad, r.load)
	}
}

func TestSetWorkers_letsTheRemovedDrain(t *testing.T) {
	p := poolOf(t, "ab")
	now := second(0)
	ex := ask(p, "a prompt")
	a := take(t, p, ex, now)
	gone := letterOf(a)
	stays := strings.Trim("ab", gone)
	setLetters(t, p, stays)
	if len(p.draining) != 1 || p.draining[0] != a.replica || !a.replica.draining {
		t.Fatalf("setWorkers() without a busy replica: %d draining, want it", len(p.draining))
	}
	for i := 0; i < 3; i++ {
		if b := take(t, p, ask(p, "a prompt"), now); letterOf(b) != stays {
			t.Errorf("choose() = %s, want %s only: the other one drains", letterOf(b), stays)
		}
	}
	endWith(p, ex, a, 200, nil, now)
	if len(p.draining) != 0 || a.replica.load != 0 {
		t.Errorf("after its last request: %d draining with load %d, want none", len(p.draining), a.replica.load)
	}
}

func TestSetWorkers_theIdleRemovedIsGoneAtOnce(t *testing.T) {
	p := poolOf(t, "ab")
	setLetters(t, p, "b")
	if len(p.draining) != 0 || len(p.replicas) != 1 {
		t.Errorf("setWorkers() without an idle replica: %d replicas, %d draining, want 1, 0", len(p.replicas), len(p.draining))
	}
}

func TestSetWorkers_whoComesBackHasItsLoadAndNoClaims(t *testing.T) {
	p := poolOf(t, "ab")
	now := second(0)
	a := byLetter(t, p, "a")
	ex := ask(p, "a prompt")
	ex.tried = []int{byLetter(t, p, "b").life}
	running := take(t, p, ex, now)
	a.breaker.failures = 4
	a.up = false
	old := a.id
	setLetters(t, p, "b")
	setLetters(t, p, "ab")
	if byLetter(t, p, "a") != a || a.load != 1 || a.draining || !a.up || a.breaker.failures != 0 {
		t.Errorf("back while it drains: %+v, want the same replica with load 1, up, its breaker new", *a)
	}
	if a.id == old || p.byID[a.id] != a || p.byID[old] != nil {
		t.Errorf("back while it drains: id %d, want another than %d", a.id, old)
	}
	if got := held(p.tree, "m", "a prompt", a.id); got != 0 {
		t.Errorf("back while it drains: held = %d, want 0", got)
	}
	// The request from before ends: its place is free, but it says nothing of the new life.
	endWith(p, ex, running, 0, nil, now)
	if a.load != 0 || a.breaker.failures != 0 || len(p.draining) != 0 {
		t.Errorf("after the old request failed: load %d, %d failures, want 0, 0", a.load, a.breaker.failures)
	}
}

func TestSetWorkers_whoComesBackIsProbedAgain(t *testing.T) {
	p := poolOf(t, "ab")
	a := byLetter(t, p, "a")
	a.load = 1
	a.probing = true // its probe is under way and will be dropped, for its id is of the life before
	setLetters(t, p, "b")
	setLetters(t, p, "ab")
	if a.probing {
		t.Errorf("back while it drains: probing = true, so that it is never probed again; want false")
	}
}

// tidyUp runs the janitor's steps of one time until there is nothing more to do.
func tidyUp(t *testing.T, p *pool, now time.Time, next *time.Time, lastDay *int) {
	t.Helper()
	for i := 0; p.tidy(now, next, lastDay); i++ {
		if i > 1000 {
			t.Fatal("tidy() does not come to an end")
		}
	}
}

func TestTidy_takesOutTheClaimsOfTheRemoved(t *testing.T) {
	p := poolOf(t, "ab")
	a, b := byLetter(t, p, "a").id, byLetter(t, p, "b").id
	for i := 0; i < 300; i++ {
		id := a
		if i%3 == 0 {
			id = b
		}
		learn(p.tree, "m", strings.Repeat("x", i%17)+string(rune('a'+i%26))+" prompt", id)
	}
	setLetters(t, p, "b")
	now := time.Unix(1700000000, 0)
	next, lastDay := now.Add(time.Hour), -1
	tidyUp(t, p, now, &next, &lastDay)
	checkTree(t, p.tree)
	if n := p.tree.claimed[a]; n != 0 || p.tree.claimed[b] == 0 {
		t.Errorf("after tidy(): claims = %v, want those of %d only", p.tree.claimed, b)
	}
}

func TestTidy_dropsTheTreeOnceADay(t *testing.T) {
	c := CreateConfig()
	c.Cache.DailyCleanupHourUtc = "3"
	c.Workers = []WorkerConfig{{URL: "http://a"}}
	p := quietPool(t, c)
	next, lastDay := time.Unix(1<<40, 0), -1
	zone := time.FixedZone("elsewhere", 5*3600)
	for _, step := range []struct {
		at    time.Time
		empty bool
	}{
		{time.Date(2026, 3, 1, 2, 59, 59, 0, time.UTC), false},
		{time.Date(2026, 3, 1, 3, 0, 0, 0, time.UTC), true},
		{time.Date(2026, 3, 1, 3, 30, 0, 0, time.UTC), false},
		{time.Date(2026, 3, 1, 4, 0, 0, 0, time.UTC), false},
		{time.Date(2026, 3, 2, 3, 0, 0, 0, zone), false}, // 22:00 of the day before
		{time.Date(2026, 3, 2, 8, 10, 0, 0, zone), true}, // 3:10
		{time.Date(2027, 3, 2, 2, 0, 0, 0, time.UTC), false},
	} {
		learn(p.tree, "m", "a prompt", 1)
		tidyUp(t, p, step.at, &next, &lastDay)
		if got := p.tree.nodes == 0; got != step.empty {
			t.Errorf("tidy(%v): the tree is empty = %v, want %v", step.at, got, step.empty)
		}
	}
}

func TestTidy_evictsAtItsInterval(t *testing.T) {
	c := CreateConfig()
	c.Cache.MaxTreeSize = "100"
	c.Cache.EvictionInterval = "60s"
	p := quietPool(t, c)
	for i := 0; i < 99; i++ {
		learn(p.tree, "m", string(rune(' '+i)), 1)
	}
	start := time.Unix(1700000000, 0)
	next, lastDay := start.Add(time.Minute), -1
	tidyUp(t, p, start.Add(59*time.Second), &next, &lastDay)
	if p.tree.nodes != 100 {
		t.Errorf("tidy() before its time left %d nodes, want all 100", p.tree.nodes)
	}
	tidyUp(t, p, start.Add(60*time.Second), &next, &lastDay)
	if p.tree.nodes != 90 {
		t.Errorf("tidy() at its time left %d nodes, want 90", p.tree.nodes)
	}
	if want := start.Add(2 * time.Minute); !next.Equal(want) {
		t.Errorf("tidy() is due again at %v, want %v", next, want)
	}
}

// registered returns the pool of that name, if there is one.
func registered(name string) *pool {
	registryMu.Lock()
	defer registryMu.Unlock()
	return registry[name]
}

// eventually waits for something that happens in the background.
func eventually(t *testing.T, what string, happened func() bool) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Second); !happened(); {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within 5 s", what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

func TestJoin_onePoolForAMiddlewareUntilItsLastHandlerLeft(t *testing.T) {
	c := CreateConfig()
	c.LogLevel = "error"
	c.Workers = []WorkerConfig{{URL: "http://127.0.0.1:1"}}
	set, err := validate(c)
	if err != nil {
		t.Fatal(err)
	}
	name := t.Name()
	ctx1, leave1 := context.WithCancel(context.Background())
	ctx2, leave2 := context.WithCancel(context.Background())
	defer leave2()
	p1 := join(ctx1, name, set, "one")
	p2 := join(ctx2, name, set, "one")
	if p1 != p2 || p1 == nil {
		t.Fatalf("join() twice = %p, %p, want the same", p1, p2)
	}
	other, stop := context.WithCancel(context.Background())
	defer stop()
	if p3 := join(other, name+"-other", set, "one"); p3 == p1 {
		t.Errorf("join(another name) = the same pool, want another")
	}
	leave1()
	eventually(t, "the first handler leaves", func() bool {
		registryMu.Lock()
		defer registryMu.Unlock()
		return p1.refs == 1
	})
	if registered(name) != p1 {
		t.Errorf("the pool is gone while a handler is left")
	}
	leave2()
	eventually(t, "the pool goes with its last handler", func() bool { return registered(name) == nil })
	if !p1.hasEnded() {
		t.Errorf("the pool's background work was not told to stop")
	}
}

func TestJoin_theNextGenerationFindsThePoolWithinTheGrace(t *testing.T) {
	c := CreateConfig()
	c.LogLevel = "error"
	set, err := validate(c)
	if err != nil {
		t.Fatal(err)
	}
	name := t.Name()
	ctx1, leave1 := context.WithCancel(context.Background())
	p1 := join(ctx1, name, set, "one")
	leave1() // Traefik ends the old context before it builds the new handlers
	ctx2, leave2 := context.WithCancel(context.Background())
	defer leave2()
	p2 := join(ctx2, name, set, "one")
	if p1 != p2 {
		t.Fatalf("join() after the old context ended = another pool, want the same")
	}
	eventually(t, "the old handler leaves", func() bool {
		registryMu.Lock()
		defer registryMu.Unlock()
		return p1.refs == 1
	})
	if registered(name) != p1 {
		t.Errorf("the pool is gone after the old handler left")
	}
}

func TestJoin_aBadConfigurationKeepsThePool(t *testing.T) {
	name := t.Name()
	ctx, leave := context.WithCancel(context.Background())
	defer leave()
	if p := join(ctx, name, nil, ""); p != nil || registered(name) != nil {
		t.Errorf("join(no settings, no pool) = %p, want none", p)
	}
	c := CreateConfig()
	c.LogLevel = "error"
	set, err := validate(c)
	if err != nil {
		t.Fatal(err)
	}
	ctx1, leave1 := context.WithCancel(context.Background())
	p1 := join(ctx1, name, set, "one")
	leave1()
	join(ctx, name, nil, "")
	eventually(t, "the good handler leaves", func() bool {
		registryMu.Lock()
		defer registryMu.Unlock()
		return p1.refs == 1
	})
	if registered(name) != p1 {
		t.Errorf("the pool is gone while a router with a bad configuration waits for a good one")
	}
}

func TestApply_makesNewConnectionsOnlyForNewTimeouts(t *testing.T) {
	p := poolOf(t, "a")
	first, bulk := p.transport, p.bulk
	set := *p.set
	set.threshold = 0.9
	p.apply(&set, "second")
	if p.transport != first || p.set != &set {
		t.Errorf("apply(another threshold) made another transport or kept the settings, want the same one with the new settings")
	}
	slow := set
	slow.connectWait = 7 * time.Second
	p.apply(&slow, "third")
	if p.transport == first || p.bulk == bulk {
		t.Errorf("apply(another connectTimeout) kept a transport, want new ones")
	}
	second := p.transport
	p.apply(&set, "third")
	if p.transport != second || p.set != &slow {
		t.Errorf("apply(the same configuration) changed something")
	}
}

func TestApply_takesNewBoundsForTheTree(t *testing.T) {
	p := poolOf(t, "a")
	learn(p.tree, "m", "a prompt", 1)
	set := *p.set
	set.maxNodes = 20
	set.maxBytes = 64000
	p.apply(&set, "second")
	if p.tree.maxNodes != 20 || p.tree.maxBytes != 20000 || p.tree.nodes != 2 {
		t.Errorf("apply(other bounds) = %d nodes, %d bytes with %d in use, want 20, 20000 with 2", p.tree.maxNodes, p.tree.maxBytes, p.tree.nodes)
	}
}

func TestGuard_turnsAPanicIntoALine(t *testing.T) {
	done := false
	guard("a test", func() {
		done = true
		panic("on purpose")
	})
	if !done {
		t.Errorf("guard() did not run the function")
	}
}

// TestPool_logsAdviceOnce: what is allowed but hardly meant is logged when it comes into force, not by each reload of the same.
func TestPool_logsAdviceOnce(t *testing.T) {
	c := CreateConfig()
	c.Workers = []WorkerConfig{{URL: "http://a"}}
	p := quietPool(t, c)
	out := &slowWriter{wait: make(chan bool)}
	close(out.wait)
	p.log = &logger{out: slog.New(slog.NewJSONHandler(out, nil)), least: levelInfo, alarms: limit{most: linesPerSecond}}
	c.Workers = []WorkerConfig{{URL: "http://a/v1"}}
	set, err := validate(c)
	if err != nil {
		t.Fatal(err)
	}
	for _, config := range []string{"second", "second", "third"} {
		p.apply(set, config)
	}
	p.log.printLater(levelWarn, "the end")
	for deadline := time.Now().Add(10 * time.Second); !strings.Contains(out.text(), "the end"); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the log does not end: %s", out.text())
		}
	}
	if n := strings.Count(out.text(), "leave out /v1 "); n != 2 || !strings.Contains(out.text(), `"pool":"`+t.Name()) {
		t.Errorf("%d lines for two changed configurations and a reload, want 2: %s", n, out.text())
	}
}
