package cases

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/cart-llm/cart/e2e/engine"
)

// Group D, first half: headers, framing, targets, methods. What the machine form leaves out.

func init() {
	tests = append(tests,
		test{"D01", connectionHeader}, test{"D02", forgedForwarded}, test{"D03", ambiguousFraming}, test{"D04", expectContinue},
		test{"D05", interimAndTrailers}, test{"D07", h2cUpgrade}, test{"D08", targets}, test{"D14", routedPeer},
		test{"D15", completeHeaders}, test{"D16", methods},
	)
}

// D01 Headers named in Connection, with a blank first Connection line
func connectionHeader(t *testing.T, s *stage) {
	r := s.start(t, 1, nil)
	const body = `{"model":"m1","messages":[{"role":"user","content":"hi"}]}`
	for _, path := range []string{"/v1/chat/completions", "/v1/embeddings"} {
		for _, lines := range []string{
			"Connection:\r\n" + "Connection: close, X-Secret-Hop, X-Forwarded-For, x-routed-peer\r\n",
			"Connection: close, X-Secret-Hop, X-Forwarded-For, x-routed-peer\r\nConnection:\r\n",
			"Connection: ,, close ,x-secret-hop,X-Forwarded-For , X-Real-Ip, X-Forwarded-Proto, X-Forwarded-Host, X-Routed-Peer, Content-Type\r\n",
		} {
			r.forget()
			answer := r.raw("POST " + path + " HTTP/1.1\r\nHost: " + r.host + "\r\n" + lines +
				"X-Secret-Hop: 1\r\nKeep-Alive: timeout=9\r\nProxy-Authorization: Basic eDp5\r\nProxy-Connection: keep-alive\r\nTE: gzip\r\n" +
				"X-Kept: 1\r\nContent-Type: application/json\r\nContent-Length: " + fmt.Sprint(len(body)) + "\r\n\r\n" + body)
			if !strings.HasPrefix(answer, "HTTP/1.1 200") || !strings.Contains(answer, "\r\nX-Routed-Peer: "+r.mocks[0].url()+"\r\n") {
				t.Errorf("%s with %q = %q, want 200 with x-routed-peer", path, lines, answer)
			}
			if len(r.hits()) != 1 {
				t.Fatalf("%s with %q: %d requests reached the replica, want 1", path, lines, len(r.hits()))
			}
			x := r.hits()[0]
			for _, name := range []string{"X-Secret-Hop", "Keep-Alive", "Proxy-Authorization", "Proxy-Connection", "TE", "Connection"} {
				if got := x.header.values(name); len(got) > 0 {
					t.Errorf("%s with %q: the replica saw %s = %q, want none", path, lines, name, got)
				}
			}
			for name, want := range map[string]string{"X-Forwarded-For": "127.0.0.1", "X-Kept": "1"} {
				if got := x.header.values(name); len(got) != 1 || got[0] != want {
					t.Errorf("%s with %q: the replica saw %s = %q, want %q", path, lines, name, got, want)
				}
			}
			if string(x.received()) != body {
				t.Errorf("%s with %q: the replica got %q", path, lines, x.received())
			}
		}
	}
	r.settled()
}

// D02 Forged X-Forwarded-* from the client
func forgedForwarded(t *testing.T, s *stage) {
	r := s.start(t, 1, nil)
	var plain *rig
	if s.kind == engine.Traefik {
		plain = s.plain(t, startMock(t))
	}
	forged := header{
		{"Content-Type", "application/json"}, {"X-Forwarded-For", "203.0.113.9"}, {"X-Real-Ip", "203.0.113.9"}, {"X-Forwarded-Proto", "https"},
		{"Forwarded", "for=203.0.113.9"}, {"X-Forwarded-Host", "evil.example"}, {"X-Forwarded-Port", "1"}, {"X-Forwarded-Server", "evil"},
		{"X-Forwarded-For", "203.0.113.10"}, {"X-Forwarded-Prefix", "/evil"}, {"X-Forwarded-Method", "GET"}, {"X-Forwarded-Uri", "/evil"},
		{"X-Forwarded-Tls-Client-Cert", "evil"},
	}
	for _, path := range []string{"/v1/chat/completions", "/v1/embeddings"} {
		for _, h := range []header{forged, {{"Content-Type", "application/json"}}} {
			for _, protocol := range []string{"HTTP/1.1", "HTTP/2"} {
				q := query{method: "POST", target: path, header: h, body: []byte(`{}`)}
				seen := func(r *rig) header {
					r.forget()
					a := r.over(protocol, q)
					if a.status != 200 || len(r.hits()) != 1 {
						t.Fatalf("%s over %s: %v", path, protocol, &a)
					}
					out := header{}
					for _, f := range r.hits()[0].header {
						if f[0] != "Host" { // each has its own
							out = append(out, [2]string{f[0], strings.ReplaceAll(f[1], r.host, "host")})
						}
					}
					return out
				}
				got := seen(r)
				what := fmt.Sprintf("%s over %s with %d headers", path, protocol, len(h))
				if v := got.values("X-Forwarded-For"); len(v) != 1 || v[0] != "127.0.0.1" {
					t.Errorf("%s: X-Forwarded-For = %q, want the client once", what, v)
				}
				if v := got.values("X-Real-Ip"); len(v) != 1 || v[0] != "127.0.0.1" {
					t.Errorf("%s: X-Real-Ip = %q, want the client once", what, v)
				}
				if plain == nil {
					continue
				}
				want := seen(plain)
				for _, f := range append(append(header{}, got...), want...) {
					if f[0] == "Accept-Encoding" {
						continue // Traefik's own service asks for compression by itself
					}
					if !sameSet(got.values(f[0]), want.values(f[0])) {
						t.Errorf("%s: the replica saw %s = %q, a plain service %q", what, f[0], got.values(f[0]), want.values(f[0]))
					}
				}
			}
		}
	}
	r.settled()
}

