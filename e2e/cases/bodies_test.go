package cases

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/cart-llm/cart/e2e/engine"
)

// Group A: bodies. What the machine form leaves out.

func init() {
	tests = append(tests,
		test{"A02", toolCallsInKey}, test{"A03", oddTools}, test{"A05", tokenIDs}, test{"A06", batchPrompts},
		test{"A08", loneSurrogate}, test{"A09", latin1}, test{"A10", byteOrderMark}, test{"A11", encodedBodies},
		test{"A14", noBody}, test{"A15", malformed}, test{"A17", bodyLimit}, test{"A18", deepJSON},
		test{"A19", notJSON}, test{"A20", unknownParts},
	)
}

// A02 Assistant turn with tool_calls and missing / null / empty content
func toolCallsInKey(t *testing.T, s *stage) {
	r := s.start(t, 2, nil)
	conversation := func(front, content, name, arguments string) query {
		return post("/v1/chat/completions", `{"model":"m1","messages":[{"role":"user","content":`+quoted(front)+
			`},{"role":"assistant",`+content+`"tool_calls":[{"id":"c1","type":"function","function":{"name":`+quoted(name)+
			`,"arguments":`+quoted(arguments)+`}}]},{"role":"tool","tool_call_id":"c1","content":"4C, rain"}]}`)
	}
	for i, content := range []string{``, `"content":null,`, `"content":"",`} {
		front, seed := text(uint64(i), 5000), uint64(100*i)
		q := conversation(front, content, "wx", `{"city":"Oslo"}`)
		m := r.warm(q)
		release := r.lean(q, m)
		a := r.hit("the same again with "+content, q, m)
		b := r.hit("other arguments with "+content, conversation(front, content, "wx", `{"city":"Bergen"}`), m)
		c := r.hit("another name with "+content, conversation(front, content, "tides", `{"city":"Oslo"}`), m)
		if a.match() != 1 || b.match() >= 1 || c.match() >= b.match() {
			t.Errorf("matches with %q = %v, other arguments %v, another name %v, want 1 and ever less", content, a.match(), b.match(), c.match())
		}
		release()

		// Where most of the text stands in the arguments, they decide.
		front = text(seed+1, 1000)
		q = conversation(front, content, "wx", `{"city":"`+text(seed+2, 6000)+`"}`)
		m = r.warm(q)
		release = r.lean(q, m)
		r.hit("long arguments again with "+content, q, m)
		r.miss("other long arguments with "+content, conversation(front, content, "wx", `{"city":"`+text(seed+3, 6000)+`"}`), m)
		release()
	}
	r.settled()
}

// A03 Tool definition without `parameters`, and other half-filled schemas
func oddTools(t *testing.T, s *stage) {
	r := s.start(t, 2, nil)
	for i, tools := range []string{
		`[{"type":"function","function":{"name":"noop"}},{"type":"function"},{},null,"odd",7]`,
		`[null,{"type":"function"}]`, `["odd",7,true,[],[[{}]]]`, `[7,1e400,-0.0]`, `[]`, `{}`, `null`, `"all"`, `7`, `true`, `[{}]`, `[[]]`,
		`[{"type":"function","function":{"name":"noop","description":"a ] and a } and a \" and a }],\" in it"}}]`,
	} {
		rest := `,"messages":[{"role":"user","content":"` + text(uint64(i), 4500) + `"}]}`
		q := post("/v1/chat/completions", `{"model":"m1","tools":`+tools+rest)
		m := r.warm(q)
		release := r.lean(q, m)
		r.hit("tools = "+tools, q, m)
		release()
	}
	r.settled()
}

// A05 `prompt` as one list of token ids
func tokenIDs(t *testing.T, s *stage) {
	r := s.start(t, 2, nil)
	ids := func(first, n int) query {
		var list []string
		for i := first; i < first+n; i++ {
			list = append(list, fmt.Sprint(i))
		}
		return post("/v1/completions", `{"model":"m1","prompt":[`+strings.Join(list, ",")+`]}`)
	}
	p := ids(11, 64)
	m := r.warm(p)
	release := r.lean(p, m)
	r.miss("as many other ids", ids(511, 64), m)
	r.hit("8 ids more", ids(11, 72), m)
	release()
	r.settled()
}

