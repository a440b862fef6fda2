package traefik

import (
	"regexp"
	"slices"
	"strings"

	"github.com/traefik/paerser/parser"
)

// kvMiddlewares returns what the key-value providers (Consul, etcd, Redis, ZooKeeper) make of pairs. Traefik's own code for
// it is in its main module, which others cannot import; this follows its rules: a slash is a level, a number an element of a
// list, and a list of plain values is joined with commas. TestForms in e2e compares with a real Redis where there is one.
func kvMiddlewares(pairs map[string]string) (Middlewares, error) {
	root := &parser.Node{Name: parser.DefaultRootName}
	for _, key := range sortedPairs(pairs) {
		parts := strings.Split(key.name, "/")
		n := root
		for _, part := range parts[1:] {
			if isNumber.MatchString(part) {
				part = "[" + part + "]"
			}
			n = child(n, part)
		}
		n.Value = key.value
	}
	var c configuration
	if err := parser.AddMetadata(&c, root, parser.MetadataOpts{TagName: parser.TagLabel}); err != nil {
		return nil, err
	}
	if err := parser.Fill(&c, root, parser.FillerOpts{}); err != nil {
		return nil, err
	}
	return c.middlewares(), nil
}

var isNumber = regexp.MustCompile(`^\d+$`)

type pair struct{ name, value string }

// sortedPairs joins the lists of plain values.
func sortedPairs(pairs map[string]string) []pair {
	lists := map[string][]string{}
	var names []string
	for name := range pairs {
		names = append(names, name)
	}
	slices.Sort(names)
	var out []pair
	for _, name := range names {
		if list, last := name[:strings.LastIndex(name, "/")], name[strings.LastIndex(name, "/")+1:]; isNumber.MatchString(last) {
			lists[list] = append(lists[list], pairs[name])
			continue
		}
		out = append(out, pair{name, pairs[name]})
	}
	for name, list := range lists {
		out = append(out, pair{name, strings.Join(list, ",")})
	}
	slices.SortFunc(out, func(a, b pair) int { return strings.Compare(a.name, b.name) })
	return out
}

// child returns the one of that name, whatever the case of its letters, and makes it if it is not there.
func child(n *parser.Node, name string) *parser.Node {
	for _, c := range n.Children {
		if strings.EqualFold(c.Name, name) {
			return c
		}
	}
	c := &parser.Node{Name: name}
	n.Children = append(n.Children, c)
	return c
}
