package cases

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cart-llm/cart/e2e/engine"
)

// Group D, second half: the policy for remote media. What the machine form leaves out.

func init() {
	tests = append(tests, test{"D09", spellings}, test{"D10", remoteMedia}, test{"D13", uninspectable})
}

func remoteImage(path, url string) query {
	return post(path, `{"model":"m1","messages":[{"role":"user","content":[{"type":"text","text":"what is it"},`+
		`{"type":"image_url","image_url":{"url":`+quoted(url)+`}}]}]}`)
}

func policyOf(status int) engine.Config {
	return engine.Config{"proxy": engine.Config{"remoteMediaUrlPolicy": status}}
}

// D09 Odd spellings of the routed paths cannot dodge the policies
func spellings(t *testing.T, s *stage) {
	r := s.start(t, 2, policyOf(422))
	for _, path := range []string{
		"/v1/chat/completions", "/v1/chat/completions/", "//v1/chat/completions", "/v1//chat/completions", "/v1/./chat/completions", "/V1/chat/completions",
		"/v1/chat%2Fcompletions", "/v1/chat/completions;x=1", "/prefix/../v1/chat/completions", "/v1/chat/completions?x=1", "/v1/chat/completions%00",
		"/v1/chat/completions%20", "/v1/chat/%63ompletions", "/%76%31/chat/completions", "/v1/chat/completions/.", "/v1/chat/completions/x/..",
		"/v1/chat/completions//", "/api/v1/chat/completions", "/v1\\chat\\completions", "/health", "/workers", "/v1/models", "/metrics", "/", "/tokenize",
		"/v1/CHAT/completions", "/v1/responses", "/v1/messages", "/v1/completions", "/v1/messages/count_tokens", "/prefix/%2e%2e/v1/chat/completions",
	} {
		for _, chunks := range []bool{false, true} {
			q := remoteImage(path, "https://img.example.net/a.png")
			if chunks {
				q.chunks, q.body = [][]byte{q.body[:20], q.body[20:]}, nil
			}
			r.forget()
			a := r.do(q)
			if n := len(r.hits()); n != 0 || a.status < 300 || a.status >= 500 || a.err != nil {
				t.Errorf("%s: %v with %d requests at the replicas, want it refused", path, &a, n)
			}
		}
	}
	// Neither do other headers of the request, nor other methods that carry a body.
	others := header{
		{"Content-Type", "text/plain"}, {"Content-Type", "application/x-ndjson"}, {"Content-Type", ""}, {"X-HTTP-Method-Override", "GET"},
		{"Content-Encoding", "identity"}, {"Upgrade", "h2c"}, {"Expect", "100-continue"},
	}
	for _, f := range others {
		q := remoteImage("/v1/chat/completions", "https://img.example.net/a.png")
		q.header = header{f}
		if f[0] == "Upgrade" {
			q.header = append(q.header, [2]string{"Connection", "Upgrade"})
		}
		r.forget()
		if a := r.do(q); a.status != 422 || len(r.hits()) != 0 {
			t.Errorf("with %s: %s: %v with %d requests at the replicas, want 422", f[0], f[1], &a, len(r.hits()))
		}
	}
	r.untouched()
	r.settled()
}