// A06 `prompt` as list of strings and as list of id-lists; empty list; mixed list
func batchPrompts(t *testing.T, s *stage) {
	r := s.start(t, 2, nil)
	prompt := func(value string) query { return post("/v1/completions", `{"model":"m1","prompt":`+value+`}`) }
	first, second := quoted(text(1, 2500)), quoted(text(2, 2500))
	lists := [2]string{`[` + strings.Repeat("17,", 900) + `3]`, `[` + strings.Repeat("29,", 900) + `5]`}
	for _, pair := range [][2]string{{`"first text"`, `"second text"`}, {first, second}, lists} {
		q := prompt(`[` + pair[0] + `,` + pair[1] + `]`)
		m := r.warm(q)
		release := r.lean(q, m)
		if a := r.hit("the same batch", q, m); a.match() != 1 {
			t.Errorf("match of the same batch = %v, want 1", a.match())
		}
		if a := r.miss("the batch in reverse", prompt(`[`+pair[1]+`,`+pair[0]+`]`), m); a.match() == 1 {
			t.Errorf("match of the batch in reverse = 1, want less")
		}
		release()
	}
	r.all(func(x *exchange) { x.json(400, `{"error":{"message":"no such prompt"}}`) })
	for _, body := range []string{
		`{"model":"m1","prompt":["first text","second text"]}`, `{"model":"m1","prompt":[[1,2,3],[4,5]]}`, `{"model":"m1","prompt":[]}`,
		`{"model":"m1","prompt":["a",[1],2,null]}`, `{"model":"m1","prompt":null}`, `{"model":"m1","prompt":{"k":1}}`, `{"model":"m1"}`,
		`{"model":"m1","prompt":[`, `{"model":"m1","prompt":["`, `{"model":"m1","prompt":[]`, `{"prompt":`,
	} {
		if a, _ := r.verbatim(body, post("/v1/completions", body)); a.status != 400 {
			t.Errorf("%s: status = %d, want the replica's 400", body, a.status)
		}
	}
	r.untouched()
	r.settled()
}

// A08 Lone surrogate escape inside a message
func loneSurrogate(t *testing.T, s *stage) {
	r := s.start(t, 2, nil)
	for _, escape := range []string{`\ud83d`, `\udc00`, `\ud83d\ud83d`, `\uD83D `, `\ud83d\u0041`} {
		q := post("/v1/messages", `{"model":"m1","max_tokens":8,"messages":[{"role":"user","content":"log: `+escape+` end `+text(8, 4500)+`"}]}`)
		r.all(nil)
		m := r.warm(q)
		release := r.lean(q, m)
		r.hit(escape, q, m)
		release()
		r.all(func(x *exchange) { x.json(400, `{"error":{"type":"invalid_request_error","message":"bad unicode"}}`) })
		if a, _ := r.verbatim(escape, q); a.status != 400 {
			t.Errorf("%s: status = %d, want the replica's 400", escape, a.status)
		}
	}
	r.untouched()
	r.settled()
}

// A09 Body is Latin-1, not UTF-8
func latin1(t *testing.T, s *stage) {
	r := s.start(t, 2, nil)
	body := func(before, bad, after string) query {
		return post("/v1/chat/completions", `{"model":"m1","messages":[{"role":"user","content":"`+before+bad+after+`"}]}`)
	}
	long := text(9, 40<<10)
	for _, q := range []query{body("se", "\xf1", "or"), body(long, "\xf1", "or"), body(long+"x", "\xf1", text(10, 4000))} {
		m := r.warm(q)
		release := r.lean(q, m)
		r.hit("the same bytes again", q, m)
		release()
	}
	// Nodes that split before, inside of and after the bad byte, and inside of a good character.
	q := body(long, "\xf1\xe2\x82\xac", text(11, 4000))
	m := r.warm(q)
	release := r.lean(q, m)
	for i, bad := range []string{"\xf1", "\xf2", "", "\xf1\xe2", "\xf1\xe2\x82", "\xf1\xe2\x82\xac", "\xf1\xe2\x82\xad", "\xff", "\x80", "\xf1\xf1"} {
		r.hit(fmt.Sprintf("%q after the long text", bad), body(long, bad, text(uint64(20+i), 3000)), m)
		r.hit(fmt.Sprintf("%q after the long text, at the end", bad), body(long, bad, ""), m)
	}
	release()
	r.settled()
}