// D03 Ambiguous framing
func ambiguousFraming(t *testing.T, s *stage) {
	r := s.start(t, 2, nil)
	const chunked = "5\r\nhello\r\n0\r\n\r\n"
	for _, path := range []string{"/v1/chat/completions", "/v1/embeddings"} {
		for _, one := range [][2]string{
			{"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", chunked},
			{"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", chunked},
			{"Content-Length: 5\r\nContent-Length: 6\r\n", "hello!"},
			{"Content-Length: 5, 6\r\n", "hello!"},
			{"Content-Length: +5\r\n", "hello"},
			{"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n", chunked},
			{"Transfer-Encoding: chunked, identity\r\n", chunked},
			{"Transfer-Encoding: xchunked\r\n", chunked},
			{"Transfer-Encoding: \x0bchunked\r\n", chunked},
			{"Content-Length : 5\r\n", "hello"},
		} {
			r.forget()
			answer := r.raw("POST " + path + " HTTP/1.1\r\nHost: " + r.host + "\r\nConnection: close\r\n" + one[0] + "\r\n" + one[1])
			hits := r.hits()
			what := fmt.Sprintf("%s with %q", path, one[0])
			switch {
			case strings.Count(answer, "HTTP/1.1 ") != 1:
				t.Errorf("%s = %q, want one answer", what, answer)
			case strings.HasPrefix(answer, "HTTP/1.1 400"), strings.HasPrefix(answer, "HTTP/1.1 501"):
				if len(hits) != 0 {
					t.Errorf("%s: refused, and %d requests reached the replicas", what, len(hits))
				}
			case !strings.HasPrefix(answer, "HTTP/1.1 200") || len(hits) != 1:
				t.Errorf("%s = %q with %d requests at the replicas, want it refused or forwarded once", what, answer, len(hits))
			default:
				if err := singleFraming(hits[0].header, len("hello")); err != nil || string(hits[0].received()) != "hello" {
					t.Errorf("%s: the replica got %q: %v", what, hits[0].received(), err)
				}
			}
		}
		for _, head := range []string{
			"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n",
			"Content-Length: 5\r\nContent-Length: 15\r\n", "Content-Length: 5, 15\r\n", "Content-Length: 5\r\nContent-Length: 5\r\n",
		} {
			r.all(func(x *exchange) {
				body := "hello"
				if strings.Contains(head, "chunked") {
					body = chunked
				}
				x.raw("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n" + head + "\r\n" + body)
				x.close()
			})
			what := fmt.Sprintf("%s answered with %q", path, head)
			a := r.do(post(path, `{}`))
			if a.status == 502 && a.err == nil {
				continue
			}
			if err := singleFraming(a.header, len("hello")); a.err != nil || a.status != 200 || string(a.body) != "hello" || err != nil {
				t.Errorf("%s: %v, %v, want one framing or 502", what, &a, err)
			}
			r.all2(func(x *exchange) { x.json(200, `{}`) }, func() { r.do(chat("one")); r.do(chat("two")) })
		}
		r.all(nil)
	}
	r.settled()
}

// upload sends a head that announces a body, which follows only when the server asks for it. It returns what was answered
// and whether it was asked for.
func (r *rig) upload(q query) (a reply, asked bool) {
	r.t.Helper()
	w := r.dial()
	go func() {
		defer close(w.done)
		w.read(q.method)
	}()
	io.WriteString(w.conn, r.headOf(q))
	err := poll(slack*2*time.Second, func() error {
		a := w.soFar()
		if asked = len(a.interim) > 0; asked || a.status != 0 {
			return nil
		}
		return fmt.Errorf("no answer to %s %s with Expect", q.method, q.target)
	})
	if err != nil {
		r.t.Error(err)
	}
	if asked {
		w.conn.Write(q.body)
	}
	return w.wait(slack * 2 * time.Second), asked
}

