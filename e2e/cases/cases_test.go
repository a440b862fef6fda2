// Package cases runs the public bug reports of routers, gateways, engines and clients of this field against the plugin, on
// every engine. testdata/cases.json has the simple ones in a machine form, the other files the rest as Go; each test bears
// its case's id. testdata/cases.list has all ids.
package cases

import (
	"os"
	"sort"
	"strconv"
	"testing"

	"github.com/cart-llm/cart/e2e/engine"
)

// test is what runs a case; a case may have several parts.
type test struct {
	id  string
	run func(t *testing.T, s *stage)
}

// tests are the cases in Go. Each file with such cases adds its own in its init.
var tests []test

// TestCases runs every case on every engine. A case in the machine form may have parts in Go besides.
func TestCases(t *testing.T) {
	parts := map[string][]test{}
	for _, c := range formCases(t) {
		parts[c.ID] = append(parts[c.ID], test{c.ID, c.run})
	}
	for _, c := range tests {
		parts[c.id] = append(parts[c.id], c)
	}
	var ids []string
	for id := range parts {
		ids = append(ids, id)
	}
	sort.Strings(ids)
	kinds := []engine.Kind{engine.Compiled, engine.Traefik}
	if only := engine.Kind(os.Getenv("ENGINE")); only != "" {
		kinds = []engine.Kind{only}
		if only == engine.Yaegi {
			return // the official Traefik is the interpreter here
		}
	}
	for _, kind := range kinds {
		t.Run(string(kind), func(t *testing.T) {
			s := newStage(t, kind)
			skipped := countSkips(t)
			for _, id := range ids {
				t.Run(id, func(t *testing.T) { runParts(t, s, parts[id], skipped) })
			}
		})
	}
}

func runParts(t *testing.T, s *stage, parts []test, skipped *skips) {
	skipped.watch(t, parts[0].id)
	if len(parts) == 1 {
		parts[0].run(t, s)
		return
	}
	for i, p := range parts {
		t.Run(strconv.Itoa(i+1), func(t *testing.T) {
			skipped.watch(t, p.id)
			p.run(t, s)
		})
	}
}
