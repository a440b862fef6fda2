package cart

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// foundAt returns a configuration that takes its replicas from the API's service vllm@file.
func foundAt(address string) *Config {
	c := CreateConfig()
	c.MaxLoad = "3"
	c.Discovery.Service = "vllm@file"
	c.Discovery.Interval = "4s"
	c.Discovery.API.Address = address
	c.Health.Interval = "0"
	c.Health.Metrics.Interval = "0"
	c.Health.Models.Interval = "0"
	c.Proxy.AddDecisionHeaders = "true"
	c.LogLevel = "error"
	return c
}

// lookNow makes the pool look at its source as if at that time.
func lookNow(t *testing.T, p *pool, now time.Time) {
	t.Helper()
	p.mu.Lock()
	p.discovery.due = now
	p.mu.Unlock()
	l, _ := p.beginLook(now)
	if l == nil {
		t.Fatal("beginLook() = none though it is due")
	}
	findReplicas(l)
	p.endLook(l, now)
	written(t, p.log)
}

// listed tells the pool's replicas in one line, with ! behind those that are down and - behind those about to leave.
func listed(p *pool) string {
	var words []string
	for _, r := range p.replicas {
		word := r.worker.name
		if !r.up {
			word += "!"
		}
		if r.leaving {
			word += "-"
		}
		words = append(words, word)
	}
	return strings.Join(words, " ")
}

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

func TestDiscovery_followsTheSource(t *testing.T) {
	a := startAPI(t)
	p := quietPool(t, foundAt(a.url))
	now := noon
	for _, step := range []struct {
		story, servers string
		after          int // seconds
		want           string
	}{
		{"the first list", "http://a http://b", 0, "http://a http://b"},
		{"one more", "http://a http://b http://c", 4, "http://a http://b http://c"},
		{"one is missing", "http://b http://c", 4, "http://b http://c http://a-"},
		{"a moment later", "http://b http://c", 1, "http://b http://c http://a-"},
		{"still missing", "http://b http://c", 1, "http://b http://c"},
		{"one is replaced", "http://b http://d", 4, "http://b http://d http://c-"},
		{"and is back", "http://b http://c http://d", 2, "http://b http://c http://d"},
		{"one is down", "http://b! http://c http://d", 4, "http://b! http://c http://d"},
		{"and up again", "http://b http://c http://d", 4, "http://b http://c http://d"},
		{"half a file", "", 4, "http://b- http://c- http://d-"},
		{"the whole again", "http://b http://c http://d", 1, "http://b http://c http://d"},
		{"none is left", "", 4, "http://b- http://c- http://d-"},
		{"that is meant", "", 2, ""},
		{"one comes", "http://a", 4, "http://a"},
	} {
		a.list(strings.Fields(step.servers)...)
		now = now.Add(time.Duration(step.after) * time.Second)
		lookNow(t, p, now)
		if got := listed(p); got != step.want {
			t.Errorf("%s: replicas = %q, want %q", step.story, got, step.want)
		}
	}
}

func TestDiscovery_whoStaysKeepsItsState(t *testing.T) {
	a := startAPI(t)
	a.list("http://a", "http://b")
	p := quietPool(t, foundAt(a.url))
	lookNow(t, p, noon)
	ex := ask(p, "a prompt that both know")
	held := take(t, p, ex, noon.UnixNano())
	stays := byLetter(t, p, letterOf(held))
	stays.reasons[reasonMiss] = 7
	a.list(held.worker.name, "http://c", "http://d")
	lookNow(t, p, noon.Add(4*time.Second))
	lookNow(t, p, noon.Add(8*time.Second))
	if got := byLetter(t, p, letterOf(held)); got != stays || got.load != 1 || got.reasons[reasonMiss] != 7 || p.tree.claimed[got.id] == 0 {
		t.Errorf("who stays = %+v with %d characters, want it as it was", got, p.tree.claimed[got.id])
	}
	a.list("http://c", "http://d")
	lookNow(t, p, noon.Add(12*time.Second))
	lookNow(t, p, noon.Add(16*time.Second))
	if !stays.draining || len(p.draining) != 1 || len(p.replicas) != 2 {
		t.Errorf("who left = %+v, want it draining and two others", stays)
	}
	endWith(p, ex, held, 200, nil, noon.UnixNano())
	if len(p.draining) != 0 {
		t.Error("who left is still there after its last request")
	}
}

