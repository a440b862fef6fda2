package cart

import (
	"compress/gzip"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestReadUsage(t *testing.T) {
	for _, row := range []struct {
		story, tail string
		want        usage
	}{
		{"nothing", ``, usage{}},
		{"no usage", `{"choices":[]}`, usage{}},
		{"not told", `"usage":{"prompt_tokens":10,"total_tokens":12,"prompt_tokens_details":null}}`, usage{}},
		{"told as null", `"usage":{"prompt_tokens":10,"prompt_tokens_details":{"cached_tokens":null}}}`, usage{}},
		{"none cached", `"usage":{"prompt_tokens":10,"prompt_tokens_details":{"cached_tokens":0}}}`, usage{10, 0}},
		{"vLLM, chat", `"finish_reason":"stop"}],"usage":{"prompt_tokens":900,"total_tokens":910,"completion_tokens":10,` +
			`"prompt_tokens_details":{"cached_tokens":768}},"prompt_logprobs":null,"kv_transfer_params":null}`, usage{900, 768}},
		{"with spaces", `"usage": {"prompt_tokens": 900, "prompt_tokens_details": {"cached_tokens": 768 }}}`, usage{900, 768}},
		{"in the order of the alphabet", `"usage":{"completion_tokens":3,"prompt_tokens":900,"prompt_tokens_details":{"cached_tokens":768},"total_tokens":903}}`,
			usage{900, 768}},
		{"the details first", `"usage":{"prompt_tokens_details":{"cached_tokens":768},"prompt_tokens":900}}`, usage{900, 768}},
		{"a stream", "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":5,\"prompt_tokens_details\":{\"cached_tokens\":4}}}\n\ndata: [DONE]\n\n", usage{5, 4}},
		{"responses", `"usage":{"input_tokens":50,"input_tokens_details":{"cached_tokens":48},"output_tokens":2},"user":null}}`, usage{50, 48}},
		{"messages", `"stop_reason":"end_turn","usage":{"input_tokens":20,"output_tokens":5,"cache_creation_input_tokens":10,"cache_read_input_tokens":70}}`,
			usage{100, 70}},
		{"messages without creation", `"usage":{"cache_read_input_tokens":70,"input_tokens":20,"output_tokens":5}}`, usage{90, 70}},
		{"a short stream of messages", `{"type":"message_start","message":{"usage":{"input_tokens":90,"output_tokens":0}}}` + "\n\n" +
			`{"type":"message_delta","usage":{"cache_read_input_tokens":70,"input_tokens":20}}`, usage{90, 70}},
		{"llama.cpp without usage", `"timings":{"cache_n":236,"prompt_n":4,"prompt_ms":30.9,"predicted_n":35}}`, usage{240, 236}},
		{"more cached than there is", `"usage":{"prompt_tokens":10,"prompt_tokens_details":{"cached_tokens":11}}}`, usage{}},
		{"cut off", `"usage":{"prompt_tokens":10,"prompt_tokens_details":{"cached_tokens":1`, usage{}},
		{"negative", `"usage":{"prompt_tokens":10,"prompt_tokens_details":{"cached_tokens":-1}}}`, usage{}},
		{"no number", `"usage":{"prompt_tokens":10,"prompt_tokens_details":{"cached_tokens":"5"}}}`, usage{}},
		{"too long a number", `"usage":{"prompt_tokens":10,"prompt_tokens_details":{"cached_tokens":99999999999999999999}}}`, usage{}},
		{"only in a text", `"content":"he said \"cached_tokens\":5 and \"prompt_tokens\":9"}]}`, usage{}},
		{"cached, but of what?", `"cached_tokens":5}`, usage{}},
		{"read, but of what?", `"cache_read_input_tokens":5}`, usage{}},
		{"the same in timings", `"cache_n":5}`, usage{}},
	} {
		if got := readUsage([]byte(row.tail)); got != row.want {
			t.Errorf("%s: readUsage() = %+v, want %+v", row.story, got, row.want)
		}
	}
}

const (
	toldUsage    = `"usage":{"prompt_tokens":100,"completion_tokens":5,"prompt_tokens_details":{"cached_tokens":60}}}`
	toldMessages = `"usage":{"input_tokens":40,"output_tokens":5,"cache_read_input_tokens":60,"cache_creation_input_tokens":0}}`
)

// inPieces returns an answer that comes piece by piece; with a length it is announced.
func inPieces(kind string, announced bool, pieces ...string) http.HandlerFunc {
	return func(rw http.ResponseWriter, req *http.Request) {
		io.Copy(io.Discard, req.Body)
		rw.Header().Set("Content-Type", kind)
		if announced {
			rw.Header().Set("Content-Length", strconv.Itoa(len(strings.Join(pieces, ""))))
		}
		for _, piece := range pieces {
			io.WriteString(rw, piece)
			http.NewResponseController(rw).Flush()
			time.Sleep(time.Millisecond)
		}
	}
}

func TestServe_readsTheTokensInAnswers(t *testing.T) {
	event := "data: {\"choices\":[{\"delta\":{\"content\":\"word\"}}]}\n\n"
	long := `{"choices":[{"message":{"content":"` + strings.Repeat("word ", 2000)
	longer := `{"choices":[{"message":{"content":"` + strings.Repeat("word ", 8000)
	const stream, whole = "text/event-stream", "application/json"
	for _, row := range []struct {
		story  string
		path   string
		answer http.HandlerFunc
		change func(c *Config)
		want   bool
	}{
		{"a short answer", "/v1/chat/completions", inPieces(whole, true, `{"choices":[],`+toldUsage), nil, true},
		{"one in two pieces", "/v1/chat/completions", inPieces(whole, true, `{"choices":[],`, toldUsage), nil, true},
		{"a longer one", "/v1/chat/completions", inPieces(whole, true, long, `"}}],`+toldUsage), nil, true},
		{"a long one", "/v1/chat/completions", inPieces(whole, true, longer, longer, `"}}],`+toldUsage), nil, true},
		{"without a length", "/v1/chat/completions", inPieces(whole, false, long, `"}}],`+toldUsage), nil, true},
		{"with decision headers", "/v1/chat/completions", inPieces(whole, true, long, `"}}],`+toldUsage),
			func(c *Config) { c.Proxy.AddDecisionHeaders = "true" }, true},
		{"short with decision headers", "/v1/chat/completions", inPieces(whole, true, `{"choices":[],`+toldUsage),
			func(c *Config) { c.Proxy.AddDecisionHeaders = "true" }, true},
		{"without limits", "/v1/chat/completions", inPieces(whole, true, long, `"}}],`+toldUsage),
			func(c *Config) { c.Proxy.StreamIdleTimeout = "0" }, true},
		{"with a limit to its time", "/v1/chat/completions", inPieces(whole, true, `{"choices":[],`+toldUsage),
			func(c *Config) { c.Proxy.RequestTimeout = "1m" }, true},
		{"a stream", "/v1/chat/completions", inPieces(stream, false, event, event, "data: {\"choices\":[],"+toldUsage+"\n\n", "data: [DONE]\n\n"), nil, true},
		{"a stream that ends at once", "/v1/chat/completions", inPieces(stream, false, "data: {\"choices\":[],"+toldUsage+"\n\ndata: [DONE]\n\n"), nil, true},
		{"a stream of big pieces", "/v1/chat/completions", inPieces(stream, false, longer, longer, "data: {\"choices\":[],"+toldUsage+"\n\n", "data: [DONE]\n\n"), nil, true},
		{"a stream without limits", "/v1/chat/completions", inPieces(stream, false, event, "data: {"+toldUsage+"\n\n", "data: [DONE]\n\n"),
			func(c *Config) { c.Proxy.StreamIdleTimeout = "0" }, true},
		{"a stream of messages", "/v1/messages", inPieces(stream, false,
			"event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":100,\"output_tokens\":0}}}\n\n", event,
			"event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},"+toldMessages+"\n\n",
			"event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"), nil, true},
		{"a stream of messages that tells at once", "/v1/messages", inPieces(stream, false,
			"event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"cache_read_input_tokens\":60,\"input_tokens\":40,\"output_tokens\":0}}}\n\n",
			strings.Repeat(event, 5), event, "event: message_delta\ndata: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":3}}\n\n",
			"event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"), nil, true},
		{"messages", "/v1/messages", inPieces(whole, true, `{"content":[],`+toldMessages), nil, true},
		{"nothing told", "/v1/chat/completions", inPieces(whole, true, `{"choices":[],"usage":{"prompt_tokens":100}}`), nil, false},
		{"a stream that tells nothing", "/v1/chat/completions", inPieces(stream, false, event, event, "data: [DONE]\n\n"), nil, false},
		{"another path", "/v1/embeddings", inPieces(whole, true, toldUsage), nil, false},
		{"a refusal", "/v1/chat/completions", func(rw http.ResponseWriter, req *http.Request) {
			rw.Header().Set("Content-Type", whole)
			rw.WriteHeader(400)
			io.WriteString(rw, toldUsage)
		}, nil, false},
		{"a packed answer", "/v1/chat/completions", func(rw http.ResponseWriter, req *http.Request) {
			rw.Header().Set("Content-Type", whole)
			rw.Header().Set("Content-Encoding", "gzip")
			packed := gzip.NewWriter(rw)
			io.WriteString(packed, long+toldUsage)
			packed.Close()
		}, nil, false},
		{"a stream that breaks", "/v1/chat/completions", func(rw http.ResponseWriter, req *http.Request) {
			io.WriteString(rw, "data: {"+toldUsage+"\n\n")
			http.NewResponseController(rw).Flush()
			conn, _, _ := rw.(http.Hijacker).Hijack()
			conn.Close()
		}, nil, false},
	} {
		address := startReplica(t, row.answer)
		c := twoReplicas(address, address)
		c.Workers = c.Workers[:1]
		c.Proxy.AddDecisionHeaders = "false"
		if row.change != nil {
			row.change(c)
		}
		url := serve(t, c)
		const turns = 3
		for i := 0; i < turns; i++ {
			res, err := http.Post(url+row.path, "application/json", strings.NewReader(aChat))
			if err != nil {
				t.Fatalf("%s: %v", row.story, err)
			}
			io.Copy(io.Discard, res.Body) // some of them break off
			res.Body.Close()
		}
		checkIdle(t)
		p := registered(t.Name())
		want := cachedAnswer{}
		if row.want {
			want = cachedAnswer{Answers: turns, Prompt: 100 * turns, Predicted: 100 * (turns - 1), Actual: 60 * turns}
			eventually(t, row.story+" is read", func() bool { return state(t).Workers[0].CachedTokens.Answers == turns })
		}
		readAnswers(p)
		if got := state(t).Workers[0].CachedTokens; got != want {
			t.Errorf("%s: cachedTokens = %+v, want %+v", row.story, got, want)
		}
		leavePool(t)
	}
}