// D10 Remote media URL refused, data URL allowed
func remoteMedia(t *testing.T, s *stage) {
	r := s.start(t, 2, policyOf(422))
	part := func(p string) query {
		return post("/v1/chat/completions", `{"model":"m1","messages":[{"role":"user","content":[{"type":"text","text":"what is it"},`+p+`]}]}`)
	}
	block := func(b string) query {
		return post("/v1/messages", `{"model":"m1","max_tokens":8,"messages":[{"role":"user","content":[`+b+`]}]}`)
	}
	item := func(i string) query {
		return post("/v1/responses", `{"model":"m1","input":[{"role":"user","content":[`+i+`]}]}`)
	}
	var refused []query
	for _, url := range []string{
		"https://img.example.net/a.png", "http://169.254.169.254/x", "http://[::1]/x", "HTTPS://IMG.example.net/a", " https://img.example.net/a", "//img.example.net/a",
		"ftp://img.example.net/a", "file:///etc/passwd", "http:/\\169.254.169.254/x", "s3://bucket/a", "\thttp://x/",
	} {
		refused = append(refused,
			remoteImage("/v1/chat/completions", url),
			part(`{"type":"image_url","image_url":`+quoted(url)+`}`),
			part(`{"type":"video_url","video_url":{"url":`+quoted(url)+`}}`),
			part(`{"type":"audio_url","audio_url":{"url":`+quoted(url)+`}}`),
			part(`{"image_url":{"detail":"low","url":`+quoted(url)+`},"type":"image_url"}`),
			block(`{"type":"image","source":{"type":"url","url":`+quoted(url)+`}}`),
			block(`{"type":"document","source":{"url":`+quoted(url)+`,"type":"url"}}`),
			block(`{"type":"tool_result","tool_use_id":"t","content":[{"type":"image","source":{"type":"url","url":`+quoted(url)+`}}]}`),
			item(`{"type":"input_image","image_url":`+quoted(url)+`}`),
			item(`{"type":"input_file","file_url":`+quoted(url)+`}`),
		)
	}
	// Ways to hide it.
	refused = append(refused,
		part(`{"type":"image_url","\u0069mage_url":{"\u0075rl":"\u0068ttps://img.example.net/a"}}`),
		part(`{"type":"image_url","image_url":{"url":"data:,x","url":"https://img.example.net/a"}}`),
		part(`{"type":"image_url","image_url":{"url":"https://img.example.net/a","url":"data:,x"}}`),
		part(`{"type":"image_url","image_url":{"url":"https:\/\/img.example.net\/a"}}`),
		part(`{"type":"image_url", "image_url" : { "url" : "https://img.example.net/a" } }`),
		part(`{"type":"image_url","image_url":[{"url":"https://img.example.net/a"}]}`),
		part(`{"type":"image_url","image_url":{"url":"data:image/png;base64,iVBORw0K"}},{"type":"image_url","image_url":{"url":"https://img.example.net/a"}}`),
		part(`{"type":"text","text":"`+strings.Repeat("x", 1<<20)+`"},{"type":"image_url","image_url":{"url":"https://img.example.net/a"}}`),
		post("/v1/chat/completions", `{"messages":[],"messages":[{"content":[{"type":"image_url","image_url":{"url":"https://x/"}}]}],"messages":[]}`),
	)
	for _, q := range refused {
		what := fmt.Sprintf("%s %.250s", q.target, q.body)
		r.forget()
		r.refusedHere(what, q, r.do(q), 422)
	}
	s0 := r.state()
	for _, w := range s0.Workers {
		if w.Load != 0 || w.Requests != 0 {
			t.Errorf("state of %s after refusals alone: load %d, requests %d, want 0", w.URL, w.Load, w.Requests)
		}
	}
	if got := s0.Refused["remote_media"]; got != len(refused) {
		t.Errorf("refused for remote media in /workers = %d, want %d", got, len(refused))
	}

	for _, q := range []query{
		remoteImage("/v1/chat/completions", "data:image/png;base64,iVBORw0KGgo="),
		part(`{"type":"image_url","image_url":"data:image/png;base64,iVBORw0KGgo="}`),
		part(`{"type":"text","text":"see https://img.example.net/a.png and \"image_url\":{\"url\":\"https://x/\"}"}`),
		part(`{"type":"video_url","video_url":{"url":"data:video/mp4;base64,AAAA"}}`),
		part(`{"type":"input_audio","input_audio":{"data":"UklGRg==","format":"wav"}}`),
		block(`{"type":"image","source":{"type":"base64","media_type":"image/png","data":"iVBORw0K"}}`),
		block(`{"type":"text","text":"https://img.example.net"}`),
		block(`{"type":"tool_use","id":"t","name":"fetch","input":{"address":"https://img.example.net/a"}}`),
		item(`{"type":"input_text","text":"https://img.example.net"}`),
		item(`{"type":"input_image","image_url":"data:image/png;base64,iVBORw0K"}`),
		post("/v1/completions", `{"model":"m1","prompt":"https://img.example.net/a.png"}`),
		post("/v1/embeddings", `{"model":"m1","input":["https://img.example.net/a.png"]}`),
	} {
		if a, _ := r.verbatim(fmt.Sprintf("%s %s", q.target, q.body), q); a.status != 200 {
			t.Errorf("%s %s: %v, want 200", q.target, q.body, &a)
		}
	}

	// Another status, then the policy off.
	r.with(policyOf(451))
	r.forget()
	r.refusedHere("with status 451", refused[0], r.do(refused[0]), 451)
	r.with(engine.Config{"proxy": engine.Config{"remoteMediaUrlPolicy": ""}})
	for i, q := range refused {
		if i%4 != 0 {
			continue
		}
		if a, _ := r.verbatim(fmt.Sprintf("policy off: %s %.250s", q.target, q.body), q); a.status != 200 {
			t.Errorf("policy off: %s %.250s: %v, want 200", q.target, q.body, &a)
		}
	}
	r.untouched()
	r.settled()
}

