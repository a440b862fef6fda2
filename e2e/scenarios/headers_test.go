package scenarios

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cart-llm/cart/e2e/engine"
	"github.com/cart-llm/cart/e2e/replica"
)

// oddQuery is a query that a decoder and encoder would not give back as it was. Traefik itself turns a semicolon into an
// ampersand, so there is none in it.
const oddQuery = "b=2&a=1,c=3&d=%2F+%20&&e&%zz"

// headerRequests are the kinds of requests whose headers have to arrive as through Traefik's own service.
var headerRequests = map[string]request{
	"routed":         {method: "POST", path: "/v1/chat/completions?" + oddQuery, body: newChat("headers").body()},
	"routed chunked": {method: "POST", path: "/v1/chat/completions", body: newChat("headers").body(), chunked: true},
	"routed HTTP/2":  {method: "POST", path: "/v1/messages", body: newChat("headers").body(), h2: true},
	"empty":          {method: "POST", path: "/v1/completions"},
	"passed":         {method: "GET", path: "/version?" + oddQuery},
	"passed body":    {method: "POST", path: "/tokenize", body: []byte(`{"prompt":"x"}`)},
	"passed chunked": {method: "PUT", path: "/some%20path/x%2Fy", body: []byte("x"), chunked: true},
	"passed HTTP/2":  {method: "DELETE", path: "/v1/files/1", h2: true},
	"models":         {method: "GET", path: "/v1/models"},
	"bare routed":    {method: "POST", path: "/v1/chat/completions", body: newChat("headers").body()},
	"bare passed":    {method: "GET", path: "/version"},
}

