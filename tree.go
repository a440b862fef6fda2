package cart

import (
	"strings"
	"time"
)

// tree is a radix tree over prompts. It knows no replica, only small integer ids that are never used twice. Each node
// holds the claims of all ids whose prompts run through it, so the holders of the longest match and of every shorter one
// are found in one walk. It has no lock: its owner serialises the calls. The two operations on the path of a request, find
// and insert, are done in decideLoop.
//
// Invariants: a node other than a root has a label of at least one byte, no two kids of a node start with the same byte,
// an id that claims a node claims its ancestors too, the list of leaves holds exactly the nodes without kids that are no
// root, most recently used first, and nodes and bytes are the sums over all nodes.
type tree struct {
	roots    map[string]*node // by key space
	maxNodes int
	maxBytes int
	nodes    int
	bytes    int
	clock    int64       // counts the inserts; the time of use and of claims
	evicted  int64       // nodes evicted since the start
	newest   *node       // the leaf used last
	oldest   *node       // the leaf to evict next
	claimed  map[int]int // characters claimed by each id
	ages     map[int]*age
	heat     int32 // of all prompts, as that of a node
	warm     int32

	// The result of the last find, reused from call to call.
	path  []*node // fully matched nodes from the root down, the root first
	depth []int   // length of the prompt up to and including each node of path
	part  *node   // the node whose label the rest of the prompt starts with in part, or nil
	match int     // length of the longest known prefix
}

// node is one edge and what hangs on it.
type node struct {
	label  string // of a root: its key space
	parent *node
	firsts string // the first byte of each kid's label, in the order of kids
	kids   []*node
	claims []claim
	where  map[int]int // of many claims: where each id's is, counted from 1
	used   int64       // clock when a prompt last ended here or ran on to a kid that is gone by now: of a leaf, its last use
	newer  *node       // neighbours in the list of leaves
	older  *node
	listed bool
	gone   bool
	heat   int32 // prompts that ran through lately, each counted as heatUnit; kept by the policy cost only
	warm   int32 // the span of heatSpan up to which heat has been halved
}

// claim says that the prompt up to the end of a node was sent to a replica.
type claim struct {
	id    int
	stamp int64 // where the latest prompt to run through here ends: see age
}

// charsPerToken turns the engines' measure into the tree's: characters of JSON per token, roughly.
const charsPerToken = 4

// Popularity: each prompt that runs through a node adds heatUnit to its heat, which is halved once every heatSpan.
const (
	heatUnit = 64
	heatMost = 1 << 30
	heatSpan = int64(10 * time.Second)
)

// nodeBytes is a node's memory beyond its label: the struct as Yaegi lays it out, one claim, its place in the parent. Measured
// interpreted: 177 bytes with labels of 200 bytes, 241 with 1,700, more where the allocator rounds up long labels.
const nodeBytes = 224

// maxDepth bounds the nodes on a path, so that a walk takes less than a millisecond. A conversation adds one each turn; what
// comes behind is not learned.
const maxDepth = 512

// evictLimit bounds the leaves that one insert evicts, so that no request waits for a big sweep: 64 take about half a
// millisecond interpreted.
const evictLimit = 64

// manyHolders is the number of claims on a node above which they are looked up in a map.
const manyHolders = 16

func newTree(maxNodes, maxBytes int) *tree {
	return &tree{roots: map[string]*node{}, claimed: map[int]int{}, ages: map[int]*age{}, maxNodes: maxNodes, maxBytes: maxBytes}
}

// find walks the prompt down and leaves the result in path, depth, part and match.
func (t *tree) find(space, key string) {
	ex := t.exchange(opFind, space, key)
	startDeciders()
	decideJobs <- ex
	<-ex.done
	if ex.refusal != "" {
		panic("cart: panic in the tree's find")
	}
}

// exchange asks decideLoop for one of the tree's own operations. A pool with nothing but the tree stands for the tree's owner.
func (t *tree) exchange(op int, space, key string) *exchange {
	return &exchange{op: op, route: route{pool: &pool{tree: t}, set: &settings{}}, space: space, key: key,
		long: len(key) > keptLength, done: make(chan int, 1)}
}

// insert claims the prompt of the last find, which must have been for the same space and key, for id. It returns the
// stamp by which forget knows these claims and the length that id had claimed before, -1 if nothing in this space. What
// does not fit under the bounds is not learned.
func (t *tree) insert(space, key string, id int) (stamp int64, before int) {
	a := &attempt{id: id}
	ex := t.exchange(opInsert, space, key)
	ex.chosen = a
	startDeciders()
	decideJobs <- ex
	<-ex.done
	if ex.refusal != "" {
		panic("cart: panic in the tree's insert")
	}
	return a.stamp, a.before
}

