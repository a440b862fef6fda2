package cart

import (
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
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
		if after := heapInUse(); after > before+size {
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
		for i := 0; i < 16; i++ {
			decideOn(h.pool, `{"model":"m","messages":[{"role":"user","content":"x"}]}`, 0, "")
		}
		if after := heapInUse(); after > before+size {
			t.Errorf("%d MiB more in use after explanations, want none of bodies of %d MiB", (after-before)>>20, size>>20)
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

func heapInUse() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