// TestNoteEnd_seesNoOtherStream: what is in a buffer from the stream before is not taken for this one's.
func TestEndMark_seesNoOtherStream(t *testing.T) {
	p := buffers.Get()
	copy(p, strings.Repeat("x", 600)+toldUsage)
	buffers.Put(p)
	p = buffers.Get() // the same one, unless another goroutine has taken it
	if strings.Contains(string(p), "usage") {
		t.Errorf("a buffer that is lent again has what was in it before: %q", strings.Trim(string(p), "\x00"))
	}
	pool := poolOf(t, "a")
	for _, wait := range []time.Duration{0, time.Minute} {
		ex := &exchange{endpoint: endpointChat, answered: true, done: make(chan int, 1), cancel: func() {}}
		stream := io.NopCloser(strings.NewReader("data: [DONE]\n\n"))
		ex.res = &http.Response{Body: stream, ContentLength: -1}
		ex.pool = pool
		ex.set = &settings{idleWait: wait}
		ex.attempt = &attempt{replica: pool.replicas[0]}
		watchJobs <- ex
		<-ex.done
		for {
			if _, err := ex.res.Body.Read(p); err != nil {
				break
			}
		}
		if ex.tail != nil {
			t.Errorf("the end of a stream that tells nothing = %q, want none", ex.tail)
		}
	}
}

