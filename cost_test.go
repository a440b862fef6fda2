package cart

import (
	"math/rand"
	"strconv"
	"strings"
	"testing"
	"time"
)

// costCandidates makes candidates of what the rows say, each with a seat of its own.
func costCandidates(queues, running, matches []int) []candidate {
	cs := make([]candidate, len(queues))
	for i := range cs {
		cs[i].queue = queues[i]
		cs[i].seat = seatOf("http://vllm-" + strconv.Itoa(i))
		if i < len(running) {
			cs[i].load = running[i]
		}
		if i < len(matches) {
			cs[i].matched = matches[i]
		}
		if cs[i].queue > 0 {
			cs[i].waiting = 1
			cs[i].load++
		}
	}
	return cs
}

func TestCost_weighsWorkAgainstWork(t *testing.T) {
	for _, row := range []struct {
		story   string
		queues  []int
		running []int
		matches []int
		total   int
		heat    int // requests of late that ran through the match
		want    int
		why     string
	}{
		{"nobody knows the prompt: the shortest queue", []int{9000, 100, 5000}, nil, nil, 4000, 0, 1, reasonMiss},
		{"equal queues: the fewest answers under way", []int{0, 0, 0}, []int{3, 1, 2}, nil, 4000, 0, 1, reasonMiss},
		{"four answers under way are worth less than a queue", []int{5000, 0}, []int{0, 4}, nil, 4000, 0, 1, reasonMiss},
		{"five are worth more", []int{5000, 0}, []int{0, 5}, nil, 4000, 0, 0, reasonMiss},
		{"all of it is known to one", []int{0, 0, 0}, nil, []int{0, 8000, 0}, 8000, 0, 1, reasonHit},
		{"a queue as long as what is saved is no reason to leave", []int{8000, 0}, nil, []int{8000, 0}, 8000, 0, 0, reasonHit},
		{"one more than twice as long is", []int{20001, 0}, nil, []int{8000, 0}, 8000, 0, 1, reasonOverloaded},
		{"less is known on the other: less to lose by leaving", []int{12000, 0}, nil, []int{8000, 4000}, 8000, 0, 1, reasonOverloaded},
		{"a little longer, still none", []int{8200, 0}, nil, []int{8000, 0}, 8000, 0, 0, reasonHit},
		{"the same queue, a popular prompt: a copy pays off", []int{8200, 0}, nil, []int{8000, 0}, 8000, 200, 1, reasonOverloaded},
		{"of two holders the shorter queue", []int{3000, 2000, 0}, nil, []int{9000, 9000, 0}, 9000, 0, 1, reasonHit},
		{"no prompt: the least loaded", []int{0, 0}, []int{2, 1}, nil, 0, 0, 1, reasonNoText},
		{"one replica only", []int{90000}, nil, []int{0}, 100, 0, 0, reasonOnlyOne},
	} {
		cs := costCandidates(row.queues, row.running, row.matches)
		in := weigh(cs, &prompt{total: row.total, heat: row.heat * heatUnit})
		in.crowd = heatUnit * (in.holders + 1)
		got, why := cost(cs, in)
		if got != row.want || why != row.why {
			t.Errorf("%s: cost(queues %v, running %v, matches %v, total %d, heat %d) = %d, %q, want %d, %q",
				row.story, row.queues, row.running, row.matches, row.total, row.heat, got, why, row.want, row.why)
		}
	}
}

func TestCost_staysTheLongerTheMoreWaits(t *testing.T) {
	// The same gap between holder and other is worth a move where nobody waits, and not where many do.
	cs := costCandidates([]int{18500, 500}, nil, []int{8000, 0})
	if i, _ := cost(cs, weigh(cs, &prompt{total: 8000})); i != 0 {
		t.Errorf("cost(18,000 more before the holder of 8,000, one waiting on each) = %d, want the holder", i)
	}
	for i := range cs {
		cs[i].load -= cs[i].waiting
		cs[i].waiting = 0
	}
	if i, why := cost(cs, weigh(cs, &prompt{total: 8000})); i != 1 || why != reasonOverloaded {
		t.Errorf("cost(the same, nobody waiting) = %d, %q, want the other, %q", i, why, reasonOverloaded)
	}
}