func TestDiscovery_whoIsMissingIsSecondChoiceAndKeepsItsClaims(t *testing.T) {
	a := startAPI(t)
	a.list("http://a", "http://b")
	p := quietPool(t, foundAt(a.url))
	lookNow(t, p, noon)
	at := noon.UnixNano()
	first := take(t, p, ask(p, "a prompt"), at)
	home := first.worker.name
	other := "http://a"
	if home == other {
		other = "http://b"
	}
	a.list(other)
	lookNow(t, p, noon.Add(4*time.Second))
	if got := take(t, p, ask(p, "a prompt"), at).worker.name; got != other {
		t.Errorf("with one missing a request goes to %s, want %s", got, other)
	}
	a.list()
	lookNow(t, p, noon.Add(5*time.Second))
	if got := take(t, p, ask(p, "another"), at); got == nil {
		t.Error("with all missing a request is refused, want it served")
	}
	a.list("http://a", "http://b")
	lookNow(t, p, noon.Add(6*time.Second))
	p.replicas[0].load = 0
	p.replicas[1].load = 0
	if r := byLetter(t, p, strings.TrimPrefix(home, "http://")); r.pushedUntil != 0 || p.tree.claimed[r.id] == 0 {
		t.Errorf("back again it is pushed until %d with %d characters, want it as before", r.pushedUntil, p.tree.claimed[r.id])
	}
}

func TestDiscovery_theLastListStaysInTrouble(t *testing.T) {
	a := startAPI(t)
	var out bytes.Buffer
	p := quietPool(t, foundAt(a.url))
	p.log = captured(&out, levelInfo)
	now := noon
	for _, row := range inTrouble {
		a.fail(nil)
		a.list("http://a", "http://b!")
		lookNow(t, p, now)
		p.log = captured(&out, levelInfo) // another one, for it lets ten lines a second pass
		out.Reset()
		a.fail(row.answer)
		for i := 0; i < 2; i++ {
			now = now.Add(4 * time.Second)
			lookNow(t, p, now)
		}
		if got := listed(p); got != "http://a http://b!" {
			t.Errorf("%s: replicas = %q, want those before", row.story, got)
		}
		d := describe(p, now.UnixNano()).Discovery
		if d.State != "failing" || !strings.Contains(d.Error, row.want) || d.LastSuccess != now.Add(-8*time.Second).Format(time.RFC3339) {
			t.Errorf("%s: /workers says %+v, want failing, why, and since when", row.story, d)
		}
		if n := strings.Count(out.String(), "the last known list stays"); n != 1 || !strings.Contains(out.String(), `"error":`) {
			t.Errorf("%s: two looks in vain wrote %q, want one line with the error", row.story, out.String())
		}
		out.Reset()
		now = now.Add(4 * time.Second)
		lookNow(t, p, now)
		if got := listed(p); got != "http://a http://b" {
			t.Errorf("%s: after a third look in vain replicas = %q, want Traefik's word on b too old", row.story, got)
		}
		a.fail(nil)
		now = now.Add(4 * time.Second)
		lookNow(t, p, now)
		if d := describe(p, now.UnixNano()).Discovery; d.State != "ok" || d.Error != "" || d.LastSuccess != now.Format(time.RFC3339) {
			t.Errorf("%s: afterwards /workers says %+v, want ok", row.story, d)
		}
		if n := strings.Count(out.String(), "discovery works again"); n != 1 {
			t.Errorf("%s: afterwards %d lines say so, want one: %s", row.story, n, out.String())
		}
	}
}

func TestDiscovery_theFormerSourcesWordGetsOldToo(t *testing.T) {
	first, second := startAPI(t), startAPI(t)
	first.list("http://a", "http://b!")
	second.fail(func(rw http.ResponseWriter, _ *http.Request) { http.Error(rw, "no", 500) })
	p := quietPool(t, foundAt(first.url))
	lookNow(t, p, noon)
	set, err := validate(foundAt(second.url))
	if err != nil {
		t.Fatal(err)
	}
	p.apply(set, "another source")
	for i := 0; i < staleAfter; i++ {
		if got := listed(p); got != "http://a http://b!" {
			t.Errorf("after %d looks in vain replicas = %q, want what the former source said", i, got)
		}
		lookNow(t, p, noon.Add(time.Duration(i+1)*10*time.Second))
	}
	if got := listed(p); got != "http://a http://b" {
		t.Errorf("after %d looks in vain replicas = %q, want CART's own probes to decide", staleAfter, got)
	}
}