// expect sends a prompt whose answer tells of so many tokens, and lets the pool learn from it.
func expect(t *testing.T, p *pool, key string, u usage) *attempt {
	t.Helper()
	ex := ask(p, key)
	a := take(t, p, ex, 0)
	ex.tail = []byte(`"usage":{"prompt_tokens":` + strconv.FormatInt(u.prompt, 10) + `,"prompt_tokens_details":{"cached_tokens":` +
		strconv.FormatInt(u.cached, 10) + `}}}`)
	ex.finished = true
	endWith(p, ex, a, 200, nil, 0)
	readAnswers(p)
	return a
}

// promptOf is a prompt of its own that is n characters long.
func promptOf(name string, n int) string {
	return strings.Repeat(name+" ", n/(len(name)+1)+1)[:n]
}

func TestHeed_predictsByTheClaimsOfTheChosenReplica(t *testing.T) {
	p := poolOf(t, "a")
	r := p.replicas[0]
	text := promptOf("text", 40000)
	for _, row := range []struct {
		key       string
		predicted int64
	}{{text[:20000], 0}, {text[:40000], 5000}, {text[:40000], 10000}, {promptOf("new", 40000), 0}, {"", 0}} {
		before := r.cached.predicted
		expect(t, p, row.key, usage{10000, 0})
		if got := r.cached.predicted - before; got != row.predicted {
			t.Errorf("a prompt of %d characters: predicted %d of 10,000 tokens, want %d", len(row.key), got, row.predicted)
		}
	}
	if r.cached.answers != 4 {
		t.Errorf("%d answers counted, want the 4 with a prompt", r.cached.answers)
	}
	// The claims are dropped while it is answered: what was predicted is of no interest any more.
	ex := ask(p, text)
	a := take(t, p, ex, 0)
	p.dropClaims(r)
	ex.tail = []byte(toldUsage)
	ex.finished = true
	endWith(p, ex, a, 200, nil, 0)
	readAnswers(p)
	if r.cached.answers != 4 || len(p.tails) != 0 {
		t.Errorf("%d answers counted, %d waiting, want 4 and none", r.cached.answers, len(p.tails))
	}
}

