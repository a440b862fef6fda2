package cart

import (
	"fmt"
	"math/rand"
	"strings"
	"testing"
)

// checkAge fails the test if the spans of an id contradict each other.
func checkAge(t *testing.T, id int, own *age) {
	t.Helper()
	if own.room == 0 {
		if own.starts != nil || own.counts != nil || own.held < 0 {
			t.Errorf("age of %d with room unknown: %+v, want no spans", id, *own)
		}
		return
	}
	sum := int64(0)
	for i, n := range own.counts {
		sum += n
		if i > 0 && own.starts[i] <= own.starts[i-1] {
			t.Errorf("age of %d: spans begin at %v, want them in order", id, own.starts)
		}
	}
	if sum != own.held || own.held > own.room || own.held < 0 {
		t.Errorf("age of %d: %+v, want held to be the sum %d of the spans and to fit", id, *own, sum)
	}
	if len(own.starts) != len(own.counts) || len(own.counts) == 0 || len(own.counts) > mostSpans+1 ||
		own.starts[0] != float64(own.faded) || own.starts[len(own.starts)-1] > float64(own.clock) {
		t.Errorf("age of %d: %+v, want spans from faded to clock, at most %d", id, *own, mostSpans+1)
	}
}

// exactCache keeps the blocks of prompts as an engine does: what was used longest ago goes first, the ends of prompts before
// their beginnings.
type exactCache struct {
	room int
	keys []string // beginnings of prompts, each a block longer than the one it continues; the next to go first
}

const testBlock = 100

// use returns how much of a prompt is there, and has all of it used.
func (c *exactCache) use(prompt string) (held int) {
	last := map[string]bool{}
	for end := testBlock; end <= len(prompt); end += testBlock {
		last[prompt[:end]] = true
	}
	var rest []string
	there := map[string]bool{}
	for _, key := range c.keys {
		if last[key] {
			there[key] = true
		} else {
			rest = append(rest, key)
		}
	}
	for end := testBlock; end <= len(prompt) && there[prompt[:end]]; end += testBlock {
		held = end
	}
	for end := len(prompt) / testBlock * testBlock; end > 0; end -= testBlock {
		rest = append(rest, prompt[:end])
	}
	if over := len(rest) - c.room/testBlock; over > 0 {
		rest = rest[over:]
	}
	c.keys = rest
	return held
}

// tenantTurns makes conversations of a few turns that begin with the texts of tenants, some asked for more often than others.
func tenantTurns(draw *rand.Rand, turns int) []string {
	text := func(n int) string {
		var out strings.Builder
		for ; n > 0; n-- {
			fmt.Fprintf(&out, "%0*d", testBlock, draw.Int63())
		}
		return out.String()
	}
	systems := make([]string, 12)
	for i := range systems {
		systems[i] = text(3 + draw.Intn(20))
	}
	open := make([]string, 4)
	left := make([]int, 4)
	var out []string
	for i := 0; i < turns; i++ {
		one := draw.Intn(len(open))
		if left[one] == 0 {
			rank := draw.Intn(len(systems))
			open[one] = systems[draw.Intn(rank+1)]
			left[one] = 1 + draw.Intn(4)
		}
		left[one]--
		open[one] += text(1)
		out = append(out, open[one])
	}
	return out
}

// roomFor returns a tree and the age of the id 1 in it, whose cache holds so many characters.
func roomFor(room int64) (*tree, *age) {
	tr := newTree(manyNodes, manyBytes)
	own := tr.ageOf(1)
	own.setRoom(room)
	return tr, own
}

func TestAge_holdsWhatACacheHolds(t *testing.T) {
	const room = 10000
	draw := rand.New(rand.NewSource(1))
	tr, own := roomFor(room)
	exact := &exactCache{room: room}
	wrong, missed, total := 0, 0, 0
	for i, prompt := range tenantTurns(draw, 3000) {
		tr.find("s", prompt)
		known := 0
		for j, n := range tr.path {
			if n.claimed(1, own.faded+int64(tr.depth[j])) {
				known = tr.depth[j]
			}
		}
		if tr.part != nil && tr.part.claimed(1, own.faded+int64(tr.match)) {
			known = tr.match
		}
		is := exact.use(prompt)
		if known-is > testBlock {
			wrong += known - is
		} else if is-known > testBlock {
			missed += is - known
		}
		total += len(prompt)
		tr.insert("s", prompt, 1)
		if i%500 == 0 {
			checkTree(t, tr)
		}
	}
	t.Logf("of %d characters %d were taken to be cached and were not, %d were not and are", total, wrong, missed)
	if wrong > total/100 || missed > total/100 {
		t.Errorf("of %d characters %d were taken to be cached and were not, %d were not and are; want one in 100 at most", total, wrong, missed)
	}
}

