package cart

import (
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"
)

// TestLoops_keepNothingOfLongBodies wants the memory of long bodies back once other requests have come. Interpreted, every
// intermediate value of a loop stays where it is until its statement runs again.
func TestLoops_keepNothingOfLongBodies(t *testing.T) {
	const size = 4 << 20
	p := poolOf(t, "ab")
	short := `{"model":"m","tools":[{"name":"x"}],"messages":[{"role":"user","content":"x"}]}`
	for _, form := range []struct{ what, head, tail string }{
		{"a prompt", `{"model":"m","messages":[{"role":"user","content":"`, `"}]}`},
		{"no prompt", `{"model":"m","x":"`, `"}`},
		{"spaces and tools", `{"model": "m", "tools": [{"name": "`, `"}], "messages": [{"role": "user", "content": "x"}]}`},
	} {
		decideOn(p, short, 0, "")
		before := heapInUse()
		for i := 0; i < 8; i++ { // as many as there are loops, and more
			decideOn(p, form.head, size, form.tail)
		}
		for i := 0; i < 16; i++ {
			decideOn(p, short, 0, "")
		}
		p.tree.clear()
		if after := heapWithin(before + size); after > before+size {
			t.Errorf("%s: %d MiB more in use after other requests, want none of bodies of %d MiB", form.what, (after-before)>>20, size>>20)
		}
	}
}

// TestLoops_keepNothingOfExplanations is the same for what is only explained.
func TestLoops_keepNothingOfExplanations(t *testing.T) {
	const size = 4 << 20
	c := CreateConfig()
	c.Endpoints.Explain = "true"
	c.Workers = []WorkerConfig{{URL: "http://a"}, {URL: "http://b"}}
	p := quietPool(t, c)
	h := newHandler(p, p.set, policies[policyThreshold])
	for _, full := range []bool{false, true} {
		for _, r := range h.pool.replicas {
			r.up = !full
		}
		explainLong(h, 0)
		before := heapInUse()
		for i := 0; i < 8; i++ {
			explainLong(h, size)
		}
		// Nothing else is asked for: a loop that has nothing to do keeps nothing.
		if after := heapWithin(before + size); after > before+size {
			t.Errorf("refused: %t: %d MiB more in use after explanations, want none of bodies of %d MiB", full, (after-before)>>20, size>>20)
		}
	}
}

// explainLong asks where a body of that length would go, in which no prompt can be made out.
func explainLong(h *handler, length int) {
	body := strings.NewReader(strings.Repeat("[", length))
	req := httptest.NewRequest(http.MethodPost, "/workers?explain=1", body)
	serveOther(h, &exchange{h: h, rw: httptest.NewRecorder(), req: req, done: make(chan int, 1)})
}

// decideOn decides on a chat of that length and more, and gives its place back as if it had failed. The body is made here, for
// what is left of this function's own values goes with it.
func decideOn(p *pool, head string, length int, tail string) {
	space, key := keyOf(endpointChat, head+strings.Repeat("x", length)+tail)
	ex := ask(p, key)
	ex.space = space
	if a, _ := choose(p, ex, 0); a != nil {
		release(ex, a, 0)
	}
}

// heapWithin returns what is in use once it is no more than most, or what it is after ten seconds: a loop that has answered may
// not have got its turn since, and so still have what it worked on. What a loop keeps while it waits, it keeps then too.
func heapWithin(most uint64) uint64 {
	after := heapInUse()
	for stop := time.Now().Add(10 * time.Second); after > most && time.Now().Before(stop); after = heapInUse() {
		time.Sleep(10 * time.Millisecond)
	}
	return after
}

func heapInUse() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