func TestCost_tiesGoByTheDraw(t *testing.T) {
	cs := costCandidates([]int{0, 0, 500, 0}, nil, nil)
	got := map[int]int{}
	for draw := 0; draw < 300; draw++ {
		i, _ := cost(cs, weigh(cs, &prompt{total: 100, draw: draw * 7919}))
		got[i]++
	}
	if got[2] != 0 || got[0] < 60 || got[1] < 60 || got[3] < 60 {
		t.Errorf("cost(three equal and a busier one) with 300 draws = %v, want each of the three about 100 times", got)
	}
}

func TestCost_newConversationsGoByTheirHash(t *testing.T) {
	set := defaultSettings(t)
	counts := map[int]int{}
	for n := 0; n < 400; n++ {
		place := uint32(n*2654435761 + 1)
		cs := costCandidates([]int{0, 0, 0, 0}, nil, nil)
		i, why := cost(cs, weigh(cs, &prompt{total: 1000, set: set, place: place, draw: n}))
		counts[i]++
		if why != reasonPlaced {
			t.Fatalf("cost(nothing is known) = %q, want %q", why, reasonPlaced)
		}
		// Another instance that sees other queues of about the same cost, and another order of chance, agrees.
		for _, row := range []struct {
			instances int
			queues    []int
		}{{2, []int{1500, 0, 3000, 700}}, {1, []int{1000, 0, 900, 500}}} {
			other := *set
			other.instances = row.instances
			cs = costCandidates(row.queues, nil, nil)
			if j, _ := cost(cs, weigh(cs, &prompt{total: 1000, set: &other, place: place, draw: 3 * n})); j != i {
				t.Fatalf("cost(the same beginning) = %d, then on one of %d instances with the queues %v %d", i, row.instances, row.queues, j)
			}
		}
		// Without the replica of its choice the others' order stays.
		fewer := append(append([]candidate{}, cs[:i]...), cs[i+1:]...)
		j, _ := cost(fewer, weigh(fewer, &prompt{total: 1000, set: set, place: place}))
		k := (i + 1 + n%3) % 4
		if fewer[j].seat != cs[k].seat {
			fewest := []candidate{fewer[j], cs[k]}
			if l, _ := cost(fewest, weigh(fewest, &prompt{total: 1000, set: set, place: place})); l != 0 {
				t.Fatalf("cost() prefers %d to %d among three and not between the two", j, k)
			}
		}
	}
	for i := 0; i < 4; i++ {
		if counts[i] < 60 {
			t.Errorf("400 beginnings went to the replicas %v times, want about 100 each", counts)
		}
	}
}

