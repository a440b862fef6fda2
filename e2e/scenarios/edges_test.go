package scenarios

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cart-llm/cart/e2e/engine"
	"github.com/cart-llm/cart/e2e/replica"
)

// TestPassthroughWhenOneIsDead: requests that are not routed find the replica that lives too, with their bodies.
func TestPassthroughWhenOneIsDead(t *testing.T) {
	engine.Each(t, func(t *testing.T, kind engine.Kind) {
		r := start(t, kind, pool{size: 2, config: engine.Merged(noProbes, engine.Config{
			"circuitBreaker": engine.Config{"failureThreshold": 100}, "proxy": engine.Config{"initialBackoff": "1ms"},
		})})
		r.replicas[0].Kill()
		for i := 0; i < 10; i++ {
			for _, q := range []request{
				{path: "/metrics"},
				{method: "POST", path: "/tokenize", body: []byte(`{"prompt":"some text"}`)},
				{method: "POST", path: "/tokenize", body: []byte(`{"prompt":"some text"}`), chunked: true},
			} {
				if a := r.do(q); a.err != nil || a.status != http.StatusOK {
					t.Errorf("%s %s with one of two replicas dead = %d %s, %v, want 200", q.method, q.path, a.status, a.body, a.err)
				}
			}
		}
	})
}

// TestRestart: a replica that was started anew at its address serves at once, though its old connections are dead.
func TestRestart(t *testing.T) {
	engine.Each(t, func(t *testing.T, kind engine.Kind) {
		r := start(t, kind, pool{size: 1, config: noProbes})
		for i := 0; i < 5; i++ {
			r.chat(newChat("again"))
			r.replicas[0].Kill()
			if err := r.replicas[0].Restart(); err != nil {
				t.Fatal(err)
			}
		}
		r.chat(newChat("again"))
	})
}

// TestTimeouts: each of the waits has its end, and a living stream has none but the one for silence.
func TestTimeouts(t *testing.T) {
	t.Parallel() // it mostly waits
	engine.Each(t, func(t *testing.T, kind engine.Kind) {
		r := start(t, kind, pool{size: 1, options: replica.Options{DecodeRate: 20}})
		one := r.replicas[0]
		set := func(f replica.Fault, proxy engine.Config) {
			t.Helper()
			if err := one.SetFault(f); err != nil {
				t.Fatal(err)
			}
			reset := engine.Config{"firstByteTimeout": "0", "requestTimeout": "0", "streamIdleTimeout": "300ms"}
			r.with(engine.Config{"proxy": engine.Merged(reset, proxy)})
		}
		for _, key := range []string{"firstByteTimeout", "requestTimeout"} {
			set(replica.Fault{Kind: replica.Hang}, engine.Config{key: "300ms"})
			began := time.Now()
			a := r.post("/v1/chat/completions", newChat(key).body())
			if took := time.Since(began); a.status != http.StatusGatewayTimeout || took > 2*time.Second {
				t.Errorf("POST to a hanging replica with %s = %d after %v, want 504 after 300 ms", key, a.status, took)
			}
		}

		set(replica.Fault{Kind: replica.Slow, EventDelay: 3 * time.Second}, nil)
		began := time.Now()
		a := r.post("/v1/chat/completions", newChat("silent").stream().body())
		if took := time.Since(began); a.status != 200 || a.err == nil || took > 2*time.Second {
			t.Errorf("a stream that falls silent = %d, %v after %v, want 200 and broken off after 300 ms", a.status, a.err, took)
		}

		// A silence that is meant, and none that a slow machine makes.
		set(replica.Fault{Kind: replica.Slow, Delay: 1500 * time.Millisecond}, engine.Config{"streamIdleTimeout": "1s"})
		if a := r.post("/v1/chat/completions", newChat("long").stream().tokens(20).body()); a.err != nil || !strings.Contains(string(a.body), "[DONE]") {
			t.Errorf("a stream of a second that starts late = %d, %v after %d bytes, want it whole", a.status, a.err, len(a.body))
		}

		// From a minute on it is not each read that is timed, but the body is asked now and then. Here, that this harms nobody; that
		// it ends what is silent takes three minutes: FULL=1.
		set(replica.Fault{Kind: replica.Slow, EventDelay: 1500 * time.Millisecond}, engine.Config{"streamIdleTimeout": "1m"})
		if a := r.post("/v1/chat/completions", newChat("slow").stream().tokens(2).body()); a.err != nil || !strings.Contains(string(a.body), "[DONE]") {
			t.Errorf("a stream of slow events = %d, %v after %d bytes, want it whole", a.status, a.err, len(a.body))
		}
		if os.Getenv("FULL") != "" {
			set(replica.Fault{Kind: replica.Slow, EventDelay: 5 * time.Minute}, engine.Config{"streamIdleTimeout": "1m"})
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
			defer cancel()
			began = time.Now()
			resp, err := r.send(ctx, request{method: http.MethodPost, path: "/v1/chat/completions", body: newChat("silent").stream().body()})
			if err != nil {
				t.Fatal(err)
			}
			_, err = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
			if took := time.Since(began); err == nil || took < time.Minute || took > 4*time.Minute {
				t.Errorf("a stream that falls silent = %v after %v, want it broken off after three minutes or a little more", err, took)
			}
		}
		r.waitIdle()
	})
}

