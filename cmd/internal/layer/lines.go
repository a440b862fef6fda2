package layer

import (
	"strconv"

	"github.com/pelletier/go-toml/v2/unstable"
	"go.yaml.in/yaml/v3"
)

// addYAML notes the lines of a node and of everything in it: that of a map's element is its key's.
func addYAML(lines index, n *yaml.Node, path []string) {
	below := func(step string) []string { return append(append([]string{}, path...), step) }
	switch n.Kind {
	case yaml.DocumentNode:
		for _, element := range n.Content {
			addYAML(lines, element, path)
		}
		return
	case yaml.AliasNode:
		addYAML(lines, n.Alias, path)
	case yaml.SequenceNode:
		for i, element := range n.Content {
			addYAML(lines, element, below(strconv.Itoa(i)))
		}
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Content[i].Tag == "!!merge" {
				addMerged(lines, n.Content[i+1], path)
			}
		}
		for i := 0; i+1 < len(n.Content); i += 2 {
			if key := n.Content[i]; key.Tag != "!!merge" {
				addYAML(lines, n.Content[i+1], below(key.Value))
				lines[pathOf(below(key.Value)...)] = key.Line
			}
		}
	}
	lines[pathOf(path...)] = n.Line
}

// addMerged notes what a "<<" brings in. Of several maps the first has precedence.
func addMerged(lines index, n *yaml.Node, path []string) {
	if n.Kind == yaml.SequenceNode {
		for i := len(n.Content) - 1; i >= 0; i-- {
			addMerged(lines, n.Content[i], path)
		}
		return
	}
	addYAML(lines, n, path)
}

// linesOfTOML reads the text a second time, for the parser that Traefik uses does not tell where a value stands.
func linesOfTOML(content []byte) index {
	t := &tomlLines{lines: index{}, lengths: map[string]int{}}
	t.parser.Reset(content)
	for t.parser.NextExpression() {
		e := t.parser.Expression()
		switch e.Kind {
		case unstable.Table:
			t.table, _ = t.enter(nil, e.Key(), false)
		case unstable.ArrayTable:
			t.table, _ = t.enter(nil, e.Key(), true)
		case unstable.KeyValue:
			t.keyValue(t.table, e)
		}
	}
	return t.lines
}

type tomlLines struct {
	parser  unstable.Parser
	lines   index
	lengths map[string]int // of the arrays of tables, by path
	table   []string       // the one that key-values belong to
}

// enter follows the parts of a key from a path and returns where they lead. Arrays of tables stand for their last
// element; isElement adds one to the array that the key names.
func (t *tomlLines) enter(path []string, key unstable.Iterator, isElement bool) (to []string, line int) {
	to = append([]string{}, path...)
	for key.Next() {
		part := key.Node()
		line = t.parser.Shape(part.Raw).Start.Line
		to = append(to, string(part.Data))
		at := pathOf(to...)
		if _, ok := t.lines[at]; !ok {
			t.lines[at] = line
		}
		if isElement && key.IsLast() {
			t.lengths[at]++
		}
		if n := t.lengths[at]; n > 0 {
			to = append(to, strconv.Itoa(n-1))
			at = pathOf(to...)
			if _, ok := t.lines[at]; !ok {
				t.lines[at] = line
			}
		}
	}
	return to, line
}

func (t *tomlLines) keyValue(path []string, e *unstable.Node) {
	to, line := t.enter(path, e.Key(), false)
	t.value(to, e.Value(), line)
}

// value notes what is inside of an inline table or an array. A scalar has no line of its own: it is its key's.
func (t *tomlLines) value(path []string, v *unstable.Node, line int) {
	children := v.Children()
	switch v.Kind {
	case unstable.InlineTable:
		for children.Next() {
			t.keyValue(path, children.Node())
		}
	case unstable.Array:
		for i := 0; children.Next(); i++ {
			element := children.Node()
			to := append(append([]string{}, path...), strconv.Itoa(i))
			if element.Raw.Length > 0 {
				line = t.parser.Shape(element.Raw).Start.Line
			}
			t.lines[pathOf(to...)] = line
			t.value(to, element, line)
		}
	}
}