// TestHeed_unknownRoom: a cache of unknown size is taken to hold less when it often lacks what it was sent.
func TestHeed_unknownRoom(t *testing.T) {
	p := poolOf(t, "a")
	r := p.replicas[0]
	for i := 0; i < 20; i++ {
		expect(t, p, promptOf(string(rune('a'+i))+" prompt", 20000), usage{5000, 0})
	}
	if r.age.room != 0 {
		t.Fatalf("room = %d with nothing predicted, want unknown", r.age.room)
	}
	lost := 0
	for ; lost < 10 && r.age.room == 0; lost++ {
		expect(t, p, promptOf("a prompt", 20000), usage{5000, 0})
	}
	if lost != doubtMost/doubtAlone || r.age.room != 400000-400000/roomStep {
		t.Fatalf("after %d lost prompts room = %d, want %d after %d", lost, r.age.room, 400000-400000/roomStep, doubtMost/doubtAlone)
	}
	before := r.age.room
	expect(t, p, promptOf("a prompt", 20000), usage{5000, 0})
	if want := before - before/roomStep; r.age.room != want {
		t.Errorf("room after one more = %d, want %d", r.age.room, want)
	}
	before = r.age.room
	expect(t, p, promptOf("a prompt", 20000), usage{5000, 4992})
	if r.age.room != before {
		t.Errorf("room after a good prediction = %d, want it as it was, %d", r.age.room, before)
	}
	expect(t, p, promptOf("never sent", 20000), usage{5000, 4992})
	if want := before + before/roomStep; r.age.room != want {
		t.Errorf("room after more than predicted = %d, want %d", r.age.room, want)
	}
	for i := 0; i < 400; i++ {
		expect(t, p, promptOf("a prompt", 20000), usage{5000, 0})
	}
	if r.age.room != leastRoom {
		t.Errorf("room after 400 more = %d, want not below %d", r.age.room, leastRoom)
	}
}

