package cart

import (
	"fmt"
	"math/rand"
	"strings"
	"testing"
	"time"
)

// checkTree walks the tree and reports every invariant in the type's comment that does not hold.
func checkTree(t *testing.T, tr *tree) {
	t.Helper()
	c := &treeCheck{t: t, tree: tr, claimed: map[int]int{}}
	for space, root := range tr.roots {
		if root.label != space || root.parent != nil {
			t.Errorf("root of space %q has label %q and parent %p, want the space and none", space, root.label, root.parent)
		}
		c.visit(root, space)
	}
	if c.nodes != tr.nodes || c.bytes != tr.bytes {
		t.Errorf("nodes, bytes = %d, %d, want the sums %d, %d", tr.nodes, tr.bytes, c.nodes, c.bytes)
	}
	for id, n := range c.claimed {
		if tr.claimed[id] != n {
			t.Errorf("claimed[%d] = %d, want the sum %d", id, tr.claimed[id], n)
		}
	}
	for id, n := range tr.claimed {
		if c.claimed[id] != n {
			t.Errorf("claimed[%d] = %d, want the sum %d", id, n, c.claimed[id])
		}
	}
	for id, own := range tr.ages {
		checkAge(t, id, own)
	}
	c.walkLeaves()
}

type treeCheck struct {
	t       *testing.T
	tree    *tree
	nodes   int
	bytes   int
	leaves  int
	claimed map[int]int
}

func (c *treeCheck) visit(n *node, where string) {
	t := c.t
	c.nodes++
	c.bytes += nodeBytes + len(n.label)
	if n.gone {
		t.Errorf("node %q is in the tree and marked as gone", where)
	}
	if len(n.kids) == 0 && n.parent == nil {
		t.Errorf("root of space %q has no kids, want it removed", where)
	}
	if leaf := len(n.kids) == 0 && n.parent != nil; leaf != n.listed {
		t.Errorf("node %q: listed = %v, want %v", where, n.listed, leaf)
	}
	if n.listed {
		c.leaves++
	}
	if len(n.firsts) != len(n.kids) {
		t.Errorf("node %q has firsts %q for %d kids", where, n.firsts, len(n.kids))
		return
	}
	seen := map[int]bool{}
	for _, one := range n.claims {
		if seen[one.id] {
			t.Errorf("node %q is claimed twice by %d", where, one.id)
		}
		seen[one.id] = true
		c.claimed[one.id] += len(n.label)
		if n.parent != nil && !holds(n.parent, one.id) {
			t.Errorf("node %q is claimed by %d, its parent is not", where, one.id)
		}
		if own := c.tree.ages[one.id]; own != nil && one.stamp > own.clock {
			t.Errorf("node %q: claim of %d at %d is later than the last stamp %d", where, one.id, one.stamp, own.clock)
		}
		for _, up := range claimsAbove(n) {
			if own := c.tree.ages[one.id]; up.id == one.id && up.stamp < one.stamp && (own == nil || one.stamp > own.faded) {
				t.Errorf("node %q: claim of %d at %d is later than its parent's at %d", where, one.id, one.stamp, up.stamp)
			}
		}
	}
	if len(n.claims) == 0 {
		t.Errorf("node %q is claimed by nobody", where)
	}
	for i, kid := range n.kids {
		if kid.parent != n {
			t.Errorf("kid %q of node %q has another parent", kid.label, where)
		}
		if kid.label == "" {
			t.Errorf("kid %d of node %q has an empty label", i, where)
			continue
		}
		if kid.label[0] != n.firsts[i] || strings.IndexByte(n.firsts, kid.label[0]) != i {
			t.Errorf("node %q has firsts %q, kid %d starts with %q", where, n.firsts, i, kid.label[0])
		}
		c.visit(kid, where+"|"+kid.label)
	}
}

// claimsAbove returns the claims of a node's parent.
func claimsAbove(n *node) []claim {
	if n.parent == nil {
		return nil
	}
	return n.parent.claims
}

// walkLeaves follows the list of leaves from the newest on. Its order of use is exact in a tree too small for long lists.
func (c *treeCheck) walkLeaves() {
	t, tr := c.t, c.tree
	count := 0
	var last *node
	for n := tr.newest; n != nil && count <= c.leaves; n = n.older {
		count++
		if !n.listed || n.gone {
			t.Errorf("list of leaves holds %q with listed = %v, gone = %v", n.label, n.listed, n.gone)
		}
		if n.newer != last {
			t.Errorf("list of leaves: the newer neighbour of %q is not the one that leads to it", n.label)
		}
		if last != nil && last.used < n.used && tr.maxNodes <= 17 {
			t.Errorf("list of leaves: %q used at %d comes before %q used at %d", last.label, last.used, n.label, n.used)
		}
		last = n
	}
	if tr.oldest != last {
		t.Errorf("list of leaves does not end with the oldest")
	}
	if count != c.leaves {
		t.Errorf("list of leaves has %d or more, want the %d in the tree", count, c.leaves)
	}
}

