// Package cases runs the public bug reports of routers, gateways, engines and clients of this field against the plugin, on
// every engine. testdata/cases.json has the simple ones in a machine form, the other files the rest as Go; each test bears
// its case's id. testdata/cases.list has all ids.
package cases

import (
	"os"
	"testing"

	"github.com/cart-llm/cart/e2e/engine"
)

// test is what runs a case; a case may have several parts.
type test struct {
	id  string
	run func(t *testing.T, s *stage)
}

// TestCases runs every case on every engine.
func TestCases(t *testing.T) {
	forms := formCases(t)
	kinds := []engine.Kind{engine.Compiled, engine.Traefik}
	if only := os.Getenv("ENGINE"); only != "" {
		kinds = []engine.Kind{engine.Kind(only)}
	}
	for _, kind := range kinds {
		t.Run(string(kind), func(t *testing.T) {
			s := newStage(t, kind)
			for _, c := range forms {
				t.Run(c.ID, func(t *testing.T) { c.run(t, s) })
			}
		})
	}
}
