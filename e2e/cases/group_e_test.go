package cases

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cart-llm/cart/e2e/engine"
	"github.com/cart-llm/cart/e2e/traefik"
)

// Group E: balance, affinity, the tree.

func init() {
	tests = append(tests,
		test{"E01", sharedPrefixes},
		test{"E02", hotPrefix},
		test{"E03", missGoesToLeastLoaded},
		test{"E05", countedAtChoice},
		test{"E06", growingConversation},
		test{"E07", onlyPromptCounts},
		test{"E08", volatileLine},
		test{"E09", separateKeySpaces},
		test{"E11", treeCap},
		test{"E12", splitCharactersInTree},
		test{"E13", passThroughLoad},
		test{"E14", manyUsers},
		test{"E16", storedState},
	)
}

// system is a chat with a system prompt and a question.
func system(prompt, question string) query {
	return post("/v1/chat/completions", `{"model":"m1","messages":[{"role":"system","content":`+quoted(prompt)+
		`},{"role":"user","content":`+quoted(question)+`}]}`)
}

// E01: Shared prefix goes to the same replica; unrelated text is spread.
func sharedPrefixes(t *testing.T, s *stage) {
	t.Parallel()
	r := s.start(t, 2, nil)
	type ask struct{ prompt, question int }
	var asks []ask
	const prompts = 100 // of 40, one run in 1,500 would leave one replica less than a quarter by chance; of these one in 3 million
	for p := 0; p < prompts; p++ {
		for q := 0; q < 5; q++ {
			asks = append(asks, ask{p, q})
		}
	}
	rand.Shuffle(len(asks), func(i, j int) { asks[i], asks[j] = asks[j], asks[i] })
	home, owned := map[int]string{}, map[string]int{}
	for _, one := range asks {
		a := r.ok(system(prose(fmt.Sprint("system prompt ", one.prompt), 4096), fmt.Sprint("question ", one.question)))
		if home[one.prompt] == "" {
			home[one.prompt] = a.peer()
			owned[a.peer()]++
		}
		if a.peer() != home[one.prompt] {
			t.Errorf("prompt %d, question %d went to %s (%s), want %s", one.prompt, one.question, a.peer(), a.header.get("x-cart-reason"), home[one.prompt])
		}
	}
	for _, m := range r.mocks {
		if owned[m.url()] < prompts/4 {
			t.Errorf("%s owns %d of %d prompts, want at least a quarter", m.url(), owned[m.url()], prompts)
		}
	}
	r.settled()
}

// E02: Hot prefix overflows when the replica is too busy, and comes home.
func hotPrefix(t *testing.T, s *stage) {
	t.Parallel()
	r := s.start(t, 2, nil)
	q := askStream(prose("hot", 4096))
	r.warm(q)
	g := newGate(t)
	r.all(g.streaming)
	var streams []*wire
	for i := 0; i < 40; i++ {
		before := r.state()
		streams = append(streams, r.hold(1, func(int) query { return q })...)
		now := r.state()
		low, high := min(now.Workers[0].Load, now.Workers[1].Load), max(now.Workers[0].Load, now.Workers[1].Load)
		// The documented thresholds: more than 5 above, and more than 1.6 times.
		if allowed := max(5, 0.6*float64(low)); float64(high-low) > allowed+1 {
			t.Errorf("loads in /workers = %v after %d streams, want a difference of %v at most", now.loads(), i+1, allowed+1)
		}
		if now.Reasons["hit_overloaded"] > before.Reasons["hit_overloaded"] {
			for j, w := range now.Workers {
				if w.Load > before.Workers[j].Load && before.Workers[j].Load > before.Workers[1-j].Load {
					t.Errorf("an overflow went from loads %v to %v, want it on the least loaded", before.loads(), now.loads())
				}
			}
		}
	}
	if n := r.state().Reasons["hit_overloaded"]; n == 0 {
		t.Error("no request has overflown")
	}
	g.release()
	r.whole(streams)
	r.settled()
	r.all(nil)
	for i := 0; i < 5; i++ {
		if a := r.ok(q); a.header.get("x-cart-reason") != "cache_hit" || a.match() < 1 {
			t.Errorf("afterwards the reason is %q (match %v), want cache_hit", a.header.get("x-cart-reason"), a.match())
		}
	}
}

