package replica

import (
	"math/rand"
	"strings"
	"testing"
)

// check verifies what the comment on cache promises.
func (c *cache) check(t *testing.T) {
	t.Helper()
	if c.used() > c.capacity || c.reserved < 0 {
		t.Fatalf("used = %d, reserved = %d, capacity = %d", c.used(), c.reserved, c.capacity)
	}
	idle := 0
	for h, b := range c.blocks {
		if b.hash != h || (b.pins == 0) != (b.elem != nil) || b.pins < 0 {
			t.Fatalf("block %x is inconsistent: %+v", h, b)
		}
		if b.pins == 0 {
			idle++
		}
	}
	if idle != c.idle.Len() {
		t.Fatalf("idle has %d blocks, %d are unpinned", c.idle.Len(), idle)
	}
}

func TestCompletion_cachedTokensByHand(t *testing.T) {
	r := start(t, Options{}) // 16 tokens of 4 bytes: blocks of 64 bytes
	a, b := strings.Repeat("a", 64), strings.Repeat("b", 64)
	for _, row := range []struct {
		name           string
		prompt         string
		tokens, cached int
	}{
		{"nothing known", a + b + "c", 33, 0},
		{"two whole blocks", a + b + "c", 33, 32},
		{"the last token is computed always", a + b, 32, 16},
		{"first block only", a + a + "c", 33, 16},
		{"a block counts with its predecessors", b + "c", 17, 0},
		{"less than a block", a[:63], 16, 0},
		{"empty", "", 0, 0},
	} {
		tokens, cached := completion(t, r, row.prompt)
		if tokens != row.tokens || cached != row.cached {
			t.Errorf("%s: prompt, cached = %d, %d, want %d, %d", row.name, tokens, cached, row.tokens, row.cached)
		}
	}
	s := r.Stats()
	if s.Requests != 7 || s.PromptTokens != 33+33+32+33+17+16 || s.CachedTokens != 32+16+16 {
		t.Errorf("Stats() = %+v", s)
	}
}

func TestCompletion_answerIsCachedToo(t *testing.T) {
	r := start(t, Options{})
	prompt := strings.Repeat("p", 64)
	body := `{"prompt":"` + prompt + `","max_tokens":16}`
	answer := at(t, ask(t, r.URL()+"/v1/completions", body), "choices", 0, "text").(string)
	if len(answer) != 64 {
		t.Fatalf("answer has %d bytes, want 16 tokens of 4", len(answer))
	}
	if _, cached := completion(t, r, prompt+answer+"next"); cached != 32 {
		t.Errorf("cached = %d, want 32: the prompt's block and the answer's", cached)
	}
}

func TestCache_separateByModelAndSalt(t *testing.T) {
	r := start(t, Options{})
	prompt := strings.Repeat("p", 128)
	cached := func(extra string) any {
		answer := ask(t, r.URL()+"/v1/completions", `{"prompt":"`+prompt+`"`+extra+`}`)
		return at(t, answer, "usage", "prompt_tokens_details", "cached_tokens")
	}
	for _, extra := range []string{``, `,"model":"m"`, `,"cache_salt":"s"`, `,"model":"m","cache_salt":"s"`} {
		if got := cached(extra); got != 0.0 {
			t.Errorf("first with %q: cached = %v, want 0", extra, got)
		}
		if got := cached(extra); got != 16.0 {
			t.Errorf("second with %q: cached = %v, want 16", extra, got)
		}
	}
	r.ResetCache()
	if got := cached(""); got != 0.0 {
		t.Errorf("after ResetCache: cached = %v, want 0", got)
	}
}

func TestCache_evictsLeastRecentlyUsedLeavesFirst(t *testing.T) {
	c := newCache(4)
	use := func(chain ...uint64) int {
		l := c.acquire(chain, len(chain), len(chain))
		if l == nil {
			t.Fatalf("acquire(%v) = nil", chain)
		}
		hits := len(l.blocks)
		c.fill(l, chain)
		c.release(l)
		c.check(t)
		return hits
	}
	for _, row := range []struct {
		chain []uint64
		hits  int
	}{
		{[]uint64{1, 2, 3}, 0},
		{[]uint64{1, 2, 4}, 2}, // full: 1 2 3 4
		{[]uint64{5}, 0},       // evicts 3, the oldest leaf, not its parents
		{[]uint64{1, 2, 4}, 3},
		{[]uint64{6}, 0}, // evicts 5
		{[]uint64{1, 2}, 2},
		{[]uint64{7, 8}, 0}, // evicts 4 and 6
		{[]uint64{1, 2, 4}, 2},
	} {
		if hits := use(row.chain...); hits != row.hits {
			t.Errorf("use(%v) = %d hits, want %d", row.chain, hits, row.hits)
		}
	}
}

func TestCache_pinnedBlocksStay(t *testing.T) {
	c := newCache(3)
	l := c.acquire([]uint64{1, 2}, 2, 2)
	c.fill(l, []uint64{1, 2})
	if c.acquire([]uint64{3, 4}, 2, 2) != nil {
		t.Error("acquire of 2 blocks beside 2 pinned ones in 3 succeeded")
	}
	c.reset()
	if c.match([]uint64{1, 2}, 2) != 2 {
		t.Error("reset dropped pinned blocks")
	}
	c.release(l)
	if c.acquire([]uint64{3, 4}, 2, 2) == nil {
		t.Error("acquire after release failed")
	}
	c.check(t)
}

// TestCache_closedUnderPrefixes plays random sequences over a small tree of chains.
func TestCache_closedUnderPrefixes(t *testing.T) {
	rnd := rand.New(rand.NewSource(1))
	c := newCache(20)
	parent := func(h uint64) uint64 { return h / 3 } // 1 is the root; 3h to 3h+2 continue h
	chainTo := func(h uint64) (chain []uint64) {
		for ; h > 0; h = parent(h) {
			chain = append([]uint64{h}, chain...)
		}
		return chain
	}
	var held []*lease
	for i := 0; i < 20000; i++ {
		chain := chainTo(1 + uint64(rnd.Intn(200)))
		if l := c.acquire(chain, len(chain), len(chain)); l != nil {
			c.fill(l, chain)
			held = append(held, l)
		}
		for len(held) > rnd.Intn(4) {
			k := rnd.Intn(len(held))
			c.release(held[k])
			held = append(held[:k], held[k+1:]...)
		}
		c.check(t)
		for h := range c.blocks {
			if p := parent(h); p > 0 && c.blocks[p] == nil {
				t.Fatalf("step %d: block %d is cached without its predecessor", i, h)
			}
		}
	}
}
