package cart

// shadow counts what a policy that only watches would have done. It is guarded by the pool's lock.
type shadow struct {
	decisions int64
	agreed    int64 // on the replica that got the request
	total     int64 // characters of the prompts
	known     int64 // of these, known on the replica that got the request
	could     int64 // known on the one that the policy chose
	reasons   map[string]int64
}

// shadowed makes a policy a watcher: it is asked and its choice is counted, but the least loaded replica is taken.
func shadowed(p *pool, rule policy) policy {
	return func(cs []candidate, in *prompt) (index int, why string) {
		choice, reason := rule(cs, in)
		s := &p.shadow
		if s.reasons == nil {
			s.reasons = map[string]int64{}
		}
		s.decisions++
		if choice == in.least {
			s.agreed++
		}
		s.total += int64(in.total)
		s.known += int64(cs[in.least].matched)
		s.could += int64(cs[choice].matched)
		s.reasons[reason]++
		cs[choice].replica.shadowed++
		return in.least, reasonShadow
	}
}

// shadowAnswer tells what the policy would have done. Lengths are in characters of prompts.
type shadowAnswer struct {
	Decisions int64            `json:"decisions"`
	Agreed    int64            `json:"agreed"`    // chose the replica that got the request
	Total     int64            `json:"total"`     // length of the prompts
	Known     int64            `json:"known"`     // of it, known where they went
	CouldKnow int64            `json:"couldKnow"` // known where the policy would have sent them
	Reasons   map[string]int64 `json:"reasons"`
}

// answer describes what was counted, nil if the policy does not watch.
func (s *shadow) answer(set *settings) *shadowAnswer {
	if !set.shadow {
		return nil
	}
	return &shadowAnswer{Decisions: s.decisions, Agreed: s.agreed, Total: s.total, Known: s.known, CouldKnow: s.could,
		Reasons: copyCounts(s.reasons)}
}

// shadow writes what the policy would have done, while it watches.
func (w *exposition) shadow(s *workersAnswer) {
	if s.Shadow == nil {
		return
	}
	w.family("cart_shadow_decisions_total", "counter", "Decisions of the policy that only watches, by their reason.")
	for _, why := range reasonsOf(s.Shadow.Reasons) {
		w.sample(`reason="`+labelValue(why)+`"`, float64(s.Shadow.Reasons[why]))
	}
	w.family("cart_shadow_agreed_total", "counter", "Of these, for the replica that got the request.")
	w.sample("", float64(s.Shadow.Agreed))
	w.family("cart_shadow_known_characters_total", "counter", "Characters of prompts known on the replica that got the request.")
	w.sample("", float64(s.Shadow.Known))
	w.family("cart_shadow_could_know_characters_total", "counter", "Of the same prompts, known on the one that the policy chose.")
	w.sample("", float64(s.Shadow.CouldKnow))
}
