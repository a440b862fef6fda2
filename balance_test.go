package cart

import (
	"testing"
)

func defaultSettings(t *testing.T) *settings {
	t.Helper()
	set, err := validate(CreateConfig())
	if err != nil {
		t.Fatalf("validate(the defaults) = %v", err)
	}
	return set
}

// loads and matches make candidates: entry i has load loads[i] and matches[i] known characters.
func candidates(loads, matches []int) []candidate {
	cs := make([]candidate, len(loads))
	for i := range cs {
		cs[i].load = loads[i]
		if i < len(matches) {
			cs[i].matched = matches[i]
		}
	}
	return cs
}

// weigh fills in what policies go by, as decideLoop does while it gathers the candidates, but with the draw for chance.
func weigh(cs []candidate, in *prompt) *prompt {
	in.least = leastLoad(cs, in.draw, 0)
	in.matched = 0
	for i := range cs {
		if cs[i].matched > in.matched {
			in.matched = cs[i].matched
		}
	}
	in.holder = leastLoad(cs, in.draw, in.matched)
	in.holders = 0
	in.waiting = 0
	for i := range cs {
		in.waiting += cs[i].waiting
		if in.matched > 0 && cs[i].matched == in.matched {
			in.holders++
		}
	}
	return in
}

// leastLoad returns the least loaded of the candidates that match at least that much; draw picks among equals.
func leastLoad(cs []candidate, draw, matched int) int {
	var equal []int
	for i := range cs {
		if cs[i].matched < matched || (len(equal) > 0 && cs[i].load > cs[equal[0]].load) {
			continue
		}
		if len(equal) > 0 && cs[i].load < cs[equal[0]].load {
			equal = equal[:0]
		}
		equal = append(equal, i)
	}
	return equal[draw%len(equal)]
}

func TestThreshold_weighsMatchAgainstLoad(t *testing.T) {
	set := defaultSettings(t) // 0.3 of the prompt or 8192; 5 above and 1.6 times
	for _, row := range []struct {
		story   string
		loads   []int
		matches []int
		total   int
		want    int
		why     string
	}{
		{"nobody knows the prompt", []int{3, 1, 2}, []int{0, 0, 0}, 100, 1, reasonMiss},
		{"one knows all of it", []int{3, 1, 2}, []int{100, 0, 0}, 100, 0, reasonHit},
		{"one knows just enough", []int{3, 1, 2}, []int{0, 0, 30}, 100, 2, reasonHit},
		{"one knows just too little", []int{3, 1, 2}, []int{0, 0, 29}, 100, 1, reasonMiss},
		{"a small share of a huge prompt is enough", []int{3, 1, 2}, []int{0, 0, 8192}, 1000000, 2, reasonHit},
		{"one less is not", []int{3, 1, 2}, []int{0, 0, 8191}, 1000000, 1, reasonMiss},
		{"the longest match wins", []int{1, 3, 2}, []int{40, 90, 80}, 100, 1, reasonHit},
		{"of several holders the least loaded", []int{3, 0, 1, 2}, []int{90, 10, 90, 90}, 100, 2, reasonHit},
		{"five above an idle one is fine", []int{5, 0}, []int{90, 0}, 100, 0, reasonHit},
		{"six above an idle one is not", []int{6, 0}, []int{90, 0}, 100, 1, reasonOverloaded},
		{"six above, but not 1.6 times as many", []int{16, 10}, []int{90, 0}, 100, 0, reasonHit},
		{"six above and more than 1.6 times as many", []int{17, 10}, []int{90, 0}, 100, 1, reasonOverloaded},
		{"1.6 times as many, but not six above", []int{2, 1}, []int{90, 0}, 100, 0, reasonHit},
		{"a busy holder loses to another holder", []int{9, 0}, []int{90, 90}, 100, 1, reasonHit},
		{"no prompt", []int{3, 1, 2}, nil, 0, 1, reasonNoText},
		{"one replica only", []int{50}, []int{0}, 100, 0, reasonOnlyOne},
		{"one replica and no prompt", []int{50}, nil, 0, 0, reasonOnlyOne},
	} {
		cs := candidates(row.loads, row.matches)
		got, why := threshold(cs, weigh(cs, &prompt{total: row.total, set: set}))
		if got != row.want || why != row.why {
			t.Errorf("%s: threshold(loads %v, matches %v, total %d) = %d, %q, want %d, %q",
				row.story, row.loads, row.matches, row.total, got, why, row.want, row.why)
		}
	}
}