// D04 Expect: 100-continue on a large body
func expectContinue(t *testing.T, s *stage) {
	const limit = 4 << 20
	r := s.start(t, 1, engine.Config{"maxLoad": 1, "proxy": engine.Config{"maxBodyBytes": limit}})
	big := func(path string, size int) query {
		const front, back = `{"model":"m1","messages":[{"role":"user","content":"`, `"}]}`
		return post(path, front+strings.Repeat("x", size-len(front)-len(back))+back).with("Expect", "100-continue")
	}
	for _, path := range []string{"/v1/chat/completions", "/v1/messages", "/v1/embeddings"} {
		routed := path != "/v1/embeddings" // the rest is neither buffered nor bounded
		q := big(path, 3<<20)
		r.forget()
		a, asked := r.upload(q)
		if r.checkVerbatim("a large body", q, a); a.status != 200 || !asked || len(a.interim) != 1 {
			t.Errorf("%s: %v, interim %v, want one 100 and then 200", path, &a, a.interim)
		}

		for _, size := range []int{limit + 1, 10 * limit} {
			if !routed {
				break
			}
			q = big(path, size)
			r.forget()
			a, asked = r.upload(q)
			r.refusedHere("a body above the limit", q, a, 413)
			if asked {
				t.Errorf("%s of %d bytes, above the limit: the body was asked for", path, size)
			}
		}

		// A replica that answers before it has read the body.
		early := func(x *exchange) {
			x.answer(401, header{{"Content-Type", "application/json"}, {"Connection", "close"}}, `{"error":{"message":"no key"}}`)
			x.conn.SetReadDeadline(time.Now().Add(time.Second))
			io.Copy(io.Discard, x.in)
		}
		r.mocks[0].doesEarly(early)
		r.forget()
		if a, _ = r.upload(big(path, 3<<20)); a.err != nil || a.status != 401 || string(a.body) != `{"error":{"message":"no key"}}` {
			t.Errorf("%s answered 401 early: %v", path, &a)
		}
		if n := len(r.hits()); n != 1 {
			t.Errorf("%s answered 401 early: %d requests reached the replica, want 1", path, n)
		}
		r.mocks[0].doesEarly(nil)
		r.settled()

		if !routed {
			break
		}
		// All full.
		m := r.warm(post(path, `{"messages":[]}`))
		release := r.lean(post(path, `{"messages":[]}`), m)
		q = big(path, 3<<20)
		r.forget()
		a, _ = r.upload(q)
		r.refusedHere("a body while all are full", q, a, 503)
		release()
		r.settled()
	}
	r.untouched()
}

// D05 Interim 1xx and trailers from upstream
func interimAndTrailers(t *testing.T, s *stage) {
	r := s.start(t, 1, nil)
	r.all(func(x *exchange) {
		x.raw("HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\nConnection: X-N\r\nX-N: 1\r\nKeep-Alive: timeout=9\r\n\r\n")
		x.open(200, header{{"Content-Type", "text/plain"}, {"Trailer", "X-Usage"}})
		x.chunk("hello")
		x.end([2]string{"X-Usage", "12"}, [2]string{"X-Late", "1"})
	})
	for _, path := range []string{"/v1/chat/completions", "/v1/embeddings"} {
		r.forget()
		answer := r.raw("POST " + path + " HTTP/1.1\r\nHost: " + r.host + "\r\nConnection: close\r\nTE: trailers\r\nTrailer: Authorization\r\n" +
			"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nAuthorization: Bearer other\r\n\r\n")
		interim, final, found := strings.Cut(answer, "HTTP/1.1 200")
		if !found || strings.Contains(strings.ToLower(interim), "x-n:") || strings.Contains(strings.ToLower(interim), "connection:") ||
			strings.Contains(strings.ToLower(interim), "keep-alive:") {
			t.Errorf("%s = %q, want 200 after 103 without what belongs to the connection", path, answer)
		}
		_, trailer, _ := strings.Cut(final, "\r\n0\r\n")
		for _, want := range []string{"X-Usage: 12\r\n", "X-Late: 1\r\n"} {
			if strings.Count(final, want) != 1 || !strings.Contains(trailer, want) {
				t.Errorf("%s = %q, want %q in the trailer", path, answer, want)
			}
		}
		if !strings.Contains(final, "hello") {
			t.Errorf("%s = %q, want the body", path, answer)
		}
		r.noAuthorization(path)

		// The same over HTTP/2, where a server may refuse such a trailer of a request by itself.
		for _, name := range []string{"Authorization", "X-Checksum"} {
			r.settled() // a request that the server refused may still be on its way to the replica
			r.forget()
			r.interimOverHTTP2(path, name)
		}
	}
	r.settled()
}