// TestHeed_knownRoom: what is known of a cache's size is corrected downwards, and at most back to it.
func TestHeed_knownRoom(t *testing.T) {
	p := poolOf(t, "a")
	r := p.replicas[0]
	told := readMetrics(`vllm:cache_config_info{kv_cache_size_tokens="100000"} 1`)
	p.hear(r, &told)
	if r.age.room != 400000 {
		t.Fatalf("room as told = %d, want 4 characters for each of 100,000 tokens", r.age.room)
	}
	expect(t, p, promptOf("prompt", 20000), usage{5000, 0})
	expect(t, p, promptOf("prompt", 20000), usage{5000, 0})
	if r.age.room != 392000 {
		t.Errorf("room after a lost prompt = %d, want 392000", r.age.room)
	}
	for i := 0; i < 5; i++ {
		expect(t, p, promptOf("never sent "+strconv.Itoa(i), 20000), usage{5000, 4992})
	}
	if r.age.room != 400000 || r.cached.room != 0 {
		t.Errorf("room after more than predicted = %d (own %d), want what is told", r.age.room, r.cached.room)
	}
	r.worker.room = 80000
	p.hear(r, &told)
	if r.age.room != 80000 {
		t.Errorf("room = %d, want the configured 80,000", r.age.room)
	}
	for i := 0; i < 400; i++ {
		expect(t, p, promptOf("prompt", 20000), usage{5000, 0})
	}
	if r.age.room != leastRoom {
		t.Errorf("room after 400 lost prompts = %d, want not below %d", r.age.room, leastRoom)
	}
	p.dropClaims(r)
	if r.age.room != leastRoom || r.age.clock != 0 {
		t.Errorf("age with new claims = %+v, want the room it had", *r.age)
	}
}

// TestHeed_aBurstIsNoProof: a prompt that is sent again before it is computed is cached by nobody.
func TestHeed_aBurstIsNoProof(t *testing.T) {
	p := poolOf(t, "a")
	r := p.replicas[0]
	r.worker.maxLoad = 100
	var burst []*exchange
	for i := 0; i < 8; i++ {
		ex := ask(p, promptOf("the same", 20000))
		take(t, p, ex, 0)
		burst = append(burst, ex)
	}
	for _, ex := range burst {
		ex.tail = []byte(`"usage":{"prompt_tokens":5000,"prompt_tokens_details":{"cached_tokens":0}}}`)
		ex.finished = true
		endWith(p, ex, ex.attempt, 200, nil, 0)
	}
	readAnswers(p)
	if r.age.room != 0 || r.cached.doubt != 7*doubtBusy {
		t.Errorf("after a burst room = %d, doubt = %d, want unknown, %d", r.age.room, r.cached.doubt, 7*doubtBusy)
	}
	for i := 0; i < 7*doubtBusy; i++ {
		expect(t, p, promptOf("the same", 20000), usage{5000, 4992})
	}
	if r.cached.doubt != 0 {
		t.Errorf("doubt after good predictions = %d, want none", r.cached.doubt)
	}
}

// TestHeed_smallDifferencesSayNothing: engines count whole blocks.
func TestHeed_smallDifferencesSayNothing(t *testing.T) {
	p := poolOf(t, "a")
	r := p.replicas[0]
	expect(t, p, promptOf("prompt", 4000), usage{1000, 0})
	for i := 0; i < 20; i++ {
		expect(t, p, promptOf("prompt", 4000), usage{1000, 896})
	}
	if r.cached.doubt != 0 || r.cached.room != 0 || r.cached.actual != 20*896 {
		t.Errorf("doubt %d, room %d, %d tokens cached, want 0, 0, %d", r.cached.doubt, r.cached.room, r.cached.actual, 20*896)
	}
}

