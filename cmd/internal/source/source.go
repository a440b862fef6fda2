// Package source finds CART's configurations in the files that operators keep them in: Traefik's dynamic configuration,
// Kubernetes manifests, Compose files and lists of labels, or the plugin's configuration by itself.
package source

import (
	"fmt"
	"sort"
	"strings"

	"github.com/cart-llm/cart"
	"github.com/cart-llm/cart/cmd/internal/layer"
	"github.com/cart-llm/cart/cmd/internal/traefik"
)

// Module is the plugin's, by which a static configuration tells what it is called.
const Module = "github.com/cart-llm/cart"

// Form is how a configuration is written down.
type Form int

// The forms.
const (
	Dynamic  Form = iota // Traefik's dynamic configuration, or the plugin's by itself
	Manifest             // a Kubernetes manifest
	Labels               // labels of containers
)

// Config is one configuration of the plugin.
type Config struct {
	Name string // where it is, such as http.middlewares.cart
	Form Form
	Node *layer.Node
}

// Raw returns what Traefik's provider of that form hands over for a configuration.
func (f Form) Raw(n *layer.Node) (traefik.Raw, error) {
	written, ok := n.Plain().(traefik.Raw)
	if !ok {
		return nil, nil
	}
	switch f {
	case Manifest:
		return traefik.Manifest(written)
	case Labels:
		return written, nil // the labels are decoded when they are read
	default:
		return traefik.File(written)
	}
}

// Options tell what to look for.
type Options struct {
	// Plugin is what the plugin is called in Traefik's static configuration; "" = found out.
	Plugin string
	// Labels says that the files without another form are lists of labels, one NAME=VALUE a line.
	Labels bool
}

// Found is what is in the files.
type Found struct {
	Configs  []Config
	Dynamic  []*layer.Node // Traefik's dynamic configurations, each as its file has it
	Static   []*layer.Node // Traefik's static configurations
	Mistakes []*layer.Mistake
	Notes    []string // what is not wrong but good to know
	Others   []string // middlewares that are not CART's
}

// Find reads the files and lays those of one form over each other in the order given.
func Find(names []string, o Options) *Found {
	s := &search{options: o, plugins: map[string]bool{}}
	if o.Plugin != "" {
		s.plugins[o.Plugin] = true
	}
	for _, name := range names {
		if o.Labels && isLabelFile(name) {
			s.labelFile(name)
			continue
		}
		documents, mistakes := layer.Read(name, isTemplate)
		s.found.Mistakes = append(s.found.Mistakes, mistakes...)
		for _, document := range documents {
			s.document(name, document)
		}
	}
	s.middlewares()
	s.manifests()
	s.labels()
	if !s.bare.Null() {
		s.add(Config{Name: "configuration", Form: Dynamic, Node: s.bare})
	}
	return &s.found
}

// search is a run through the files.
type search struct {
	options  Options
	plugins  map[string]bool // what the plugin is known to be called
	dynamic  *layer.Node
	definers map[string][]string // the files by the middleware that they define
	manifest []manifest
	labelled []labelled
	bare     *layer.Node
	found    Found
}

func (s *search) add(c Config) { s.found.Configs = append(s.found.Configs, c) }

func (s *search) mistake(at layer.Position, format string, args ...any) {
	s.found.Mistakes = append(s.found.Mistakes, &layer.Mistake{At: at, Text: fmt.Sprintf(format, args...)})
}

// document takes a document for what its topmost keys say that it is.
func (s *search) document(file string, n *layer.Node) {
	switch {
	case isManifest(n):
		s.addManifest(n)
	case isStatic(n):
		s.static(n)
		if isDynamic(n) { // the file provider may name the static file itself
			s.addDynamic(file, n)
		}
	case isDynamic(n):
		s.addDynamic(file, n)
	case isCompose(n):
		s.compose(file, n)
	case isRust(n):
		s.mistake(n.At, "this is a configuration of the Rust cache-aware-router: `cart migrate` turns it into Traefik's")
	default:
		for _, key := range n.Keys() {
			if cart.Nearest(key, []string{"http"}) != "" {
				s.mistake(n.Get(key).At, "%s is not allowed (no such key; did you mean http?)", key)
				return
			}
		}
		s.bare = layer.Merge(s.bare, n)
	}
}

