package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/cart-llm/cart/e2e/process"
	"github.com/cart-llm/cart/e2e/report"
)

// TestMain lets the test binary play the roles that bench starts from its own.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && (os.Args[1] == roleBackends || os.Args[1] == roleCart) {
		if err := playRole(os.Args[1], os.Args[2:]); err != nil {
			os.Stderr.WriteString(err.Error())
			os.Exit(process.ExitFailed)
		}
		return
	}
	os.Exit(m.Run())
}

// prompt is what any shape's body may have.
type prompt struct {
	Model    string
	Prompt   string
	Tools    []json.RawMessage
	System   []json.RawMessage
	Messages []struct {
		Role    string
		Content json.RawMessage
	}
}

func nextBody(t *testing.T, talk *talk) (prompt, int) {
	t.Helper()
	body, length := talk.next()
	text, err := io.ReadAll(body)
	if err != nil || len(text) != length {
		t.Fatalf("a body of %d bytes, %v; told were %d", len(text), err, length)
	}
	var p prompt
	if err := json.Unmarshal(text, &p); err != nil {
		t.Fatalf("%v in %.2000s", err, text)
	}
	return p, length
}

func TestConversationsGrow(t *testing.T) {
	for _, sh := range allShapes {
		for _, size := range []int{1 << 10, 32 << 10, 128 << 10} {
			w := newWorkload(sh, size)
			if mean := w.meanBody(); size > 4<<10 && math.Abs(float64(mean)/float64(size)-1) > 0.05 {
				t.Errorf("%s, %d: mean body %d", sh.name, size, mean)
			}
			talk := newTalk(w)
			var before prompt
			lengthBefore := 0
			for turn := 0; turn < turns; turn++ {
				now, length := nextBody(t, talk)
				if now.Model != "m1" || length <= lengthBefore {
					t.Errorf("%s, %d: turn %d has model %q and %d bytes after %d", sh.name, size, turn, now.Model, length, lengthBefore)
				}
				if strings.HasPrefix(sh.name, "tools") && len(now.Tools) != tools || sh.name == "messages" && len(now.System) != 2 {
					t.Errorf("%s: %d tools, %d system blocks", sh.name, len(now.Tools), len(now.System))
				}
				if !strings.HasPrefix(now.Prompt, before.Prompt) {
					t.Errorf("%s, %d: turn %d does not begin with the one before", sh.name, size, turn)
				}
				for i, m := range before.Messages {
					// Only the mark moves on.
					was := bytes.Replace(m.Content, []byte(`,"cache_control":{"type":"ephemeral"}`), nil, 1)
					is := bytes.Replace(now.Messages[i].Content, []byte(`,"cache_control":{"type":"ephemeral"}`), nil, 1)
					if !bytes.Equal(was, is) {
						t.Fatalf("%s, %d: message %d changed in turn %d", sh.name, size, i, turn)
					}
				}
				before, lengthBefore = now, length
			}
		}
	}
}

func TestConversationsDiffer(t *testing.T) {
	w := newWorkload(allShapes[0], 32<<10)
	seen := map[string]bool{}
	systems := map[string]bool{}
	for range 3 * tenants {
		talk := newTalk(w)
		p, _ := nextBody(t, talk)
		systems[string(p.Messages[0].Content)] = true
		first := string(p.Messages[1].Content[:1+stampLen])
		if seen[first] {
			t.Errorf("two conversations begin with %s", first)
		}
		seen[first] = true
	}
	if len(systems) != tenants {
		t.Errorf("%d system prompts, want %d", len(systems), tenants)
	}
}

func TestLimits(t *testing.T) {
	o, err := parseOptions([]string{"-quick", "-sizes", "32k"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	r := &results{cells: map[cell]*tally{}}
	for name, each := range map[string]time.Duration{interpreted: 3 * time.Millisecond, sglangRouter: 2 * time.Millisecond, wrr: 4 * time.Millisecond} {
		for _, conc := range []int{1, 32} {
			n := int(time.Second / each)
			all := make([]time.Duration, n)
			for i := range all {
				all[i] = each
			}
			r.cells[cell{allShapes[0], 32 << 10, conc, name}] = &tally{latency: all, clock: time.Second}
		}
	}
	var out bytes.Buffer
	report.Limits(&out, limits(r, o))
	for _, want := range []string{
		"- **not met**: 1. chat, 32 KB, 32 clients: req/s >= 1 x sglang-router: 0.67 (333 / 500)",
		"- not measured: 1. chat, 32 KB, 32 clients: req/s >= 2 x vllm-router",
		"- **not met**: 2. 32 KB, 1 client: chat, p50 <= 1 x sglang-router: 1.50 (3000 / 2000 us)",
		"- met: 2. 32 KB, 1 client: chat, p50 <= 1.4 x wrr: 0.75 (3000 / 4000 us)",
		"2 of 4 limits measured are met.",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}

func TestOptions(t *testing.T) {
	for _, args := range [][]string{{"-sizes", "0"}, {"-shapes", "x"}, {"-targets", "x"}, {"-rounds", "0"}, {"-streams", "-memory"}, {"x"}} {
		if _, err := parseOptions(args, io.Discard); err == nil {
			t.Errorf("parseOptions(%q) = nil, want an error", args)
		}
	}
}

func TestRun(t *testing.T) {
	o, err := parseOptions([]string{"-quick", "-targets", "direct,cart-compiled", "-shapes", "chat,messages", "-sizes", "1k", "-conc", "2",
		"-rounds", "2", "-dur", "50ms"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	s := &stage{progress: io.Discard}
	var out bytes.Buffer
	err = benchTargets(context.Background(), s, o, &out)
	if downErr := s.tearDown(); err != nil || downErr != nil {
		t.Fatal(err, downErr)
	}
	for _, want := range []string{"## chat, 2 clients", "## messages, 2 clients", "| 1 KB | direct |", "| 1 KB | cart-compiled |"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	for _, line := range strings.Split(out.String(), "\n") {
		if fields := strings.Split(line, "|"); strings.HasPrefix(line, "| 1 KB") && strings.TrimSpace(fields[8]) != "0" {
			t.Errorf("errors in %s", line)
		}
	}
}
