package check

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/cart-llm/cart"
	"github.com/cart-llm/cart/cmd/internal/layer"
	"github.com/cart-llm/cart/cmd/internal/source"
)

// references finds what the routers of the file provider name and no file has, whereupon Traefik turns the router off, the
// same of services that CART is to follow, and hints at middlewares of CART that no router names. Configurations of CART with
// such a fault are added to spoiled, by their names.
func references(found *source.Found, spoiled map[string]bool) (faults []Fault, hints []string) {
	r := &referrer{used: map[string]bool{}, spoiled: spoiled}
	r.static(found.Static)
	for _, n := range found.Dynamic {
		r.add(n)
	}
	for _, protocol := range []string{"http", "tcp", "udp"} {
		for _, name := range slices.Sorted(maps.Keys(r.routers[protocol])) {
			r.router(protocol, name)
		}
	}
	for _, c := range found.Configs {
		r.discovery(c)
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
	spoiled                        map[string]bool
	entryPoints                    []string // that the static configuration has; none = it is not known
	withoutAPI                     bool     // the static configuration is known and has no API in it
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
	r.enters(n.Get("entryPoints"), key+".entryPoints")
	service := n.Get("service")
	if protocol == "http" {
		r.internal(service, key+".service", "service", internalServices)
		for _, one := range valuesIn(n.Get("middlewares")) {
			r.internal(one, key+".middlewares", "middleware", internalMiddlewares)
		}
	}
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

// What Traefik has itself, some of it only if it is turned on.
var (
	internalServices = []string{"noop@internal", "api@internal", "dashboard@internal", "ping@internal", "prometheus@internal",
		"rest@internal", "acme-http@internal"}
	internalMiddlewares = []string{"dashboard_redirect@internal", "dashboard_stripprefix@internal"}
)

// internal refuses a name of Traefik's own that it does not have.
func (r *referrer) internal(n *layer.Node, key, what string, all []string) {
	name := n.Scalar()
	if !strings.HasSuffix(name, "@internal") || slices.Contains(all, name) || strings.HasPrefix(name, "redirect-") { // of entry points
		return
	}
	hint := "want one of " + strings.Join(all, ", ")
	if near := cart.Nearest(name, all); near != "" {
		hint = "did you mean " + near + "?"
	}
	r.faults = append(r.faults, Fault{n.At, fmt.Sprintf("%s = %q is not allowed (Traefik has no such %s; %s)", key, name, what, hint)})
}

// static learns from the static configurations.
func (r *referrer) static(files []*layer.Node) {
	whole, hasAPI := false, false
	for _, n := range files {
		r.entryPoints = append(r.entryPoints, n.Get("entryPoints").Keys()...)
		whole = whole || n.Get("providers") != nil
		hasAPI = hasAPI || n.Get("api") != nil
	}
	r.withoutAPI = whole && !hasAPI
}

// enters refuses entry points that there are not. A router that has others as well goes on with these.
func (r *referrer) enters(list *layer.Node, key string) {
	if len(r.entryPoints) == 0 {
		return
	}
	var missing []Fault
	names := valuesIn(list)
	for _, one := range names {
		name := one.Scalar()
		if name == "traefik" || slices.Contains(r.entryPoints, name) { // the former is there by itself
			continue
		}
		hint := "it has " + strings.Join(r.entryPoints, ", ")
		if near := cart.Nearest(name, r.entryPoints); near != "" {
			hint = "did you mean " + near + "?"
		}
		text := "%s = %q is not allowed (no such name in entryPoints of the static configuration; %s)"
		missing = append(missing, Fault{one.At, fmt.Sprintf(text, key, name, hint)})
	}
	if len(missing) == len(names) {
		r.faults = append(r.faults, missing...)
		return
	}
	for _, f := range missing {
		r.hints = append(r.hints, f.String())
	}
}

// discovery refuses a service of the file provider that none of the files has, if they have others.
func (r *referrer) discovery(c source.Config) {
	n := c.Node.Get("discovery", "service")
	if n.Scalar() != "" && r.withoutAPI && isHere(c.Node.Get("discovery", "api", "address").Scalar()) {
		text := c.Name + ": discovery.service needs Traefik's API: api is not enabled in the static configuration"
		r.hints = append(r.hints, Fault{n.At, text}.String())
	}
	services := r.services["http"]
	name, isFile := strings.CutSuffix(strings.TrimSpace(n.Scalar()), "@file")
	if !isFile || services[name] != nil {
		return
	}
	key := fmt.Sprintf("%s: discovery.service = %q", c.Name, name+"@file")
	hint := "check all files of the directory together"
	if len(services) == 0 { // they may be in a file of their own
		if len(r.routers["http"]) > 0 {
			r.hints = append(r.hints, Fault{n.At, key + ": none of these files has http.services: " + hint}.String())
		}
		return
	}
	if near := cart.Nearest(name, slices.Sorted(maps.Keys(services))); near != "" {
		hint = "did you mean " + near + "@file?"
	}
	r.spoiled[c.Name] = true
	r.faults = append(r.faults, Fault{n.At, key + " is not allowed (no such name in http.services; " + hint + ")"})
}

// isHere tells whether an address is on the machine that asks; "" is by default.
func isHere(address string) bool {
	u, err := url.Parse(strings.TrimSpace(address))
	return err == nil && (address == "" || slices.Contains([]string{"127.0.0.1", "localhost", "::1"}, u.Hostname()))
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

// namesIn returns those of a list.
func namesIn(n *layer.Node) []reference {
	var out []reference
	for _, one := range valuesIn(n) {
		if name, ok := nameOf(one); ok {
			out = append(out, name)
		}
	}
	return out
}

// valuesIn returns the elements of a list of values, which may be one text with commas.
func valuesIn(n *layer.Node) []*layer.Node {
	list, isList := n.List()
	if !isList && n.Scalar() != "" {
		for _, name := range strings.Split(n.Scalar(), ",") {
			list = append(list, layer.Build(strings.TrimSpace(name), n.At.File, func(string) (int, bool) { return n.At.Line, true }))
		}
	}
	return list
}