var clientHeaders = http.Header{
	"Authorization": {"Bearer client"}, "X-Api-Key": {"key"}, "Content-Type": {"application/json"},
	"X-Many": {"one", "two"}, "X-Empty": {""}, "Accept-Encoding": {"br;q=1.0, gzip"}, "Cookie": {"a=b; c=d"},
	"X-Request-Id": {"42"}, "Traceparent": {"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
	// What a client says about where it comes from is not believed, and what is for the next hop is not passed on.
	"X-Forwarded-For": {"203.0.113.9"}, "X-Forwarded-Host": {"spoofed"}, "X-Forwarded-Proto": {"gopher"}, "X-Real-Ip": {"203.0.113.9"},
	"Keep-Alive": {"timeout=5"}, "Proxy-Authorization": {"Basic eA=="}, "Proxy-Connection": {"keep-alive"}, "Te": {"trailers"},
}

// TestHeadersAsTraefik: side by side, a replica sees the same request through CART as through a plain Traefik service.
func TestHeadersAsTraefik(t *testing.T) {
	if !engine.Selected(engine.Traefik) {
		t.Skip("only the engine traefik has a plain service")
	}
	r := start(t, engine.Traefik, pool{size: 1, config: noProbes})
	seen := func() map[string]replica.Exchange {
		out := map[string]replica.Exchange{}
		for what, q := range headerRequests {
			q.header = clientHeaders.Clone()
			if !q.h2 {
				q.header["Connection"] = []string{"X-Drop, keep-alive"}
				q.header["X-Drop"] = []string{"for the next hop"}
			}
			if strings.HasPrefix(what, "bare") {
				q.header = http.Header{"User-Agent": {""}} // Go sends none then
			}
			q.host = "llm.example.com"
			before := len(r.replicas[0].Requests())
			a := r.do(q)
			all := r.replicas[0].Requests()
			if a.err != nil || len(all) != before+1 {
				t.Fatalf("%s: %d requests at the replica after %d %s, %v, want 1", what, len(all)-before, a.status, a.body, a.err)
			}
			out[what] = all[before]
		}
		return out
	}
	cart := seen()
	r.setup.Routers["cart"] = engine.Router{Plain: r.replicas[0].URL()}
	r.reload()
	plain := seen()
	for what, want := range plain {
		got := cart[what]
		if what == "routed chunked" {
			// CART has read the whole body and says how long it is.
			want.Chunked, want.ContentLength = false, want.BodyBytes
			want.Header["Content-Length"] = []string{fmt.Sprint(want.BodyBytes)}
		}
		if strings.HasPrefix(what, "bare") {
			// Traefik's transport asks for gzip on its own and unpacks it. CART asks for nothing and touches nothing.
			delete(want.Header, "Accept-Encoding")
		}
		if !reflect.DeepEqual(got.Header, want.Header) {
			t.Errorf("%s: headers through CART = %v, want those of a plain service: %v", what, got.Header, want.Header)
		}
		if got.Host != want.Host || got.Target != want.Target || got.Proto != want.Proto || got.Method != want.Method {
			t.Errorf("%s: %s %s %s for %s through CART, want %s %s %s for %s", what,
				got.Method, got.Target, got.Proto, got.Host, want.Method, want.Target, want.Proto, want.Host)
		}
		if got.Chunked != want.Chunked || got.ContentLength != want.ContentLength {
			t.Errorf("%s: chunked %v, Content-Length %d through CART, want %v, %d", what, got.Chunked, got.ContentLength, want.Chunked, want.ContentLength)
		}
	}
}

// TestRequestHeaders: what is true of them on every engine.
func TestRequestHeaders(t *testing.T) {
	engine.Each(t, func(t *testing.T, kind engine.Kind) {
		r := start(t, kind, pool{size: 1, config: noProbes})
		for what, q := range headerRequests {
			if strings.HasPrefix(what, "bare") {
				checkNothingAdded(t, r, what, q)
				continue
			}
			q.header, q.host = clientHeaders.Clone(), "llm.example.com"
			path, query, _ := strings.Cut(q.path, "?")
			before := len(exchanges(r.replicas[0], path))
			if a := r.do(q); a.err != nil {
				t.Fatalf("%s: %v", what, a.err)
			}
			all := exchanges(r.replicas[0], path)
			if len(all) != before+1 {
				t.Fatalf("%s: %d requests at the replica, want 1", what, len(all)-before)
			}
			x := all[before]
			for name, want := range clientHeaders {
				switch {
				case strings.HasPrefix(name, "X-Forwarded-") || name == "X-Real-Ip" || name == "Te":
					continue
				case name == "Keep-Alive" || strings.HasPrefix(name, "Proxy-"):
					want = nil
				}
				if got := x.Header[name]; !reflect.DeepEqual(got, want) {
					t.Errorf("%s: %s at the replica = %q, want %q", what, name, got, want)
				}
			}
			if got := x.Header.Get("X-Forwarded-For"); got != "127.0.0.1" {
				t.Errorf("%s: X-Forwarded-For at the replica = %q, want the client's address alone", what, got)
			}
			if got := x.Header.Get("X-Forwarded-Host"); got != "llm.example.com" || x.Host != "llm.example.com" {
				t.Errorf("%s: X-Forwarded-Host, Host at the replica = %q, %q, want llm.example.com", what, got, x.Host)
			}
			if _, got, _ := strings.Cut(x.Target, "?"); got != query {
				t.Errorf("%s: query at the replica = %q, want %q", what, got, query)
			}
		}
	})
}

// checkNothingAdded sends a request with no headers of its own and looks for any that the entry point does not set.
func checkNothingAdded(t *testing.T, r *rig, what string, q request) {
	t.Helper()
	q.header = http.Header{"User-Agent": {""}}
	if a := r.do(q); a.err != nil {
		t.Fatalf("%s: %v", what, a.err)
	}
	seen := exchanges(r.replicas[0], q.path)
	for name, values := range seen[len(seen)-1].Header {
		if !strings.HasPrefix(name, "X-Forwarded-") && name != "X-Real-Ip" && name != "Content-Length" {
			t.Errorf("%s: the replica got %s: %q, which the client did not send", what, name, values)
		}
	}
}

// TestWorkerHeaders: a worker's own headers take the place of the client's, towards that replica and its probe.
func TestWorkerHeaders(t *testing.T) {
	engine.Each(t, func(t *testing.T, kind engine.Kind) {
		r := start(t, kind, pool{size: 2, config: engine.Config{"policy": "roundRobin"}})
		workers := workersOf(r.urls()...)
		workers[0].(engine.Config)["headers"] = engine.Config{"Authorization": "Bearer engine", "X-Engine": "a, b"}
		r.with(engine.Config{"workers": workers})
		for i := 0; i < 2; i++ {
			a := r.do(request{
				method: "POST", path: "/v1/chat/completions", body: newChat("x").body(),
				header: http.Header{"Authorization": {"Bearer client"}},
			})
			if a.status != 200 {
				t.Fatalf("POST = %d %s, want 200", a.status, a.body)
			}
		}
		want := []http.Header{{"Authorization": {"Bearer engine"}, "X-Engine": {"a, b"}}, {"Authorization": {"Bearer client"}}}
		for i, one := range r.replicas {
			x := generations(one)[0]
			for _, name := range []string{"Authorization", "X-Engine"} {
				if got := x.Header[name]; !reflect.DeepEqual(got, want[i][name]) {
					t.Errorf("%s at replica %d = %q, want %q", name, i, got, want[i][name])
				}
			}
		}
		eventually(t, 2*time.Second, func() error {
			probes := exchanges(r.replicas[0], "/health")
			if len(probes) == 0 || probes[len(probes)-1].Header.Get("Authorization") != "Bearer engine" {
				return fmt.Errorf("none of %d probes has Authorization: Bearer engine", len(probes))
			}
			return nil
		})
	})
}

// TestResponseHeaders: an answer's headers, its early hints and its trailer reach the client, what was for the hop does not.
func TestResponseHeaders(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Link", "</style.css>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
		w.Header().Del("Link")
		w.Header().Set("Trailer", "X-Sum")
		w.Header()["Set-Cookie"] = []string{"a=1", "b=2"}
		w.Header().Set("Connection", "X-Hop")
		w.Header().Set("X-Hop", "for the next hop")
		w.Header().Set("Keep-Alive", "timeout=5")
		w.Header().Set("X-Kept", "yes")
		w.Header().Set("Content-Encoding", "gzip") // not really: nobody is to look into it
		_, _ = io.WriteString(w, "body")
		w.Header().Set("X-Sum", "4")
	}))
	t.Cleanup(server.Close)
	engine.Each(t, func(t *testing.T, kind engine.Kind) {
		r := start(t, kind, pool{config: engine.Merged(noProbes, engine.Config{"workers": workersOf(server.URL)})})
		for _, h2 := range []bool{false, true} {
			for _, path := range []string{"/v1/chat/completions", "/other"} {
				checkResponse(t, r, request{method: "POST", path: path, body: newChat("x").body(), h2: h2})
			}
		}
	})
}

