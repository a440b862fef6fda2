package main

// oracle is the policy of one who sees what no router does: each replica's cache and queue as they are. It is no proof of
// what is possible, but what CART lacks of it is a measure of what better knowledge could still gain.
const oracle = "oracle"

// foresee returns the replica on which a turn costs least: the tokens that are to be computed before it, and its own twice,
// for they also keep others waiting. Of those that cost the same it is the one that has computed least.
func (p *playing) foresee(t turn) int {
	best, least := -1, 0
	for i, r := range p.replicas {
		cost := r.slow * (r.queued() + 2*r.missing(t, r.waiting))
		if best < 0 || cost < least || cost == least && r.work < p.replicas[best].work {
			best, least = i, cost
		}
	}
	return best
}

// queued returns the tokens of prompts that a replica has to compute before it turns to another one.
func (r *replica) queued() int {
	sum := 0
	if r.current != nil {
		sum = r.left
	}
	for i, q := range r.waiting {
		sum += r.missing(q.turn, r.waiting[:i])
	}
	return sum
}

// missing returns the tokens of a prompt that are neither in a replica's cache nor in one of the prompts ahead of it, which
// will have been computed by then.
func (r *replica) missing(t turn, ahead []*request) int {
	known := r.known(t)
	for _, q := range ahead {
		same := 0
		for same < len(t.blocks) && same < len(q.blocks) && t.blocks[same] == q.blocks[same] {
			same++
		}
		known = max(known, same)
	}
	return max(1, t.input-known*blockTokens)
}
