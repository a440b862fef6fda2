package cart

import (
	"fmt"
	"math/rand"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// beginCalm makes the first decision of an exchange as ServeHTTP does, which may be calm; choose always waits.
func beginCalm(p *pool, key string, now int64) *exchange {
	ex := ask(p, key)
	ex.quick = ex.set.quick
	ex.at = now
	ex.cancel = func() {}
	ex.begun = time.Now()
	decideJobs <- ex
	<-ex.done
	return ex
}

// endCalm ends it well as ServeHTTP does.
func endCalm(ex *exchange, now int64) {
	ex.answered = true
	ex.status = http.StatusOK
	ex.result = outcomeSuccess
	ex.finished = true
	ex.at = now
	endExchange(ex)
}

// waitForLock waits until nobody works on the pool, and fails if that never comes.
func waitForLock(t *testing.T, p *pool, story string) {
	t.Helper()
	got := make(chan int, 1)
	go guard("a test", func() {
		p.mu.Lock()
		got <- p.running
		p.mu.Unlock()
	})
	for stop := time.Now().Add(10 * time.Second); len(got) == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(stop) {
			t.Fatalf("%s: the pool's lock is never given back", story)
		}
	}
	<-got
}

func TestCalm_whereFewAsk(t *testing.T) {
	p := poolOf(t, "abc")
	now := second(0)
	var running []*exchange
	for i, row := range []struct {
		pause time.Duration
		calm  bool
	}{
		{0, true}, {0, true}, {0, false}, {0, false}, {5*time.Millisecond + 1, true}, {5 * time.Millisecond, false},
	} {
		now += int64(row.pause)
		ex := beginCalm(p, "a prompt", now)
		waitForLock(t, p, "a choice")
		if ex.calm != row.calm {
			t.Errorf("request %d, %v after the one before, is calm: %t, want %t", i+1, row.pause, ex.calm, row.calm)
		}
		running = append(running, ex)
	}
	for _, ex := range running {
		endCalm(ex, now)
	}
	waitForLock(t, p, "the ends")
	if p.running != 0 || p.decided != 6 || p.open != 3 {
		t.Errorf("after 6 requests %d run, %d were decided, %d replicas can be chosen, want 0, 6, 3", p.running, p.decided, p.open)
	}
	checkRanked(t, "after the ends", p, now)
	checkTree(t, p.tree)
}

func TestCalm_accountsAgreeWithTheReplicas(t *testing.T) {
	for seed := int64(1); seed <= 10; seed++ {
		draw := rand.New(rand.NewSource(seed))
		letters := allLetters[:1+draw.Intn(10)]
		p := poolOf(t, letters)
		now := second(0)
		var running []*exchange
		for step := 0; step < 150; step++ {
			story := fmt.Sprintf("seed %d, step %d", seed, step)
			now += int64(time.Duration(draw.Intn(8)) * time.Millisecond)
			p.mu.Lock()
			switch r := p.replicas[draw.Intn(len(p.replicas))]; draw.Intn(40) {
			case 0:
				r.up = !r.up
				p.rankedUntil = 0
			case 1:
				letters = allLetters[:1+draw.Intn(10)]
				setLetters(t, p, letters)
			case 2:
				p.dropClaims(r)
			}
			p.mu.Unlock()
			for len(running) > 0 && draw.Intn(2) == 0 {
				i := draw.Intn(len(running))
				ex := running[i]
				running = append(running[:i], running[i+1:]...)
				if draw.Intn(3) == 0 {
					endWith(p, ex, ex.attempt, []int{200, 429, 500, 0}[draw.Intn(4)], nil, now)
				} else {
					endCalm(ex, now)
				}
				p.mu.Lock()
				checkRanked(t, story, p, now)
				p.mu.Unlock()
			}
			ex := beginCalm(p, strings.Repeat("p", draw.Intn(50)), now)
			if ex.chosen != nil {
				running = append(running, ex)
			}
			p.mu.Lock()
			checkRanked(t, story, p, now)
			if p.running != len(running) {
				t.Fatalf("%s: %d attempts run, want %d", story, p.running, len(running))
			}
			p.mu.Unlock()
		}
		for _, ex := range running {
			endCalm(ex, now)
		}
		waitForLock(t, p, "the last ends")
		checkTree(t, p.tree)
		if p.running != 0 {
			t.Errorf("seed %d: %d attempts run after all have ended", seed, p.running)
		}
	}
}

