// Package check finds what is wrong with CART's configurations, without Traefik.
package check

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/cart-llm/cart"
	"github.com/cart-llm/cart/cmd/internal/layer"
	"github.com/cart-llm/cart/cmd/internal/source"
	"github.com/cart-llm/cart/cmd/internal/traefik"
	"github.com/mitchellh/mapstructure"
)

// Options tell how to check.
type Options struct {
	source.Options
	// NoFiles leaves out the files that a configuration names, such as workers[].apiKeyFile: they may be on the machine
	// that runs Traefik only.
	NoFiles bool
}

// Report is the result.
type Report struct {
	Faults []Fault
	Notes  []string
	Good   []string // the configurations that have no fault, with what they come to
	Unread bool     // a file could not be read

	good    []good
	spoiled map[string]bool // middlewares and configurations of CART in which something else is wrong, by their names
}

// good is a configuration in which nothing is wrong.
type good struct {
	name string
	text string
}

// Fault is one thing that is wrong.
type Fault struct {
	At   layer.Position
	Text string
}

func (f Fault) String() string { return f.At.String() + ": " + f.Text }

// Files checks all configurations in the files, which are laid over each other in the order given.
func Files(names []string, o Options) *Report {
	found := source.Find(names, o.Options)
	r := &Report{Notes: found.Notes, spoiled: map[string]bool{}}
	for _, m := range found.Mistakes {
		r.Faults = append(r.Faults, Fault{m.At, m.Text})
		r.Unread = r.Unread || m.Unread
	}
	for _, c := range found.Configs {
		r.config(c, o)
	}
	r.traefik(found)
	for _, g := range r.good {
		if middleware, _, _ := strings.Cut(g.name, ".plugin."); !r.spoiled[g.name] && !r.spoiled[middleware] {
			r.Good = append(r.Good, g.text)
		}
	}
	if len(found.Configs) == 0 && len(r.Faults) == 0 {
		r.Faults = append(r.Faults, Fault{layer.Position{File: strings.Join(names, ", ")}, nothing(found, o)})
	}
	slices.SortStableFunc(r.Faults, func(a, b Fault) int {
		return cmp.Or(slices.Index(names, a.At.File)-slices.Index(names, b.At.File), a.At.Line-b.At.Line)
	})
	return r
}

// nothing says that there was nothing to check, which is never what was meant.
func nothing(found *source.Found, o Options) string {
	what := "no configuration of CART in it"
	if o.Plugin != "" {
		what = fmt.Sprintf("no configuration of a plugin called %q in it", o.Plugin)
	}
	if len(found.Others) == 0 {
		return what + " (want http.middlewares.NAME.plugin.cart, a Kubernetes Middleware with spec.plugin.cart, labels, " +
			"or the plugin's settings alone)"
	}
	return what + ", only " + strings.Join(found.Others, ", ") + " (--plugin NAME tells what the static configuration calls the plugin)"
}

// traefik checks what else the dynamic configurations have: first whether Traefik reads the files, then what is in them.
func (r *Report) traefik(found *source.Found) {
	read := true
	for _, n := range found.Dynamic {
		read = r.dynamic(n) && read
	}
	r.Faults = append(r.Faults, kinds(found.Dynamic, r.spoiled)...)
	if !read {
		return // what is missing is missing for that, mostly
	}
	faults, hints := references(found, r.spoiled)
	r.Faults = append(r.Faults, faults...)
	r.Notes = append(r.Notes, hints...)
}

// dynamic tells whether Traefik reads a file, and notes what keeps it from that.
func (r *Report) dynamic(n *layer.Node) bool {
	faults, hints := dynamicFile(n)
	for _, f := range faults {
		r.Faults = append(r.Faults, Fault{f.node.At, f.text})
	}
	for _, h := range hints {
		r.Notes = append(r.Notes, h.node.At.String()+": "+h.text)
	}
	written, ok := n.Plain().(map[string]any)
	if !ok || len(faults) > 0 {
		return len(faults) == 0
	}
	err := traefik.TakesFile(written)
	if err != nil && !r.hasFaultIn(n.At.File) {
		r.Faults = append(r.Faults, Fault{layer.Position{File: n.At.File}, "Traefik does not take it: " + err.Error()})
	}
	return err == nil
}