func (r *rig) interimOverHTTP2(path, trailer string) {
	r.t.Helper()
	what := path + " over HTTP/2 with the trailer " + trailer
	trace := &httptrace.ClientTrace{Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
		for _, name := range []string{"Connection", "X-N", "Keep-Alive"} {
			if len(h[name]) > 0 {
				r.t.Errorf("%s: %d with %s = %q, want none", what, code, name, h[name])
			}
		}
		return nil
	}}
	req, err := http.NewRequestWithContext(httptrace.WithClientTrace(context.Background(), trace), "POST", r.e.URLTLS()+path,
		io.MultiReader(strings.NewReader(`{}`))) // of unknown length, as a trailer needs it
	if err != nil {
		r.t.Fatal(err)
	}
	req.Host = r.host
	req.Trailer = http.Header{trailer: {"Bearer other"}}
	resp, err := r.e.ClientTLS().Do(req)
	if err != nil && trailer == "Authorization" {
		for _, x := range r.hits() {
			if got := x.header.values("Authorization"); len(got) > 0 {
				r.t.Errorf("%s: the replica saw Authorization = %q, want none", what, got)
			}
		}
		return
	}
	if err != nil {
		r.t.Errorf("%s: %v", what, err)
		return
	}
	body, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil || resp.StatusCode != 200 || string(body) != "hello" || resp.Trailer.Get("X-Usage") != "12" || resp.Trailer.Get("X-Late") != "1" {
		r.t.Errorf("%s = %d %q %v, trailer %v, want 200 and both trailers", what, resp.StatusCode, body, err, resp.Trailer)
	}
	r.noAuthorization(what)
}

// noAuthorization checks that a request's trailer has not become a header.
func (r *rig) noAuthorization(path string) {
	r.t.Helper()
	if len(r.hits()) != 1 {
		r.t.Errorf("%s: %d requests reached the replica, want 1", path, len(r.hits()))
	}
	for _, x := range r.hits() {
		if got := x.header.values("Authorization"); len(got) > 0 {
			r.t.Errorf("%s: the replica saw Authorization = %q, want none", path, got)
		}
		if string(x.received()) != `{}` {
			r.t.Errorf("%s: the replica got %q, want {}", path, x.received())
		}
	}
}

// D07 h2c upgrade request on a JSON endpoint
func h2cUpgrade(t *testing.T, s *stage) {
	r := s.start(t, 2, nil)
	for _, path := range []string{"/v1/chat/completions", "/v1/messages", "/v1/embeddings"} {
		for _, upgrade := range []string{"h2c", "H2C"} {
			q := post(path, `{"model":"m1","messages":[{"role":"user","content":"hi"}]}`)
			q = q.with("Connection", "Upgrade, HTTP2-Settings").with("Upgrade", upgrade).with("HTTP2-Settings", "AAMAAABkAAQAAP__")
			a, x := r.verbatim(path, q)
			if a.status != 200 {
				t.Errorf("%s: %v, want 200", path, &a)
			}
			for _, name := range []string{"Connection", "Upgrade", "HTTP2-Settings"} {
				if got := x.header.values(name); len(got) > 0 {
					t.Errorf("%s with Upgrade: %s: the replica saw %s = %q, want none", path, upgrade, name, got)
				}
			}
		}
	}
	r.untouched()
	r.settled()
}

