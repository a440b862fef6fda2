package cart

// policy picks one of the candidates, of which there is at least one. It is a pure function: chance comes in as a draw.
type policy func(cs []candidate, in *prompt) (index int, why string)

// candidate is a usable replica as a policy sees it.
type candidate struct {
	replica *replica
	load    int // requests in flight plus the replica's loadPenalty
	matched int // known length of the prompt on this replica, in characters

	// For the policy cost.
	queue   int    // characters of prompts sent to it whose answers have not begun, less what was known there
	waiting int    // how many of its requests these are
	seat    uint64 // hash of the replica's address
	held    int64  // characters that it is taken to hold: see age
	room    int64  // characters that its cache holds; 0 = unknown
}

// prompt is what a policy knows of a request, and the numbers it goes by.
type prompt struct {
	total int // length of the key in characters; 0 = there is none
	draw  int // a random number, at least 0
	turn  int // counts the requests, for roundRobin
	set   *settings

	least   int // index of the least loaded candidate, one of them by chance
	holder  int // index of the least loaded of those with the longest match, likewise; without a match it means nothing
	matched int // length of that match in characters; 0 = there is none

	// For the policy cost.
	holders int    // candidates with that match
	heat    int    // how popular it is: requests of late, times heatUnit
	crowd   int    // up to which it is not worth further copies
	waiting int    // sum over the candidates
	place   uint32 // hash of how a new conversation begins; 0 = it is none
}

// The policies by their configuration name.
const (
	policyThreshold  = "threshold"
	policyCost       = "cost"
	policyLeastLoad  = "leastLoad"
	policyRoundRobin = "roundRobin"
	policyRandom     = "random"
)

// Reasons of a decision. One of them is logged, counted and, if asked for, sent with every answer.
const (
	reasonHit         = "cache_hit"      // the holder of the longest match
	reasonOverloaded  = "hit_overloaded" // there was one, but it is too busy: least load, or least cost
	reasonMiss        = "miss"           // no good match: least load, or least cost
	reasonPlaced      = "placed"         // policy cost: nothing known that is its own, by the hash of its beginning
	reasonNoText      = "empty_text"     // no prompt made out: least load
	reasonOnlyOne     = "only_one"       // no choice
	reasonRetry       = "retry"          // another replica failed before
	reasonPassthrough = "passthrough"    // not a routed endpoint: least load
	reasonLeastLoad   = "least_load"     // policy leastLoad
	reasonRoundRobin  = "round_robin"    // policy roundRobin
	reasonRandom      = "random"         // policy random
	reasonShadow      = "shadow"         // the policy only watches: least load
)

// allReasons lists them: each has a series in /metrics from the start, so that its first count is seen to rise.
var allReasons = []string{reasonHit, reasonOverloaded, reasonMiss, reasonNoText, reasonOnlyOne, reasonRetry, reasonPassthrough,
	reasonLeastLoad, reasonRoundRobin, reasonRandom, reasonPlaced, reasonShadow}

var policies = map[string]policy{
	policyThreshold:  threshold,
	policyCost:       cost,
	policyLeastLoad:  leastLoadOnly,
	policyRoundRobin: roundRobin,
	policyRandom:     random,
}

// threshold sends a prompt to the least loaded holder of its longest match if enough of it is known there and the holder
// is not far busier than the least loaded replica; else to the least loaded one. decideLoop has the same rule in its own
// statements, for a call costs more than all of them; a fuzz test holds the two together.
func threshold(cs []candidate, in *prompt) (index int, why string) {
	if len(cs) == 1 {
		return 0, reasonOnlyOne
	}
	if in.total == 0 {
		return in.least, reasonNoText
	}
	if in.matched == 0 || (float64(in.matched) < in.set.threshold*float64(in.total) && in.matched < in.set.matchAbs) {
		return in.least, reasonMiss
	}
	load, floor := cs[in.holder].load, cs[in.least].load
	if load > floor+in.set.balanceAbs && float64(load) > in.set.balanceRel*float64(floor) {
		return in.least, reasonOverloaded
	}
	return in.holder, reasonHit
}

func leastLoadOnly(cs []candidate, in *prompt) (index int, why string) {
	return in.least, reasonLeastLoad
}

func roundRobin(cs []candidate, in *prompt) (index int, why string) {
	return in.turn % len(cs), reasonRoundRobin
}

func random(cs []candidate, in *prompt) (index int, why string) {
	return in.draw % len(cs), reasonRandom
}