const manyNodes, manyBytes = 1 << 20, 1 << 30

// learn finds and inserts one prompt.
func learn(tr *tree, space, key string, id int) (stamp int64, before int) {
	tr.find(space, key)
	return tr.insert(space, key, id)
}

// learnAll inserts "id:key" entries in the space "s".
func learnAll(tr *tree, entries ...string) {
	for _, e := range entries {
		learn(tr, "s", e[2:], int(e[0]-'0'))
	}
}

// held returns how much of the prompt is known to be held by id: what the tree says once find has run.
func held(tr *tree, space, key string, id int) int {
	tr.find(space, key)
	if tr.part != nil && holds(tr.part, id) {
		return tr.match
	}
	for i := len(tr.path) - 1; i >= 0; i-- {
		if holds(tr.path[i], id) {
			return tr.depth[i]
		}
	}
	return 0
}

// leaves returns the prompts that end in leaves, the one used last first.
func leaves(tr *tree) string {
	var out []string
	for n := tr.newest; n != nil; n = n.older {
		text := ""
		for up := n; up.parent != nil; up = up.parent {
			text = up.label + text
		}
		out = append(out, text)
	}
	return strings.Join(out, " ")
}

func TestTree_findsTheLongestKnownPrefix(t *testing.T) {
	for _, row := range []struct {
		story string
		known []string
		key   string
		want  int
		held1 int // of that held by 1
		held2 int
	}{
		{"nothing is known", nil, "abc", 0, 0, 0},
		{"the same prompt again", []string{"1:abc"}, "abc", 3, 3, 0},
		{"another turn", []string{"1:abc"}, "abcdef", 3, 3, 0},
		{"an earlier turn", []string{"1:abcdef"}, "abc", 3, 3, 0},
		{"another beginning", []string{"1:abc"}, "xyz", 0, 0, 0},
		{"a fork in the middle", []string{"1:abcdef"}, "abcxyz", 3, 3, 0},
		{"the first byte only", []string{"1:abcdef"}, "axxxxx", 1, 1, 0},
		{"all but the last byte", []string{"1:abcdef"}, "abcdex", 5, 5, 0},
		{"two hold it all", []string{"1:abc", "2:abc"}, "abc", 3, 3, 3},
		{"one holds more", []string{"1:abcdef", "2:abcxyz"}, "abcdef", 6, 6, 3},
		{"an earlier turn held by the other", []string{"1:abcdef", "2:abc"}, "abcdef", 6, 6, 3},
		{"the longest is not the latest", []string{"1:abcdef", "2:abcdxx"}, "abcdef", 6, 6, 4},
		{"a fork of forks", []string{"1:abcd", "1:abxx", "2:aby", "1:b"}, "abyy", 3, 2, 3},
		{"one of many kids", []string{"1:xa", "1:xb", "1:xc", "2:xd", "1:xe"}, "xdd", 2, 1, 2},
		{"an empty prompt", []string{"1:abc"}, "", 0, 0, 0},
		{"an empty prompt was taught", []string{"1:"}, "abc", 0, 0, 0},
		{"zero bytes count", []string{"1:a\x00b"}, "a\x00c", 2, 2, 0},
	} {
		tr := newTree(manyNodes, manyBytes)
		learnAll(tr, row.known...)
		checkTree(t, tr)
		tr.find("s", row.key)
		if tr.match != row.want {
			t.Errorf("%s: find(%q).match = %d, want %d", row.story, row.key, tr.match, row.want)
		}
		if got := held(tr, "s", row.key, 1); got != row.held1 {
			t.Errorf("%s: held(%q, 1) = %d, want %d", row.story, row.key, got, row.held1)
		}
		if got := held(tr, "s", row.key, 2); got != row.held2 {
			t.Errorf("%s: held(%q, 2) = %d, want %d", row.story, row.key, got, row.held2)
		}
	}
}

