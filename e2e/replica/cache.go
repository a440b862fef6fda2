package replica

import "container/list"

// cache is the block table of a KV cache with prefix reuse. A block is found by the hash of its tokens chained with the
// hash of its predecessor, so a block can only be hit together with everything before it. It is not safe for concurrent
// use; engine holds its lock around every call.
//
// Invariant: in idle, a block stands nearer to the front than every block that continues it. Hence the last element of
// idle never has a continuation in the cache, and evicting from the back keeps the cache closed under prefixes.
type cache struct {
	capacity int // blocks
	blocks   map[uint64]*block
	idle     *list.List // of *block: held by no sequence, most recently used in front
	reserved int        // blocks that sequences hold and have not yet given a hash
}

type block struct {
	hash uint64
	pins int           // sequences that hold it
	elem *list.Element // its place in idle, nil while it is pinned
}

// lease is what one running sequence holds.
type lease struct {
	blocks   []*block // the prefix computed or found so far
	reserved int      // further blocks it may fill
}

func newCache(capacity int) *cache {
	return &cache{capacity: capacity, blocks: map[uint64]*block{}, idle: list.New()}
}

// acquire pins the known prefix of chain, at most limit blocks of it, and reserves room so that the lease reaches need
// blocks. It returns nil, changing nothing, when running sequences leave too little room.
func (c *cache) acquire(chain []uint64, limit, need int) *lease {
	hits := c.match(chain, limit)
	evictable := c.idle.Len()
	for _, h := range chain[:hits] {
		if c.blocks[h].pins == 0 {
			evictable--
		}
	}
	fresh := max(need-hits, 0)
	if c.capacity-c.used()+evictable < fresh {
		return nil
	}
	l := &lease{reserved: fresh}
	for _, h := range chain[:hits] {
		l.blocks = append(l.blocks, c.pin(c.blocks[h]))
	}
	for c.used()+fresh > c.capacity {
		c.evict(c.idle.Back())
	}
	c.reserved += fresh
	return l
}

// match returns the number of leading blocks of chain that are cached, at most limit.
func (c *cache) match(chain []uint64, limit int) int {
	n := 0
	for n < len(chain) && n < limit && c.blocks[chain[n]] != nil {
		n++
	}
	return n
}

// fill turns reserved blocks of the lease into cached ones, up to the end of chain.
func (c *cache) fill(l *lease, chain []uint64) {
	for len(l.blocks) < len(chain) && l.reserved > 0 {
		l.reserved--
		c.reserved--
		h := chain[len(l.blocks)]
		b := c.blocks[h]
		if b == nil {
			b = &block{hash: h}
			c.blocks[h] = b
		}
		l.blocks = append(l.blocks, c.pin(b))
	}
}

// release gives everything back. The tail goes first, so that it is also evicted first.
func (c *cache) release(l *lease) {
	c.reserved -= l.reserved
	for i := len(l.blocks) - 1; i >= 0; i-- {
		b := l.blocks[i]
		b.pins--
		if b.pins == 0 {
			b.elem = c.idle.PushFront(b)
		}
	}
	*l = lease{}
}

// reset forgets every block that no sequence holds.
func (c *cache) reset() {
	for c.idle.Len() > 0 {
		c.evict(c.idle.Back())
	}
}

func (c *cache) pin(b *block) *block {
	if b.elem != nil {
		c.idle.Remove(b.elem)
		b.elem = nil
	}
	b.pins++
	return b
}

func (c *cache) evict(e *list.Element) {
	b := c.idle.Remove(e).(*block)
	delete(c.blocks, b.hash)
}

// used is the number of blocks that hold or will hold something.
func (c *cache) used() int { return len(c.blocks) + c.reserved }

// busy is the share of the capacity held by running sequences, 0 to 1.
func (c *cache) busy() float64 {
	return float64(c.used()-c.idle.Len()) / float64(c.capacity)
}