// E03: A miss goes to the least loaded, not to the smallest tree.
func missGoesToLeastLoaded(t *testing.T, s *stage) {
	t.Parallel()
	r := s.start(t, 2, engine.Config{"cache": engine.Config{"balanceAbsThreshold": 8}})
	idle, busy := r.mocks[0], r.mocks[1]
	r.favour(idle)
	for i := 0; i < 500; i++ {
		if status := r.post(ask(prose(fmt.Sprint("cached ", i), 2000))); status != 200 {
			t.Fatalf("status of prompt %d = %d, want 200", i, status)
		}
	}
	if n := len(idle.requests()); n != 500 {
		t.Fatalf("%d of 500 prompts are on the replica", n)
	}
	r.favour(busy)
	g := newGate(t)
	r.all(g.silent)
	held := r.hold(6, func(i int) query { return post("/v1/embeddings", fmt.Sprintf(`{"input":"%d"}`, i)) }) // teach the tree nothing
	r.favour(nil)
	st := r.state()
	if a, b := st.of(idle), st.of(busy); a.Load != 0 || b.Load != 6 || b.Claims != 0 || a.Claims == 0 {
		t.Fatalf("state = %+v, want one replica idle with a big tree, the other busy with none", st.Workers)
	}
	r.all(nil)
	for i := 0; i < 20; i++ {
		if a := r.ok(ask(prose(fmt.Sprint(i, " brand-new"), 4096))); a.peer() != idle.url() {
			t.Errorf("new prompt %d went to %s (%s), want the idle replica", i, a.peer(), a.header.get("x-cart-reason"))
		}
	}
	g.release()
	for _, w := range held {
		w.wait(5 * time.Second)
	}
	r.settled()
}

// E05: Load is counted when the worker is chosen, not when headers come back.
func countedAtChoice(t *testing.T, s *stage) {
	t.Parallel()
	r := s.start(t, 4, nil)
	g := newGate(t)
	r.all(g.silent)
	held := r.hold(8, func(i int) query { return ask(prose(fmt.Sprint(i, " unrelated"), 4096)) })
	until := time.Now().Add(scaled(3*time.Second, 300*time.Millisecond))
	for time.Now().Before(until) {
		for _, n := range r.state().loads() {
			if n != 2 {
				t.Fatalf("loads in /workers = %v, want 2 each", r.state().loads())
			}
		}
		time.Sleep(20 * time.Millisecond)
	}
	g.release()
	for _, w := range held {
		w.wait(5 * time.Second)
	}
	r.settled()
}

// session is a chat with tools that grows by turns.
type session struct {
	tools  []string
	system string
	turns  []string
}

func (c session) query() query {
	messages := []string{`{"role":"system","content":` + quoted(c.system) + `}`}
	for i, turn := range c.turns {
		messages = append(messages, `{"role":"`+[]string{"user", "assistant"}[i%2]+`","content":`+quoted(turn)+`}`)
	}
	return post("/v1/chat/completions", `{"model":"m1","tools":[`+strings.Join(c.tools, ",")+`],"messages":[`+strings.Join(messages, ",")+`]}`)
}