func TestTree_cutsStringsAnywhere(t *testing.T) {
	for _, row := range []struct {
		first, second string
		want          int
	}{
		{"naïve", "naîve", 3},                             // the two letters share their first byte
		{"日本語", "日本画", 6},                                 // no byte of the last one
		{"日本誛", "日本誜", 8},                                 // two of the last three
		{"😀😁", "😀😂", 7},                                   // three of the last four
		{"\xff\xfe\xfd", "\xff\xfe\x80", 2},               // no UTF-8 at all
		{"\xc3", "\xc3\xa9", 1},                           // a letter not finished yet
		{"a\xed\xa0\x80b", "a\xed\xa0\x81b", 3},           // a lone surrogate
		{"\x00\x00\x00", "\x00\x00", 2},                   // zeros
		{strings.Repeat("é", 999) + "x", "é", 2},          // far shorter
		{strings.Repeat("\x80", 3000), "\x80\x80\x80", 3}, // continuation bytes alone
	} {
		tr := newTree(manyNodes, manyBytes)
		learn(tr, "s", row.first, 1)
		learn(tr, "s", row.second, 2)
		checkTree(t, tr)
		if got := held(tr, "s", row.second, 1); got != row.want {
			t.Errorf("after insert(%q): held(%q, 1) = %d, want %d", row.first, row.second, got, row.want)
		}
		if got := held(tr, "s", row.first, 2); got != row.want {
			t.Errorf("after insert(%q): held(%q, 2) = %d, want %d", row.second, row.first, got, row.want)
		}
		if got := held(tr, "s", row.first, 1); got != len(row.first) {
			t.Errorf("held(%q, 1) = %d, want all of it, %d", row.first, got, len(row.first))
		}
	}
}

func TestTree_bisectsToTheByte(t *testing.T) {
	long := strings.Repeat("0123456789", 30)
	for cut := 0; cut < len(long); cut++ {
		tr := newTree(manyNodes, manyBytes)
		learn(tr, "s", long, 1)
		tr.find("s", long[:cut]+"!")
		if tr.match != cut {
			t.Errorf("find(first %d of %d bytes and another).match = %d, want %d", cut, len(long), tr.match, cut)
		}
		tr.find("s", long[:cut])
		if tr.match != cut {
			t.Errorf("find(first %d of %d bytes).match = %d, want %d", cut, len(long), tr.match, cut)
		}
	}
}

func TestTree_keepsSpacesApart(t *testing.T) {
	tr := newTree(manyNodes, manyBytes)
	learn(tr, "m1\x00", "abc", 1)
	learn(tr, "m2\x00", "abd", 2)
	checkTree(t, tr)
	for _, row := range []struct {
		space, key string
		id, want   int
	}{
		{"m1\x00", "abc", 1, 3}, {"m1\x00", "abc", 2, 0}, {"m2\x00", "abd", 2, 3}, {"m2\x00", "abd", 1, 0},
		{"m1", "abc", 1, 0}, {"", "abc", 1, 0},
	} {
		if got := held(tr, row.space, row.key, row.id); got != row.want {
			t.Errorf("held(%q, %q, %d) = %d, want %d", row.space, row.key, row.id, got, row.want)
		}
	}
}

func TestTree_insertTellsWhatWasClaimedBefore(t *testing.T) {
	tr := newTree(manyNodes, manyBytes)
	stamps := map[int]int64{}
	for _, step := range []struct {
		key    string
		id     int
		before int
	}{
		{"abcdef", 1, -1}, // the first in this space
		{"abcdef", 1, 6},  // again
		{"abcdef", 2, -1}, // new to 2
		{"abcxyz", 2, 3},  // 2 has the beginning
		{"xyz", 2, 0},     // 2 has nothing of it, but something in this space
		{"abc", 1, 3},     // held as the beginning of a longer one
		{"ab", 3, -1},
		{"abcdef", 3, 2},
		{"a", 3, 1},
		{"abcdefgh", 3, 6},
	} {
		stamp, before := learn(tr, "s", step.key, step.id)
		if before != step.before {
			t.Errorf("insert(%q, %d) = before %d, want %d", step.key, step.id, before, step.before)
		}
		if own := tr.ages[step.id]; stamp <= stamps[step.id] || stamp != own.clock {
			t.Errorf("insert(%q, %d) = stamp %d, want the last %d, after %d", step.key, step.id, stamp, own.clock, stamps[step.id])
		}
		stamps[step.id] = stamp
		if got := held(tr, "s", step.key, step.id); got != len(step.key) {
			t.Errorf("after insert(%q, %d): held = %d, want all", step.key, step.id, got)
		}
		checkTree(t, tr)
	}
}