func TestAge_spansStayFew(t *testing.T) {
	tr, own := roomFor(16000)
	most := 0
	for i := 0; i < 5000; i++ {
		key := fmt.Sprintf("%d/", i%13) + strings.Repeat("x", 1000) // asked for again and again: each leaves its hole
		if i%10 == 0 {
			key = fmt.Sprintf("new %d/", i) + strings.Repeat("y", 50)
		}
		learn(tr, "s", key, 1)
		if len(own.counts) > most {
			most = len(own.counts)
		}
	}
	if most <= 2*spanParts || most > mostSpans+1 {
		t.Errorf("up to %d spans, want more than %d, so that they are joined, and at most %d", most, 2*spanParts, mostSpans+1)
	}
	checkTree(t, tr)
}

func TestAge_roomComesAndGoes(t *testing.T) {
	tr := newTree(manyNodes, manyBytes)
	own := tr.ageOf(1)
	say := func(name string) { learn(tr, "s", name+strings.Repeat(name, 999), 1) }
	holds := func(name string) bool {
		key := name + strings.Repeat(name, 999)
		tr.find("s", key)
		return tr.match == len(key) && tr.path[len(tr.path)-1].claimed(1, own.faded+int64(len(key)))
	}
	for _, name := range []string{"a", "b", "c", "d"} {
		say(name)
	}
	say("a")
	if own.held != 4000 {
		t.Errorf("held = %d of 4,000 characters while nothing fades", own.held)
	}
	own.setRoom(3000)
	if own.held != 3000 || !holds("a") || holds("b") {
		t.Errorf("with room for 3,000 of 4,000: %+v, want the oldest given up", *own)
	}
	checkTree(t, tr)
	own.setRoom(0)
	say("e")
	say("f")
	if own.held != 5000 || holds("b") || !holds("a") || !holds("f") {
		t.Errorf("with room unknown again: %+v, want what had faded to stay so and nothing else to fade", *own)
	}
	own.setRoom(2000)
	say("g")
	if own.held != 2000 || !holds("g") || holds("a") {
		t.Errorf("with room for 2,000: %+v", *own)
	}
	checkTree(t, tr)
}

func TestAge_longerThanTheCache(t *testing.T) {
	tr, own := roomFor(1000)
	long := strings.Repeat("a", 5000)
	stamp, before := learn(tr, "s", long, 1)
	if own.held != 1000 || own.faded != 4000 {
		t.Errorf("after 5,000 characters in a cache of 1,000: %+v, want the first 1,000 held", *own)
	}
	tr.forget("s", long, 1, stamp, before)
	learn(tr, "s", strings.Repeat("b", 600), 1)
	if own.held != 1000 {
		t.Errorf("after taking it back and another prompt: %+v", *own)
	}
	checkTree(t, tr)
}

func TestAge_takesBackWhatNeverArrived(t *testing.T) {
	tr, own := roomFor(3000)
	first, second := strings.Repeat("a", 1000), strings.Repeat("b", 1000)
	learn(tr, "s", first, 1)
	stamp, before := learn(tr, "s", first+second, 1)
	other, had := learn(tr, "s", second, 1)
	tr.forget("s", first+second, 1, stamp, before)
	if own.held != 2000 {
		t.Errorf("held = %d after a turn that never arrived, want 2000", own.held)
	}
	stamp, before = learn(tr, "s", second+first, 1)
	learn(tr, "s", second+first, 1) // has arrived, and renewed all of it
	tr.forget("s", second+first, 1, stamp, before)
	tr.forget("s", second, 1, other, had)
	if own.held != 3000 {
		t.Errorf("held = %d after taking back what others have renewed, want 3000", own.held)
	}
	checkTree(t, tr)
}
