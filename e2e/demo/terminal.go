package main

import (
	"fmt"
	"os"
	"strings"
	"time"
)

// terminal writes the demo's text: with colours and a line that moves on a terminal, plain and sparse elsewhere.
type terminal struct {
	file   *os.File
	live   bool // a line may be written over
	colour bool
	open   bool      // the last line is one that is written over
	next   time.Time // of the next sparse line
}

func newTerminal(f *os.File) *terminal {
	t := &terminal{file: f}
	if info, err := f.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
		t.live = os.Getenv("TERM") != "dumb"
		t.colour = t.live && os.Getenv("NO_COLOR") == ""
	}
	return t
}

// Colours, as parameters of the terminal's SGR sequence.
const (
	bold  = "1"
	dim   = "2"
	red   = "31"
	green = "32"
)

func (t *terminal) paint(colour, text string) string {
	if !t.colour {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}

func (t *terminal) printf(format string, args ...any) {
	if t.open {
		fmt.Fprintln(t.file)
		t.open = false
	}
	fmt.Fprintf(t.file, format, args...)
}

// over writes a line in place of the one before, if that was written by over too.
func (t *terminal) over(line string) {
	fmt.Fprint(t.file, "\r"+line+"\x1b[K")
	t.open = true
}

func (t *terminal) introduce(w *workload) {
	t.printf("%s\n\n", t.paint(bold, "CART: what cache-aware routing is worth"))
	t.printf("A prompt that begins like an earlier one is cheap on the replica that has seen it, and dear on any other.\n" +
		"This demo puts the official Traefik, with CART as its plugin, before simulated vLLM replicas, and has the same\n" +
		"conversations twice: once spread by round-robin, once routed by CART. It takes about 45 seconds, and all\n" +
		"its traffic stays on 127.0.0.1.\n\n")
	t.printf("  %-12s %d, each with %s uncached prompt tokens a second and room for %s in its cache\n", "replicas",
		replicas, thousands(prefillRate), thousands(cacheTokens))
	t.printf("  %-12s %d tenants with a long system prompt each, %d conversations a tenant, %d turns each:\n", "load",
		tenants, conversations, turns)
	t.printf("  %-12s %d streamed requests, %d conversations at a time\n", "", w.requests(), clients)
	t.headline("Starting")
}

func (t *terminal) headline(text string) { t.printf("\n%s\n\n", t.paint(bold, text)) }

func (t *terminal) item(name, text string) {
	if t.open {
		fmt.Fprint(t.file, "\r\x1b[K")
		t.open = false
	}
	t.printf("  %s %-12s %s\n", t.paint(green, "✓"), name, text)
}

func (t *terminal) waiting(name, text string) {
	if t.live {
		t.over(t.paint(dim, fmt.Sprintf("  … %-12s %s", name, text)))
	}
}

// sparseEvery is the time between two progress lines where lines cannot be written over.
const sparseEvery = 5 * time.Second

func (t *terminal) progress(w way, work *workload, o *outcome) {
	if t.live {
		t.over(t.progressLine(w, work, o))
		return
	}
	if now := time.Now(); now.After(t.next) {
		if !t.next.IsZero() {
			t.printf("%s\n", t.progressLine(w, work, o))
		}
		t.next = now.Add(sparseEvery)
	}
}

// endProgress leaves the last state of the line.
func (t *terminal) endProgress(w way, work *workload, o *outcome) {
	if t.live {
		t.over(t.progressLine(w, work, o))
	} else {
		t.printf("%s", t.progressLine(w, work, o))
	}
	fmt.Fprintln(t.file)
	t.open, t.next = false, time.Time{}
}

// progressLine is at most 79 columns wide, so that it never wraps.
func (t *terminal) progressLine(w way, work *workload, o *outcome) string {
	const width = 16
	filled := o.done() * width / work.requests()
	bar := t.paint(green, strings.Repeat("█", filled)) + t.paint(dim, strings.Repeat("░", width-filled))
	return fmt.Sprintf("  %-10s %s %4d/%d %5.1f s   hits %2.0f%%   TTFT %s", w.policy, bar, o.done(), work.requests(),
		o.elapsed().Seconds(), 100*o.hitRatio(), duration(o.mean()))
}

func duration(d time.Duration) string {
	if d < 10*time.Second {
		return fmt.Sprintf("%d ms", d.Milliseconds())
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}

func thousands(n int) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%s,%03d", thousands(n/1000), n%1000)
}