func TestCalm_aPanicCostsOneLesson(t *testing.T) {
	p := poolOf(t, "a")
	r := p.replicas[0]
	own := r.age
	r.age = nil
	ex := beginCalm(p, "a prompt", second(0))
	waitForLock(t, p, "a panic in a lesson")
	r.age = own
	if ex.chosen == nil || ex.attempt.stamp != 0 {
		t.Errorf("after a panic in a lesson: chosen %v, want a replica that was not taught", ex.chosen)
	}
	endCalm(ex, second(0))
	waitForLock(t, p, "its end")
	first := r.first
	r.first = nil
	ex = beginCalm(p, "a prompt", second(0))
	waitForLock(t, p, "a choice")
	ex.firstByte = time.Second
	endCalm(ex, second(0))
	waitForLock(t, p, "a panic in an end")
	r.first = first
	ex = beginCalm(p, "a prompt", second(0))
	waitForLock(t, p, "a choice")
	ex.cancel = func() { panic("on purpose") }
	endCalm(ex, second(0))
	waitForLock(t, p, "a panic in an end's first statement")
	for i := 0; i < 8; i++ { // the loops go on
		endCalm(beginCalm(p, "a prompt", second(0)), second(0))
	}
	waitForLock(t, p, "more requests")
	checkTree(t, p.tree)
}

func TestSurvive_takesBackWhatWasTaught(t *testing.T) {
	c := CreateConfig()
	c.Policy = policyLeastLoad
	c.Workers = []WorkerConfig{{URL: "http://a"}, {URL: "http://b"}}
	p := quietPool(t, c)
	calls := 0
	ex := ask(p, "a prompt")
	ex.policy = func(cs []candidate, in *prompt) (int, string) {
		calls++
		if calls == 2 {
			panic("on purpose")
		}
		return 0, reasonMiss
	}
	ex.cancel = func() {}
	ex.begun = time.Now()
	decideJobs <- ex
	<-ex.done
	ex.status = http.StatusInternalServerError
	ex.result = outcomeFailure
	if next, _ := choose(p, ex, 0); next != nil {
		t.Fatalf("choose() = %v after a panic, want none", next)
	}
	ex.finished = true
	endExchange(ex)
	waitForLock(t, p, "the end")
	if p.running != 0 || p.tree.nodes != 0 {
		t.Errorf("%d attempts run and the tree has %d nodes after a prompt that nobody answered, want none", p.running, p.tree.nodes)
	}
	checkTree(t, p.tree)
}

// TestLoops_keepNothingOfCalmRequests has long bodies among calm requests and then others that are not: the loops for
// lessons and ends, which have nothing to do then, must not keep what they had last.
func TestLoops_keepNothingOfCalmRequests(t *testing.T) {
	const size = 8 << 20
	p, h := benchPool(t, 2, policyThreshold)
	for _, r := range p.replicas {
		setTransport(r, &benchUsage{})
	}
	for _, form := range []struct{ what, head, tail string }{
		{"a prompt", `{"model":"m","messages":[{"role":"user","content":"`, `"}]}`},
		{"a short prompt in a long body", `{"model":"m","messages":[{"role":"user","content":"x"}],"x":"`, `"}`},
		{"a body that cannot be read", `packed`, ``},
	} {
		serveMany(h)
		before := heapInUse()
		for i := 0; i < 8; i++ {
			serveChat(h, form.head, size, form.tail)
		}
		serveMany(h)
		p.mu.Lock()
		p.tree.clear()
		p.mu.Unlock()
		if after := heapWithin(before + 2*size); after > before+2*size { // the last one may be in a bench transport's hands
			t.Errorf("%s: %d MiB more in use after other requests, want none of bodies of %d MiB", form.what, (after-before)>>20, size>>20)
		}
	}
}

// serveMany serves short chats as if many others were under way and asked all the time.
func serveMany(h *handler) {
	p := h.pool
	p.mu.Lock()
	p.running += 10
	p.mu.Unlock()
	for i := 0; i < 50; i++ {
		p.mu.Lock()
		p.asked = time.Now().Add(time.Second).UnixNano()
		p.mu.Unlock()
		serveChat(h, `{"model":"m","messages":[{"role":"user","content":"`, 1, `"}]}`)
	}
	p.mu.Lock()
	p.running -= 10
	p.asked = 0
	p.mu.Unlock()
}

func serveChat(h *handler, head string, length int, tail string) {
	req := httptest.NewRequest(http.MethodPost, "/v1/chat/completions", strings.NewReader(head+strings.Repeat("x", length)+tail))
	if head[0] != '{' {
		req.Header.Set("Content-Encoding", "gzip")
	}
	h.ServeHTTP(httptest.NewRecorder(), req)
}