// E06: Growing conversation and changed tools.
func growingConversation(t *testing.T, s *stage) {
	t.Parallel()
	r := s.start(t, 2, engine.Config{"cache": engine.Config{"balanceAbsThreshold": 8}})
	tool := func(name, about string) string {
		return `{"type":"function","function":{"name":"` + name + `","description":` + quoted(about) +
			`,"parameters":{"type":"object","properties":{"b":{"type":"string"},"a":{"type":"number"}}}}}`
	}
	round := 0
	for name, change := range map[string]struct {
		hit bool
		of  func(c session) session
	}{
		"a 7th turn":               {true, func(c session) session { c.turns = append(c.turns[:6:6], prose("the 7th", 300)); return c }},
		"another last text":        {true, func(c session) session { c.turns = append(c.turns[:5:5], prose("something else", 300)); return c }},
		"another session":          {true, func(c session) session { c.turns = []string{prose("a new one", 300)}; return c }},
		"tools swapped":            {false, func(c session) session { c.tools = []string{c.tools[1], c.tools[0]}; return c }},
		"the first tool described": {false, func(c session) session { c.tools = []string{tool("t1", "told anew"), c.tools[1]}; return c }},
	} {
		round++
		c := session{
			tools:  []string{tool("t1", prose(fmt.Sprint("tool one of ", round), 600)), tool("t2", prose(fmt.Sprint("tool two of ", round), 600))},
			system: prose(fmt.Sprint("system of ", round), 4096),
		}
		home := (*mock)(nil)
		for i := 0; i < 6; i++ {
			c.turns = append(c.turns, prose(fmt.Sprintf("turn %d of %d", i, round), 300))
			m := r.warm(c.query())
			if home != nil && m != home {
				t.Errorf("%s: turn %d went to another replica than those before", name, i)
			}
			home = m
		}
		release := r.lean(c.query(), home)
		if change.hit {
			r.hit(name, change.of(c).query(), home)
		} else if a := r.miss(name, change.of(c).query(), home); a.match() > 0.1 {
			t.Errorf("%s: match = %v, want only what is before the change", name, a.match())
		}
		release()
		r.settled()
	}
}

// E07: Only the prompt counts: sampling fields, ids and JSON layout do not. The machine form has one of these.
func onlyPromptCounts(t *testing.T, s *stage) {
	r := s.start(t, 2, engine.Config{"cache": engine.Config{"balanceAbsThreshold": 8}})
	const chatPath = "/v1/chat/completions"
	compact := func(v any) string {
		var b bytes.Buffer
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		if err := e.Encode(v); err != nil {
			t.Fatal(err)
		}
		return strings.TrimSuffix(b.String(), "\n")
	}
	messages := func(label string) string {
		return `[{"role":"system","content":` + quoted(prose(label+" A", 4096)) + `},{"role":"user","content":"q1"}]`
	}
	const tools = `[{"type":"function","function":{"name":"wx","parameters":{"type":"object"}}}]`
	python := func(body string) string { // what json.dumps makes of it; none of the texts has a colon or a comma before a quote
		return strings.NewReplacer(`":`, `": `, `,"`, `, "`, `},{`, `}, {`).Replace(body)
	}
	base := func(label string) string {
		return `{"model":"m1","messages":` + messages(label) + `,"tools":` + tools + `}`
	}
	must := map[string]func(label string) string{}
	for _, field := range []string{
		`"temperature":0.9`, `"seed":7`, `"max_tokens":3`, `"user":"u7"`, `"metadata":{"run":"a1"}`, `"stream":true`,
		`"stream":true,"stream_options":{"include_usage":true}`, `"id":"x-1"`, `"n":2,"top_p":0.5,"stop":["a","b"]`,
	} {
		must["before: "+field] = func(label string) string { return `{` + field + `,` + base(label)[1:] }
		must["after: "+field] = func(label string) string { return strings.TrimSuffix(base(label), "}") + `,` + field + `}` }
	}
	must["messages first"] = func(label string) string {
		return `{"messages":` + messages(label) + `,"tools":` + tools + `,"model":"m1"}`
	}
	must["tools first"] = func(label string) string {
		return `{"tools":` + tools + `,"messages":` + messages(label) + `,"model":"m1"}`
	}
	must["Python's spacing"] = func(label string) string { return python(base(label)) }
	must["Python's spacing, another order"] = func(label string) string {
		return python(`{"max_tokens":5,"tools":` + tools + `,"model":"m1","messages":` + messages(label) + `}`)
	}
	// These may hit or miss, but always the same.
	may := map[string]func(label string) string{
		"indented": func(label string) string {
			var v any
			if err := json.Unmarshal([]byte(base(label)), &v); err != nil {
				t.Fatal(err)
			}
			out, _ := json.MarshalIndent(v, "", "  ")
			return string(out)
		},
		"escapes": func(label string) string { return strings.ReplaceAll(base(label), " A and", ` \u0041 and`) },
		"parts": func(label string) string {
			return strings.Replace(base(label), `"content":`+quoted(prose(label+" A", 4096)),
				`"content":[{"type":"text","text":`+compact(prose(label+" A", 4096))+`}]`, 1)
		},
	}
	n := 0
	try := func(name string, of func(label string) string) (hit bool) {
		n++
		label := fmt.Sprint(n, " conversation")
		home := r.warm(post(chatPath, base(label)))
		release := r.lean(post(chatPath, base(label)), home)
		defer r.settled()
		defer release()
		body := of(label)
		if !json.Valid([]byte(body)) || body == base(label) {
			t.Fatalf("%s: the variant is not one: %.100s", name, body)
		}
		_, x := r.verbatim(name, post(chatPath, body))
		return x.replica == home
	}
	for name, of := range must {
		if !try(name, of) {
			t.Errorf("%s: a miss, want a hit", name)
		}
	}
	for name, of := range may {
		first := try(name, of)
		for i := 0; i < 3; i++ {
			if again := try(name, of); again != first {
				t.Errorf("%s: hit %t, then %t, want always the same", name, first, again)
			}
		}
	}
}

