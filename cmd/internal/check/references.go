package check

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cart-llm/cart"
	"github.com/cart-llm/cart/cmd/internal/layer"
	"github.com/cart-llm/cart/cmd/internal/source"
)

// references finds what the routers of the file provider name and no file has, whereupon Traefik turns the router off, and
// hints at middlewares of CART that none of them names.
func references(found *source.Found) (faults []Fault, hints []string) {
	r := &referrer{used: map[string]bool{}}
	for _, n := range found.Dynamic {
		r.add(n)
	}
	for _, protocol := range []string{"http", "tcp", "udp"} {
		for _, name := range slices.Sorted(maps.Keys(r.routers[protocol])) {
			r.router(protocol, name)
		}
	}
	for _, c := range found.Configs {
		name, isMiddleware := strings.CutPrefix(c.Name, "http.middlewares.")
		name, _, _ = strings.Cut(name, ".plugin.")
		if c.Form == source.Dynamic && isMiddleware && len(r.routers["http"]) > 0 && !r.used[name] {
			r.hints = append(r.hints, fmt.Sprintf("%s: %s: no router in these files uses it: only what goes through a router with "+
				"middlewares: [%s] gets there", c.Node.At, c.Name, name))
		}
	}
	return r.faults, r.hints
}

// nodes are parts of a configuration by their name.
type nodes = map[string]*layer.Node

// referrer has what all files have: Traefik puts them together.
type referrer struct {
	routers, services, middlewares map[string]nodes // by protocol
	parents                        bool             // some routers have others above them
	used                           map[string]bool  // middlewares that something names
	faults                         []Fault
	hints                          []string
}

func (r *referrer) add(n *layer.Node) {
	for _, protocol := range []string{"http", "tcp", "udp"} {
		collect(&r.routers, protocol, n.Get(protocol, "routers"))
		collect(&r.services, protocol, n.Get(protocol, "services"))
		collect(&r.middlewares, protocol, n.Get(protocol, "middlewares"))
	}
	for _, one := range elementsOf(n.Get("http", "routers")) {
		r.parents = r.parents || !one.Get("parentRefs").Null()
	}
	// Services and other middlewares name middlewares as well.
	for _, one := range elementsOf(n.Get("http", "services")) {
		r.use(one.Get("middlewares"))
	}
	for _, one := range elementsOf(n.Get("http", "middlewares")) {
		r.use(one.Get("chain", "middlewares"))
	}
}

func collect(to *map[string]nodes, protocol string, n *layer.Node) {
	if *to == nil {
		*to = map[string]nodes{}
	}
	if (*to)[protocol] == nil {
		(*to)[protocol] = nodes{}
	}
	for name, one := range elementsOf(n) {
		(*to)[protocol][name] = one
	}
}

// elementsOf returns the elements of a map that have something in them.
func elementsOf(n *layer.Node) nodes {
	elements, _ := n.Map()
	out := nodes{}
	for name, one := range elements {
		if !one.Null() {
			out[name] = one
		}
	}
	return out
}

func (r *referrer) use(list *layer.Node) {
	for _, one := range namesIn(list) {
		r.used[one.name] = true
	}
}

func (r *referrer) router(protocol, name string) {
	n := r.routers[protocol][name]
	key := protocol + ".routers." + name
	r.use(n.Get("middlewares"))
	for _, one := range namesIn(n.Get("middlewares")) {
		r.mustExist(one, key+".middlewares", protocol+".middlewares", r.middlewares[protocol])
	}
	service := n.Get("service")
	if one, ok := nameOf(service); ok {
		r.mustExist(one, key+".service", protocol+".services", r.services[protocol])
	} else if service.Scalar() == "" && !r.parents {
		allowed := "want the name of a service"
		if protocol == "http" {
			allowed += "; noop@internal where CART answers all"
		}
		r.faults = append(r.faults, Fault{n.At, fmt.Sprintf("%s.service = nothing is not allowed (%s)", key, allowed)})
	}
}

// mustExist refuses a name that none of the files has.
func (r *referrer) mustExist(one reference, key, what string, all nodes) {
	if all[one.name] != nil {
		return
	}
	names := slices.Sorted(maps.Keys(all))
	hint := ""
	if near := cart.Nearest(one.name, append(names, "noop@internal")); near != "" {
		hint = "did you mean " + near + "?"
	} else if what == "http.services" && strings.EqualFold(one.name, "noop") {
		hint = "did you mean noop@internal?"
	} else {
		hint = "check all files of the directory together; what another provider has is named with it, as in " + one.name + "@docker"
	}
	r.faults = append(r.faults, Fault{one.at, fmt.Sprintf("%s = %q is not allowed (no such name in %s; %s)", key, one.name, what, hint)})
}

// reference is a name that is another part's.
type reference struct {
	name string // without the file provider
	at   layer.Position
}

// nameOf returns the name that a value is, unless it is another provider's.
func nameOf(n *layer.Node) (reference, bool) {
	name, provider, qualified := strings.Cut(n.Scalar(), "@")
	if name == "" || (qualified && provider != "file") {
		return reference{}, false
	}
	return reference{name, n.At}, true
}

// namesIn returns those of a list, which may be one text with commas.
func namesIn(n *layer.Node) []reference {
	list, isList := n.List()
	if !isList && n.Scalar() != "" {
		for _, name := range strings.Split(n.Scalar(), ",") {
			list = append(list, layer.Build(strings.TrimSpace(name), n.At.File, func(string) (int, bool) { return n.At.Line, true }))
		}
	}
	var out []reference
	for _, one := range list {
		if name, ok := nameOf(one); ok {
			out = append(out, name)
		}
	}
	return out
}