func (r *Report) hasFaultIn(file string) bool {
	return slices.ContainsFunc(r.Faults, func(f Fault) bool { return f.At.File == file })
}

func (r *Report) config(c source.Config, o Options) {
	before := len(r.Faults)
	fail := func(key, text string) {
		r.Faults = append(r.Faults, Fault{c.Node.Locate(key), c.Name + ": " + text})
	}
	misshapen := shapes(c.Node, c.Form == source.Dynamic)
	gone := map[*layer.Node]bool{}
	for _, m := range misshapen {
		fail(m.key, m.text)
		gone[m.node] = true
	}
	if gone[c.Node] {
		return
	}
	raw, err := c.Form.Raw(c.Node.Without(gone))
	if err != nil {
		fail("", err.Error())
		return
	}
	config, err := traefik.Config(raw)
	if err != nil {
		for _, text := range decodeErrors(err) {
			fail("", text)
		}
		return
	}
	if o.NoFiles {
		if config.Discovery.API.PasswordFile != "" && config.Discovery.API.Password == "" {
			config.Discovery.API.Password = "in the file" // or the user would be one without a password
		}
		dropFiles(reflect.ValueOf(config).Elem())
	}
	for _, f := range cart.Validate(config) {
		if c.Form != source.Manifest || !fromSecret(c.Node, f.Key) {
			fail(f.Key, f.Text)
		}
	}
	for _, f := range append(cart.Advise(config), unused(c.Node, config)...) {
		r.Notes = append(r.Notes, Fault{c.Node.Locate(f.Key), c.Name + ": " + f.Text}.String())
	}
	if len(r.Faults) == before {
		r.isGood(c, config)
	}
}

// isGood notes that a configuration has no fault in itself.
func (r *Report) isGood(c source.Config, config *cart.Config) {
	if len(config.Workers) == 0 && config.Discovery.Service == "" && config.Discovery.DNS == "" {
		r.Notes = append(r.Notes, Fault{c.Node.Locate("workers"), c.Name + ": no workers are configured: every request gets 503"}.String())
	}
	r.good = append(r.good, good{c.Name, c.Node.At.String() + ": " + c.Name + ": " + summary(config)})
}

// unused finds the settings that the policy does not go by. All others count for every policy.
func unused(n *layer.Node, c *cart.Config) []cart.Fault {
	if strings.EqualFold(strings.TrimSpace(c.Policy), "threshold") {
		return nil
	}
	var out []cart.Fault
	for _, name := range []string{"threshold", "matchAbsThreshold", "balanceAbsThreshold", "balanceRelThreshold"} {
		key := "cache." + name
		if setting := n.Setting(key); !setting.Null() {
			text := fmt.Sprintf("%s = %s: the policy %s does not use it, only threshold does", key, show(setting), c.Policy)
			out = append(out, cart.Fault{Key: key, Text: text})
		}
	}
	return out
}

// summary says what a good configuration comes to.
func summary(c *cart.Config) string {
	replicas := fmt.Sprintf("%d workers", len(c.Workers))
	switch {
	case c.Discovery.Service != "":
		replicas = "replicas of the service " + c.Discovery.Service
	case c.Discovery.DNS != "":
		replicas = "replicas by DNS"
	case len(c.Workers) == 1:
		replicas = "1 worker"
	}
	return fmt.Sprintf("good: %s, policy %s", replicas, c.Policy)
}

// decodeErrors takes apart what the decoder found, should it have found what shapes did not.
func decodeErrors(err error) []string {
	var several *mapstructure.Error
	if errors.As(err, &several) {
		return several.Errors
	}
	return []string{err.Error()}
}

// dropFiles empties the settings that name files: those whose name ends so.
func dropFiles(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for i := 0; i < v.NumField(); i++ {
			if strings.HasSuffix(v.Type().Field(i).Name, "File") && v.Field(i).Kind() == reflect.String {
				v.Field(i).SetString("")
			}
			dropFiles(v.Field(i))
		}
	case reflect.Slice:
		for i := 0; i < v.Len(); i++ {
			dropFiles(v.Index(i))
		}
	}
}

// fromSecret tells whether a value stands in a Kubernetes secret, out of which Traefik takes it.
func fromSecret(n *layer.Node, key string) bool {
	return strings.HasPrefix(n.Setting(key).Text(), "urn:k8s:secret:")
}