func TestTree_forgetTakesBackWhatInsertMadeNew(t *testing.T) {
	for _, row := range []struct {
		story   string
		known   []string
		key     string // sent to 1 and failed
		between []string
		probe   string
		want1   int // of probe held by 1 afterwards
		want2   int
	}{
		{"the first prompt of all", nil, "abc", nil, "abc", 0, 0},
		{"all of it was known", []string{"1:abc"}, "abc", nil, "abc", 3, 0},
		{"the last turn was new", []string{"1:abc"}, "abcdef", nil, "abcdef", 3, 0},
		{"the other holds it too", []string{"2:abcdef"}, "abcdef", nil, "abcdef", 0, 6},
		{"a fork", []string{"1:abcdef", "2:abcdef"}, "abcxyz", nil, "abcxyz", 3, 3},
		{"a fork of the other's", []string{"2:abcdef"}, "abcxyz", nil, "abcdef", 0, 6},
		{"a prefix of the other's", []string{"2:abcdef"}, "abc", nil, "abc", 0, 3},
		{"another beginning", []string{"1:xyz"}, "abc", nil, "xyz", 3, 0},
		{"renewed by a later insert", nil, "abc", []string{"1:abcdef"}, "abcdef", 6, 0},
		{"split by the other meanwhile", nil, "abcdef", []string{"2:abcxyz"}, "abcdef", 0, 3},
		{"split in two places", nil, "abcdef", []string{"2:abxx", "2:abcdyy"}, "abcdef", 0, 4},
		{"extended by the other meanwhile", nil, "abc", []string{"2:abcdef"}, "abcdef", 0, 6},
	} {
		tr := newTree(manyNodes, manyBytes)
		learnAll(tr, row.known...)
		stamp, before := learn(tr, "s", row.key, 1)
		learnAll(tr, row.between...)
		tr.forget("s", row.key, 1, stamp, before)
		checkTree(t, tr)
		if got := held(tr, "s", row.probe, 1); got != row.want1 {
			t.Errorf("%s: forget(%q): held(%q, 1) = %d, want %d", row.story, row.key, row.probe, got, row.want1)
		}
		if got := held(tr, "s", row.probe, 2); got != row.want2 {
			t.Errorf("%s: forget(%q): held(%q, 2) = %d, want %d", row.story, row.key, row.probe, got, row.want2)
		}
	}
}

func TestTree_forgetLeavesNothingOfALonePrompt(t *testing.T) {
	tr := newTree(manyNodes, manyBytes)
	stamp, before := learn(tr, "s", "abc", 1)
	tr.forget("s", "abc", 1, stamp, before)
	if tr.nodes != 0 || tr.bytes != 0 || len(tr.roots) != 0 || len(tr.claimed) != 0 {
		t.Errorf("forget(the only prompt): nodes, bytes, roots, claimed = %d, %d, %d, %v, want an empty tree",
			tr.nodes, tr.bytes, len(tr.roots), tr.claimed)
	}
	tr.forget("s", "abc", 1, stamp, before)
	tr.forget("other", "abc", 1, stamp, before)
	checkTree(t, tr)
}

func TestTree_forgetSurvivesEvictionAndClear(t *testing.T) {
	tr := newTree(manyNodes, manyBytes)
	learnAll(tr, "1:abc")
	stamp, before := learn(tr, "s", "abcdef", 1)
	tr.shrink(0, 1)
	tr.forget("s", "abcdef", 1, stamp, before)
	checkTree(t, tr)
	stamp, before = learn(tr, "s", "abcdef", 1)
	tr.clear()
	learnAll(tr, "1:abc")
	tr.forget("s", "abcdef", 1, stamp, before)
	checkTree(t, tr)
	if got := held(tr, "s", "abc", 1); got != 3 {
		t.Errorf("forget(an insert from before clear()): held(%q, 1) = %d, want 3", "abc", got)
	}
}

func TestTree_evictsTheLeafUsedLeastRecently(t *testing.T) {
	for _, row := range []struct {
		story string
		known []string
		want  string // leaves, the one used last first
	}{
		{"in the order of insertion", []string{"1:aa", "1:bb", "1:cc"}, "cc bb aa"},
		{"a repeated prompt is the newest", []string{"1:aa", "1:bb", "1:cc", "1:aa"}, "aa cc bb"},
		{"on another replica too", []string{"1:aa", "1:bb", "1:cc", "2:bb"}, "bb cc aa"},
		{"a prompt that grows", []string{"1:aa", "1:bb", "1:aabb"}, "aabb bb"},
		{"a fork does not renew its sister", []string{"1:aaxx", "1:bb", "1:aayy"}, "aayy bb aaxx"},
	} {
		tr := newTree(manyNodes, manyBytes)
		learnAll(tr, row.known...)
		checkTree(t, tr)
		if got := leaves(tr); got != row.want {
			t.Errorf("%s: leaves after %q = %q, want %q", row.story, row.known, got, row.want)
		}
	}
}

