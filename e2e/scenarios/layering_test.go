package scenarios

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cart-llm/cart/e2e/engine"
)

// TestGeneratedFile: the list of servers is a file that a program writes, the middleware with its tuning another one that
// a person writes. Whichever way the program writes, whole or piece by piece, no request is lost and nothing forgotten.
func TestGeneratedFile(t *testing.T) {
	if !engine.Selected(engine.Traefik) {
		t.Skip("runs on the engine traefik only: it is about its file provider")
	}
	e := engine.StartOfficial(t, nil, 0)
	r := &rig{t: t, e: e}
	var urls []string
	tickers := map[string]*ticker{}
	for range 3 {
		one := startTicker(t)
		tickers[one.URL] = one
		urls = append(urls, one.URL)
	}
	stays := urls[0]
	if err := e.Write("workers.yml", generated(urls...)); err != nil {
		t.Fatal(err)
	}
	r.config = engine.Merged(plainConfig, engine.Config{
		"workers": []any{engine.Config{"url": stays, "maxLoad": 17}},
		"discovery": engine.Config{
			// Looks follow Traefik's reloads; the long interval leaves even a slow machine time to complete a file.
			"service": "vllm@file", "interval": "20s", "api": engine.Config{"address": e.URLAPI()},
		},
	})
	r.setup = engine.Setup{
		Middlewares: map[string]engine.Config{"cart": r.config},
		Routers:     map[string]engine.Router{"cart": {Middleware: "cart"}},
	}
	r.reload()
	r.waitServed()
	r.waitListed(urls...)
	if w, _ := r.state().worker(stays); w.MaxLoad != 17 {
		t.Errorf("maxLoad of a replica that the other file tunes = %d, want 17", w.MaxLoad)
	}
	kept := r.promptAt(stays)
	h := r.hold(kept.tokens(150))
	crowd := r.crowd(6)

	// The same list again, as a careless program writes it: at each point to which it may have come, Traefik reads it.
	whole := generated(urls...)
	for _, c := range cuts(whole) {
		if err := e.Rewrite("workers.yml", 25*time.Millisecond, whole[:c.at]); err != nil {
			t.Fatal(err)
		}
		if c.good {
			r.waitState(10*time.Second, func(s poolState) error {
				if len(s.Discovery.Leaving) == 0 {
					return fmt.Errorf("with half a file nothing is said to be leaving: %q", whole[:c.at])
				}
				return nil
			})
			crowd.more(t, 5)
		}
		if err := e.Write("workers.yml", whole); err != nil {
			t.Fatal(err)
		}
		if c.good {
			r.waitBack(urls...)
		} else {
			time.Sleep(50 * time.Millisecond)
		}
	}
	// Other lists, whole and piece by piece in turn.
	for i := range 8 {
		next := generated(stays, urls[1+i%2])
		if i%4 < 2 {
			if err := e.Write("workers.yml", next); err != nil {
				t.Fatal(err)
			}
		} else {
			lines := strings.SplitAfter(next, "\n")
			if err := e.Rewrite("workers.yml", 10*time.Millisecond, lines...); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(100 * time.Millisecond)
	}
	if err := e.Write("workers.yml", whole); err != nil {
		t.Fatal(err)
	}
	r.waitBack(urls...)
	checkTicks(t, h, 150)
	crowd.stop()
	r.waitIdle()
	if a := r.chat(kept); a.peer() != stays || a.reason() != "cache_hit" {
		t.Errorf("a prompt known before went to %s (%s), want %s (cache_hit)", a.peer(), a.reason(), stays)
	}
	if why := r.e.MiddlewareError("cart"); why != "" {
		t.Errorf("error of the middleware = %q, want none", why)
	}
}

// waitBack waits until these are among the replicas and not about to leave.
func (r *rig) waitBack(urls ...string) {
	r.t.Helper()
	r.waitState(10*time.Second, func(s poolState) error {
		for _, url := range urls {
			if !slices.Contains(listedIn(s), url) || slices.Contains(s.Discovery.Leaving, url) {
				return fmt.Errorf("replicas = %q, leaving %q, want %s to stay", listedIn(s), s.Discovery.Leaving, url)
			}
		}
		return nil
	})
}

// generated is the file of a program: the service vllm with these servers.
func generated(urls ...string) string {
	var text strings.Builder
	text.WriteString("http:\n  services:\n    vllm:\n      loadBalancer:\n        servers:\n")
	for _, url := range urls {
		fmt.Fprintf(&text, "          - url: %s\n", url)
	}
	return text.String()
}

// cut is a length to which a file may have come when it is read.
type cut struct {
	at   int
	good bool // what is there is a list that differs from the whole
}

// cuts are ends of lines, and places within them. Of a port there may be the first digit, at which nobody listens; with
// more of them it may be somebody else's.
func cuts(text string) []cut {
	var out []cut
	lines := strings.SplitAfter(text, "\n")
	at := 0
	for _, line := range lines {
		port := strings.LastIndexByte(line, ':') + 1
		if strings.Contains(line, "url: ") {
			more := strings.Contains(text[:at], "url: ")
			out = append(out, cut{at, more}, cut{at + len("          - ur"), false}, cut{at + port, false}, cut{at + port + 1, true})
		} else {
			out = append(out, cut{at, false}, cut{at + len(line)/2, false})
		}
		at += len(line)
	}
	return out[:len(out)-2] // not at the end: there is no line
}
