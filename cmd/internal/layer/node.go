// Package layer reads configuration files into trees that know where each value was written, and lays one over another.
package layer

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Node is a value of a configuration: a map, a list or a scalar.
type Node struct {
	At    Position
	value any // map[string]*Node, []*Node or a scalar; nil for null
}

// Position is where a value was written.
type Position struct {
	File string
	Line int // 0 = not known
}

func (p Position) String() string {
	if p.Line == 0 {
		return p.File
	}
	return p.File + ":" + strconv.Itoa(p.Line)
}

// index tells the line of each value by its path; a path that is not in it was written with the value around it.
type index map[string]int

// pathOf joins the steps to a value: keys, and the positions of elements in lists.
func pathOf(steps ...string) string { return strings.Join(steps, "\x00") }

// Build makes a tree of what a parser decoded. lineOf tells the line of the value at a path of keys and list positions.
func Build(value any, file string, lineOf func(path string) (line int, ok bool)) *Node {
	return build(value, Position{File: file}, nil, lineOf)
}

func build(value any, around Position, path []string, lineOf func(string) (int, bool)) *Node {
	n := &Node{At: around}
	if line, ok := lineOf(pathOf(path...)); ok {
		n.At.Line = line
	}
	below := func(step string) []string { return append(append([]string{}, path...), step) }
	switch v := value.(type) {
	case map[string]any:
		out := make(map[string]*Node, len(v))
		for key, element := range v {
			out[key] = build(element, n.At, below(key), lineOf)
		}
		n.value = out
	case []any:
		out := make([]*Node, len(v))
		for i, element := range v {
			out[i] = build(element, n.At, below(strconv.Itoa(i)), lineOf)
		}
		n.value = out
	default:
		n.value = value
	}
	return n
}

// Map returns the elements if the node is a map.
func (n *Node) Map() (map[string]*Node, bool) {
	if n == nil {
		return nil, false
	}
	m, ok := n.value.(map[string]*Node)
	return m, ok
}

// List returns the elements if the node is a list.
func (n *Node) List() ([]*Node, bool) {
	if n == nil {
		return nil, false
	}
	l, ok := n.value.([]*Node)
	return l, ok
}

// Null tells whether nothing stands there.
func (n *Node) Null() bool { return n == nil || n.value == nil }

// Text returns the node if it is a text.
func (n *Node) Text() string {
	if n == nil {
		return ""
	}
	text, _ := n.value.(string)
	return text
}

// Scalar returns the node as the text that it is or that stands for it, "" for maps, lists and null.
func (n *Node) Scalar() string {
	if n.Null() {
		return ""
	}
	switch n.value.(type) {
	case map[string]*Node, []*Node:
		return ""
	}
	return fmt.Sprint(n.value)
}

// Keys returns the keys of a map, sorted.
func (n *Node) Keys() []string {
	m, _ := n.Map()
	return slices.Sorted(maps.Keys(m))
}

// Get returns the value below the keys, nil if there is none. Letters match whatever their case, as in Traefik; a key
// that is written alike goes first.
func (n *Node) Get(keys ...string) *Node {
	for _, key := range keys {
		m, ok := n.Map()
		if !ok {
			return nil
		}
		n = m[key]
		for name, element := range m {
			if n == nil && strings.EqualFold(name, key) {
				n = element
			}
		}
	}
	return n
}

// Plain returns the value without positions. Keys whose value is null are left out.
func (n *Node) Plain() any {
	switch v := n.value.(type) {
	case map[string]*Node:
		out := make(map[string]any, len(v))
		for key, element := range v {
			if !element.Null() {
				out[key] = element.Plain()
			}
		}
		return out
	case []*Node:
		out := make([]any, len(v))
		for i, element := range v {
			out[i] = element.Plain()
		}
		return out
	default:
		return v
	}
}

// Locate returns where a setting is written, or where it would have to be: key is a path such as workers[0].url.
func (n *Node) Locate(key string) Position {
	at, _ := n.locate(key)
	return at
}

// Setting returns the value of a setting, nil if it is not there.
func (n *Node) Setting(key string) *Node {
	_, setting := n.locate(key)
	return setting
}

func (n *Node) locate(key string) (at Position, setting *Node) {
	at = n.At
	for n != nil && key != "" {
		// A key may have a dot in it.
		if whole := n.Get(key); whole != nil {
			return whole.At, whole
		}
		step, rest, _ := strings.Cut(key, ".")
		name, element, isElement := strings.Cut(step, "[")
		n = n.Get(name)
		if n != nil {
			at = n.At
		}
		if isElement {
			n = n.element(strings.TrimSuffix(element, "]"))
		}
		if n != nil {
			at = n.At
		}
		key = rest
	}
	return at, n
}

// element returns that element of a list, nil if there is none.
func (n *Node) element(index string) *Node {
	list, _ := n.List()
	i, err := strconv.Atoi(index)
	if err != nil || i < 0 || i >= len(list) {
		return nil
	}
	return list[i]
}

// Without returns the tree less the values at the given nodes, and less the maps and lists that had nothing else.
func (n *Node) Without(gone map[*Node]bool) *Node {
	out := &Node{At: n.At, value: n.value}
	switch v := n.value.(type) {
	case map[string]*Node:
		kept := make(map[string]*Node, len(v))
		for key, element := range v {
			if rest := element.without(gone); rest != nil {
				kept[key] = rest
			}
		}
		out.value = kept
	case []*Node:
		kept := make([]*Node, 0, len(v))
		for _, element := range v {
			if rest := element.without(gone); rest != nil {
				kept = append(kept, rest)
			}
		}
		out.value = kept
	}
	return out
}

// without returns nil for what is gone, and for what has nothing left.
func (n *Node) without(gone map[*Node]bool) *Node {
	if gone[n] {
		return nil
	}
	out := n.Without(gone)
	had, has := n.size(), out.size()
	if had > 0 && has == 0 {
		return nil
	}
	return out
}

// size is the number of elements in a map or list, less those of the map that are nothing.
func (n *Node) size() int {
	m, _ := n.Map()
	l, _ := n.List()
	size := len(l)
	for _, element := range m {
		if !element.Null() {
			size++
		}
	}
	return size
}

// Merge lays above over below: maps are merged key by key, lists and scalars replaced, and nothing changes nothing.
func Merge(below, above *Node) *Node {
	if above.Null() {
		return below
	}
	if below.Null() {
		return above
	}
	lower, isMap := below.Map()
	upper, stillMap := above.Map()
	if !isMap || !stillMap {
		return above
	}
	out := make(map[string]*Node, len(lower)+len(upper))
	for key, element := range lower {
		out[key] = element
	}
	for key, element := range upper {
		out[key] = Merge(out[key], element)
	}
	return &Node{At: above.At, value: out}
}
