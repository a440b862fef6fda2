package cart

// policy picks one of the candidates, of which there is at least one. It is a pure function: chance comes in as a draw.
type policy func(cs []candidate, in *prompt) (index int, why string)

// candidate is a usable replica as a policy sees it.
type candidate struct {
	replica *replica
	load    int // requests in flight plus the replica's loadPenalty
	matched int // known length of the prompt on this replica, in characters
}

// prompt is what a policy knows of a request, and the numbers it goes by.
type prompt struct {
	total int // length of the key in characters; 0 = there is none
	draw  int // a random number, at least 0
	turn  int // counts the requests, for roundRobin
	set   *settings
}

// The policies by their configuration name.
const (
	policyThreshold  = "threshold"
	policyLeastLoad  = "leastLoad"
	policyRoundRobin = "roundRobin"
	policyRandom     = "random"
)

// Reasons of a decision. One of them is logged, counted and, if asked for, sent with every answer.
const (
	reasonHit         = "cache_hit"      // the holder of the longest match
	reasonOverloaded  = "hit_overloaded" // there was one, but it is too busy: least load
	reasonMiss        = "miss"           // no good match: least load
	reasonNoText      = "empty_text"     // no prompt made out: least load
	reasonOnlyOne     = "only_one"       // no choice
	reasonRetry       = "retry"          // another replica failed before
	reasonPassthrough = "passthrough"    // not a routed endpoint: least load
	reasonLeastLoad   = "least_load"     // policy leastLoad
	reasonRoundRobin  = "round_robin"    // policy roundRobin
	reasonRandom      = "random"         // policy random
)

var policies = map[string]policy{
	policyThreshold:  threshold,
	policyLeastLoad:  leastLoadOnly,
	policyRoundRobin: roundRobin,
	policyRandom:     random,
}

// threshold sends a prompt to the least loaded holder of its longest match if enough of it is known there and the holder
// is not far busier than the least loaded replica; else to the least loaded one.
func threshold(cs []candidate, in *prompt) (index int, why string) {
	if len(cs) == 1 {
		return 0, reasonOnlyOne
	}
	least := leastLoad(cs, in.draw, 0)
	if in.total == 0 {
		return least, reasonNoText
	}
	best := 0
	for i := range cs {
		if cs[i].matched > best {
			best = cs[i].matched
		}
	}
	set := in.set
	if best == 0 || (float64(best) < set.threshold*float64(in.total) && best < set.matchAbs) {
		return least, reasonMiss
	}
	holder := leastLoad(cs, in.draw, best)
	load, floor := cs[holder].load, cs[least].load
	if load > floor+set.balanceAbs && float64(load) > set.balanceRel*float64(floor) {
		return least, reasonOverloaded
	}
	return holder, reasonHit
}

func leastLoadOnly(cs []candidate, in *prompt) (index int, why string) {
	return leastLoad(cs, in.draw, 0), reasonLeastLoad
}

func roundRobin(cs []candidate, in *prompt) (index int, why string) {
	return in.turn % len(cs), reasonRoundRobin
}

func random(cs []candidate, in *prompt) (index int, why string) {
	return in.draw % len(cs), reasonRandom
}

// leastLoad returns the least loaded of the candidates that match at least that much, of which there is one; draw picks
// among equals.
func leastLoad(cs []candidate, draw, matched int) int {
	least, ties := -1, 0
	for i := range cs {
		if cs[i].matched < matched {
			continue
		}
		if least < 0 || cs[i].load < cs[least].load {
			least, ties = i, 1
		} else if cs[i].load == cs[least].load {
			ties++
		}
	}
	if ties == 1 {
		return least
	}
	load, nth := cs[least].load, draw%ties
	for i := least; i < len(cs); i++ {
		if cs[i].load == load && cs[i].matched >= matched {
			if nth == 0 {
				return i
			}
			nth--
		}
	}
	return least
}
