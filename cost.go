package cart

import (
	"crypto/sha256"
	"encoding/binary"
	"hash/crc32"
)

// Weights of the policy cost, in characters; docs/routing.md says where they come from.
const (
	runningCost = 1024 // what a request that is being answered costs the next one
	placeSlack  = 4096 // by how much more a conversation may cost where its hash wants it, or a quarter of its length: see cost
)

// Conversations of which nothing is known are told apart by the characters behind the beginning that many share: two
// placeGrain from the multiple of it before, so that instances whose trees differ a little hash the same.
const (
	placeGrain = 32
	placeNear  = 128 // so little beyond what many share is known by accident
	manyKids   = 3   // continuations that make a beginning one that many share
	fillGrain  = 8   // caches that differ by less than one in so many are filled alike
)

// cost sends a prompt where it costs least: the characters that have to be computed before its answer can begin, those
// queued there before it included, and a charge for giving up the longest match, which has to be computed again elsewhere:
// it grows with the queues, since work matters most when there is much of it, and falls with the popularity of what is
// known, since a copy of a popular beginning soon pays off: see crowd.
//
// A conversation of which nothing is known goes to the replica that the hash of its beginning prefers, if that costs about
// the least: so instances that know nothing of each other agree, and so does one that was started again. A single instance
// sees all queues and all caches, so there about means one answer under way and a short beginning that is known elsewhere, and
// not where more of the cache is taken: the hash alone would give one of three replicas five of nine tenants.
//
// decideLoop has the same rule in its own statements for the common case, for a call costs more than all of them; a fuzz
// test holds the two together.
func cost(cs []candidate, in *prompt) (index int, why string) {
	if len(cs) == 1 {
		return 0, reasonOnlyOne
	}
	if in.total == 0 {
		return in.least, reasonNoText
	}
	pressure := float64(in.waiting) / float64(len(cs))
	worth := in.worth(pressure)
	chosen, least := leastCost(cs, in, worth)
	switch {
	case in.place == 0 && in.matched == 0:
		return chosen, reasonMiss
	case in.place == 0 && cs[chosen].matched < in.matched:
		return chosen, reasonOverloaded
	case in.place == 0:
		return chosen, reasonHit
	}
	i := home(cs, in.place)
	slack := runningCost
	lost := int(worth*float64(cs[chosen].matched)) - int(worth*float64(cs[i].matched))
	if cs[chosen].matched > 0 && lost <= placeSlack {
		slack += lost
	}
	if cs[i].fuller(&cs[chosen]) {
		slack = -1
	}
	if in.set.instances > 1 {
		slack = in.total / 4
		if slack < placeSlack {
			slack = placeSlack
		}
		slack += int(float64(slack) * pressure)
	}
	if i == chosen || cs[i].score(worth)-least <= slack {
		return i, reasonPlaced
	}
	return chosen, reasonMiss
}

// leastCost returns the candidate that costs least, one of them by chance, and how much that is.
func leastCost(cs []candidate, in *prompt, worth float64) (index, least int) {
	index = -1
	least = 0
	draw, ties := uint64(in.draw), 1
	for i := range cs {
		score := cs[i].score(worth)
		if index < 0 || score < least {
			index = i
			least = score
			ties = 1
		} else if score == least {
			ties++
			draw = draw*6364136223846793005 + 1442695040888963407
			if int(draw>>33)%ties == 0 {
				index = i
			}
		}
	}
	return index, least
}

// worth returns what a known character is worth: itself, and the charge for giving it up.
func (in *prompt) worth(pressure float64) float64 {
	charge := 1 + pressure
	if in.heat > in.crowd {
		charge = charge * float64(in.crowd) / float64(in.heat)
	}
	return 1 + charge
}

// crowd returns the popularity from which on the longest match is worth further copies: more than one request for each of its
// holders and one more. A copy takes the place of something else, so where it is known how much the caches hold, a prompt
// has to be asked for more often than what fills as much of them on average.
func (p *pool) crowd(in *prompt, now int64) int {
	if p.room < 0 {
		p.room = 0
		for _, r := range p.replicas {
			if r.age.room == 0 {
				p.room = 0
				break
			}
			p.room += r.age.room
		}
	}
	each := heatUnit
	if p.room > 0 {
		all := int64(p.tree.heat >> uint32(int32(now/heatSpan)-p.tree.warm))
		if usual := all * int64(in.matched) / p.room; usual > int64(each) {
			each = int(usual)
		}
	}
	return each * (in.holders + 1)
}

// score is what the policy cost compares, in characters; what is the same for all is left out.
func (c *candidate) score(worth float64) int {
	return c.queue + runningCost*(c.load-c.waiting) - int(worth*float64(c.matched))
}

// price is score against the worth of the prompt's match on so many candidates, for those who ask why.
func (c *candidate) price(in *prompt, candidates int) int {
	return c.score(in.worth(float64(in.waiting) / float64(candidates)))
}