// TestUploadBreaksOff: a client that leaves while it sends its body costs no replica anything.
func TestUploadBreaksOff(t *testing.T) {
	engine.Each(t, func(t *testing.T, kind engine.Kind) {
		r := start(t, kind, pool{size: 1})
		for _, framing := range []string{"Content-Length: 1000\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n3e8\r\n"} {
			c, err := net.Dial("tcp", strings.TrimPrefix(r.e.URL(), "http://"))
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(c, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n%s{\"messages\":[", framing)
			if err := c.(*net.TCPConn).CloseWrite(); err != nil {
				t.Fatal(err)
			}
			if err := c.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
				t.Fatal(err)
			}
			// Whether the server still says anything is its affair; that it ends the connection is not.
			if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("the connection of a broken upload is still open after 5 s")
			}
			c.Close()
		}
		r.waitIdle()
		if got := len(generations(r.replicas[0])); got != 0 {
			t.Errorf("requests at the replica = %d, want 0", got)
		}
		if w := r.state().Workers[0]; w.Requests != 0 || w.Failures != 0 {
			t.Errorf("/workers after broken uploads = %+v, want no requests and no failures", w)
		}
	})
}

// TestWorkerAddress: a base path is kept, and credentials are used but never shown.
func TestWorkerAddress(t *testing.T) {
	engine.Each(t, func(t *testing.T, kind engine.Kind) {
		r := start(t, kind, pool{size: 1, config: noProbes})
		one := r.replicas[0]
		host := strings.TrimPrefix(one.URL(), "http://")
		r.with(engine.Config{"workers": workersOf("http://user:secret@" + host + "/base%2Fpath/")})
		a := r.post("/v1/chat/completions?q=1", newChat("x").body())
		if want := "http://" + host + "/base%2Fpath"; a.peer() != want {
			t.Errorf("x-routed-peer = %q, want %q", a.peer(), want)
		}
		seen := one.Requests()
		x := seen[len(seen)-1]
		if want := "/base%2Fpath/v1/chat/completions?q=1"; x.Target != want {
			t.Errorf("target at the replica = %q, want %q", x.Target, want)
		}
		if want := "Basic dXNlcjpzZWNyZXQ="; x.Header.Get("Authorization") != want {
			t.Errorf("Authorization at the replica = %q, want %q", x.Header.Get("Authorization"), want)
		}
		if w := r.get("/workers"); strings.Contains(string(w.body), "secret") {
			t.Errorf("GET /workers = %s, want no password in it", w.body)
		}
	})
}

// TestAPIKeyFile: the key in a file is sent to the replica in place of the client's.
func TestAPIKeyFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, []byte("sk-engine\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	engine.Each(t, func(t *testing.T, kind engine.Kind) {
		r := start(t, kind, pool{size: 1, config: noProbes})
		r.with(engine.Config{"workers": []any{engine.Config{"url": r.replicas[0].URL(), "apiKeyFile": file}}})
		header := http.Header{"Authorization": {"Bearer sk-client"}}
		r.do(request{method: "POST", path: "/v1/chat/completions", header: header, body: newChat("x").body()})
		if got := generations(r.replicas[0])[0].Header["Authorization"]; len(got) != 1 || got[0] != "Bearer sk-engine" {
			t.Errorf("Authorization at the replica = %q, want Bearer sk-engine", got)
		}
		r.with(engine.Config{"workers": []any{engine.Config{"url": r.replicas[0].URL(), "apiKeyFile": file + ".not"}}})
		if why := r.e.MiddlewareError("cart"); !strings.Contains(why, "apiKeyFile") {
			t.Errorf("error for a missing key file = %q, want apiKeyFile in it", why)
		}
	})
}

// TestSeparateSpaces: prompts of another model or cache salt share nothing.
func TestSeparateSpaces(t *testing.T) {
	engine.Each(t, func(t *testing.T, kind engine.Kind) {
		r := start(t, kind, pool{size: 4})
		body := func(model, salt string) []byte {
			b := string(newChat("same text").body())
			b = strings.Replace(b, `"model":"sim"`, `"model":"`+model+`"`, 1)
			return []byte(strings.Replace(b, `"max_tokens"`, `"cache_salt":"`+salt+`","max_tokens"`, 1))
		}
		for _, space := range [][2]string{{"a", "1"}, {"b", "1"}, {"a", "2"}} {
			for _, want := range []string{"miss", "cache_hit"} {
				if a := r.mustPost("/v1/chat/completions", body(space[0], space[1])); a.reason() != want {
					t.Errorf("reason for model %s, salt %s = %s, want %s", space[0], space[1], a.reason(), want)
				}
			}
		}
	})
}