// E08: Volatile first system line (agent billing nonce).
func volatileLine(t *testing.T, s *stage) {
	r := s.start(t, 2, engine.Config{"cache": engine.Config{"balanceAbsThreshold": 8}})
	line := func(nonce string) string {
		return "x-anthropic-billing-header: cc_version=9.0.1; cc_entrypoint=cli; cch=" + nonce + ";"
	}
	block := func(text string) string { return `{"type":"text","text":` + quoted(text) + `}` }
	body := func(system, messages string) string {
		return `{"model":"m1","max_tokens":8,"system":` + system + `,"messages":[` + messages + `]}`
	}
	user := func(text string) string { return `{"role":"user","content":` + quoted(text) + `}` }
	grown := user("q1") + `,{"role":"assistant","content":"a1"},` + user("q2")
	stable := prose("stable", 30<<10)
	for _, one := range []struct {
		what, path   string
		first, later string
		hit          bool
	}{
		{"a session of a CLI", "/v1/messages",
			body(`[`+block(line("a1b2c"))+`,`+block(stable)+`]`, user("q1")),
			body(`[`+block(line("d4e5f"))+`,`+block(stable)+`]`, grown), true},
		{"with cache_control", "/v1/messages",
			body(`[`+block(line("a1b2c"))+`,{"type":"text","text":`+quoted("2"+stable)+`,"cache_control":{"type":"ephemeral"}}]`, user("q1")),
			body(`[`+block(line("d4e5f"))+`,{"type":"text","text":`+quoted("2"+stable)+`}]`, grown), true},
		// Not at the start of a system block: it counts like any other text.
		{"in a user's text", "/v1/messages",
			body(`"s"`, user(line("a1b2c")+"3"+stable)), body(`"s"`, user(line("d4e5f")+"3"+stable)), false},
		{"within a system block", "/v1/messages",
			body(`[`+block("hi "+line("a1b2c"))+`,`+block("4"+stable)+`]`, user("q1")),
			body(`[`+block("hi "+line("d4e5f"))+`,`+block("4"+stable)+`]`, user("q1")), false},
		{"in a chat", "/v1/chat/completions",
			`{"model":"m1","messages":[{"role":"system","content":[` + block(line("a1b2c")) + `,` + block("5"+stable) + `]},` + user("q1") + `]}`,
			`{"model":"m1","messages":[{"role":"system","content":[` + block(line("d4e5f")) + `,` + block("5"+stable) + `]},` + user("q1") + `]}`, false},
	} {
		home := r.warm(post(one.path, one.first))
		release := r.lean(post(one.path, one.first), home)
		if one.hit {
			r.hit(one.what, post(one.path, one.later), home)
		} else {
			r.miss(one.what, post(one.path, one.later), home)
		}
		release()
		r.settled()
	}
}