func TestTree_aParentTakesItsPlaceAmongTheLeaves(t *testing.T) {
	tr := newTree(manyNodes, manyBytes)
	learnAll(tr, "1:a", "1:b", "1:c", "1:ad", "1:bd", "1:d")
	for _, want := range []string{"d bd ad", "d bd a", "d bd", "d b", "d", ""} {
		// After the first turn the oldest leaf is c, then ad, whose parent was used no later.
		tr.shrink(0, 1)
		checkTree(t, tr)
		if got := leaves(tr); got != want {
			t.Errorf("leaves after one more evict() = %q, want %q", got, want)
		}
	}
	if tr.nodes != 0 || tr.evicted != 6 {
		t.Errorf("after evicting all: nodes = %d, evicted = %d, want 0, 6", tr.nodes, tr.evicted)
	}
}

// TestTree_aParentWasUsedWhenItsKidWas: nodes with kids are not marked as used, so they have to learn it from those that go.
func TestTree_aParentWasUsedWhenItsKidWas(t *testing.T) {
	tr := newTree(manyNodes, manyBytes)
	learnAll(tr, "1:a", "1:b")
	stamp, before := learn(tr, "s", "ad", 1)
	learnAll(tr, "1:c")
	tr.forget("s", "ad", 1, stamp, before)
	checkTree(t, tr)
	if got, want := leaves(tr), "c a b"; got != want {
		t.Errorf("leaves after forget(%q) = %q, want %q", "ad", got, want)
	}
}

func TestTree_forgetKeepsABeginningThatWasSentAgain(t *testing.T) {
	tr := newTree(manyNodes, manyBytes)
	stamp, before := learn(tr, "s", "abcdef", 1)
	learn(tr, "s", "abc", 1)
	tr.forget("s", "abcdef", 1, stamp, before)
	checkTree(t, tr)
	if got := held(tr, "s", "abcdef", 1); got != 3 {
		t.Errorf("forget(%q) after insert(%q): held = %d, want 3", "abcdef", "abc", got)
	}
}

func TestTree_aRepeatedBeginningIsNotTheNextToGo(t *testing.T) {
	tr := newTree(manyNodes, manyBytes)
	learnAll(tr, "1:system and a question", "1:other", "1:system", "1:system")
	tr.shrink(0, 1)
	if got := held(tr, "s", "system", 1); got != len("system") {
		t.Errorf("after using %q twice and evicting one leaf: held = %d, want %d; leaves: %q", "system", got, len("system"), leaves(tr))
	}
}

func TestTree_shrinksInSteps(t *testing.T) {
	tr := newTree(100, manyBytes)
	for i := 0; i < 90; i++ {
		learn(tr, "s", fmt.Sprintf("%02d", i), 1)
	}
	nodes := tr.nodes
	if more := tr.shrink(0.5, 7); !more || tr.nodes >= nodes {
		t.Errorf("shrink(0.5, 7) of %d nodes = %v with %d left, want true with fewer", nodes, more, tr.nodes)
	}
	checkTree(t, tr)
	for i := 0; tr.shrink(0.5, 7); i++ {
		if i > 20 {
			t.Fatalf("shrink(0.5, 7) does not come to an end at %d nodes", tr.nodes)
		}
		checkTree(t, tr)
	}
	if tr.nodes > 50 || tr.nodes < 48 {
		t.Errorf("shrink(0.5) left %d nodes, want just 50 or less", tr.nodes)
	}
	if tr.shrink(0.5, 7) || tr.shrink(1, 7) {
		t.Errorf("shrink(0.5, 7) of a shrunken tree = true, want false")
	}
	if got := held(tr, "s", "89", 1); got != 2 {
		t.Errorf("shrink(0.5) took the newest: held = %d, want 2", got)
	}
	if got := held(tr, "s", "00", 1); got == 2 {
		t.Errorf("shrink(0.5) left the oldest: held = %d", got)
	}
}

func TestTree_shrinksByBytes(t *testing.T) {
	tr := newTree(manyNodes, 100000)
	for i := 0; i < 20; i++ {
		learn(tr, "s", fmt.Sprintf("%02d", i)+strings.Repeat("x", 1000), 1)
	}
	for tr.shrink(0.1, 3) {
		checkTree(t, tr)
	}
	if tr.bytes > 10000 || tr.bytes < 8000 {
		t.Errorf("shrink(0.1) of at most 100000 bytes left %d, want just 10000 or less", tr.bytes)
	}
}