func TestCost_oneInstanceLooksBehindTheHash(t *testing.T) {
	set := defaultSettings(t)
	place := uint32(12345)
	cs := costCandidates([]int{0, 0}, nil, nil)
	home, _ := cost(cs, weigh(cs, &prompt{total: 20000, set: set, place: place}))
	other := 1 - home
	for _, row := range []struct {
		story     string
		instances int
		queue     int      // of its home
		known     int      // on the other
		held      [2]int64 // by its home and by the other
		room      int64
		home      bool
	}{
		{"one answer under way", 1, 1000, 0, [2]int64{}, 0, true},
		{"two", 1, 2000, 0, [2]int64{}, 0, false},
		{"two, and another instance", 2, 2000, 0, [2]int64{}, 0, true},
		{"a short beginning is known to the other", 1, 0, 1500, [2]int64{}, 0, true},
		{"and one answer under way", 1, 1000, 1500, [2]int64{}, 0, true},
		{"and two", 1, 2000, 1500, [2]int64{}, 0, false},
		{"a long one is known to the other", 1, 0, 3000, [2]int64{}, 0, false},
		{"caches filled alike", 1, 0, 0, [2]int64{50000, 41000}, 80000, true},
		{"its home's is fuller", 1, 0, 0, [2]int64{50000, 39000}, 80000, false},
		{"the other's is fuller", 1, 0, 0, [2]int64{39000, 50000}, 80000, true},
		{"both are full", 1, 0, 0, [2]int64{80000, 80000}, 80000, true},
		{"nobody knows how much they hold", 1, 0, 0, [2]int64{900000, 80000}, 0, true},
		{"fuller, as far as one of two instances knows", 2, 0, 0, [2]int64{50000, 39000}, 80000, true},
	} {
		queues, matches := []int{0, 0}, []int{0, 0}
		queues[home] = row.queue
		matches[other] = row.known
		cs := costCandidates(queues, nil, matches)
		cs[home].held = row.held[0]
		cs[other].held = row.held[1]
		cs[home].room = row.room
		cs[other].room = row.room
		for i := range cs {
			cs[i].waiting = 0
			cs[i].load = 0
		}
		own := *set
		own.instances = row.instances
		in := weigh(cs, &prompt{total: 20000, set: &own, place: place})
		in.crowd = heatUnit * (in.holders + 1)
		if i, _ := cost(cs, in); (i == home) != row.home {
			t.Errorf("%s: it goes to its home: %t, want %t", row.story, i == home, row.home)
		}
	}
}

func TestCost_aHashIsNoReasonToQueue(t *testing.T) {
	set := defaultSettings(t)
	place := uint32(12345)
	cs := costCandidates([]int{0, 0}, nil, nil)
	home, _ := cost(cs, weigh(cs, &prompt{total: 1000, set: set, place: place}))
	queues := []int{0, 0}
	queues[home] = 5000
	cs = costCandidates(queues, nil, nil)
	if i, why := cost(cs, weigh(cs, &prompt{total: 1000, set: set, place: place})); i == home || why != reasonMiss {
		t.Errorf("cost(a queue of 5,000 before a new prompt of 1,000) = %d, %q, want the idle one, %q", i, why, reasonMiss)
	}
	// With other instances, a queue here is one everywhere, and a place for ever is worth more.
	several := *set
	several.instances = 2
	for i := range cs {
		cs[i].waiting = 1
		cs[i].load = 1
	}
	if i, _ := cost(cs, weigh(cs, &prompt{total: 1000, set: &several, place: place})); i != home {
		t.Errorf("cost(the same with a second instance, one waiting on each) = the idle one, want its home")
	}
	if i, _ := cost(cs, weigh(cs, &prompt{total: 20000, set: &several, place: place})); i != home {
		t.Errorf("cost(a queue of 5,000 before a new prompt of 20,000 with a second instance) = the idle one, want its home")
	}
	// What is known of it is a beginning that many share.
	known := []int{500, 500}
	known[home] = 0
	cs = costCandidates([]int{0, 0}, nil, known)
	if i, why := cost(cs, weigh(cs, &prompt{total: 1000, set: set, place: place})); i != home || why != reasonPlaced {
		t.Errorf("cost(a new conversation, its beginning known elsewhere) = %d, %q, want its home %d, %q", i, why, home, reasonPlaced)
	}
}

// costPool makes a pool with the policy cost and replicas of so many tokens of cache, 0 = unknown.
func costPool(t *testing.T, letters string, tokens int) *pool {
	t.Helper()
	c := CreateConfig()
	c.Policy = policyCost
	c.MaxLoad = "100"
	for _, letter := range letters {
		w := WorkerConfig{URL: "http://" + string(letter)}
		if tokens > 0 {
			w.CacheTokens = strconv.Itoa(tokens)
		}
		c.Workers = append(c.Workers, w)
	}
	return quietPool(t, c)
}