// A10 UTF-8 BOM before the JSON. Settled: it is skipped for the key.
func byteOrderMark(t *testing.T, s *stage) {
	r := s.start(t, 2, nil)
	const bom = "\xef\xbb\xbf"
	bodies := map[string]string{
		"/v1/chat/completions": `{"model":"m1","messages":[{"role":"user","content":"` + text(1, 4500) + `"}]}`,
		"/v1/completions":      `{"model":"m1","prompt":"` + text(2, 4500) + `"}`,
		"/v1/messages":         `{"model":"m1","max_tokens":8,"messages":[{"role":"user","content":"` + text(3, 4500) + `"}]}`,
	}
	for path, body := range bodies {
		marked, plain := post(path, bom+body), post(path, body)
		m := r.warm(marked)
		release := r.lean(marked, m)
		r.hit(path+" without the mark", plain, m)
		r.hit(path+" with the mark", marked, m)
		release()
	}
	r.settled()
}

// A11 Compressed request body (gzip, zstd, br, unknown, stacked). Settled: it is routed by load.
func encodedBodies(t *testing.T, s *stage) {
	r := s.start(t, 2, nil)
	text := `{"model":"m1","max_tokens":8,"messages":[{"role":"user","content":"` + text(1, 4500) + `"}]}`
	// A frame with one raw block, for zstd; a stored meta-block, for br: the encoders' real output differs, the form does not.
	size := len(text)
	zstd := "\x28\xb5\x2f\xfd\xa0" + string([]byte{byte(size), byte(size >> 8), 0, 0}) +
		string([]byte{byte(size<<3 | 1), byte(size >> 5), byte(size >> 13)}) + text
	br := string([]byte{0x0c | byte((size-1)&1)<<4, byte((size - 1) >> 1), byte((size-1)>>9) | 0x80}) + text + "\x03"
	encoded := map[string]string{
		"gzip": string(gzipped(text)), "gzip, gzip": string(gzipped(string(gzipped(text)))), "zstd": zstd, "br": br,
		"made-up": "\x01\x02not json", "GZIP": string(gzipped(text)), "deflate": "\x78\x9c\x00", "gzip,br": br,
		"x-gzip": string(gzipped(text)), "identity, gzip": string(gzipped(text)),
	}
	for coding, body := range encoded {
		for _, path := range []string{"/v1/chat/completions", "/v1/messages", "/v1/completions", "/v1/responses", "/v1/embeddings"} {
			what := path + " with Content-Encoding: " + coding
			a, x := r.verbatim(what, post(path, body).with("Content-Encoding", coding))
			if a.status != 200 {
				t.Errorf("%s: %v, want 200", what, &a)
			}
			if got := x.header.values("Content-Length"); len(got) != 1 || got[0] != fmt.Sprint(len(body)) {
				t.Errorf("%s: the replica saw Content-Length = %q, want %d", what, got, len(body))
			}
			if path != "/v1/embeddings" {
				r.unkeyed(what, a)
			}
		}
	}
	// Two lines of it.
	a, _ := r.verbatim("two codings", post("/v1/messages", encoded["gzip, gzip"]).with("Content-Encoding", "gzip").with("Content-Encoding", "gzip"))
	r.unkeyed("two codings", a)
	r.untouched()
	r.settled()
}