func TestTree_neverPassesItsBounds(t *testing.T) {
	for _, row := range []struct {
		story      string
		maxNodes   int
		maxBytes   int
		key        func(i int) string
		spaces     int
		steps      int
		wantFilled float64 // share of one of the bounds that gets used
	}{
		{"other beginnings", 50, manyBytes, func(i int) string { return fmt.Sprintf("%d-prompt", i) }, 1, 300, 0.9},
		{"by bytes", manyNodes, 64 << 10, func(i int) string { return fmt.Sprintf("%d", i) + strings.Repeat("x", 500) }, 1, 300, 0.9},
		{"a chat that grows", 50, manyBytes, func(i int) string { return strings.Repeat("turn ", i) }, 1, 200, 0.9},
		{"prefixes, longest first", 50, manyBytes, func(i int) string { return strings.Repeat("turn ", 300-i) }, 1, 300, 0},
		{"many spaces", 50, manyBytes, func(i int) string { return "same" }, 100, 300, 0.8},
		{"as long as it takes", manyNodes, 64 << 10, func(i int) string { return strings.Repeat(string(rune('a'+i%26)), 200000) }, 1, 60, 0.5},
		{"the smallest tree there is", 16, 64 << 10, func(i int) string { return fmt.Sprintf("%b", i) }, 3, 500, 0.8},
		{"an earlier turn on another replica", 16, manyBytes, func(i int) string { return strings.Repeat("turn ", 1+i%14) }, 1, 90, 0.8},
	} {
		tr := newTree(row.maxNodes, row.maxBytes)
		nodes, bytes := 0, 0
		for i := 0; i < row.steps; i++ {
			learn(tr, fmt.Sprintf("space %d", i%row.spaces), row.key(i), 1+i%3)
			if tr.nodes > nodes {
				nodes = tr.nodes
			}
			if tr.bytes > bytes {
				bytes = tr.bytes
			}
			if i%10 == 0 {
				checkTree(t, tr)
			}
		}
		if nodes > row.maxNodes || bytes > row.maxBytes {
			t.Errorf("%s: grew to %d nodes and %d bytes, want at most %d and %d", row.story, nodes, bytes, row.maxNodes, row.maxBytes)
		}
		if float64(nodes) < row.wantFilled*float64(row.maxNodes) && float64(bytes) < row.wantFilled*float64(row.maxBytes) {
			t.Errorf("%s: grew to %d nodes and %d bytes only, want %.0f%% of %d or %d", row.story, nodes, bytes,
				100*row.wantFilled, row.maxNodes, row.maxBytes)
		}
	}
}

func TestTree_insertEvictsTheOldest(t *testing.T) {
	tr := newTree(17, manyBytes) // the root and 16 leaves
	for i := 0; i < 40; i++ {
		key := string(rune('A'+i)) + "x"
		learn(tr, "s", key, 1)
		if got := held(tr, "s", key, 1); got != 2 {
			t.Errorf("insert %d into a full tree: held(%q, 1) = %d, want 2", i, key, got)
		}
		if i >= 16 {
			old := string(rune('A'+i-16)) + "x"
			if got := held(tr, "s", old, 1); got != 0 {
				t.Errorf("insert %d into a full tree: held(the oldest %q, 1) = %d, want 0", i, old, got)
			}
			kept := string(rune('A'+i-15)) + "x"
			if got := held(tr, "s", kept, 1); got != 2 {
				t.Errorf("insert %d into a full tree: held(the next oldest %q, 1) = %d, want 2", i, kept, got)
			}
		}
		checkTree(t, tr)
	}
}

func TestTree_oneInsertEvictsALimitedNumber(t *testing.T) {
	tr := newTree(manyNodes, 64<<10)
	for i := 0; i < 220; i++ {
		learn(tr, "s", fmt.Sprintf("%03d", i), 1)
	}
	before := tr.evicted
	learn(tr, "s", strings.Repeat("long ", 1600), 2)
	if n := tr.evicted - before; n > evictLimit {
		t.Errorf("one insert evicted %d leaves, want at most %d", n, evictLimit)
	}
	checkTree(t, tr)
}