// send chooses for a streamed request.
func send(t *testing.T, p *pool, key string, now int64) (*exchange, *attempt) {
	t.Helper()
	ex := ask(p, key)
	ex.streamed = true
	return ex, take(t, p, ex, now)
}

// checkQueue compares a replica's queue with what it should be.
func checkQueue(t *testing.T, p *pool, letter string, requests, chars int, now int64) {
	t.Helper()
	for _, w := range describe(p, now).Workers {
		if w.URL == "http://"+letter && (w.Waiting != requests || w.Queue != chars) {
			t.Errorf("queue of %s = %d requests, %d characters, want %d, %d", letter, w.Waiting, w.Queue, requests, chars)
		}
	}
}

func TestCostPool_countsAQueueUntilTheFirstByte(t *testing.T) {
	p := costPool(t, "a", 0)
	now := second(1)
	turn := strings.Repeat("q", 1000)
	one, a := send(t, p, turn, now)
	checkQueue(t, p, "a", 1, 1000, now)
	two, b := send(t, p, turn+turn, now)
	checkQueue(t, p, "a", 2, 2000, now) // the first half of the second is known
	one.answered = true
	one.attempt.begin()
	checkQueue(t, p, "a", 1, 1000, now)
	one.attempt.begin() // each counts once
	checkQueue(t, p, "a", 1, 1000, now)
	endWith(p, one, a, 200, nil, now)
	checkQueue(t, p, "a", 1, 1000, now)
	endWith(p, two, b, 0, nil, now) // broken before its first byte
	checkQueue(t, p, "a", 0, 0, now)
	three, c := send(t, p, turn, now)
	checkQueue(t, p, "a", 1, 1, now) // all is known: a token has to be computed all the same
	endWith(p, three, c, 200, nil, now)
	checkQueue(t, p, "a", 0, 0, now)
	passing := ask(p, "")
	passing.endpoint = endpointOther
	d := take(t, p, passing, now)
	checkQueue(t, p, "a", 0, 0, now)
	endWith(p, passing, d, 200, nil, now)
}

func TestCostPool_thresholdKeepsNoQueue(t *testing.T) {
	p := poolOf(t, "a")
	ex, a := send(t, p, "a prompt", second(1))
	checkQueue(t, p, "a", 0, 0, second(1))
	ex.attempt.begin()
	endWith(p, ex, a, 200, nil, second(3))
	checkQueue(t, p, "a", 0, 0, second(3))
}

func TestCostPool_worksOffWhatShowsNoFirstByte(t *testing.T) {
	p := costPool(t, "a", 0)
	r := byLetter(t, p, "a")
	ex := ask(p, strings.Repeat("q", 40000))
	a := take(t, p, ex, second(1))
	checkQueue(t, p, "a", 1, 40000, second(1))
	checkQueue(t, p, "a", 1, 40000-5*firstPace, second(6))
	later := ask(p, strings.Repeat("r", 8000))
	b := take(t, p, later, second(6))
	checkQueue(t, p, "a", 2, 48000-5*firstPace, second(6))
	checkQueue(t, p, "a", 2, 0, second(60))
	// The end of the second says that the first is through as well.
	endWith(p, later, b, 200, nil, second(7))
	checkQueue(t, p, "a", 1, 0, second(7))
	endWith(p, ex, a, 200, nil, second(8))
	checkQueue(t, p, "a", 0, 0, second(8))
	if r.whole.chars != 0 || r.whole.count != 0 {
		t.Errorf("after the end of all: whole = %+v, want nothing in flight", r.whole)
	}
}