// home returns the candidate that a hash prefers. Each has its own order of all hashes, so that one that comes or goes takes
// or leaves its own conversations and no others.
func home(cs []candidate, place uint32) int {
	index := 0
	var best uint64
	for i := range cs {
		if hash := mix(cs[i].seat, place); hash >= best {
			best = hash
			index = i
		}
	}
	return index
}

// fuller says whether a candidate's cache is filled by a good deal more than another's, as far as that is known. When both
// are full, each has something to give up, and nobody is fuller.
func (c *candidate) fuller(other *candidate) bool {
	return c.held-other.held > c.room/fillGrain && c.room > 0
}

// mix hashes a replica's seat and a place. decideLoop has it in its own statements.
func mix(seat uint64, place uint32) uint64 {
	hash := (seat ^ uint64(place)) * 2685821657736338717
	hash = (hash ^ hash>>32) * 6364136223846793005
	return hash ^ hash>>29
}

// cost reads what tunes the policy cost, and whether the policy only watches.
func (v *validator) cost(s *settings, c *Config) {
	v.unknown("cost.", c.Cost.Unknown)
	s.instances = v.integer("cost.instances", c.Cost.Instances, 1, 1000)
	s.shadow = v.boolean("shadow", c.Shadow)
	s.costs = s.policy == policyCost
	s.quick = (s.costs || s.policy == policyThreshold) && !s.shadow
}

// seatOf hashes a replica's name. It is the same for every instance.
func seatOf(name string) uint64 {
	sum := sha256.Sum256([]byte(name))
	return binary.BigEndian.Uint64(sum[:8])
}

// describeCandidates tells the candidates of an exchange and the prompt, which was found in the tree, what policies go by.
// The caller holds the pool's lock. It is for all but the common case, which decideLoop has in its own statements.
func describeCandidates(p *pool, ex *exchange, now int64) {
	in, cs, t := p.in, p.scratch, p.tree
	in.waiting = 0
	in.matched = 0
	in.holders = 0
	in.heat = 0
	in.crowd = 0
	in.place = 0
	for i := range cs {
		c := &cs[i]
		c.seat = c.replica.worker.seat
		c.held = c.replica.age.held
		c.room = c.replica.age.room
		c.queue = c.replica.queue
		c.waiting = c.replica.waiting
		if left := c.replica.whole.left(now); left > 0 {
			c.queue += left
			c.waiting += c.replica.whole.count * left / c.replica.whole.chars
		}
		in.waiting += c.waiting
	}
	if ex.key == "" {
		return
	}
	var held *node
	if t.part != nil && describeMatches(p, t.part, t.match) {
		held = t.part
	}
	for i := len(t.path) - 1; i > 0; i-- {
		if describeMatches(p, t.path[i], t.depth[i]) && held == nil {
			held = t.path[i]
		}
	}
	if held != nil {
		in.heat = int(held.heat >> uint32(int32(now/heatSpan)-held.warm))
		findHolders(p)
		in.crowd = p.crowd(in, now)
	}
	in.place = placeOf(t, ex.key, in.matched)
}

// describeMatches tells the candidates that claim a node how much of the prompt they hold, and says whether there are any.
func describeMatches(p *pool, n *node, depth int) bool {
	found := false
	for j := range n.claims {
		r := p.byID[n.claims[j].id]
		if r == nil || r.slot < 0 || n.claims[j].stamp-r.age.faded < int64(depth) || depth <= p.scratch[r.slot].matched {
			continue
		}
		p.scratch[r.slot].matched = depth
		found = true
	}
	return found
}

// findHolders finds the longest match that a candidate has, and the least loaded of those that have it, one by chance.
func findHolders(p *pool) {
	in, ties := p.in, 1
	for i := range p.scratch {
		c := &p.scratch[i]
		if c.matched == 0 || c.matched < in.matched {
			continue
		}
		if c.matched > in.matched {
			in.matched = c.matched
			in.holders = 0
		}
		in.holders++
		if in.holders == 1 || c.load < p.scratch[in.holder].load {
			in.holder = i
			ties = 1
		} else if c.load == p.scratch[in.holder].load {
			ties++
			p.seed = p.seed*6364136223846793005 + 1442695040888963407
			if int(p.seed>>33)%ties == 0 {
				in.holder = i
			}
		}
	}
}

// placeOf hashes the part of a prompt that tells its conversation from others, 0 if more is known of it than what many share.
// The prompt was found in the tree.
func placeOf(t *tree, key string, matched int) uint32 {
	j := len(t.path) - 1
	for j >= 0 && len(t.path[j].kids) < manyKids && t.depth[j]+placeNear >= matched {
		j--
	}
	from := 0
	if j >= 0 && t.depth[j]+placeNear >= matched {
		from = t.depth[j]
		if from > matched {
			from = matched
		}
	} else if matched > placeNear {
		return 0
	}
	from = from / placeGrain * placeGrain
	to := from + 2*placeGrain
	if to > len(key) {
		to = len(key)
	}
	return crc32.ChecksumIEEE([]byte(key[from:to]))
}
