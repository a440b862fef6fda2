package cases

import (
	"os"
	"strings"
	"sync"
	"testing"
)

// maxSkips is how many cases may be skipped, each for a reason, on one engine.
const maxSkips = 3

// listed reads testdata/cases.list: how each id is run.
func listed(t testing.TB) map[string]string {
	t.Helper()
	text, err := os.ReadFile("testdata/cases.list")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, line := range strings.Split(string(text), "\n") {
		fields := strings.Split(line, "\t")
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if len(fields) != 3 || out[fields[0]] != "" {
			t.Fatalf("cases.list: line %q", line)
		}
		out[fields[0]] = fields[1]
	}
	return out
}

// TestList: every case that is listed has a test, in the way that the list says, and there is no other.
func TestList(t *testing.T) {
	list := listed(t)
	if len(list) != 91 {
		t.Errorf("cases.list has %d cases, want 91", len(list))
	}
	have := map[string]string{}
	for _, c := range tests {
		have[c.id] = "go"
	}
	for _, c := range formCases(t) {
		have[c.ID] = "form" // perhaps with parts in Go
	}
	for id, how := range list {
		if have[id] != how {
			t.Errorf("case %s is run by %q, want %q", id, have[id], how)
		}
	}
	for id := range have {
		if list[id] == "" {
			t.Errorf("case %s is not in cases.list", id)
		}
	}
}

// skips counts the cases that are skipped on one engine, and fails the test of the engine when they are too many.
type skips struct {
	mu  sync.Mutex
	ids map[string]bool
}

func countSkips(t *testing.T) *skips {
	s := &skips{ids: map[string]bool{}}
	t.Cleanup(func() {
		if len(s.ids) > maxSkips {
			t.Errorf("%d cases were skipped, at most %d may be: %v", len(s.ids), maxSkips, s.ids)
		}
	})
	return s
}

// watch counts the case when its test, or this part of it, is skipped.
func (s *skips) watch(t *testing.T, id string) {
	t.Cleanup(func() {
		if t.Skipped() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.ids[id] = true
		}
	})
}