func TestCostPool_learnsAPace(t *testing.T) {
	p := costPool(t, "a", 0)
	w := byLetter(t, p, "a").whole
	now := second(1)
	n := 0
	answer := func(took time.Duration) {
		n++
		ex := ask(p, strconv.Itoa(n)+strings.Repeat("q", 32000))
		a := take(t, p, ex, now)
		now += int64(took)
		endWith(p, ex, a, 200, nil, now)
	}
	// 32,000 characters a second when nothing else holds an answer up, which is so for one in four.
	for i := 0; i < 400; i++ {
		took := 4 * time.Second
		if i%4 == 0 {
			took = time.Second
		}
		answer(took)
	}
	if w.pace < 20000 || w.pace > 40000 {
		t.Errorf("pace = %d, want about 32000", w.pace)
	}
	for i := 0; i < 400; i++ {
		answer(time.Hour)
	}
	if w.pace < leastPace/2 || w.pace > 2*leastPace {
		t.Errorf("pace of a replica that stands still = %d, want about %d", w.pace, leastPace)
	}
	before := w.pace
	answer(0)
	if w.pace != before {
		t.Errorf("an answer in no time at all changed the pace from %d to %d", before, w.pace)
	}
}

func TestCostPool_toldOfEachReplicasOwnMatch(t *testing.T) {
	p := costPool(t, "abcd", 0)
	p.set.quick = false // which asks no policy
	system := strings.Repeat("s", 3000)
	talk := system + strings.Repeat("t", 2000)
	learn(p.tree, "m", talk+strings.Repeat("u", 500), byLetter(t, p, "a").id)
	learn(p.tree, "m", talk, byLetter(t, p, "b").id)
	learn(p.tree, "m", system+"another", byLetter(t, p, "c").id)
	var got []candidate
	var asked prompt
	ex := ask(p, talk+strings.Repeat("u", 700))
	ex.policy = func(cs []candidate, in *prompt) (int, string) {
		got = append(got, cs...)
		asked = *in
		return 0, reasonHit
	}
	take(t, p, ex, second(1))
	want := []int{5500, 5000, 3000, 0}
	for i := range want {
		if got[i].matched != want[i] {
			t.Errorf("matches = %d %d %d %d, want %v", got[0].matched, got[1].matched, got[2].matched, got[3].matched, want)
			break
		}
	}
	if asked.matched != 5500 || asked.holders != 1 || asked.place != 0 {
		t.Errorf("prompt = %+v, want a match of 5500 on one replica and no new conversation", asked)
	}
}

func TestCostPool_heatComesAndGoes(t *testing.T) {
	p := costPool(t, "ab", 0)
	p.set.quick = false // which asks no policy
	text := strings.Repeat("p", 500)
	heat := func(now int64) int {
		got := -1
		ex := ask(p, text)
		ex.policy = func(cs []candidate, in *prompt) (int, string) {
			got = in.heat
			return 0, reasonHit
		}
		endWith(p, ex, take(t, p, ex, now), 200, nil, now)
		return got
	}
	for i, want := range []int{0, 1, 2, 3} {
		if got := heat(second(100)); got != want*heatUnit {
			t.Errorf("heat before request %d = %d, want %d", i, got, want*heatUnit)
		}
	}
	if got := heat(second(110)); got != 2*heatUnit {
		t.Errorf("heat of 4 requests ten seconds later = %d, want half of them: %d", got, 2*heatUnit)
	}
	if got := heat(second(100000)); got != 0 {
		t.Errorf("heat after a day = %d, want 0", got)
	}
}

func TestCostPool_copiesWhatIsMorePopularThanItsRoom(t *testing.T) {
	// Nine prompts of which one is asked for as often as all others together, in caches with room for all of them on each
	// replica, for two or three on each, and of unknown size.
	prompts := make([]string, 9)
	for i := range prompts {
		prompts[i] = strings.Repeat(string(rune('a'+i)), 8000)
	}
	for _, row := range []struct {
		tokens      int // of each of the three caches
		hot, common bool
	}{
		{0, true, true},
		{200000, true, true},
		{6000, true, false},
	} {
		p := costPool(t, "abc", row.tokens)
		for round := 0; round < 10; round++ {
			for i := range prompts {
				for _, key := range []string{prompts[i], prompts[0]} {
					ex, a := send(t, p, key+strconv.Itoa(round), second(100))
					endWith(p, ex, a, 200, nil, second(100))
				}
			}
		}
		popular := func(key string) bool {
			var in prompt
			p.set.quick = false // which asks no policy
			ex := ask(p, key)
			ex.policy = func(cs []candidate, asked *prompt) (int, string) {
				in = *asked
				return 0, reasonHit
			}
			endWith(p, ex, take(t, p, ex, second(100)), 400, nil, second(100))
			return in.heat > in.crowd
		}
		if got := popular(prompts[0]); got != row.hot {
			t.Errorf("with caches of %d tokens a prompt of every second request is popular: %t, want %t", row.tokens, got, row.hot)
		}
		if got := popular(prompts[5]); got != row.common {
			t.Errorf("with caches of %d tokens one of nine prompts is popular: %t, want %t", row.tokens, got, row.common)
		}
	}
}

