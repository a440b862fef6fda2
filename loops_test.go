package cart

import (
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

// decideOn decides on a chat of that length and more, and gives its place back as if it had failed. The body is made here, for
// what is left of this function's own values goes with it.
func decideOn(p *pool, head string, length int, tail string) {
	space, key := keyOf(endpointChat, head+strings.Repeat("x", length)+tail)
	ex := ask(p, key)
	ex.space = space
	a, _ := choose(p, ex, 0)
	release(ex, a, 0)
}

func heapInUse() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