func TestTree_aTooLongPromptIsLearnedAsFarAsItFits(t *testing.T) {
	tr := newTree(manyNodes, 64<<10)
	long := strings.Repeat("0123456789abcdef", 4<<10)
	stamp, before := learn(tr, "s", long, 1)
	checkTree(t, tr)
	if got := held(tr, "s", long, 1); got != 8<<10 {
		t.Errorf("insert(64 KiB) into a tree of 64 KiB: held = %d, want an eighth of the bound, %d", got, 8<<10)
	}
	tr.forget("s", long, 1, stamp, before)
	checkTree(t, tr)
	if tr.nodes != 0 {
		t.Errorf("forget(64 KiB) left %d nodes, want 0", tr.nodes)
	}
}

func TestTree_dropRemovesTheDeadInSteps(t *testing.T) {
	tr := newTree(manyNodes, manyBytes)
	for i := 0; i < 60; i++ {
		learn(tr, fmt.Sprintf("space %d", i%4), fmt.Sprintf("%06b and more", i), 1+i%3)
	}
	alive := map[int]bool{2: true}
	stack := tr.all()
	steps := 0
	for stack = tr.drop(stack, alive, 5); len(stack) > 0; stack = tr.drop(stack, alive, 5) {
		steps++
		if steps > 1000 {
			t.Fatal("drop() does not come to an end")
		}
	}
	checkTree(t, tr)
	if steps < 5 {
		t.Errorf("drop(limit 5) took %d steps, want more for %d nodes", steps, tr.nodes)
	}
	for i := 0; i < 60; i++ {
		space, key := fmt.Sprintf("space %d", i%4), fmt.Sprintf("%06b and more", i)
		for id := 1; id <= 3; id++ {
			got := held(tr, space, key, id)
			if id != 2 && got != 0 {
				t.Errorf("after drop(all but 2): held(%q, %d) = %d, want 0", key, id, got)
			}
			if id == 2 && 1+i%3 == 2 && got != len(key) {
				t.Errorf("after drop(all but 2): held(%q, 2) = %d, want %d", key, got, len(key))
			}
		}
	}
	if len(tr.claimed) != 1 {
		t.Errorf("after drop(all but 2): claimed = %v, want that of 2 only", tr.claimed)
	}
	tr.drop(tr.all(), map[int]bool{}, manyNodes)
	if tr.nodes != 0 || tr.bytes != 0 || tr.newest != nil || tr.oldest != nil {
		t.Errorf("after drop(all): %d nodes, %d bytes, want none", tr.nodes, tr.bytes)
	}
}

func TestTree_dropGoesOnWhileTheTreeChanges(t *testing.T) {
	seed := time.Now().UnixNano()
	draw := rand.New(rand.NewSource(seed))
	for round := 0; round < 30; round++ {
		tr := newTree(manyNodes, manyBytes)
		for i := 0; i < 40; i++ {
			learn(tr, "s", randomKey(draw, 12), 1+draw.Intn(3))
		}
		alive := map[int]bool{2: true, 3: true}
		stack := tr.all()
		for len(stack) > 0 {
			stack = tr.drop(stack, alive, 1)
			learn(tr, "s", randomKey(draw, 12), 2+draw.Intn(2))
			tr.shrink(0, draw.Intn(2))
		}
		if n, ok := tr.claimed[1]; ok && n != 0 {
			t.Fatalf("seed %d, round %d: drop(1) among other changes left it %d characters, want none", seed, round, n)
		}
		checkTree(t, tr)
		if t.Failed() {
			t.Fatalf("seed %d, round %d", seed, round)
		}
	}
}

func TestTree_clearForgetsAll(t *testing.T) {
	tr := newTree(manyNodes, manyBytes)
	learnAll(tr, "1:abc", "2:abd", "1:x")
	tr.clear()
	checkTree(t, tr)
	if tr.nodes != 0 || tr.bytes != 0 || len(tr.claimed) != 0 {
		t.Errorf("after clear(): %d nodes, %d bytes, claimed %v, want none", tr.nodes, tr.bytes, tr.claimed)
	}
	if got := held(tr, "s", "abc", 1); got != 0 {
		t.Errorf("after clear(): held(%q, 1) = %d, want 0", "abc", got)
	}
	learnAll(tr, "1:abc")
	checkTree(t, tr)
	if got := held(tr, "s", "abc", 1); got != 3 {
		t.Errorf("after clear() and insert: held(%q, 1) = %d, want 3", "abc", got)
	}
}

// naive is what the tree has to agree with: every prompt that each id was sent.
type naive map[int][]string