func TestCostPool_instancesAgreeOnNewConversations(t *testing.T) {
	one, other := costPool(t, "abcdefgh", 0), costPool(t, "abcdefgh", 0)
	system := strings.Repeat("a system prompt that all share. ", 30)
	question := func(n int) string {
		return system + "Question " + strconv.Itoa(n*7919) + " about " + strings.Repeat(strconv.Itoa(n)+" ", 40)
	}
	// Each instance has seen conversations of its own.
	for n := 0; n < 20; n++ {
		for i, p := range []*pool{one, other} {
			ex, a := send(t, p, question(1000+2*n+i), second(1))
			endWith(p, ex, a, 200, nil, second(1))
		}
	}
	agreed := 0
	seen := map[string]int{}
	for n := 0; n < 100; n++ {
		exOne, a := send(t, one, question(n), second(2))
		exOther, b := send(t, other, question(n)+"an answer and the next question", second(2))
		if letterOf(a) == letterOf(b) {
			agreed++
		}
		seen[letterOf(a)]++
		endWith(one, exOne, a, 200, nil, second(2))
		endWith(other, exOther, b, 200, nil, second(2))
	}
	for _, n := range seen {
		if n > 25 {
			t.Errorf("100 conversations went to the replicas %v times, want about 12 each", seen)
			break
		}
	}
	if agreed < 95 || len(seen) < 8 {
		t.Errorf("two instances agreed on %d of 100 conversations, sent to %v, want nearly all, on all replicas", agreed, seen)
	}
}

// wantedCost asks the policy for a request as decideLoop does where it does not choose by its own statements, and returns
// what every replica would cost.
func wantedCost(p *pool, ex *exchange, now int64) (int, string, []int) {
	var scores []int
	in := p.in
	p.scratch = p.scratch[:0]
	for _, r := range p.replicas {
		r.slot = len(p.scratch)
		p.scratch = append(p.scratch, candidate{replica: r, load: r.load + r.worker.loadPenalty})
	}
	p.tree.find(ex.space, ex.key)
	describeCandidates(p, ex, now)
	in.set = ex.set
	in.total = len(ex.key)
	index, why := cost(p.scratch, in)
	worth := in.worth(float64(in.waiting) / float64(len(p.scratch)))
	for i := range p.scratch {
		scores = append(scores, p.scratch[i].score(worth))
	}
	return index, why, scores
}