// E09: Model / LoRA name and cache_salt separate the key space.
func separateKeySpaces(t *testing.T, s *stage) {
	t.Parallel()
	r := s.start(t, 2, engine.Config{"cache": engine.Config{"balanceAbsThreshold": 8}})
	n := 0
	in := func(model, salt string) query {
		fields := `"model":` + quoted(model)
		if salt != "" {
			fields += `,"cache_salt":` + quoted(salt)
		}
		return post("/v1/chat/completions", `{`+fields+`,"messages":[{"role":"user","content":`+quoted(prose(fmt.Sprint("X", n), 4096))+`}]}`)
	}
	for _, pair := range [][2][2]string{
		{{"base", ""}, {"base-lora-7", ""}},
		{{"base", ""}, {"base", "t1"}},
		{{"base", "t1"}, {"t1", ""}},
		{{"base", "t1"}, {"base", "t2"}},
		{{"base", "t1"}, {"baset1", ""}},
		{{"", "t1"}, {"t1", ""}},
		{{`a"b`, ""}, {`a`, ""}},
	} {
		n++
		first, second := in(pair[0][0], pair[0][1]), in(pair[1][0], pair[1][1])
		home := r.warm(first)
		release := r.lean(first, home)
		r.miss(fmt.Sprintf("%q after %q", pair[1], pair[0]), second, home)
		r.hit(fmt.Sprintf("%q again", pair[0]), first, home)
		release()
		r.settled()
	}
}