func TestDiscovery_anotherTroubleIsAnotherLine(t *testing.T) {
	a := startAPI(t)
	a.list("http://a")
	var out bytes.Buffer
	p := quietPool(t, foundAt(a.url))
	p.log = captured(&out, levelInfo)
	lookNow(t, p, noon)
	out.Reset()
	for i, status := range []int{401, 401, 500, 500, 401} {
		code := status
		a.fail(func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(code) })
		lookNow(t, p, noon.Add(time.Duration(i)*4*time.Second))
	}
	if n := strings.Count(out.String(), "\n"); n != 3 {
		t.Errorf("troubles 401, 401, 500, 500, 401 wrote %d lines, want 3: %s", n, out.String())
	}
}

func TestDiscovery_isQuietAndFastAtTheStart(t *testing.T) {
	a := startAPI(t)
	a.fail(func(rw http.ResponseWriter, _ *http.Request) { http.Error(rw, "404 page not found", 404) })
	var out bytes.Buffer
	p := quietPool(t, foundAt(a.url))
	p.log = captured(&out, levelInfo)
	began := p.discovery.since
	now := began
	var waits []time.Duration
	for now.Sub(began) < 20*time.Second {
		lookNow(t, p, now)
		wait := p.discovery.due.Sub(now)
		waits = append(waits, wait)
		if quiet := out.Len() == 0; quiet != (now.Sub(began) < quietStart) {
			t.Errorf("after %v it is quiet: %v, want quiet for %v: %s", now.Sub(began), quiet, quietStart, out.String())
		}
		now = now.Add(wait)
	}
	if d := describe(p, now.UnixNano()).Discovery; d.LastSuccess != "" || d.State != "failing" {
		t.Errorf("before the first answer /workers says %+v, want no success", d)
	}
	last := len(waits) - 1
	if waits[0] != 100*time.Millisecond || waits[1] != 150*time.Millisecond || waits[last] != 4*time.Second || len(waits) < 10 {
		t.Errorf("waits before the first answer = %v, want them to grow from 100ms to 4s", waits)
	}
	a.fail(nil)
	a.list()
	lookNow(t, p, now)
	if wait := p.discovery.due.Sub(now); wait != 4*time.Second {
		t.Errorf("after an empty list it waits %v, want 4s", wait)
	}
}

func TestDiscovery_overlayTunesWhatIsFound(t *testing.T) {
	a := startAPI(t)
	a.list("http://a/", "http://b:80", "http://user:pass@c:8000")
	c := foundAt(a.url)
	c.Workers = []WorkerConfig{
		{URL: "http://B", MaxLoad: "7", LoadPenalty: "2", Headers: map[string]string{"X-Key": "of b"}},
		{URL: " * ", MaxLoad: "5", Headers: map[string]string{"X-Key": "of all", "X-Team": "t"}},
		{URL: "http://nobody:8000", MaxLoad: "9"},
	}
	p := quietPool(t, c)
	lookNow(t, p, noon)
	for _, row := range []struct {
		maxLoad, loadPenalty int
		headers              map[string]string
	}{
		{5, 0, map[string]string{"X-Key": "of all", "X-Team": "t"}},
		{7, 2, map[string]string{"X-Key": "of b", "X-Team": "t"}},
		{5, 0, map[string]string{"X-Key": "of all", "X-Team": "t", "Authorization": "Basic dXNlcjpwYXNz"}},
	} {
		w := p.replicas[0].worker
		p.replicas = p.replicas[1:]
		got := http.Header{}
		for _, h := range w.headers {
			got[h.name] = h.value
		}
		if w.maxLoad != row.maxLoad || w.loadPenalty != row.loadPenalty || len(got) != len(row.headers) {
			t.Errorf("%s: maxLoad %d, loadPenalty %d, headers %v, want %+v", w.name, w.maxLoad, w.loadPenalty, got, row)
		}
		for name, value := range row.headers {
			if got.Get(name) != value {
				t.Errorf("%s: header %s = %q, want %q", w.name, name, got.Get(name), value)
			}
		}
	}
	if d := describe(p, noon.UnixNano()).Discovery; len(d.Unmatched) != 1 || d.Unmatched[0] != "http://nobody:8000" {
		t.Errorf("unmatched = %q, want the entry for which there is no replica", d.Unmatched)
	}
}

