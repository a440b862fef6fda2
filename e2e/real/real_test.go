package main

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/cart-llm/cart/e2e/chats"
	"github.com/cart-llm/cart/e2e/process"
)

func TestParse(t *testing.T) {
	o, err := parse([]string{"-parts", "restart", "-restart-target", cost, "-workloads", "even"})
	if err != nil || len(o.parts) != 1 || o.rival != cost || len(o.Workloads) != 1 || len(o.Targets) != 7 || o.Seeds != 3 {
		t.Errorf("parse() = %+v, %v", o, err)
	}
	for _, args := range [][]string{{"-parts", "x"}, {"-restart-target", "wrr"}, {"-workloads", "x"}, {"-targets", "x"}} {
		if _, err := parse(args); err == nil {
			t.Errorf("parse(%q) = nil, want an error", args)
		}
	}
}

func TestRecipe(t *testing.T) {
	for _, want := range []string{"\nvllm-cpu==0.32.0\n", "\ntorch==2.13.0\n"} {
		if !strings.Contains(string(requirements), want) {
			t.Errorf("no %q among the requirements", want)
		}
	}
	for i, line := range strings.Split(strings.TrimSpace(string(requirements)), "\n") {
		if !strings.HasPrefix(line, "#") && strings.Count(line, "==") != 1 {
			t.Errorf("line %d pins nothing: %q", i+1, line)
		}
	}
}

// TestRestartReport has a restart of which everything is known judged.
func TestRestartReport(t *testing.T) {
	at := func(seconds float64) time.Time {
		return time.Unix(1000, 0).Add(time.Duration(seconds * float64(time.Second)))
	}
	r := &restarting{
		begin: at(-60), killed: at(0), answered: at(20), used: at(30), ended: at(90),
		server: &process.Process{Ports: []int{7001}}, after: chats.Samples{"cart_retries_total": 2},
	}
	for _, one := range []look{{at(-1), 5000}, {at(10), 5000}, {at(24), 100}, {at(40), 3000}} {
		r.looks.add(one)
	}
	turn := func(from, to float64, cached int, peer string, err error) {
		r.turns = append(r.turns, chats.Turn{Begun: at(from), Whole: at(to).Sub(at(from)), Prompt: 100, Cached: cached, Peer: peer, Err: err})
	}
	broken := errors.New("cut off")
	turn(-10, -9, 90, "", nil)
	turn(-0.5, 0.1, 0, "http://127.0.0.1:7001", broken) // under way on the server
	turn(-0.5, 0.1, 0, "http://127.0.0.1:7002", broken) // under way elsewhere
	turn(10, 11, 50, "", nil)
	turn(31, 32, 60, "", nil)
	turn(80, 81, 92, "", nil)
	var out strings.Builder
	r.report(&out, threshold, "0.1")
	for _, want := range []string{
		"| claims on the server before | 0.0 s | 5000 characters |", "| the new process answers | 20.0 s | claims 5000 |",
		"| claims dropped | 24.0 s | to 100 |", "| it gets its first request | 30.0 s |",
		"| cached tokens, 30s before | | 90.0 % |", "| cached tokens without the server | | 50.0 % |",
		"| cached tokens, 30s after its first request | | 60.0 % |", "| cached tokens, the last 30s | | 92.0 % |",
		"| retries | | 2 |", "nobody can save | | 1 |", "| other errors | | 1 of 6 requests |",
		"- met: claims dropped", "- met: cached share at the end", "- **not met**: errors but for what was under way",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}

func TestRestartReport_nothingHappened(t *testing.T) {
	r := &restarting{killed: time.Now(), server: &process.Process{Ports: []int{1}}}
	r.looks.add(look{r.killed.Add(-time.Second), 10})
	r.looks.add(look{r.killed.Add(time.Second), 11})
	if when, left := r.looks.dropped(r.killed); !when.IsZero() || !math.IsNaN(left) {
		t.Errorf("dropped() = %v, %v, want never", when, left)
	}
	var out strings.Builder
	r.report(&out, threshold, "0.1")
	for _, want := range []string{"| claims dropped | never |", "| it gets its first request | never |", "- **not met**: claims dropped", "- not measured: cached share"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}
