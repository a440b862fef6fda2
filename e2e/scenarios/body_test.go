package scenarios

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"net/http"
	"testing"

	"github.com/cart-llm/cart/e2e/engine"
	"github.com/cart-llm/cart/e2e/replica"
)

const (
	kib = 1 << 10
	mib = 1 << 20
)

// TestBodyUntouched: what arrives at the replica is byte for byte what the client sent, framed in the same way.
func TestBodyUntouched(t *testing.T) {
	engine.Each(t, func(t *testing.T, kind engine.Kind) {
		r := start(t, kind, pool{size: 1})
		all := randomBytes(64 * mib)
		sizes := []int{0, 1, kib, mib, 16 * mib, 64 * mib}
		if raceDetector {
			sizes = sizes[:5] // the largest takes 10 s with it
		}
		for _, size := range sizes {
			for _, chunked := range []bool{false, true} {
				checkBody(t, r, request{path: "/v1/chat/completions", body: all[:size], chunked: chunked})
			}
		}
		checkBody(t, r, request{path: "/v1/messages", body: all[:mib], h2: true})
		checkBody(t, r, request{path: "/v1/messages", body: all[:mib], h2: true, chunked: true})
		for _, body := range oddBodies {
			checkBody(t, r, request{path: "/v1/chat/completions", body: []byte(body)})
		}
		// Not routed: streamed through, beyond the limit for the routed ones too.
		checkBody(t, r, request{path: "/tokenize", body: randomBytes(65 * mib)})
		checkBody(t, r, request{path: "/tokenize", body: all[:mib], chunked: true})
		r.waitIdle()
	})
}

// oddBodies are valid and broken JSON that a decoder and encoder would not give back as it was.
var oddBodies = []string{
	"{\"messages\" : [ {\"content\":\"a\\u00e9\\/\",\"role\":\"user\"} ],\t\"model\":\"sim\", \"n\":1.0, \"n\":1e2}\r\n",
	`{"model":"sim","messages":[{"role":"user","content":"\ud83d\ude00 😀 \u0000"}],"max_tokens":4,"zeta":1,"alpha":12345678901234567890}`,
	`{"model":"sim","messages":[{"role":"user","content":"cut off`,
	"\xef\xbb\xbf{\"model\":\"sim\"}", "\xff\xfe\x00 not JSON", "null", "   ",
}

func checkBody(t *testing.T, r *rig, q request) {
	t.Helper()
	q.method = http.MethodPost
	one := r.replicas[0]
	what := fmt.Sprintf("%s with %d bytes, chunked %v, h2 %v", q.path, len(q.body), q.chunked, q.h2)
	before := len(exchanges(one, q.path))
	a := r.do(q)
	if a.err != nil || a.status >= 500 {
		t.Errorf("%s = %d, %v, want an answer of the replica", what, a.status, a.err)
		return
	}
	seen := exchanges(one, q.path)
	if len(seen) != before+1 {
		t.Errorf("%s: %d requests at the replica, want 1", what, len(seen)-before)
		return
	}
	x := seen[len(seen)-1]
	if sum := sha256.Sum256(q.body); x.BodySHA256 != hex.EncodeToString(sum[:]) || x.BodyBytes != int64(len(q.body)) {
		t.Errorf("%s: the replica got %d bytes, want the same %d: SHA-256 %s", what, x.BodyBytes, len(q.body), x.BodySHA256)
	}
	if !q.chunked && x.ContentLength != int64(len(q.body)) {
		t.Errorf("%s: Content-Length at the replica = %d, want %d", what, x.ContentLength, len(q.body))
	}
}

// TestBodyTooLarge: above the limit the client gets a clean 413 and no replica sees the request.
func TestBodyTooLarge(t *testing.T) {
	engine.Each(t, func(t *testing.T, kind engine.Kind) {
		r := start(t, kind, pool{size: 1})
		body := bytes.Repeat([]byte("x"), 65*mib)
		sizes := []int{64*mib + 1, 65 * mib}
		if raceDetector {
			sizes = sizes[:1]
		}
		for _, size := range sizes {
			for _, chunked := range []bool{false, true} {
				a := r.do(request{method: "POST", path: "/v1/chat/completions", body: body[:size], chunked: chunked})
				if a.err != nil || a.status != http.StatusRequestEntityTooLarge {
					t.Errorf("POST of %d bytes, chunked %v = %d, %v, want 413", size, chunked, a.status, a.err)
					continue
				}
				checkOpenAIError(t, a)
			}
		}
		a := r.do(request{method: "POST", path: "/v1/messages", body: body, h2: true})
		if a.err != nil || a.status != http.StatusRequestEntityTooLarge {
			t.Errorf("POST of 65 MiB over HTTP/2 = %d, %v, want 413", a.status, a.err)
		} else {
			checkAnthropicError(t, a)
		}
		if got := len(generations(r.replicas[0])); got != 0 {
			t.Errorf("requests at the replica = %d, want 0", got)
		}
	})
}

// TestBodySurvivesRetry: the second replica gets the whole body again.
func TestBodySurvivesRetry(t *testing.T) {
	engine.Each(t, func(t *testing.T, kind engine.Kind) {
		r := start(t, kind, pool{size: 2, config: noProbes})
		c := newChat("retry").body()
		first := r.mustPost("/v1/chat/completions", c)
		broken := r.at(first.peer())
		for _, f := range []replica.Fault{
			{Kind: replica.CutBody, Bytes: 1000}, // dies while it reads
			{Kind: replica.Cut},                  // dies instead of an answer
			{Kind: replica.Status, Status: 503},
		} {
			if err := broken.SetFault(f); err != nil {
				t.Fatal(err)
			}
			for _, chunked := range []bool{false, true} {
				a := r.do(request{method: "POST", path: "/v1/chat/completions", body: c, chunked: chunked})
				healthy := generations(r.other(broken.URL()))
				if a.status != 200 || len(healthy) == 0 {
					t.Fatalf("POST with %s at one replica = %d %s, %v, want 200", f.Kind, a.status, a.body, a.err)
				}
				if got := healthy[len(healthy)-1].Body; !bytes.Equal(got, c) {
					t.Errorf("body at the second replica after %s has %d bytes, want the same %d", f.Kind, len(got), len(c))
				}
			}
		}
	})
}

func randomBytes(n int) []byte {
	out := make([]byte, n)
	random := rand.New(rand.NewPCG(1, 2))
	for i := 0; i+8 <= n; i += 8 {
		v := random.Uint64()
		for j := 0; j < 8; j++ {
			out[i+j] = byte(v >> (8 * j))
		}
	}
	return out
}
