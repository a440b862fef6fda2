// Package migrate turns configurations of the Rust cache-aware-router into Traefik's static and dynamic ones with CART.
package migrate

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/cart-llm/cart"
	"github.com/cart-llm/cart/cmd/internal/layer"
	"github.com/cart-llm/cart/cmd/internal/traefik"
)

// Options tell how to migrate.
type Options struct {
	// Inline puts the list of workers into the middleware, in place of a service of its own that an external generator may
	// rewrite and that the middleware finds through Traefik's API.
	Inline bool
	// API is where Traefik's API is to listen, host:port; "" = its usual port on this machine, or the next where that is taken.
	API string
}

// Result is a migrated configuration.
type Result struct {
	Files []File
	// Account has a line for each key of the source: where it went, or that it did not.
	Account []Line
	// Faults are what the plugin refuses in the result.
	Faults []string
}

// File is one of the generated files. Its name may have a folder in it.
type File struct {
	Name    string
	Content []byte
}

// Line tells what became of a key.
type Line struct {
	At    layer.Position
	Key   string
	Value string
	What  string
	Lost  bool // somebody has to see to it
}

func (l Line) String() string {
	where := l.At.String() + ": "
	if l.At.File == "" {
		where = ""
	}
	if l.Value != "" {
		return fmt.Sprintf("%s%s = %s: %s", where, l.Key, l.Value, l.What)
	}
	return fmt.Sprintf("%s%s: %s", where, l.Key, l.What)
}

// rank is that of the file: in the order given, and what is in none of them last.
func (l Line) rank(names []string) int {
	if i := slices.Index(names, l.At.File); i >= 0 {
		return i
	}
	return len(names)
}

// Lost tells whether something of the source is not in the result.
func (r *Result) Lost() bool {
	return len(r.Faults) > 0 || slices.ContainsFunc(r.Account, func(l Line) bool { return l.Lost })
}

// Files reads the files, lays them over each other as the Rust router does, and migrates the result.
func Files(names []string, o Options) (*Result, error) {
	var source *layer.Node
	for _, name := range names {
		documents, mistakes := layer.Read(name, func([]*layer.Node) bool { return false })
		if len(mistakes) > 0 {
			return nil, mistakes[0]
		}
		for _, document := range documents {
			source = layer.Merge(source, document)
		}
	}
	if source.Null() {
		return nil, fmt.Errorf("%s: there is no configuration in it", strings.Join(names, ", "))
	}
	if source.Get("http") != nil || source.Get("entryPoints") != nil || source.Get("apiVersion") != nil {
		return nil, fmt.Errorf("%s: this is a configuration of Traefik's or Kubernetes', not one of the Rust router "+
			"(want the sections server, workers, cache, health, proxy)", source.At)
	}
	m := &migration{options: o, names: names, settings: settings{}, listen: listen{host: "0.0.0.0", port: "6700"}}
	m.read(source)
	slices.SortStableFunc(m.account, func(a, b Line) int { return cmp.Or(cmp.Compare(a.rank(names), b.rank(names)), a.At.Line-b.At.Line) })
	return m.result()
}

// migration is one run.
type migration struct {
	options  Options
	names    []string
	listen   listen
	workers  []worker
	settings settings
	account  []Line
}

// listen is where the router answers.
type listen struct{ host, port string }

// worker is a replica of the source.
type worker struct {
	url                  string
	maxLoad, loadPenalty string // "" = the general one
}

func (m *migration) result() (*Result, error) {
	r := &Result{Account: m.account}
	middleware := m.middleware()
	for _, f := range []struct {
		name string
		root *block
	}{
		{"traefik.yml", m.static()},
		{"dynamic/cart.yml", m.tuning(middleware)},
		{"dynamic/workers.yml", m.service()},
	} {
		if f.root == nil {
			continue
		}
		content, err := f.root.text()
		if err != nil {
			return nil, err
		}
		r.Files = append(r.Files, File{f.name, content})
	}
	plain, err := middleware.plain()
	if err != nil {
		return nil, err
	}
	raw, err := traefik.File(plain)
	if err != nil {
		return nil, err
	}
	config, err := traefik.Config(raw)
	if err != nil {
		return nil, err
	}
	for _, f := range cart.Validate(config) {
		r.Faults = append(r.Faults, f.Text)
	}
	return r, nil
}