// D08 Query string and escaped path are kept. Settled: byte for byte.
func targets(t *testing.T, s *stage) {
	r := s.start(t, 1, nil)
	var plain *rig
	if s.kind == engine.Traefik {
		// Traefik's entry point cleans targets before any middleware: what it does before its own service is right.
		plain = s.plain(t, startMock(t))
	}
	gets := []string{
		"/v1/models/org%2Fname", "/v1/models/org%2fname?x=%2f", "/v1/models/a%20b", "/v1/models/a+b?a+b", "/v1/models/x?", "/v1/models/x?&&",
		"/v1/files/%E2%82%AC", "/v1//models/x", "/v1/models/x/", "/v1/./models/x", "/v1/a/../b", "/v1/models/x%3Fy", "/v1/models/x;v=1", "/v1/models/%41",
		"/v1/models/[x]", "/v1/models/x?q=[1]&r={}|^`", "/v1/models/x?q=%", "/v1/models/x?%zz&a;b=c;d", "/v1/models/'x'(1)*!$,", "/v1/models/x?a=1?b=2",
		"/v1/models/x?a=1#f", "/v1/models/x%23f", "/v1/models/~x", "/v1/models/%7Ex", "/v1/models/x?q=%E2%82%AC&q=\xe2\x82\xac", "/", "/?", "/%2F", "//",
		"/v1/models/\xe2\x82\xac", "/v1/models/a\"b<c>d\\e^f`g{h|i}", "/v1/models/a:b@c", "/v1/models/%2e%2e/x", "/v1/models/x?q=a%00b",
	}
	queries := []string{"?trace=a;b&c=%zz&d=1+2&e=%2F", "?", "?a", "?=", "?a=1&a=2&A=3", "?%", "?q=\xff", "?a=b;c", "?z=1&a=2"}
	for _, base := range []string{"", "/pfx", "/pfx/", "/a%2Fb", "/p%20q/r"} {
		r.with(engine.Config{"workers": []any{engine.Config{"url": r.mocks[0].url() + base}}})
		prefix := strings.TrimSuffix(base, "/")
		check := func(q query) {
			t.Helper()
			r.forget()
			a := r.do(q)
			want, compare := prefix+q.target, plain != nil
			if compare {
				plain.forget()
				b := plain.do(q)
				if len(plain.hits()) != 1 {
					if a.status != b.status {
						t.Errorf("%s %s = %d, at a plain service %d", q.method, q.target, a.status, b.status)
					}
					return
				}
				want = prefix + plain.hits()[0].target
			}
			if n := len(r.hits()); n == 0 && a.status == 400 {
				return // refused by the server: no target at all
			} else if n != 1 || a.status != 200 {
				t.Errorf("%s %s = %d with %d requests at the replica, want 200 and 1", q.method, q.target, a.status, n)
				return
			}
			if path, _, _ := strings.Cut(q.target, "?"); strings.ContainsFunc(path, func(c rune) bool { return c > '~' || strings.ContainsRune("\"<>\\^`{|}", c) }) {
				// No target may have such a byte in its path: escaping it is as good as keeping it.
				u, err := url.ParseRequestURI(q.target)
				if err != nil {
					t.Fatal(err)
				}
				if got := r.hits()[0].target; got == prefix+u.RequestURI() {
					return
				}
			}
			if got := r.hits()[0].target; got != want {
				t.Errorf("%s %s with base %q: the replica saw %s, want %s", q.method, q.target, base, got, want)
			}
		}
		for _, target := range gets {
			check(get(target))
		}
		for _, query := range queries {
			for _, path := range []string{"/v1/chat/completions", "/v1/messages", "/v1/embeddings"} {
				check(post(path+query, `{"model":"m1","messages":[{"role":"user","content":"hi"}]}`))
			}
			if query != "?" {
				check(get("/v1/models" + query))
			}
		}
	}
	r.settled()
}