func TestThreshold_goesByItsSettings(t *testing.T) {
	for _, row := range []struct {
		story    string
		set      settings
		loads    []int
		matches  []int
		want     int
		why      string
		ofPrompt int
	}{
		{"any match will do", settings{threshold: 0, matchAbs: 1 << 20, balanceAbs: 5, balanceRel: 1.6}, []int{1, 0}, []int{1, 0}, 0, reasonHit, 100},
		{"no match is still a miss", settings{threshold: 0, matchAbs: 0, balanceAbs: 5, balanceRel: 1.6}, []int{1, 0}, []int{0, 0}, 1, reasonMiss, 100},
		{"only all of it will do", settings{threshold: 1, matchAbs: 1 << 20, balanceAbs: 5, balanceRel: 1.6}, []int{1, 0}, []int{99, 0}, 1, reasonMiss, 100},
		{"all of it", settings{threshold: 1, matchAbs: 1 << 20, balanceAbs: 5, balanceRel: 1.6}, []int{1, 0}, []int{100, 0}, 0, reasonHit, 100},
		{"no patience", settings{threshold: 0.3, balanceAbs: 0, balanceRel: 1}, []int{1, 0}, []int{90, 0}, 1, reasonOverloaded, 100},
		{"endless patience", settings{threshold: 0.3, balanceAbs: 1000, balanceRel: 1}, []int{900, 0}, []int{90, 0}, 0, reasonHit, 100},
	} {
		set := row.set
		cs := candidates(row.loads, row.matches)
		got, why := threshold(cs, weigh(cs, &prompt{total: row.ofPrompt, set: &set}))
		if got != row.want || why != row.why {
			t.Errorf("%s: threshold(loads %v, matches %v) = %d, %q, want %d, %q", row.story, row.loads, row.matches, got, why, row.want, row.why)
		}
	}
}

func TestPolicies_otherThanThreshold(t *testing.T) {
	set := defaultSettings(t)
	cs := candidates([]int{3, 1, 1}, []int{100, 0, 0})
	for _, row := range []struct {
		name       string
		draw, turn int
		want       int
		why        string
	}{
		{policyLeastLoad, 0, 0, 1, reasonLeastLoad},
		{policyLeastLoad, 1, 0, 2, reasonLeastLoad},
		{policyRoundRobin, 0, 0, 0, reasonRoundRobin},
		{policyRoundRobin, 0, 1, 1, reasonRoundRobin},
		{policyRoundRobin, 0, 2, 2, reasonRoundRobin},
		{policyRoundRobin, 0, 3, 0, reasonRoundRobin},
		{policyRandom, 0, 0, 0, reasonRandom},
		{policyRandom, 5, 0, 2, reasonRandom},
		{policyThreshold, 0, 0, 0, reasonHit},
	} {
		got, why := policies[row.name](cs, weigh(cs, &prompt{total: 100, draw: row.draw, turn: row.turn, set: set}))
		if got != row.want || why != row.why {
			t.Errorf("%s(draw %d, turn %d) = %d, %q, want %d, %q", row.name, row.draw, row.turn, got, why, row.want, row.why)
		}
	}
}

func TestPolicies_everyNameOfTheConfigurationHasOne(t *testing.T) {
	for _, name := range []string{policyThreshold, policyCost, policyLeastLoad, policyRoundRobin, policyRandom} {
		c := CreateConfig()
		c.Policy = name
		set, err := validate(c)
		if err != nil || set.policy != name {
			t.Errorf("validate(policy %q) = %v, want it accepted", name, err)
		}
		if policies[name] == nil {
			t.Errorf("policies[%q] = nil", name)
		}
	}
}