func TestCost_quickIsTheSameRule(t *testing.T) {
	seen := map[string]int{}
	for seed := int64(1); seed <= 10; seed++ {
		draw := rand.New(rand.NewSource(seed))
		p := costPool(t, allLetters[:1+draw.Intn(12)], []int{0, 200, 20000}[draw.Intn(3)])
		p.set.instances = 1 + draw.Intn(3)
		var running []*exchange
		var talks []string
		now := second(100)
		for step := 0; step < 200; step++ {
			now += int64(time.Duration(draw.Intn(400)) * time.Millisecond)
			for len(running) > 0 && draw.Intn(2) == 0 {
				i := draw.Intn(len(running))
				ex := running[i]
				if ex.attempt.streamed && draw.Intn(2) == 0 {
					ex.answered = true
					ex.attempt.begin()
					continue
				}
				running = append(running[:i], running[i+1:]...)
				endWith(p, ex, ex.attempt, []int{200, 200, 200, 200, 400}[draw.Intn(5)], nil, now)
			}
			// A conversation goes on, or one begins with one of three system prompts.
			key := strings.Repeat(strconv.Itoa(draw.Intn(3)), 300) + strconv.Itoa(draw.Intn(1000)) + strings.Repeat("q", draw.Intn(300))
			if n := len(talks); n > 0 && draw.Intn(3) > 0 {
				key = talks[draw.Intn(n)] + strconv.Itoa(draw.Intn(1000)) + strings.Repeat("a", draw.Intn(3000))
			}
			talks = append(talks, key)
			ex := ask(p, key)
			ex.streamed = draw.Intn(3) > 0
			want, why, scores := wantedCost(p, ex, now)
			a := take(t, p, ex, now)
			running = append(running, ex)
			seen[a.why]++
			got := a.replica.place
			if a.why != why || scores[got] != scores[want] { // which of equal ones is a matter of chance
				t.Fatalf("seed %d, step %d: choose() = %d, %q, want %d, %q; costs %v %+v", seed, step, got, a.why, want, why, scores, *p.in)
			}
		}
		checkTree(t, p.tree)
		for _, ex := range running {
			endWith(p, ex, ex.attempt, 200, nil, now)
		}
		for _, w := range describe(p, now).Workers {
			if w.Load != 0 || w.Queue != 0 || w.Waiting != 0 {
				t.Errorf("seed %d: after all has ended: %+v, want no load and no queue", seed, w)
			}
		}
	}
	for _, why := range []string{reasonHit, reasonOverloaded, reasonPlaced, reasonMiss, reasonOnlyOne} {
		if seen[why] == 0 {
			t.Errorf("reasons were %v, want some of each", seen)
			break
		}
	}
}

func TestAge_claimsFadeWhenTheCacheHasTurnedOver(t *testing.T) {
	for _, name := range []string{policyThreshold, policyCost} {
		c := CreateConfig()
		c.Policy = name
		c.MaxLoad = "100"
		c.Workers = []WorkerConfig{{URL: "http://a", CacheTokens: "1000"}, {URL: "http://b", LoadPenalty: "50"}}
		p := quietPool(t, c)
		now := second(1)
		say := func(key string) *attempt {
			ex, a := send(t, p, key, now)
			endWith(p, ex, a, 200, nil, now)
			return a
		}
		filler := func(n int) string { return strconv.Itoa(n) + strings.Repeat("f", 999) }
		first := "first" + strings.Repeat("1", 995)
		say(first)
		for n := 1; n < 3; n++ {
			say(filler(n))
		}
		if a := say(first); a.matched != 1000 {
			t.Errorf("%s: match after 2,000 further characters in a cache of 4,000 = %d, want 1000", name, a.matched)
		}
		for n := 3; n < 6; n++ {
			say(filler(n))
		}
		if a := say(first); a.matched != 1000 {
			t.Errorf("%s: match after 3,000 further characters since it was used again = %d, want 1000", name, a.matched)
		}
		for n := 6; n < 11; n++ {
			say(filler(n))
		}
		if a := say(first); a.matched != 0 {
			t.Errorf("%s: match after 5,000 further characters = %d, want it faded", name, a.matched)
		}
		if w := describe(p, now).Workers[0]; w.Claims > 4000 {
			t.Errorf("%s: claims = %d, want at most what the cache holds", name, w.Claims)
		}
		checkTree(t, p.tree)
	}
}