// D14 x-routed-peer cannot be forged and tells the last attempt
func routedPeer(t *testing.T, s *stage) {
	r := s.start(t, 2, engine.Config{"maxLoad": 1, "proxy": engine.Config{"maxBodyBytes": 100_000, "remoteMediaUrlPolicy": 422}})
	only := func(what string, a reply, m *mock) {
		t.Helper()
		if got := a.header.values("x-routed-peer"); a.err != nil || len(got) != 1 || got[0] != m.url() {
			t.Errorf("%s: x-routed-peer = %q, want %s once, in %v", what, got, m.url(), &a)
		}
	}
	for _, path := range []string{"/v1/chat/completions", "/v1/embeddings"} {
		for _, status := range []int{200, 400, 404} {
			r.all(func(x *exchange) {
				x.answer(status, header{{"X-Routed-Peer", "fake"}, {"x-routed-peer", "fake2"}, {"X-Routed-Peer", "fake"}}, "{}")
			})
			for _, protocol := range []string{"HTTP/1.1", "HTTP/2"} {
				r.forget()
				q := post(path, `{"messages":[]}`).with("x-routed-peer", "evil")
				a := r.over(protocol, q)
				x := r.hits()[0]
				only(fmt.Sprintf("%s, %d, over %s", path, status, protocol), a, x.replica)
				if got := x.header.values("x-routed-peer"); len(got) > 1 || (len(got) == 1 && got[0] != "evil") {
					t.Errorf("the replica saw x-routed-peer = %q, want none or what was sent", got)
				}
				r.settled()
			}
		}
	}

	// Of a stream, before its first event.
	r.all(pieces(sse, 300*time.Millisecond, 0, "data: 1\n\n"))
	r.forget()
	w := r.begin(streamed("m"))
	r.eventually(5*time.Second, func() error {
		if w.soFar().status == 0 {
			return fmt.Errorf("there is no head of the stream")
		}
		return nil
	})
	early := w.soFar()
	if len(early.body) > 0 {
		t.Errorf("the head of a stream came with %q", early.body)
	}
	early.err = nil
	only("a stream", early, r.hits()[0].replica)
	w.wait(5 * time.Second)
	r.all(nil)
	r.settled()

	// Of what CART answers itself, none.
	local := func(what string, q query, statuses ...int) {
		t.Helper()
		r.forget()
		a := r.do(q)
		good := false
		for _, s := range statuses {
			good = good || a.status == s
		}
		if got := a.header.values("x-routed-peer"); !good || a.err != nil || len(got) > 0 || len(r.hits()) > 0 {
			t.Errorf("%s: %v with %d requests at the replicas, want %v without x-routed-peer", what, &a, len(r.hits()), statuses)
		}
	}
	local("a body too large", chat(strings.Repeat("x", 100_000)), 413)
	local("remote media", remoteImage("/v1/chat/completions", "https://img.example.net/a.png"), 422)
	local("/health", get("/health"), 200)
	local("/workers", get("/workers"), 200)
	r.do(get("/v1/models"))
	r.settled()
	local("the kept list of models", get("/v1/models"), 200)
	hold := make(chan struct{})
	r.all(func(x *exchange) {
		if x.until(hold) {
			x.json(200, `{}`)
		}
	})
	r.forget()
	first, second := r.begin(chat("one")), r.begin(chat("two"))
	r.eventually(5*time.Second, func() error {
		if n := len(r.hits()); n != 2 {
			return fmt.Errorf("%d requests are held, want 2", n)
		}
		return nil
	})
	local("all full", chat("three"), 503)
	close(hold)
	first.wait(5 * time.Second)
	second.wait(5 * time.Second)
	r.all(nil)

	// After a failover, the one that answered.
	for what, fail := range map[string]func(m *mock){
		"refuses": func(m *mock) { m.stop() },
		"says 500": func(m *mock) {
			m.does(func(x *exchange) { x.answer(500, header{{"X-Routed-Peer", "fake"}}, "{}") })
		},
	} {
		r.settled()
		q := chat(what + text(1, 5000))
		m := r.warm(q)
		fail(m)
		r.forget()
		a := r.do(q)
		if a.status != 200 || a.header.get("x-cart-reason") != "retry" {
			t.Errorf("one that %s: %v, want 200 after a retry", what, &a)
		}
		only("one that "+what, a, r.other(m))
		if what == "refuses" {
			m.restart(t)
		}
		m.does(nil)
	}

	// Without the credentials of the address.
	r.settled()
	m := r.mocks[0]
	r.with(engine.Config{"workers": []any{engine.Config{"url": strings.Replace(m.url(), "//", "//user:secret@", 1)}}})
	r.forget()
	a := r.do(chat("hi"))
	only("an address with credentials", a, m)
	if state := r.do(get("/workers")); bytes.Contains(state.body, []byte("secret")) {
		t.Errorf("/workers = %s, want no credentials", state.body)
	}
	r.settled()
}