// A14 Empty body, and Content-Length: 0
func noBody(t *testing.T, s *stage) {
	r := s.start(t, 2, nil)
	for _, status := range []int{200, 400} {
		r.all(func(x *exchange) { x.json(status, `{"error":{"message":"empty"}}`) })
		for _, path := range []string{"/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses"} {
			bare := query{method: "POST", target: path, bare: true}
			none := post(path, "").with("Content-Length", "0")
			none.bare = true
			for _, q := range []query{bare, none, post(path, "  "), post(path, "null"), post(path, "[]"), post(path, `"text"`), post(path, "\n")} {
				what := fmt.Sprintf("%s with %q, answered %d", path, q.body, status)
				began := time.Now()
				a, x := r.verbatim(what, q)
				if a.status != status {
					t.Errorf("%s: status = %d", what, a.status)
				}
				if took := since(began); took > slack*time.Second/2 {
					t.Errorf("%s took %v", what, took)
				}
				if err := singleFraming(x.header, len(q.body)); err != nil && len(x.header.values("Transfer-Encoding")) > 0 {
					t.Errorf("%s: %v", what, err)
				}
				r.unkeyed(what, a)
			}
		}
	}
	r.untouched()
	r.settled()
}

// A15 Malformed JSON is the client's fault, once. Settled: forwarded verbatim.
func malformed(t *testing.T, s *stage) {
	r := s.start(t, 2, nil)
	r.all(func(x *exchange) { x.json(400, `{"error":{"message":"bad json"}}`) })
	for _, body := range []string{
		`{"model":"m1","messages":[{"role":"user","content":"cut`, `{"model":m1}`, `{"messages":[]}}}`, `{"messages":[`, `{"messages"`,
		`{"messages":]`, `{"tools":[{"messages":[{`, `]}`, `}`, `{`, `"`, `\`, "\x00", `{"messages":[{"role":"user","content":"` + text(1, 5000),
	} {
		for _, path := range []string{"/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses"} {
			if a, _ := r.verbatim(path+" with "+body, post(path, body)); a.status != 400 {
				t.Errorf("%s with %.50s: status = %d, want the replica's 400", path, body, a.status)
			}
			r.settled() // one after another: what they leave behind is looked at below
		}
	}
	a, _ := r.verbatim("a body without messages", post("/v1/chat/completions", `{"model":m1}`))
	r.unkeyed("a body without messages", a)
	r.untouched()
	for _, w := range r.state().Workers {
		if w.Claims != 0 {
			t.Errorf("claims of %s = %d after refusals alone, want 0", w.URL, w.Claims)
		}
	}
	r.settled()
}

// A17 Body size limit: at the limit passes, above is a clean 413
func bodyLimit(t *testing.T, s *stage) {
	picture := func(size int) query {
		const front = `{"model":"m1","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,`
		const back = `"}}]}]}`
		return post("/v1/chat/completions", front+strings.Repeat("iVBORw0K", size/8+1)[:size-len(front)-len(back)]+back)
	}
	chunked := func(q query) query {
		third := len(q.body) / 3
		q.chunks = [][]byte{q.body[:third], q.body[third : 2*third], q.body[2*third:]}
		q.body = nil
		return q
	}
	r := s.start(t, 2, engine.Config{"logLevel": "warn"})
	for _, size := range []int{12_000_000, 32 << 20} {
		if a, _ := r.verbatim("a body under the default limit", picture(size)); a.status != 200 {
			t.Errorf("a body of %d bytes: %v, want 200", size, &a)
		}
	}
	const limit = 1 << 20
	r.with(engine.Config{"proxy": engine.Config{"maxBodyBytes": limit}})
	for _, q := range []query{picture(limit), chunked(picture(limit)), picture(limit - 1)} {
		if a, _ := r.verbatim("a body at the limit", q); a.status != 200 {
			t.Errorf("a body at the limit: %v, want 200", &a)
		}
	}
	big := []query{picture(limit + 1), chunked(picture(limit + 1)), picture(2 * limit), chunked(picture(2 * limit)), picture(9 * limit)}
	messages := picture(limit + 1)
	messages.target = "/v1/messages"
	big = append(big, messages)
	for i, q := range big {
		r.forget()
		a := r.do(q)
		r.refusedHere(fmt.Sprintf("%s of %d bytes, chunks %v", q.target, len(q.sent()), q.chunks != nil), q, a, 413)
		r.waitState(slack*time.Second, func(s workersState) error {
			if got := s.Refused["body_too_large"]; got != i+1 {
				return fmt.Errorf("refused for their length in /workers = %d, want %d", got, i+1)
			}
			return nil
		})
		// Under a flood of refusals lines are left out.
		r.eventually(slack*time.Second, func() error {
			if got := len(r.logged("body_too_large")); got != i+1 {
				return fmt.Errorf("%d lines in the log of bodies too large, want %d", got, i+1)
			}
			return nil
		})
	}
	if a, _ := r.verbatim("a small one afterwards", chat("hi")); a.status != 200 {
		t.Errorf("a small body afterwards: %v, want 200", &a)
	}
	r.untouched()
	r.settled()
}

// A18 Very deep JSON
func deepJSON(t *testing.T, s *stage) {
	r := s.start(t, 2, nil)
	nest := func(open, inside, closing string, n int) string {
		return strings.Repeat(open, n) + inside + strings.Repeat(closing, n)
	}
	var deep []query
	for _, n := range []int{9_000, 200_000} {
		lists := nest("[", "", "]", n)
		objects := nest(`{"a":`, "1", "}", n)
		for _, body := range []string{
			`{"model":"m1","metadata":` + lists + `,"messages":[{"role":"user","content":"hi"}]}`,
			`{"model":"m1","messages":[{"role":"user","content":"hi"}],"metadata":` + lists + `}`,
			`{"model":"m1","messages":[{"role":"user","content":` + lists + `}]}`,
			`{"model":"m1","messages":[{"role":"user","content":` + objects + `}]}`,
			`{"model":"m1","tools":` + nest(`[{"messages":`, "1", "}]", n) + `,"messages":[{"role":"user","content":"hi"}]}`,
			`{"model":"m1","messages":` + strings.Repeat("[", n),
			`{"model":"m1","messages":` + strings.Repeat(`[{"role":"`, n/9),
		} {
			deep = append(deep, post("/v1/chat/completions", body), post("/v1/messages", body))
		}
	}
	for _, policy := range []int{0, 422} {
		if policy != 0 {
			r.with(engine.Config{"proxy": engine.Config{"remoteMediaUrlPolicy": policy}})
		}
		for i, q := range deep {
			what := fmt.Sprintf("deep body %d (%s %.60s) with policy %d", i, q.target, q.body, policy)
			r.forget()
			began := time.Now()
			a := r.do(q)
			if took := since(began); took > slack*time.Second {
				t.Errorf("%s took %v, want under 1 s", what, took)
			}
			if policy != 0 {
				r.refusedHere(what, q, a, 415)
			} else if r.checkVerbatim(what, q, a); a.status != 200 {
				t.Errorf("%s: %v, want 200", what, &a)
			}
		}
		if a, _ := r.verbatim("a normal request afterwards", chat("hi")); a.status != 200 {
			t.Errorf("a normal request afterwards: %v, want 200", &a)
		}
	}
	r.untouched()
	r.settled()
}

// A19 Not JSON at all: NDJSON, form, multipart, text
func notJSON(t *testing.T, s *stage) {
	r := s.start(t, 2, nil)
	for _, one := range [][3]string{
		{"/v1/chat/completions", "application/x-ndjson", "{\"model\":\"m1\"}\n{\"model\":\"m2\"}\n"},
		{"/v1/completions", "application/x-www-form-urlencoded", "prompt=hi&model=m1"},
		{"/v1/messages", "text/plain", "hello"},
		{"/v1/responses", "multipart/form-data; boundary=b", "--b\r\nContent-Disposition: form-data; name=\"input\"\r\n\r\nhi\r\n--b--\r\n"},
	} {
		q := query{method: "POST", target: one[0], header: header{{"Content-Type", one[1]}}, body: []byte(one[2])}
		a, _ := r.verbatim(one[0]+" with "+one[1], q)
		if a.status != 200 {
			t.Errorf("%s with %s: %v, want 200", one[0], one[1], &a)
		}
		r.unkeyed(one[0]+" with "+one[1], a)
	}

	// An upload is not held back: the replica sees its first bytes before the client has sent the last.
	file := "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\nContent-Type: audio/wav\r\n\r\n" +
		strings.Repeat("\x00\xff\r\n~~~~", 2<<20/8) + "\r\n--b--\r\n"
	for _, chunked := range []bool{false, true} {
		r.forget()
		q := query{method: "POST", target: "/v1/audio/transcriptions", header: header{{"Content-Type", "multipart/form-data; boundary=b"}}}
		q.body = []byte(file)
		frame := func(part string) string { return part }
		if chunked {
			q.chunks = [][]byte{[]byte(file)} // for the head only
			frame = func(part string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(part), part) }
		}
		w := r.dial()
		go func() {
			defer close(w.done)
			w.read("POST")
		}()
		const first = 100_000
		io.WriteString(w.conn, r.headOf(q)+frame(file[:first]))
		r.eventually(slack*time.Second, func() error {
			for _, x := range r.hits() {
				if n := len(x.received()); n > 0 {
					return nil
				}
			}
			return fmt.Errorf("no replica has a byte of an upload that has begun, chunked %v", chunked)
		})
		io.WriteString(w.conn, frame(file[first:]))
		if chunked {
			io.WriteString(w.conn, "0\r\n\r\n")
		}
		if a, _ := r.checkVerbatim("an upload", q, w.wait(10*time.Second)); a.status != 200 {
			t.Errorf("an upload: %v, want 200", &a)
		}
	}
	r.untouched()
	r.settled()
}

// A20 Unknown roles, part types and block types
func unknownParts(t *testing.T, s *stage) {
	r := s.start(t, 2, nil)
	chatParts := func(first, last string) query {
		return post("/v1/chat/completions", `{"model":"m1","messages":[{"role":"developer","content":`+quoted(first)+`},`+
			`{"role":"function","name":"f","content":"x"},{"role":"critic","content":[{"type":"refusal","refusal":"no"},`+
			`{"type":"input_audio","input_audio":{"data":"UklGRg==","format":"wav"}},{"type":"file","file":{"file_data":"data:text/plain;base64,aGk="}},`+
			`{"type":"video_url","video_url":{"url":"data:video/mp4;base64,AAAA"}},{"type":"hologram","depth":[1,null,{}]},`+
			`{"type":"text","text":`+quoted(text(1, 3000))+`}]},{"role":"user","content":[{"type":"text","text":`+quoted(text(2, 3000))+
			`},{"type":"text","text":`+quoted(last)+`}]}]}`)
	}
	messages := func(system, last string) query {
		return post("/v1/messages", `{"model":"m1","max_tokens":8,"system":`+system+`,"messages":[{"role":"user","content":[`+
			`{"type":"document","source":{"type":"base64","media_type":"application/pdf","data":"JVBERi0="}},{"type":"text","text":`+quoted(text(3, 3000))+
			`}]},{"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"s"},{"type":"server_tool_use","id":"v1","name":"web_search","input":{"query":"q"}},`+
			`{"type":"tool_use","id":"t1","name":"wx","input":{"city":"Oslo"}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"t1",`+
			`"content":[{"type":"text","text":"4C"},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"iVBORw0K"}}]},`+
			`{"type":"hologram"},{"type":"text","text":`+quoted(text(4, 3000))+`},{"type":"text","text":`+quoted(last)+`}]}]}`)
	}
	blocks := func(first string) string {
		return `[{"type":"text","text":` + quoted(first) + `,"cache_control":{"type":"ephemeral"}},{"type":"text","text":"Answer in Dutch."}]`
	}
	for what, form := range map[string]func(first, last string) query{
		"chat":                 chatParts,
		"messages with texts":  func(first, last string) query { return messages(quoted(first), last) },
		"messages with blocks": func(first, last string) query { return messages(blocks(first), last) },
	} {
		first, last := what+text(5, 1000), text(6, 700)
		q := form(first, last)
		m := r.warm(q)
		release := r.lean(q, m)
		if a := r.hit(what+" again", q, m); a.match() != 1 {
			t.Errorf("match of %s again = %v, want 1", what, a.match())
		}
		if a := r.hit(what+" with another last block", form(first, text(7, 700)), m); a.match() >= 1 {
			t.Errorf("match of %s with another last block = 1, want less: it is no part of the key", what)
		}
		r.miss(what+" with another first block", form("X"+first, last), m)
		release()
	}
	r.untouched()
	r.settled()
}