// E11: Tree size cap is global and removal purges.
func treeCap(t *testing.T, s *stage) {
	prompts, later := int(scaled(20_000, 600)), int(scaled(20_000, 300))
	limit := int(scaled(16<<20, 2<<20))
	r := s.lab(t).start(t, 8, engine.Config{"cache": engine.Config{"maxTreeBytes": limit}})
	const noise = 4 << 20 // of what else there is
	head := prose("the shared head", 2048)
	r.ok(ask(head))
	before := r.s.heap(t)
	var sent atomic.Int64
	send := func(n int) {
		var wg sync.WaitGroup
		for c := 0; c < 2; c++ {
			wg.Add(1)
			go func() {
				defer wg.Done()
				for i := 0; i < n/2; i++ {
					r.ok(ask(head + prose(fmt.Sprint(sent.Add(1), " and its own"), 6144)))
					if i%50 != 0 {
						continue
					}
					r.forget()
					if st := r.state(); st.Tree.Bytes > limit || st.Tree.MaxBytes != limit {
						t.Errorf("the tree has %d bytes of %d, want %d at most", st.Tree.Bytes, st.Tree.MaxBytes, limit)
					}
					a := r.ok(ask(head + prose(fmt.Sprint(sent.Add(1), " and little of its own"), 300)))
					if why := a.header.get("x-cart-reason"); a.match() < 0.7 && why != "hit_overloaded" {
						t.Errorf("match = %v (%s), want the shared head", a.match(), why)
					}
				}
			}()
		}
		wg.Wait()
		r.forget()
	}
	send(prompts)
	full := r.state().Tree
	if full.Bytes < limit/2 {
		t.Errorf("the tree has %d bytes, want it full for this case to show anything", full.Bytes)
	}
	r.grown(before, 2*limit+noise, "with a full tree")
	r.with(engine.Config{"workers": workersOf(r.mocks[0])})
	if st := r.state(); len(st.Workers) != 1 {
		t.Errorf("/workers shows %d replicas after the removal of 7, want 1", len(st.Workers))
	}
	// What only the others had goes, and with it most of the tree. Bytes count the garbage collector's headroom too.
	r.waitState(slack*10*time.Second, func(st workersState) error {
		if st.Tree.Bytes > full.Bytes/2 || st.Tree.Bytes > 3*st.Workers[0].Claims+(64<<10) {
			return fmt.Errorf("the tree has %d bytes of %d before, with claims on %d characters", st.Tree.Bytes, full.Bytes, st.Workers[0].Claims)
		}
		return nil
	})
	send(later)
	r.grown(before, 2*limit+noise, "after the removal and as many more")
	if s.kind != engine.Compiled {
		return
	}
	// A decision takes no longer when the tree is full. The time is in the log.
	r.with(engine.Config{"workers": workersOf(r.mocks...), "logLevel": "debug", "log": engine.Config{"maxPerSecond": 0}})
	err := poll(slack*3*time.Second, func() error { // this machine may be busy with other things
		before := len(r.logLines())
		send(300)
		var times []int
		for _, line := range r.logLines()[before:] {
			var d struct {
				Msg             string
				DecisionSeconds float64
			}
			if json.Unmarshal([]byte(line), &d) == nil && d.Msg == "decision" {
				times = append(times, int(1e6*d.DecisionSeconds))
			}
		}
		sort.Ints(times)
		if n := len(times); n < 300 || times[n*99/100] > slack*5000 {
			return fmt.Errorf("%d decisions took %v us, want 300 and 99 of 100 within 5000 us", n, times)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// E12: Node split inside a multi-byte character or escape.
func splitCharactersInTree(t *testing.T, s *stage) {
	pairs := int(scaled(10_000, 320))
	// The threshold is above what the 16 clients below can make of load: a repeat is to be a hit.
	r := s.start(t, 2, engine.Config{"cache": engine.Config{"balanceAbsThreshold": 32}, "maxLoad": 1000})
	// Texts of a pair share all but the last byte of a character.
	ends := [][2]string{
		{"日", "旦"}, {"😀", "😁"}, {"é", "è"}, {"°", "×"}, {"\U0001F600", "\u65e5"}, {"e\u0301", "e\u0302"},
		{"\xf1", "\xf2"}, {"\xe6\x97", "\xe6\x98"}, {`\u65e5`, `\u65e6`}, {`\ud83d\ude00`, `\ud83d\ude01`}, {`\n`, `\t`}, {"日\xff", "日\xfe"},
	}
	raw := func(head, end, tail string) query { // the texts have nothing that JSON would escape
		return post("/v1/chat/completions", `{"model":"m1","messages":[{"role":"user","content":"`+head+end+tail+`"}]}`)
	}
	for i, pair := range ends {
		head, tail := prose(fmt.Sprint(i, " ×Δ日"), 3000), prose("tail", 1200)
		for j, end := range pair {
			tail := fmt.Sprint(j, tail)
			home := r.warm(raw(head, end, tail))
			release := r.lean(raw(head, end, tail), home)
			if a := r.hit(fmt.Sprintf("%q", end), raw(head, end, tail), home); a.match() != 1 {
				t.Errorf("%q: match of a repeat = %v, want 1", end, a.match())
			}
			release()
			r.settled()
		}
	}
	// The longer the common part, the longer the match.
	whole := strings.Repeat("日×😀Δ", 100)
	r.warm(raw("monotone ", whole, ""))
	last := -1.0
	for n := len(whole) - 60; n <= len(whole); n++ {
		a := r.ok(raw("monotone ", whole[:n]+strings.Repeat("#", len(whole)-n), ""))
		if a.match() < last {
			t.Errorf("match = %v with %d bytes in common, want at least the %v of one less", a.match(), n, last)
		}
		last = a.match()
	}
	if last != 1 {
		t.Errorf("match of the whole = %v, want 1", last)
	}
	r.settled()

	var wg sync.WaitGroup
	r.forget()
	sent := sync.Map{}
	r.all(func(x *exchange) {
		if _, ok := sent.Load(string(x.received())); !ok {
			t.Errorf("a replica got %q, which nobody sent", cut(x.received()))
		}
		x.json(200, `{"ok":true}`)
	})
	for c := 0; c < 16; c++ {
		wg.Add(1)
		go func() {
			defer wg.Done()
			random := rand.New(rand.NewPCG(uint64(c), 12))
			for i := 0; i < pairs/16; i++ {
				pair := ends[random.IntN(len(ends))]
				head := prose(fmt.Sprintf("%d %d ", random.IntN(50), c), 20+random.IntN(900)) + strings.Repeat("日", random.IntN(3))
				for _, end := range []int{0, 1, random.IntN(2)} {
					q := raw(head, pair[end], prose(fmt.Sprint(end), random.IntN(50)+1))
					sent.Store(string(q.body), true)
					r.ok(q)
					if a := r.ok(q); a.match() != 1 {
						t.Errorf("match of a repeat = %v, want 1: %q", a.match(), cut(q.body))
					}
				}
			}
		}()
	}
	wg.Wait()
	r.settled()
	r.forget()
}

// E13: Pass-through endpoints and the load picture. CART forwards them itself.
func passThroughLoad(t *testing.T, s *stage) {
	t.Parallel()
	r := s.start(t, 4, nil)
	g := newGate(t)
	r.all(g.silent)
	held := r.hold(60, func(i int) query {
		switch {
		case i%3 == 0:
			return post("/inference/v1/generate", fmt.Sprintf(`{"token_ids":[%d]}`, i))
		case i%3 == 1:
			return post("/v1/embeddings", fmt.Sprintf(`{"model":"m1","input":"%d"}`, i))
		default:
			return ask(prose(fmt.Sprint(i, " beside"), 4096))
		}
	})
	if loads := r.state().loads(); fmt.Sprint(loads) != "[15 15 15 15]" {
		t.Errorf("loads in /workers = %v, want the 60 requests spread evenly", loads)
	}
	if n := r.state().Reasons["passthrough"]; n != 40 {
		t.Errorf("decisions for requests that pass through = %d, want 40", n)
	}
	g.release()
	for _, w := range held {
		if a := w.wait(10 * time.Second); a.err != nil || a.status != 200 {
			t.Errorf("a held request got %v, want 200", &a)
		}
	}
	r.settled()
}

// E14: 1,000 concurrent users, compiled and interpreted. A short form; `make soak` is the long one.
func manyUsers(t *testing.T, s *stage) {
	const users = 1000
	whole := scaled(5*time.Minute, 5*time.Second)
	flap, reload := scaled(10*time.Second, 1500*time.Millisecond), scaled(15*time.Second, 2*time.Second)
	const think = 4 * time.Second
	r := s.lab(t).start(t, 4, engine.Config{
		"maxLoad": users, "health": engine.Config{"interval": "500ms", "timeout": "5s"}, "cache": engine.Config{"maxTreeBytes": 4 << 20},
	})
	heap, goroutines := r.s.heap(t), r.s.goroutines(t)
	var sent, failed, made atomic.Int64 // 5xx of CART, answers the replicas broke off after their first byte
	r.all(func(x *exchange) {
		switch body := x.received(); {
		case !json.Valid(body):
			x.json(400, `{"error":{"message":"no JSON"}}`)
		case bytes.Contains(body, []byte(`"stream":true`)):
			x.events()
			for i := 0; i < 4; i++ {
				if !x.chunk(firstEvent) || !x.wait(20*time.Millisecond) {
					made.Add(1)
					return
				}
			}
			x.chunk(lastEvent)
			x.end()
		default:
			if x.wait(20 * time.Millisecond) {
				x.json(200, `{"ok":true}`)
			}
		}
	})
	prompt := func(i int) string { return prose(fmt.Sprint(i, " is a shared prompt"), 1500) }
	crowd := func(long time.Duration, calm bool) float64 {
		before := r.state()
		end := time.Now().Add(long)
		var wg sync.WaitGroup
		for u := 0; u < users; u++ {
			wg.Add(1)
			go func() {
				defer wg.Done()
				random := rand.New(rand.NewPCG(uint64(u), 14))
				for next := time.Now().Add(time.Duration(random.Int64N(int64(think)))); next.Before(end); {
					time.Sleep(time.Until(next))
					next = time.Now().Add(think/2 + time.Duration(random.Int64N(int64(think))))
					q := system(prompt(u%50), fmt.Sprint("question ", random.IntN(1000)))
					kind := random.IntN(100)
					if kind%2 == 0 {
						q = post(q.target, `{"stream":true,`+string(q.body[1:]))
					}
					if !calm && kind < 5 {
						q = post(q.target, string(q.body[:len(q.body)-3]))
					}
					sent.Add(1)
					w := r.begin(q)
					if !calm && kind >= 90 {
						time.Sleep(time.Duration(random.Int64N(int64(60 * time.Millisecond))))
						w.reset()
						<-w.done
					} else if a := w.wait(30 * time.Second); a.status >= 500 || a.status == 0 {
						failed.Add(1)
						t.Errorf("a user got %v", &a)
					}
				}
			}()
		}
		wg.Wait()
		r.forget()
		now := r.state()
		all, hits := 0.0, 0.0
		for why, n := range now.Reasons {
			if why != "retry" { // its first choice has been counted
				all += float64(n - before.Reasons[why])
			}
		}
		for _, why := range []string{"cache_hit", "hit_overloaded"} { // not how busy this machine is, is the question
			hits += float64(now.Reasons[why] - before.Reasons[why])
		}
		return hits / all
	}
	for i := 0; i < 50; i++ { // so that the tree knows all prompts
		r.ok(system(prompt(i), "warm up"))
	}
	calm := crowd(whole*2/5, true)
	stop := make(chan struct{})
	var beside sync.WaitGroup
	every := func(pause time.Duration, f func(n int)) {
		beside.Add(1)
		go func() {
			defer beside.Done()
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				case <-time.After(pause):
					f(n)
				}
			}
		}()
	}
	every(flap, func(n int) {
		if n%2 == 0 {
			r.mocks[3].stop()
		} else {
			r.mocks[3].restart(t)
		}
	})
	every(reload, func(n int) { r.with(engine.Config{"maxLoad": users + n%2}) })
	wild := crowd(whole, false)
	close(stop)
	beside.Wait()
	for _, m := range r.mocks { // to close what the pool keeps open for later
		m.stop()
		m.restart(t)
	}
	r.settled()
	t.Logf("%d requests, hits %.3f calm and %.3f wild, %d streams broken off by the replicas or left by users", sent.Load(), calm, wild, made.Load())
	if wild < calm-0.05 {
		t.Errorf("hit ratio = %.3f, want within 5 %% of the calm %.3f", wild, calm)
	}
	if log := r.e.Log(); strings.Contains(log, "concurrent map") || strings.Contains(log, "reflect") {
		t.Errorf("the log tells of a fault:\n%.2000s", log)
	}
	r.goroutinesBack(goroutines)
	r.grown(heap, 24<<20, "after the crowd")
}

// E16: Responses API and stored state. The machine form has the first.
func storedState(t *testing.T, s *stage) {
	r := s.start(t, 2, nil)
	r.verbatim("the first", post("/v1/responses", `{"model":"m1","input":"hi","store":true}`))
	r.all(func(x *exchange) { x.json(404, `{"error":{"message":"resp_x1 is not known"}}`) })
	for what, q := range map[string]query{
		"the follow-up":  post("/v1/responses", `{"model":"m1","input":"hi","previous_response_id":"resp_x1"}`),
		"the response":   get("/v1/responses/resp_x1"),
		"its deletion":   {method: "DELETE", target: "/v1/responses/resp_x1"},
		"its items":      get("/v1/responses/resp_x1/input_items?limit=2"),
		"its cancelling": post("/v1/responses/resp_x1/cancel", ``),
	} {
		if a, _ := r.verbatim(what, q); a.status != 404 {
			t.Errorf("%s: status = %d, want the replica's 404", what, a.status)
		}
	}
	r.settled()
	r.unharmed()
	root, err := traefik.Root()
	if err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(filepath.Join(root, "README.md")); err != nil || !strings.Contains(string(text), "previous_response_id") {
		t.Errorf("README.md says nothing of previous_response_id (%v), want that stored state is not followed", err)
	}
}