// D15 Request and response headers arrive complete
func completeHeaders(t *testing.T, s *stage) {
	r := s.start(t, 1, nil)
	request := header{
		{"Content-Type", "application/json"}, {"Authorization", "Bearer test-key"}, {"x-api-key", "test-key-2"}, {"anthropic-version", "2023-06-01"},
		{"anthropic-beta", "f1,f2"}, {"anthropic-beta", "f3"}, {"OpenAI-Organization", "org-1"}, {"traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
		{"tracestate", "a=1"}, {"tracestate", "b=2"}, {"baggage", "k=v;p=1,l=w"}, {"x-request-id", "q-1"}, {"Cookie", "a=1; b=2"}, {"Accept", "text/event-stream"},
		{"Accept", "*/*;q=0.1"}, {"User-Agent", "OpenAI/Python 1.0"}, {"X-Stainless-Retry-Count", "0"}, {"Idempotency-Key", "i-1"}, {"Accept-Encoding", "gzip, br"},
		{"X-Empty", ""}, {"X-Spaces", "a  b\tc"}, {"X-Latin", "se\xf1or"}, {"Origin", "https://ui.example"}, {"Referer", "https://ui.example/?a"}, {"Via", "1.1 edge"},
		{"Range", "bytes=0-1"}, {"If-None-Match", `"e1"`}, {"Date", "Mon, 30 Nov 2026 08:00:00 GMT"},
	}
	answer := header{
		{"Content-Type", "application/json"}, {"Set-Cookie", "a=1; Path=/"}, {"Set-Cookie", "b=2"}, {"x-request-id", "r-9"}, {"openai-processing-ms", "12"},
		{"anthropic-ratelimit-requests-remaining", "41"}, {"Retry-After", "3"}, {"Server-Timing", "a;dur=1"}, {"Server-Timing", "b;dur=2"}, {"ETag", `W/"e"`},
		{"Cache-Control", "no-cache"}, {"Vary", "Origin"}, {"Vary", "Accept"}, {"Date", "Mon, 30 Nov 2026 08:00:01 GMT"}, {"Server", "uvicorn"}, {"X-Empty", ""},
		{"X-Latin", "se\xf1or"}, {"Link", "</a>; rel=next"}, {"Access-Control-Allow-Origin", "*"}, {"Strict-Transport-Security", "max-age=1"}, {"Age", "7"}, {"Via", "1.1 engine"},
		{"X-Forwarded-For", "198.51.100.1"}, {"WWW-Authenticate", "Bearer"}, {"Content-Language", "nl"}, {"Last-Modified", "Mon, 30 Nov 2026 08:00:01 GMT"},
	}
	for _, status := range []int{200, 201, 400, 404} {
		r.all(func(x *exchange) { x.answer(status, answer, `{"ok":true}`) })
		for _, path := range []string{"/v1/chat/completions", "/v1/messages", "/v1/embeddings"} {
			for _, protocol := range []string{"HTTP/1.1", "HTTP/2"} {
				q := query{method: "POST", target: path, header: request, body: []byte(`{"messages":[]}`)}
				r.forget()
				a := r.over(protocol, q)
				what := fmt.Sprintf("%s, %d, over %s", path, status, protocol)
				if a.status != status {
					t.Errorf("%s: %v", what, &a)
				}
				_, x := r.checkVerbatim(what, q, a)
				for _, f := range answer {
					if got := a.header.values(f[0]); !sameSet(got, answer.values(f[0])) {
						t.Errorf("%s: the client got %s = %q, want %q", what, f[0], got, answer.values(f[0]))
					}
				}
				if got := x.header.values("Host"); len(got) != 1 || got[0] != r.host {
					t.Errorf("%s: the replica saw Host = %q, want %q", what, got, r.host)
				}
				known := map[string]bool{"host": true, "content-length": true, "transfer-encoding": true, "x-real-ip": true}
				for _, f := range x.header {
					name := strings.ToLower(f[0])
					if len(request.values(name)) == 0 && !known[name] && !strings.HasPrefix(name, "x-forwarded-") {
						t.Errorf("%s: the replica saw %s: %s, which nobody sent", what, f[0], f[1])
					}
				}
				extra := map[string]bool{"content-length": true, "x-routed-peer": true, "x-cart-reason": true, "x-cart-match": true}
				for _, f := range a.header {
					if name := strings.ToLower(f[0]); len(answer.values(name)) == 0 && !extra[name] {
						t.Errorf("%s: the client got %s: %s, which nobody sent", what, f[0], f[1])
					}
				}
			}
		}
	}
	// Without a User-Agent, Accept or Accept-Encoding there is none.
	for _, q := range []query{post("/v1/chat/completions", `{"messages":[]}`), get("/v1/models"), get("/v1/files")} {
		r.forget()
		r.do(q)
		if len(r.hits()) != 1 {
			t.Fatalf("%s %s: %d requests reached the replica, want 1", q.method, q.target, len(r.hits()))
		}
		for _, name := range []string{"User-Agent", "Accept", "Accept-Encoding"} {
			if got := r.hits()[0].header.values(name); len(got) > 0 {
				t.Errorf("%s %s: the replica saw %s = %q, want none", q.method, q.target, name, got)
			}
		}
	}
	// The Host that is configured, and the key.
	r.with(engine.Config{"workers": []any{engine.Config{
		"url": r.mocks[0].url(), "headers": engine.Config{"Host": "vllm.internal", "Authorization": "Bearer engine-key"},
	}}})
	r.forget()
	r.do(chat("hi").with("Authorization", "Bearer client"))
	for name, want := range map[string]string{"Host": "vllm.internal", "Authorization": "Bearer engine-key"} {
		if got := r.hits()[0].header.values(name); len(got) != 1 || got[0] != want {
			t.Errorf("the replica saw %s = %q, want the configured %q", name, got, want)
		}
	}
	r.settled()
}

// D16 Methods: HEAD, OPTIONS preflight, GET on POST paths, POST on GET paths. Settled: /metrics is CART's own answer unless
// endpoints.metrics is empty.
func methods(t *testing.T, s *stage) {
	r := s.start(t, 2, nil)
	const list = `{"object":"list","data":[{"id":"m1"}]}`
	r.all(func(x *exchange) { x.answer(200, header{{"Content-Type", "application/json"}, {"X-List", "1"}}, list) })

	head := func(what string) reply {
		t.Helper()
		a := r.do(query{method: "HEAD", target: "/v1/models"})
		if a.err != nil || a.status != 200 || a.header.get("Content-Type") != "application/json" || a.header.get("Content-Length") != fmt.Sprint(len(list)) {
			t.Errorf("HEAD /v1/models %s: %v, want status and headers of the list", what, &a)
		}
		return a
	}
	head("before the list is known")
	if a := r.do(get("/v1/models")); a.status != 200 || string(a.body) != list {
		t.Errorf("GET /v1/models: %v, want the list", &a)
	}
	head("after it is known")
	raw := r.raw("HEAD /v1/models HTTP/1.1\r\nHost: " + r.host + "\r\nConnection: close\r\n\r\n")
	if _, body, _ := strings.Cut(raw, "\r\n\r\n"); body != "" || !strings.HasPrefix(raw, "HTTP/1.1 200") {
		t.Errorf("HEAD /v1/models = %q, want no body", raw)
	}

	const body = `{"model":"m1","messages":[{"role":"user","content":"hi"}]}`
	var passed []query
	for _, path := range []string{
		"/v1/models", "/health", "/workers", "/v1/messages/count_tokens", "/tokenize", "/v1/chat/completions/", "/v1/messages/batches", "/v1/embeddings",
		"/v1/responses/resp_1/cancel", "/v1/completions/x", "/metrics",
	} {
		passed = append(passed, post(path, body))
	}
	for _, path := range []string{
		"/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses", "/v1/models/m1", "/health/", "/v1/models/", "/docs", "/v1/responses/resp_x1",
	} {
		passed = append(passed, get(path), query{method: "HEAD", target: path}, query{method: "DELETE", target: path})
	}
	for _, path := range []string{"/v1/chat/completions", "/v1/messages", "/v1/models", "/health", "/workers", "/metrics"} {
		passed = append(passed, query{method: "OPTIONS", target: path, header: header{{"Origin", "https://ui.example"}, {"Access-Control-Request-Method", "POST"}}})
	}
	passed = append(passed, query{method: "DELETE", target: "/v1/files/f1"}, query{method: "PROPFIND", target: "/v1/files"})
	for _, method := range []string{"PUT", "PATCH", "DELETE", "GET"} {
		q := post("/v1/chat/completions", body)
		q.method = method
		passed = append(passed, q)
	}
	for _, status := range []int{200, 204, 405, 418} {
		r.all(func(x *exchange) { x.answer(status, header{{"Allow", "POST"}, {"X-Engine", "1"}}, "engine") })
		for _, q := range passed {
			what := fmt.Sprintf("%s %s answered %d", q.method, q.target, status)
			r.forget()
			a := r.do(q)
			if n := len(r.hits()); a.err != nil || a.status != status || a.header.get("X-Engine") != "1" || n != 1 {
				t.Errorf("%s: %v with %d requests at the replicas, want it passed through", what, &a, n)
				continue
			}
			x := r.hits()[0]
			if x.method != q.method || x.target != q.target || !bytes.Equal(x.received(), q.body) {
				t.Errorf("%s: the replica saw %s %s %q", what, x.method, x.target, x.received())
			}
			if why := a.header.get("x-cart-reason"); why != "passthrough" {
				t.Errorf("%s: reason %q, want passthrough", what, why)
			}
			if status == 200 && q.method != "HEAD" && string(a.body) != "engine" {
				t.Errorf("%s: the client got %q", what, a.body)
			}
		}
	}
	// What is passed through teaches nothing.
	r.settled()
	for _, w := range r.state().Workers {
		if w.Claims != 0 {
			t.Errorf("claims of %s = %d after requests that are not routed, want 0", w.URL, w.Claims)
		}
	}
	r.untouched()
	r.settled()
	ownMetrics(t, s)
}

// ownMetrics checks GET /metrics, as far as CART has the endpoint: without it, it passes through as anything else.
func ownMetrics(t *testing.T, s *stage) {
	r := s.rig(t)
	r.name, r.host = r.name+"-metrics", "metrics-"+r.host
	r.host = r.name + ".test"
	r.mocks = []*mock{startMock(t)}
	r.config = engine.Config{"workers": workersOf(r.mocks...), "logLevel": "error", "endpoints": engine.Config{"metrics": ""}}
	t.Cleanup(func() { s.put(t, r.name, nil) })
	s.put(t, r.name, r.config)
	has := r.buildError() == ""
	if !has {
		t.Logf("there is no endpoints.metrics yet: %s", r.buildError())
		r.config = engine.Config{"workers": workersOf(r.mocks...), "logLevel": "error"}
		s.put(t, r.name, r.config)
	}
	if a, _ := r.verbatim("/metrics", get("/metrics")); a.status != 200 {
		t.Errorf("GET /metrics when CART has no such endpoint: %v, want the replica's", &a)
	}
	if !has {
		return
	}
	s.put(t, r.name, engine.Config{"workers": workersOf(r.mocks...), "logLevel": "error"})
	r.forget()
	if a := r.do(get("/metrics")); a.status != 200 || len(r.hits()) != 0 || a.peer() != "" {
		t.Errorf("GET /metrics: %v with %d requests at the replica, want CART's own", &a, len(r.hits()))
	}
}