// TestDiscovery_tellsOfNoUnmatchedEntryBeforeThereIsAList is about the moments after a start, and a source in trouble.
func TestDiscovery_tellsOfNoUnmatchedEntryBeforeThereIsAList(t *testing.T) {
	a := startAPI(t)
	a.list("http://a")
	c := foundAt(a.url)
	c.Workers = []WorkerConfig{{URL: "http://a", MaxLoad: "7"}}
	p := quietPool(t, c)
	a.fail(func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(401) })
	lookNow(t, p, noon)
	if d := describe(p, noon.UnixNano()).Discovery; d.State != "failing" || len(d.Unmatched) != 0 {
		t.Errorf("before there is a list /workers says %+v, want failing and no entry unmatched", d)
	}
}

func TestDiscovery_aReloadKeepsTheList(t *testing.T) {
	a := startAPI(t)
	a.list("http://a", "http://b")
	c := foundAt(a.url)
	p := quietPool(t, c)
	lookNow(t, p, noon)
	before := p.replicas[0]
	apply := func() {
		set, err := validate(c)
		if err != nil {
			t.Fatal(err)
		}
		p.apply(set, "changed again "+c.MaxLoad+c.Discovery.Service)
	}
	c.MaxLoad = "9"
	c.Workers = []WorkerConfig{{URL: "http://b", MaxLoad: "2"}}
	apply()
	if p.replicas[0] != before || p.replicas[0].worker.maxLoad != 9 || p.replicas[1].worker.maxLoad != 2 {
		t.Errorf("after a reload replicas = %s with maxLoad %d, want the same with the new settings", listed(p), p.replicas[0].worker.maxLoad)
	}

	c.Discovery.Service = "other@file"
	apply()
	lookNow(t, p, noon)
	if got := listed(p); got != "http://a http://b" {
		t.Errorf("before another service answers replicas = %q, want those before", got)
	}
	for _, further := range []string{"7", "8"} {
		c.MaxLoad = further
		apply()
		if got := strconv.Itoa(p.replicas[0].worker.maxLoad); got != further || listed(p) != "http://a http://b" {
			t.Errorf("before another service answers replicas = %q with maxLoad %s, want those before with %s", listed(p), got, further)
		}
	}
	a.services["other@file"] = json.RawMessage(`{"name":"other@file","loadBalancer":{"servers":[{"url":"http://b"},{"url":"http://c"}]}}`)
	lookNow(t, p, noon)
	if got := listed(p); got != "http://b http://c" {
		t.Errorf("replicas of another service = %q, want its own", got)
	}

	c.Discovery = CreateConfig().Discovery
	c.Workers = []WorkerConfig{{URL: "http://c"}, {URL: "http://d"}}
	apply()
	if got := listed(p); got != "http://c http://d" || describe(p, 0).Discovery != nil {
		t.Errorf("replicas that are configured = %q, want these and nothing of a source", got)
	}
}

func TestDiscovery_anAnswerForFormerSettingsIsDropped(t *testing.T) {
	a := startAPI(t)
	a.list("http://a")
	c := foundAt(a.url)
	p := quietPool(t, c)
	l, _ := p.beginLook(noon)
	findReplicas(l)
	c.Discovery.Service = "other@file"
	set, err := validate(c)
	if err != nil {
		t.Fatal(err)
	}
	p.apply(set, "another")
	p.endLook(l, noon)
	if listed(p) != "" || !p.discovery.due.Equal(noon) {
		t.Errorf("replicas = %q, due %v, want none and another look at once", listed(p), p.discovery.due)
	}
}

func TestDiscovery_aReloadOfTraefikIsAHint(t *testing.T) {
	a := startAPI(t)
	a.list("http://a")
	p := quietPool(t, foundAt(a.url))
	lookNow(t, p, noon)
	p.hint(noon)
	p.hint(noon.Add(100 * time.Millisecond))
	at := noon
	for i, want := range []time.Duration{200 * time.Millisecond, time.Second, time.Second, 4 * time.Second, 4 * time.Second} {
		if got := p.discovery.due.Sub(at); got != want {
			t.Errorf("wait %d after a hint = %v, want %v", i, got, want)
		}
		at = p.discovery.due
		lookNow(t, p, at)
	}
}

