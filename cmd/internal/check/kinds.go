package check

import (
	"fmt"
	"strings"

	"github.com/cart-llm/cart/cmd/internal/layer"
	"github.com/cart-llm/cart/cmd/internal/traefik"
)

// kinds finds what is of more than one kind: Traefik takes the file and turns off each router that leads there. It is not
// so strict with middlewares of tcp and services of udp. The middlewares among it are added to spoiled, by their keys.
func kinds(files []*layer.Node, spoiled map[string]bool) []Fault {
	var faults []Fault
	for _, n := range files {
		for _, of := range []struct{ protocol, parts, one string }{
			{"http", "middlewares", "middleware"}, {"http", "services", "service"}, {"tcp", "services", "service"},
		} {
			section := traefik.Dynamic.Find(of.protocol).Find(of.parts).Each
			parts := n.Get(of.protocol, of.parts)
			for _, name := range parts.Keys() {
				part := parts.Get(name)
				key := of.protocol + "." + of.parts + "." + name
				before := len(faults)
				faults = append(faults, oneOf(part, key, kindsIn(part, section), "kind in each "+of.one)...)
				if of.parts == "middlewares" {
					plugins := part.Get("plugin")
					faults = append(faults, oneOf(plugins, key+".plugin", pluginsIn(plugins), "plugin in each middleware")...)
					spoiled[key] = spoiled[key] || len(faults) > before
				}
			}
		}
	}
	return faults
}

func oneOf(n *layer.Node, key string, has []string, allowed string) []Fault {
	if len(has) < 2 {
		return nil
	}
	last := len(has) - 1
	text := fmt.Sprintf("%s = %s and %s is not allowed (one %s)", key, strings.Join(has[:last], ", "), has[last], allowed)
	return []Fault{{n.At, text}}
}

// kindsIn returns the kinds that Traefik's decoder makes something of.
func kindsIn(n *layer.Node, section *traefik.Key) []string {
	var out []string
	for _, name := range n.Keys() {
		kind, value := section.Find(name), n.Get(name)
		switch {
		case kind == nil || kind.Ignored || (kind.Kind != traefik.Section && kind.Kind != traefik.Map):
		case hasElements(value), kind.MayBeEmpty && !value.Null() && (!scalar(value) || strings.EqualFold(value.Scalar(), "true")):
			out = append(out, kind.Name)
		}
	}
	return out
}

func pluginsIn(n *layer.Node) []string {
	var out []string
	for _, name := range n.Keys() {
		if !n.Get(name).Null() {
			out = append(out, name)
		}
	}
	return out
}