// TestHeed_predictsWholeBlocks: an engine that tells of its blocks is expected to hold whole ones.
func TestHeed_predictsWholeBlocks(t *testing.T) {
	p := poolOf(t, "a")
	r := p.replicas[0]
	for metrics, want := range map[string]int64{
		`vllm:cache_config_info{block_size="128",num_gpu_blocks="96"} 1`: 896,
		`sglang:page_size{tp_rank="0"} 64`:                               960,
		`sglang:page_size{tp_rank="0"} 1`:                                1000,
	} {
		told := readMetrics(metrics)
		told.known = true
		p.hear(r, &told)
		expect(t, p, promptOf(metrics, 4000), usage{1000, 0})
		before := r.cached.predicted
		expect(t, p, promptOf(metrics, 4000), usage{1000, want})
		if got := r.cached.predicted - before; got != want {
			t.Errorf("%s: predicted %d of 1,000 tokens, want %d", metrics, got, want)
		}
	}
}

func TestLearnDensity(t *testing.T) {
	p := poolOf(t, "ab")
	told := readMetrics(`vllm:cache_config_info{kv_cache_size_tokens="1000"} 1`)
	p.hear(p.replicas[0], &told)
	for i := 0; i < 3; i++ {
		expect(t, p, promptOf("x", 3000), usage{1000, 0})
	}
	if got := p.charactersPerToken(); got != charsPerToken {
		t.Errorf("characters a token after 3,000 = %v, want %d until more is known", got, charsPerToken)
	}
	for i := 0; i < 3; i++ {
		expect(t, p, promptOf("x", 3000), usage{1000, 0})
	}
	if got, room := p.charactersPerToken(), p.replicas[0].age.room; got != 3 || room != 3000 {
		t.Errorf("characters a token after 6,000 = %v, room %d, want 3, 3000", got, room)
	}
	if got := firstWorker(p).CacheTokens; got != 1000 {
		t.Errorf("cacheTokens = %d, want 1000", got)
	}
	for i := 0; i < 40; i++ { // other prompts from now on
		p.learnDensity(500000, 100000)
	}
	if got := p.charactersPerToken(); got < 4.5 || got > 5 {
		t.Errorf("characters a token after millions of others = %v, want about 5", got)
	}
	for i := 0; i < 100; i++ {
		p.learnDensity(1<<30, 1<<20)
	}
	if got := p.charactersPerToken(); got != 64 {
		t.Errorf("characters a token of pictures = %v, want no more than 64", got)
	}
}

func firstWorker(p *pool) workerAnswer { return describe(p, 0).Workers[0] }

// TestReadAnswers_waitingIsBounded: answers that nobody reads are not gathered for ever.
func TestReadAnswers_waitingIsBounded(t *testing.T) {
	p := poolOf(t, "a")
	for i := 0; i < 2; i++ {
		for n := 0; n < mostTails+10; n++ {
			ex := ask(p, "")
			a := take(t, p, ex, 0)
			ex.tail = []byte("{}")
			ex.finished = true
			ex.attempt = a
			ex.answered = true
			ex.result = outcomeSuccess
			ex.cancel = func() {}
			ex.op = opEnd
			decideJobs <- ex
			<-ex.done
		}
		if len(p.tails) != mostTails || len(p.tailed) != mostTails {
			t.Errorf("%d and %d answers wait, want %d", len(p.tails), len(p.tailed), mostTails)
		}
		readAnswers(p)
		if len(p.tails) != 0 || len(p.tailed) != 0 {
			t.Errorf("%d and %d answers wait after they were read, want none", len(p.tails), len(p.tailed))
		}
	}
}

func TestNoteEnd_keepsWhatTheHeadTold(t *testing.T) {
	const told = `"usage":{"input_tokens":10,"cache_creation_input_tokens":0,"cache_read_input_tokens":90}`
	for _, row := range []struct{ end, want string }{
		{`kens":0,"cache_read_input_tokens":90}`, told}, // what was before it is overwritten
		{strings.Replace(told, "90", "80", 1), strings.Replace(told, "90", "80", 1)},
		{`data: [DONE]`, told},
	} {
		ex := &exchange{tail: []byte(told)}
		noteEnd(ex, []byte(row.end))
		if string(ex.tail) != row.want {
			t.Errorf("after an end of %q tail = %q, want %q", row.end, ex.tail, row.want)
		}
	}
}