func TestDiscovery_hidesSecrets(t *testing.T) {
	dir := t.TempDir()
	key, password := filepath.Join(dir, "key"), filepath.Join(dir, "password")
	for _, file := range []string{key, password} {
		if err := os.WriteFile(file, []byte("s3cret\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	a := startAPI(t)
	a.list("http://user:s3cret@a:8000", "http://b:8000", "ftp://user:s3cret@c")
	c := foundAt(a.url)
	c.LogLevel = "debug"
	c.Discovery.API.User = "cart"
	c.Discovery.API.PasswordFile = password
	c.Workers = []WorkerConfig{{URL: "http://user:s3cret@b:8000", Headers: map[string]string{"X-Key": "s3cret"}}, {URL: "*", APIKeyFile: key}}
	var out bytes.Buffer
	p := quietPool(t, c)
	p.log = captured(&out, levelDebug)
	lookNow(t, p, noon)
	for i, row := range inTrouble {
		a.fail(row.answer)
		lookNow(t, p, noon.Add(time.Duration(i)*time.Minute))
		shown, err := json.Marshal(describe(p, noon.UnixNano()))
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(shown), "s3cret") || strings.Contains(out.String(), "s3cret") {
			t.Errorf("%s: a secret is shown in %s or %s", row.story, shown, out.String())
		}
	}
	if len(p.replicas) != 2 || a.password != "s3cret" {
		t.Errorf("replicas = %s, password %q, want two found with the password of the file", listed(p), a.password)
	}
}

func TestDiscovery_aSlowSourceHoldsUpNobody(t *testing.T) {
	a := startAPI(t)
	release := make(chan bool)
	asked := make(chan bool, 10)
	a.fail(func(_ http.ResponseWriter, _ *http.Request) {
		asked <- true
		<-release
	})
	defer close(release)
	p := quietPool(t, foundAt(a.url))
	ended := make(chan bool, 1)
	go guard("test", func() {
		p.discover(time.Now())
		ended <- true
	})
	<-asked
	if d := describe(p, time.Now().UnixNano()).Discovery; d.State != "starting" {
		t.Errorf("while the source thinks /workers says %+v, want starting", d)
	}
	// Other settings are followed at once.
	c := foundAt(a.url)
	c.Discovery.DNS = "http://127.0.0.1:9"
	c.Discovery.Service = ""
	set, err := validate(c)
	if err != nil {
		t.Fatal(err)
	}
	p.apply(set, "another")
	<-ended
	p.discover(time.Now())
	if got := listed(p); got != "http://127.0.0.1:9" {
		t.Errorf("replicas = %q, want those of the new source", got)
	}
}

func TestDiscovery_aPanicIsATrouble(t *testing.T) {
	p := quietPool(t, foundAt("http://127.0.0.1:1"))
	l, _ := p.beginLook(noon)
	l.client = nil
	findReplicas(l)
	p.endLook(l, noon)
	if d := describe(p, noon.UnixNano()).Discovery; !strings.Contains(d.Error, "panic in discovery") {
		t.Errorf("/workers says %+v, want a panic told", d)
	}
}

func TestDiscovery_endToEnd(t *testing.T) {
	var calls atomic.Int64
	one, two := startReplica(t, answering("one", 200, &calls)), startReplica(t, answering("two", 200, &calls))
	a := startAPI(t)
	a.fail(func(rw http.ResponseWriter, _ *http.Request) { http.Error(rw, "404 page not found", 404) })
	c := foundAt(a.url)
	c.Discovery.Interval = "100ms"
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	h, err := New(ctx, nil, c, t.Name())
	if err != nil {
		t.Fatal(err)
	}
	if why, peer := through(t, h); peer != "" {
		t.Errorf("without a replica a request goes to %q (%s), want it refused", peer, why)
	}
	a.list(one)
	a.fail(nil)
	eventually(t, "the first replica takes a request", func() bool {
		_, peer := through(t, h)
		return peer == one
	})
	a.list(two)
	eventually(t, "the next one takes requests", func() bool {
		_, peer := through(t, h)
		return peer == two
	})
	eventually(t, "the first one is removed", func() bool { return len(state(t).Workers) == 1 })
	a.fail(func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(500) })
	eventually(t, "the trouble is told", func() bool { return state(t).Discovery.State == "failing" })
	if _, peer := through(t, h); peer != two {
		t.Errorf("in trouble a request goes to %q, want %q", peer, two)
	}

	// The loop ends with the pool.
	p := registered(t.Name())
	cancel()
	eventually(t, "the pool ends", p.hasEnded)
	asked := a.count()
	time.Sleep(250 * time.Millisecond)
	if got := a.count(); got > asked+1 {
		t.Errorf("the source is asked %d more times after the pool has ended, want at most the one under way", got-asked)
	}
}

func TestDiscovery_churnLeavesNothingBehind(t *testing.T) {
	var calls atomic.Int64
	stays := startReplica(t, answering("stays", 200, &calls))
	a := startAPI(t)
	a.list(stays)
	p := quietPool(t, foundAt(a.url))
	lookNow(t, p, noon)
	before := runtime.NumGoroutine()
	now := noon
	for i := 0; i < 200; i++ {
		now = now.Add(time.Second)
		if i%2 == 0 {
			a.list(stays, "http://127.0.0.1:1")
		} else {
			a.list("http://127.0.0.1:2", stays)
		}
		lookNow(t, p, now)
		take(t, p, ask(p, "a prompt"), now.UnixNano())
		for _, r := range p.replicas {
			r.load = 0
		}
	}
	eventually(t, "no goroutines are left", func() bool { return runtime.NumGoroutine() <= before+2 })
	if len(p.byID) > 3 || len(p.draining) != 0 || len(p.discovery.servers) > 3 {
		t.Errorf("after 200 changes: %d replicas, %d draining, want what the last list has", len(p.byID), len(p.draining))
	}
}

func TestDiscovery_shownByWorkers(t *testing.T) {
	a := startAPI(t)
	a.list("http://a", "http://b!")
	p := quietPool(t, foundAt(a.url))
	lookNow(t, p, noon)
	a.list("http://b!")
	lookNow(t, p, noon.Add(time.Second))
	answer := describe(p, noon.UnixNano())
	d := answer.Discovery
	if want := "service vllm@file of Traefik at " + a.url; d.Source != want || d.State != "ok" || d.Interval != "4s" ||
		strings.Join(d.Leaving, " ") != "http://a" || d.LastSuccess != "2026-01-02T12:00:01Z" {
		t.Errorf("/workers says %+v, want the source %q, ok, and http://a leaving", d, want)
	}
	if w := answer.Workers[0]; w.Healthy || !strings.Contains(w.Why, "Traefik's own health check") || answer.Usable != 1 {
		t.Errorf("/workers says %+v of a replica that Traefik has down, and %d usable, want it down and why, and 1", w, answer.Usable)
	}
	text, err := json.Marshal(answer)
	if err != nil || !strings.Contains(string(text), `"discovery":{"source":"service vllm@file`) {
		t.Errorf("/workers = %s, %v, want an object discovery", text, err)
	}
}

// BenchmarkDiscovery measures one look, the exchange with the API included.
func BenchmarkDiscovery(b *testing.B) {
	for _, n := range []int{8, 100} {
		count := n
		b.Run("servers="+strconv.Itoa(count), func(b *testing.B) { benchDiscovery(b, count) })
	}
}

func benchDiscovery(b *testing.B, servers int) {
	var lines []string
	for i := 0; i < servers; i++ {
		lines = append(lines, `{"url":"http://10.0.0.`+strconv.Itoa(i)+`:8000"}`)
	}
	body := `{"name":"vllm@file","loadBalancer":{"servers":[` + strings.Join(lines, ",") + `]}}`
	s := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { io.WriteString(rw, body) }))
	defer s.Close()
	set, err := validate(foundAt(s.URL))
	if err != nil {
		b.Fatal(err)
	}
	p := newPool(b.Name(), set)
	p.apply(set, "first")
	b.ResetTimer()
	for i := 0; i < b.N; i++ {
		l, _ := p.beginLook(time.Now().Add(time.Hour))
		findReplicas(l)
		if l.err != nil {
			b.Fatal(l.err)
		}
		p.endLook(l, time.Now())
	}
}

// BenchmarkSetWorkers measures a change of the list, which is made under the pool's lock.
func BenchmarkSetWorkers(b *testing.B) {
	for _, n := range []int{8, 100} {
		count := n
		b.Run("replicas="+strconv.Itoa(count), func(b *testing.B) {
			c := CreateConfig()
			for i := 0; i <= count; i++ {
				c.Workers = append(c.Workers, WorkerConfig{URL: "http://10.0.0." + strconv.Itoa(i) + ":8000"})
			}
			set, err := validate(c)
			if err != nil {
				b.Fatal(err)
			}
			p := newPool(b.Name(), set)
			p.apply(set, "first")
			b.ResetTimer()
			for i := 0; i < b.N; i++ {
				p.setWorkers(set.workers[i%2 : count+i%2])
			}
		})
	}
}