func TestAge_whatIsKnownAgesNothing(t *testing.T) {
	p := costPool(t, "a", 1000)
	own := byLetter(t, p, "a").age
	say := func(key string, status int) {
		ex, a := send(t, p, key, second(1))
		endWith(p, ex, a, status, nil, second(1))
	}
	say(strings.Repeat("a", 1000), 200)
	for i := 0; i < 10; i++ {
		say(strings.Repeat("a", 1000), 200)
	}
	if own.held != 1000 {
		t.Errorf("held = %d after the same 1,000 characters eleven times, want 1000", own.held)
	}
	say(strings.Repeat("b", 1000), 0)
	if own.held != 1000 {
		t.Errorf("held = %d after a prompt that never arrived, want 1000 as before", own.held)
	}
}

func TestAge_followsTheConfiguration(t *testing.T) {
	c := CreateConfig()
	c.Policy = policyCost
	c.Cost.Instances = "4"
	c.Workers = []WorkerConfig{{URL: "http://a", CacheTokens: "1000"}, {URL: "http://b"}}
	p := quietPool(t, c)
	a, b := byLetter(t, p, "a"), byLetter(t, p, "b")
	if a.age.room != 1000 || b.age.room != 0 {
		t.Errorf("rooms = %d, %d, want a quarter of 4,000 characters, and unknown", a.age.room, b.age.room)
	}
	learn(p.tree, "m", strings.Repeat("x", 600), a.id)
	c.Workers[0].CacheTokens = "400"
	set, err := validate(c)
	if err != nil {
		t.Fatal(err)
	}
	p.apply(set, "smaller")
	if a.age.room != 400 || a.age.held > 400 || a.age.faded < a.age.clock-400 {
		t.Errorf("age = %+v, want room for 400", *a.age)
	}
	c.Workers = c.Workers[1:]
	if set, err = validate(c); err != nil {
		t.Fatal(err)
	}
	p.apply(set, "without a")
	if len(p.tree.ages) != 1 {
		t.Errorf("ages = %v, want that of b only", p.tree.ages)
	}
}

func TestShadow_watchesAndRoutesByLoad(t *testing.T) {
	for _, name := range []string{policyThreshold, policyCost} {
		c := CreateConfig()
		c.Policy = name
		c.Shadow = "true"
		c.MaxLoad = "100"
		c.Workers = []WorkerConfig{{URL: "http://a"}, {URL: "http://b", LoadPenalty: "1"}}
		p := quietPool(t, c)
		rule := shadowed(p, policies[name])
		say := func(key string) (*exchange, *attempt) {
			ex := ask(p, key)
			ex.policy = rule
			return ex, take(t, p, ex, second(1))
		}
		learn(p.tree, "m", strings.Repeat("k", 8000), byLetter(t, p, "b").id)
		ex, a := say(strings.Repeat("k", 8000))
		if letterOf(a) != "a" || a.why != reasonShadow {
			t.Errorf("%s: choose() = %s, %q, want the least loaded a for %q", name, letterOf(a), a.why, reasonShadow)
		}
		endWith(p, ex, a, 200, nil, second(1))
		got := describe(p, second(1))
		s := got.Shadow
		if s == nil || s.Decisions != 1 || s.Agreed != 0 || s.Total != 8000 || s.Known != 0 || s.CouldKnow != 8000 || s.Reasons[reasonHit] != 1 {
			t.Errorf("%s: shadow = %+v, want one hit of 8000 on another replica", name, s)
		}
		if got.Workers[0].Shadowed != 0 || got.Workers[1].Shadowed != 1 || got.Workers[0].Requests != 1 {
			t.Errorf("%s: workers = %+v, want the request on a and its shadow on b", name, got.Workers)
		}
		ex, a = say(strings.Repeat("k", 8000)) // now a has it too
		endWith(p, ex, a, 200, nil, second(1))
		if s := describe(p, second(1)).Shadow; s.Known != 8000 || s.CouldKnow != 16000 {
			t.Errorf("%s: shadow = %+v, want 8000 known where it went", name, s)
		}
		if reasons := describe(p, second(1)).Reasons; reasons[reasonShadow] != 2 {
			t.Errorf("%s: reasons = %v, want twice %q", name, reasons, reasonShadow)
		}
	}
}