func (m naive) held(key string, id int) int {
	best := 0
	for _, known := range m[id] {
		n := 0
		for n < len(known) && n < len(key) && known[n] == key[n] {
			n++
		}
		if n > best {
			best = n
		}
	}
	return best
}

// randomKey returns a short prompt over a small alphabet, so that beginnings are often shared.
func randomKey(draw *rand.Rand, most int) string {
	key := make([]byte, draw.Intn(most))
	for i := range key {
		key[i] = "ab\xc3"[draw.Intn(3)]
	}
	return string(key)
}

func TestTree_agreesWithTheNaiveModel(t *testing.T) {
	seed := time.Now().UnixNano()
	draw := rand.New(rand.NewSource(seed))
	for round := 0; round < 20 && !t.Failed(); round++ {
		tr := newTree(manyNodes, manyBytes)
		model := naive{}
		for step := 0; step < 120 && !t.Failed(); step++ {
			key, id := randomKey(draw, 10), 1+draw.Intn(4)
			switch draw.Intn(8) {
			case 0: // failed at once: as if it had not been
				stamp, before := learn(tr, "s", key, id)
				if want := model.held(key, id); before > want || (before < want && before >= 0) || (before < 0 && want > 0) {
					t.Errorf("insert(%q, %d) = before %d, want %d", key, id, before, want)
				}
				tr.forget("s", key, id, stamp, before)
			case 1: // a replica is gone
				if draw.Intn(4) == 0 {
					delete(model, id)
					alive := map[int]bool{}
					for one := range model {
						alive[one] = true
					}
					tr.drop(tr.all(), alive, manyNodes)
				}
			default:
				learn(tr, "s", key, id)
				model[id] = append(model[id], key)
			}
			checkTree(t, tr)
			probe := randomKey(draw, 12)
			longest := 0
			for one := 1; one <= 4; one++ {
				want := model.held(probe, one)
				if got := held(tr, "s", probe, one); got != want {
					t.Errorf("held(%q, %d) = %d, want %d", probe, one, got, want)
				}
				if want > longest {
					longest = want
				}
			}
			if tr.match != longest {
				t.Errorf("find(%q).match = %d, want %d", probe, tr.match, longest)
			}
			if t.Failed() {
				t.Errorf("seed %d, round %d, step %d: after %q for %d", seed, round, step, key, id)
			}
		}
	}
}

// TestTree_boundedStaysWithinTheModel inserts, forgets and evicts at random under tight bounds: the tree may know less than
// the model, never more, and never grows beyond.
func TestTree_boundedStaysWithinTheModel(t *testing.T) {
	seed := time.Now().UnixNano()
	draw := rand.New(rand.NewSource(seed))
	for round := 0; round < 15 && !t.Failed(); round++ {
		tr := newTree(16+draw.Intn(20), 64<<10)
		model := naive{}
		for step := 0; step < 120 && !t.Failed(); step++ {
			key, id := randomKey(draw, 14), 1+draw.Intn(3)
			switch draw.Intn(6) {
			case 0:
				stamp, before := learn(tr, "s", key, id)
				tr.forget("s", key, id, stamp, before)
			case 1:
				tr.shrink(draw.Float64(), draw.Intn(5))
			default:
				learn(tr, "s", key, id)
				model[id] = append(model[id], key)
			}
			checkTree(t, tr)
			if tr.nodes > tr.maxNodes {
				t.Errorf("%d nodes, want at most %d", tr.nodes, tr.maxNodes)
			}
			probe := randomKey(draw, 12)
			for one := 1; one <= 3; one++ {
				if got, most := held(tr, "s", probe, one), model.held(probe, one); got > most {
					t.Errorf("held(%q, %d) = %d, want at most %d", probe, one, got, most)
				}
			}
			if t.Failed() {
				t.Errorf("seed %d, round %d, step %d: after %q for %d", seed, round, step, key, id)
			}
		}
	}
}

// holds says whether id claims the node.
func holds(n *node, id int) bool {
	for _, c := range n.claims {
		if c.id == id {
			return true
		}
	}
	return false
}

func TestTree_doesNotGrowDeeperThanItsBound(t *testing.T) {
	tr := newTree(100000, 1<<30)
	for n := 1; n < 3*maxDepth; n++ {
		key := strings.Repeat("a", n) + "b"
		tr.find("m", key)
		tr.insert("m", key, 1)
	}
	key := strings.Repeat("a", 3*maxDepth)
	tr.find("m", key)
	if len(tr.path) > maxDepth+1 {
		t.Errorf("a path has %d nodes, want at most %d", len(tr.path), maxDepth+1)
	}
	checkTree(t, tr)
}