func checkResponse(t *testing.T, r *rig, q request) {
	t.Helper()
	var hints atomic.Int64
	trace := &httptrace.ClientTrace{Got1xxResponse: func(code int, header textproto.MIMEHeader) error {
		if code == http.StatusEarlyHints && header.Get("Link") != "" {
			hints.Add(1)
		}
		return nil
	}}
	q.header = http.Header{"Accept-Encoding": {"gzip"}}
	resp, err := r.send(httptrace.WithClientTrace(t.Context(), trace), q)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || !bytes.Equal(body, []byte("body")) {
		t.Errorf("%s h2 %v: body = %q, %v, want \"body\"", q.path, q.h2, body, err)
	}
	if hints.Load() != 1 {
		t.Errorf("%s h2 %v: early hints = %d, want 1", q.path, q.h2, hints.Load())
	}
	if got := resp.Trailer.Get("X-Sum"); got != "4" {
		t.Errorf("%s h2 %v: trailer X-Sum = %q, want 4", q.path, q.h2, got)
	}
	for name, want := range map[string][]string{
		"Set-Cookie": {"a=1", "b=2"}, "X-Kept": {"yes"}, "Content-Encoding": {"gzip"},
		"X-Hop": nil, "Keep-Alive": nil, "Connection": nil, "X-Routed-Peer": {resp.Header.Get("X-Routed-Peer")},
	} {
		if got := resp.Header[name]; !reflect.DeepEqual(got, want) {
			t.Errorf("%s h2 %v: %s of the answer = %q, want %q", q.path, q.h2, name, got, want)
		}
	}
}

// TestDecisionHeaders: they are off unless asked for, and the peer's can be turned off.
func TestDecisionHeaders(t *testing.T) {
	engine.Each(t, func(t *testing.T, kind engine.Kind) {
		r := start(t, kind, pool{size: 2})
		c := newChat("decision")
		if a := r.chat(c); a.header.Get("X-Cart-Match") != "0.00" {
			t.Errorf("x-cart-match of a miss = %q, want 0.00", a.header.Get("X-Cart-Match"))
		}
		a := r.chat(c.grown("short"))
		if match := a.header.Get("X-Cart-Match"); match < "0.80" || match >= "1.00" {
			t.Errorf("x-cart-match of a chat that grew a little = %q, want 0.80 to 0.99", match)
		}
		if a := r.post("/tokenize", []byte(`{"prompt":"x"}`)); a.reason() != "passthrough" {
			t.Errorf("x-cart-reason of an unrouted path = %q, want passthrough: %+v", a.reason(), a)
		}
		if a := r.post("/v1/chat/completions", []byte("{}")); a.reason() != "empty_text" {
			t.Errorf("x-cart-reason of a body without a prompt = %q, want empty_text", a.reason())
		}
		r.with(engine.Config{"proxy": engine.Config{"addDecisionHeaders": false, "addRoutedPeerHeader": false}})
		a = r.chat(c)
		for _, name := range []string{"X-Routed-Peer", "X-Cart-Reason", "X-Cart-Match"} {
			if got, ok := a.header[name]; ok {
				t.Errorf("%s = %q though it is turned off", name, got)
			}
		}
	})
}