// ageOf returns the age of an id, anew if there is none.
func (t *tree) ageOf(id int) *age {
	own := t.ages[id]
	if own == nil {
		own = &age{faded: notFaded}
		t.ages[id] = own
	}
	return own
}

// addRoot starts a key space.
func (t *tree) addRoot(space string) {
	root := &node{label: space}
	t.roots[space] = root
	t.nodes++
	t.bytes += nodeBytes + len(space)
	t.path = append(t.path, root)
	t.depth = append(t.depth, 0)
}

// makeRoom evicts at most evictLimit leaves, so that a node of that many bytes fits under the bounds; 0 = that what is
// there fits. pinned stays. It says whether there is room now.
func (t *tree) makeRoom(bytes int, pinned *node) bool {
	nodes := t.maxNodes
	if bytes > 0 {
		nodes--
	}
	for i := 0; i < evictLimit && t.oldest != nil && (t.nodes > nodes || t.bytes+bytes > t.maxBytes); i++ {
		t.evict(t.oldest, pinned)
	}
	return t.nodes <= nodes && t.bytes+bytes <= t.maxBytes
}

// split cuts n after the first length bytes of its label: n keeps these, a new kid takes the rest and all that hangs on it.
// n stays the same node, so that a sweep that has yet to visit it finds both.
//
// Both labels are copied: a part of a string keeps all of it in memory, after the other part has been evicted too.
func (t *tree) split(n *node, length int) *node {
	lower := &node{
		label:  strings.Clone(n.label[length:]),
		parent: n,
		firsts: n.firsts,
		kids:   n.kids,
		claims: append([]claim(nil), n.claims...),
		used:   n.used,
		heat:   n.heat,
		warm:   n.warm,
	}
	if n.where != nil {
		lower.index()
	}
	for _, kid := range lower.kids {
		kid.parent = lower
	}
	if n.listed {
		lower.listed = true
		lower.newer = n.newer
		lower.older = n.older
		if n.newer != nil {
			n.newer.older = lower
		} else {
			t.newest = lower
		}
		if n.older != nil {
			n.older.newer = lower
		} else {
			t.oldest = lower
		}
		n.listed = false
		n.newer = nil
		n.older = nil
	}
	n.firsts = strings.Clone(lower.label[:1])
	n.kids = []*node{lower}
	n.label = strings.Clone(n.label[:length])
	t.nodes++
	t.bytes += nodeBytes
	return n
}

// forget takes back the claims that an insert made new for id: stamp and before are what it returned. Claims that a later
// insert renewed stay.
func (t *tree) forget(space, key string, id int, stamp int64, before int) {
	t.find(space, key)
	t.takeBack(&attempt{id: id, stamp: stamp, before: before})
}

// takeBack takes back what was taught for an attempt, whose prompt was found last. What had faded fades again, and is not
// removed, for there may be more of it below.
func (t *tree) takeBack(a *attempt) {
	own := t.ages[a.id]
	if own == nil {
		own = &age{} // of a replica that is gone
	}
	for i := len(t.path) - 1; i >= 0 && t.depth[i] > a.before; i-- {
		n := t.path[i]
		for j := range n.claims {
			if n.claims[j].id != a.id || n.claims[j].stamp != a.stamp {
				continue
			}
			if i > 0 { // a root has no part of the prompt
				own.takeBack(a.stamp, t.depth[i], len(n.label))
			}
			if t.depth[i] < a.faded {
				n.claims[j].stamp = own.faded
			} else {
				t.unclaim(n, j)
			}
			break
		}
		t.prune(n)
	}
}

// drop removes the claims of ids that are not alive from at most limit nodes, starting with those on stack, and returns
// the nodes still to visit. A nil stack starts at the roots.
func (t *tree) drop(stack []*node, alive map[int]bool, limit int) []*node {
	for ; limit > 0 && len(stack) > 0; limit-- {
		n := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if n.gone {
			continue
		}
		for _, kid := range n.kids { // Yaegi cannot spread a slice of a type that holds itself
			stack = append(stack, kid)
		}
		for j := len(n.claims) - 1; j >= 0; j-- {
			if !alive[n.claims[j].id] {
				t.unclaim(n, j)
			}
		}
		t.prune(n)
	}
	return stack
}

// all returns the roots, where a walk over the whole tree starts.
func (t *tree) all() []*node {
	out := make([]*node, 0, len(t.roots))
	for _, n := range t.roots {
		out = append(out, n)
	}
	return out
}

// clear drops everything.
func (t *tree) clear() {
	t.roots = map[string]*node{}
	t.claimed = map[int]int{}
	t.nodes = 0
	t.bytes = 0
	t.newest = nil
	t.oldest = nil
	t.part = nil
	t.path = nil
	t.depth = nil
}