// isTemplate tells whether Traefik would run the file as a template: its own dynamic configuration.
func isTemplate(documents []*layer.Node) bool {
	for _, n := range documents {
		if !isManifest(n) && !isCompose(n) && !isStatic(n) {
			return true
		}
	}
	return false
}

func isDynamic(n *layer.Node) bool {
	for _, key := range []string{"http", "tcp", "udp"} {
		if n.Get(key) != nil {
			return true
		}
	}
	// tls may be CART's own as well.
	return n.Get("tls", "certificates") != nil || n.Get("tls", "options") != nil || n.Get("tls", "stores") != nil
}

func isStatic(n *layer.Node) bool {
	return n.Get("entryPoints") != nil || n.Get("providers") != nil || n.Get("experimental") != nil
}

// isRust tells the sections that only the Rust router has, and its keys with underscores.
func isRust(n *layer.Node) bool {
	if n.Get("server") != nil || n.Get("circuit_breaker") != nil || n.Get("logging") != nil {
		return true
	}
	for _, section := range []string{"cache", "health", "proxy"} {
		for _, key := range n.Get(section).Keys() {
			if strings.Contains(key, "_") {
				return true
			}
		}
	}
	return false
}

// static learns what the plugin is called.
func (s *search) static(n *layer.Node) {
	s.found.Static = append(s.found.Static, n)
	known := false
	for _, kind := range []string{"plugins", "localPlugins"} {
		plugins := n.Get("experimental", kind)
		for _, name := range plugins.Keys() {
			if plugins.Get(name, "moduleName").Text() == Module {
				s.plugins[name] = true
				known = true
			}
		}
	}
	if !known {
		s.mistake(n.At, "this is a static configuration of Traefik that does not load the plugin: "+
			"experimental.plugins or experimental.localPlugins need an entry with moduleName: %s", Module)
	}
}

func (s *search) addDynamic(file string, n *layer.Node) {
	s.found.Dynamic = append(s.found.Dynamic, n)
	s.dynamic = layer.Merge(s.dynamic, n)
	if s.definers == nil {
		s.definers = map[string][]string{}
	}
	for _, name := range n.Get("http", "middlewares").Keys() {
		s.definers[name] = append(s.definers[name], file)
	}
}

func (s *search) middlewares() {
	all := s.dynamic.Get("http", "middlewares")
	for _, name := range all.Keys() {
		m := all.Get(name)
		for _, config := range s.configs("http.middlewares."+name, m.Get("plugin"), Dynamic) {
			s.add(config)
			if files := s.definers[name]; len(files) > 1 {
				s.found.Notes = append(s.found.Notes, fmt.Sprintf("%s is in %s: checked as one, the later over the earlier, "+
					"but Traefik's file provider takes the whole middleware from one of the files of a directory and skips the others",
					config.Name, strings.Join(files, " and ")))
			}
		}
		s.other("http.middlewares."+name, m)
	}
}

// configs returns those of a middleware's plugins that are CART.
func (s *search) configs(name string, plugins *layer.Node, form Form) []Config {
	var out []Config
	for _, plugin := range plugins.Keys() {
		if n := plugins.Get(plugin); s.isCART(plugin, n) {
			where := name
			if !strings.EqualFold(plugin, "cart") {
				where += ".plugin." + plugin
			}
			out = append(out, Config{Name: where, Form: form, Node: n})
		}
	}
	return out
}

// isCART tells whether a plugin's configuration is for CART: by its name where that is known, else by the keys that
// hardly another plugin has.
func (s *search) isCART(plugin string, n *layer.Node) bool {
	if len(s.plugins) > 0 {
		return s.plugins[plugin]
	}
	if strings.EqualFold(plugin, "cart") {
		return true
	}
	for _, key := range []string{"workers", "discovery", "maxLoad", "circuitBreaker"} {
		if n.Get(key) != nil {
			return true
		}
	}
	return n.Get("cache", "threshold") != nil
}

// other notes a middleware that is not CART's, for the message that nothing was found.
func (s *search) other(name string, m *layer.Node) {
	kinds := m.Keys()
	if plugins := m.Get("plugin").Keys(); len(plugins) > 0 {
		kinds = nil
		for _, plugin := range plugins {
			kinds = append(kinds, "plugin."+plugin)
		}
	}
	s.found.Others = append(s.found.Others, name+" ("+strings.Join(kinds, ", ")+")")
	sort.Strings(s.found.Others)
}