// D13 Uninspectable body while the media policy is on. Settled: 415, and 413 over the limit.
func uninspectable(t *testing.T, s *stage) {
	const limit = 200_000
	r := s.start(t, 2, engine.Config{"proxy": engine.Config{"remoteMediaUrlPolicy": 422, "maxBodyBytes": limit}})
	remote := string(remoteImage("", "https://img.example.net/a.png").body)
	size := len(remote)
	zstd := "\x28\xb5\x2f\xfd\x60" + string([]byte{byte(size - 256), byte((size - 256) >> 8)}) +
		string([]byte{byte(size<<3 | 1), byte(size >> 5), byte(size >> 13)}) + remote
	deep := `{"metadata":` + strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000) + `,` + remote[1:]
	for _, path := range []string{"/v1/chat/completions", "/v1/messages", "/v1/embeddings", "/v1/chat/completions/", "/v1/audio/transcriptions"} {
		for _, one := range []struct {
			what string
			q    query
			want []int
		}{
			{"gzip", post(path, string(gzipped(remote))).with("Content-Encoding", "gzip"), []int{415, 422}},
			{"gzip without saying so", post(path, string(gzipped(remote))), []int{415}},
			{"zstd", post(path, zstd).with("Content-Encoding", "zstd"), []int{415, 422}},
			{"an unknown coding", post(path, remote).with("Content-Encoding", "made-up"), []int{415, 422}},
			{"a coding in the second line", post(path, remote).with("Content-Encoding", "identity").with("Content-Encoding", "gzip"), []int{415, 422}},
			{"truncated", post(path, remote[:size-3]), []int{400, 415, 422}},
			{"truncated inside of the address", post(path, remote[:strings.Index(remote, "img.")]), []int{400, 415, 422}},
			{"with a byte order mark", post(path, "\xef\xbb\xbf"+remote), []int{415, 422}},
			{"in UTF-16", post(path, "\xff\xfe"+strings.Join(strings.Split(remote, ""), "\x00")+"\x00"), []int{415, 422}},
			{"over the limit", post(path, remote+strings.Repeat(" ", limit)), []int{413}},
			{"deep", post(path, deep), []int{415, 422}},
			{"a second value", post(path, `{}`+remote), []int{415, 422}},
			{"a comment", post(path, `/**/`+remote), []int{415, 422}},
			{"a trailing comma", post(path, strings.Replace(remote, `]}]}`, `],}]}`, 1)), []int{415, 422}},
			{"single quotes", post(path, strings.ReplaceAll(remote, `"`, `'`)), []int{415, 422}},
			{"NaN", post(path, strings.Replace(remote, `{`, `{"temperature":NaN,`, 1)), []int{415, 422}},
			{"a raw line break in a text", post(path, strings.Replace(remote, "what is", "what\nis", 1)), []int{415, 422}},
			{"a form", query{method: "POST", target: path, header: header{{"Content-Type", "application/x-www-form-urlencoded"}}, body: []byte("image_url=https%3A%2F%2Fx%2F")}, []int{415, 422}},
			{"multipart", query{method: "POST", target: path, header: header{{"Content-Type", "multipart/form-data; boundary=b"}}, body: []byte("--b\r\n\r\n" + remote + "\r\n--b--\r\n")}, []int{415, 422}},
		} {
			for _, chunks := range []bool{false, true} {
				q := one.q
				if chunks {
					q.chunks, q.body = [][]byte{q.body[:10], q.body[10:]}, nil
				}
				r.forget()
				r.refusedHere(fmt.Sprintf("%s, %s, chunks %v", path, one.what, chunks), q, r.do(q), one.want...)
			}
		}
	}
	// What can be inspected and has nothing in it passes, without a body too.
	for _, q := range []query{chat("hi"), {method: "POST", target: "/v1/embeddings", bare: true}, post("/v1/embeddings", `{"input":"x"}`), get("/v1/models")} {
		if a, _ := r.verbatim(q.method+" "+q.target, q); a.status != 200 {
			t.Errorf("%s %s: %v, want 200", q.method, q.target, &a)
		}
	}
	r.untouched()
	r.settled()
}