// shrink evicts at most limit leaves while the tree is larger than the given share of its bounds, and says whether it
// still is.
func (t *tree) shrink(share float64, limit int) bool {
	nodes, bytes := int(share*float64(t.maxNodes)), int(share*float64(t.maxBytes))
	for ; limit > 0 && t.oldest != nil && (t.nodes > nodes || t.bytes > bytes); limit-- {
		t.evict(t.oldest, nil)
	}
	return t.oldest != nil && (t.nodes > nodes || t.bytes > bytes)
}

// evict removes a leaf. A parent that becomes a leaf takes its place in the list, unless it is pinned.
func (t *tree) evict(n, pinned *node) {
	t.evicted++
	t.unclaimAll(n)
	parent := n.parent
	t.remove(n, pinned)
	t.prune(parent) // a sweep may have left it without claims
}

// prune removes nodes that nobody claims, from n upwards.
func (t *tree) prune(n *node) {
	for n != nil && !n.gone && len(n.claims) == 0 && len(n.kids) == 0 {
		parent := n.parent
		if parent == nil {
			t.removeRoot(n)
			return
		}
		t.remove(n, parent)
		if len(parent.kids) == 0 {
			if parent.parent == nil {
				t.removeRoot(parent)
				return
			}
			if len(parent.claims) > 0 {
				t.list(parent, t.oldest)
			}
		}
		n = parent
	}
}

// unclaimAll removes the claims of n.
func (t *tree) unclaimAll(n *node) {
	for j := len(n.claims) - 1; j >= 0; j-- {
		t.unclaim(n, j)
	}
}

// unclaim removes the claim at index j of n.
func (t *tree) unclaim(n *node, j int) {
	id := n.claims[j].id
	t.claimed[id] -= len(n.label)
	if t.claimed[id] <= 0 {
		delete(t.claimed, id)
	}
	last := len(n.claims) - 1
	n.claims[j] = n.claims[last]
	n.claims = n.claims[:last]
	if n.where != nil {
		delete(n.where, id)
		if j < last {
			n.where[n.claims[j].id] = j + 1
		}
	}
}

// claimed says whether an id has a claim to n with a stamp that is not before from.
func (n *node) claimed(id int, from int64) bool {
	if n.where != nil {
		j := n.where[id] - 1
		return j >= 0 && n.claims[j].stamp >= from
	}
	for i := range n.claims {
		if n.claims[i].id == id {
			return n.claims[i].stamp >= from
		}
	}
	return false
}

// index enters the last claim of n where it is looked up, or all of them if there was no need for that yet.
func (n *node) index() {
	first := len(n.claims) - 1
	if n.where == nil {
		n.where = map[int]int{}
		first = 0
	}
	for j := first; j < len(n.claims); j++ {
		n.where[n.claims[j].id] = j + 1
	}
}

// remove takes a node without kids out of the tree.
func (t *tree) remove(n, pinned *node) {
	if n.listed {
		t.unlist(n)
	}
	n.gone = true
	parent := n.parent
	i := strings.IndexByte(parent.firsts, n.label[0])
	end := len(parent.kids) - 1
	parent.kids[i] = parent.kids[end]
	parent.kids[end] = nil
	parent.kids = parent.kids[:end]
	if i < end {
		parent.firsts = parent.firsts[:i] + parent.firsts[end:] + parent.firsts[i+1:end]
	} else {
		parent.firsts = parent.firsts[:end]
	}
	t.nodes--
	t.bytes -= nodeBytes + len(n.label)
	if parent.used < n.used {
		parent.used = n.used
	}
	if end > 0 || parent == pinned {
		return
	}
	if parent.parent == nil {
		t.removeRoot(parent)
		return
	}
	t.list(parent, t.oldest)
}

func (t *tree) removeRoot(n *node) {
	t.unclaimAll(n)
	delete(t.roots, n.label)
	n.gone = true
	t.nodes--
	t.bytes -= nodeBytes + len(n.label)
}

// list puts a leaf into the list of leaves: at the newest end, or, given the oldest leaf, near that end in the order of
// use. A node that was used far later than the oldest leaves is put among the newest.
func (t *tree) list(n, oldest *node) {
	n.listed = true
	at := oldest
	for i := 0; at != nil && at.used < n.used; i++ {
		at = at.newer
		if i == 16 {
			at = nil
		}
	}
	if at == nil {
		n.older = t.newest
		n.newer = nil
		if t.newest != nil {
			t.newest.newer = n
		} else {
			t.oldest = n
		}
		t.newest = n
		return
	}
	n.newer = at
	n.older = at.older
	if at.older != nil {
		at.older.newer = n
	} else {
		t.oldest = n
	}
	at.older = n
}

func (t *tree) unlist(n *node) {
	if n.newer != nil {
		n.newer.older = n.older
	} else {
		t.newest = n.older
	}
	if n.older != nil {
		n.older.newer = n.newer
	} else {
		t.oldest = n.newer
	}
	n.listed = false
	n.newer = nil
	n.older = nil
}
