package check

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cart-llm/cart"
	"github.com/cart-llm/cart/cmd/internal/layer"
	"github.com/cart-llm/cart/cmd/internal/traefik"
)

// dynamicFile finds what Traefik's file provider refuses in a file, which it then refuses as a whole: keys that there are not,
// and values of the wrong kind. hints are what it takes and does nothing with. What is below plugin is left to others.
func dynamicFile(n *layer.Node) (faults []misshapen, hints []misshapen) {
	d := &dynamicChecker{}
	for _, name := range n.Keys() {
		if below := traefik.Dynamic.Find(name); below != nil {
			d.value(n.Get(name), below, below.Name)
		} else if near := cart.Nearest(name, traefik.Dynamic.Names()); near != "" && !strings.HasPrefix(name, "x-") {
			d.hint(n.Get(name), name, "Traefik passes over it (no such key; did you mean "+near+"?)")
		}
	}
	return d.faults, d.hints
}

// dynamicChecker follows the keys of Traefik. It finds a fault where Traefik's decoder does, and nowhere else: a fuzz test
// holds the two together.
type dynamicChecker struct {
	faults, hints []misshapen
}

func (d *dynamicChecker) fail(n *layer.Node, key, allowed string) {
	d.faults = append(d.faults, misshapen{n, key, fmt.Sprintf("%s = %s is not allowed (%s)", key, show(n), allowed)})
}

func (d *dynamicChecker) hint(n *layer.Node, key, text string) {
	d.hints = append(d.hints, misshapen{n, key, fmt.Sprintf("%s = %s: %s", key, show(n), text)})
}

func (d *dynamicChecker) value(n *layer.Node, k *traefik.Key, key string) {
	if n.Null() || !d.written(n, key) {
		return
	}
	switch k.Kind {
	case traefik.Section:
		if !hasElements(n) && !k.MayBeEmpty {
			d.fail(n, key, wantSection(k)+", or no "+k.Name+" at all")
			return
		}
		d.section(n, k, key)
	case traefik.Map:
		if !hasElements(n) && !k.MayBeEmpty {
			d.fail(n, key, "want a map with names of your own, or no "+k.Name+" at all")
			return
		}
		d.names(n, k, key)
	case traefik.List:
		d.list(n, k, key)
	case traefik.Values:
		d.values(n, key)
	case traefik.Value:
		d.single(n, k, key)
	}
}

// written tells whether the file provider can read a value at all, whatever it is for.
func (d *dynamicChecker) written(n *layer.Node, key string) bool {
	if _, isTime := n.Plain().(time.Time); isTime {
		d.fail(n, key, "want a text in quotes: without them it is a date, which Traefik does not take")
		return false
	}
	list, _ := n.List()
	good := true
	for i, element := range list {
		_, isList := element.List()
		if _, isTime := element.Plain().(time.Time); isTime || isList || element.Null() {
			d.fail(element, key+"["+strconv.Itoa(i)+"]", "want a value or a map")
			good = false
		}
	}
	return good
}

// section checks a map with keys of Traefik's.
func (d *dynamicChecker) section(n *layer.Node, k *traefik.Key, key string) {
	if list, ok := n.List(); ok {
		if hasElements(n) {
			d.fail(n, key, wantSection(k))
		} else if len(list) > 0 {
			d.ignored(n, k, key)
		}
		return
	}
	elements, isMap := n.Map()
	if text := n.Scalar(); !isMap && text != "" && !strings.EqualFold(text, "true") {
		d.ignored(n, k, key)
	}
	for _, name := range n.Keys() {
		if elements[name].Null() {
			continue
		}
		below := k.Find(name)
		if below == nil {
			d.unknown(elements[name], k, key, name)
			continue
		}
		d.value(elements[name], below, key+"."+below.Name)
	}
}

// ignored hints at a value that stands where a section should.
func (d *dynamicChecker) ignored(n *layer.Node, k *traefik.Key, key string) {
	d.hint(n, key, "Traefik passes over it ("+wantSection(k)+")")
}

// names checks a map with names of the user's.
func (d *dynamicChecker) names(n *layer.Node, k *traefik.Key, key string) {
	elements, isMap := n.Map()
	if !isMap && hasElements(n) {
		d.hint(n, key, "Traefik takes the positions in it for names (want a map with names of your own)")
		list, _ := n.List()
		elements = map[string]*layer.Node{}
		for i, element := range list {
			if !scalar(element) {
				elements["["+strconv.Itoa(i)+"]"] = element
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(elements)) {
		element := elements[name]
		switch {
		case element.Null() || k.Each.Kind == traefik.Anything: // of which others take care
		case k.Each.Kind == traefik.Section:
			if d.written(element, key+"."+name) {
				d.section(element, k.Each, key+"."+name)
			}
		default:
			d.readable(element, key+"."+name)
		}
	}
}

// readable checks what stands for anything: only that it can be read.
func (d *dynamicChecker) readable(n *layer.Node, key string) {
	if n.Null() || !d.written(n, key) {
		return
	}
	elements, _ := n.Map()
	for _, name := range n.Keys() {
		d.readable(elements[name], key+"."+name)
	}
	list, _ := n.List()
	for i, element := range list {
		d.readable(element, key+"["+strconv.Itoa(i)+"]")
	}
}

// list checks a list of sections.
func (d *dynamicChecker) list(n *layer.Node, k *traefik.Key, key string) {
	want := "want a list of maps with keys such as " + some(k.Each)
	list, isList := n.List()
	for i, element := range list {
		at := key + "[" + strconv.Itoa(i) + "]"
		if scalar(element) {
			d.hint(element, at, "Traefik passes over it ("+want+")")
			continue
		}
		d.section(element, k.Each, at)
	}
	if isList || n.Scalar() == "" && !hasElements(n) {
		return
	}
	d.hint(n, key, "Traefik does not read it as it is meant ("+want+")")
	elements, _ := n.Map()
	for _, name := range n.Keys() {
		if element := elements[name]; !element.Null() && d.written(element, key+"."+name) && hasElements(element) {
			d.section(element, k.Each, key+"."+name)
		}
	}
}

// values checks a list of values, which may be one text with commas.
func (d *dynamicChecker) values(n *layer.Node, key string) {
	list, _ := n.List()
	if elements, isMap := n.Map(); isMap {
		for _, name := range n.Keys() {
			if element := elements[name]; !element.Null() && d.written(element, key+"."+name) && hasElements(element) {
				d.fail(n, key, "want a list of values")
				return
			}
		}
		d.hint(n, key, "Traefik passes over it (want a list of values)")
		return
	}
	for i, element := range list {
		at := key + "[" + strconv.Itoa(i) + "]"
		if hasElements(element) {
			d.fail(element, at, "want one value")
		} else if !scalar(element) {
			d.hint(element, at, "Traefik passes over it (want one value)")
		}
	}
}

// single checks one value.
func (d *dynamicChecker) single(n *layer.Node, k *traefik.Key, key string) {
	switch {
	case hasElements(n):
		d.fail(n, key, "want one value")
	case k.Ignored:
	case k.Text():
		if !scalar(n) {
			d.hint(n, key, "Traefik does not read it as it is meant (want one value)")
		}
	default:
		if want := k.Wants(simple(n)); want != "" || !scalar(n) {
			d.fail(n, key, want)
		}
	}
}

// unknown refuses a key that there is not, and says what may have been meant.
func (d *dynamicChecker) unknown(n *layer.Node, k *traefik.Key, key, name string) {
	names := k.Names()
	near := cart.Nearest(name, names)
	_, isMap := n.Map()
	_, isOurs := fieldOf(reflect.TypeFor[cart.Config](), name)
	isMiddleware := k.Find("plugin") != nil
	hint := "no such key; want one of " + strings.Join(names, ", ")
	switch below := belowOf(k, name); {
	case near != "":
		hint = "no such key; did you mean " + key + "." + near + "?"
	case isMiddleware && isOurs:
		hint = "no such kind of middleware; settings of CART stand below plugin.cart"
	case isMiddleware && isMap:
		hint = "no such kind of middleware; settings of a plugin stand below plugin, as in plugin: {" + name + ": ...}"
	case below != "":
		hint = "no such key here; it belongs in " + key + "." + below
	case besideOf(k, name) != "":
		hint = "no such key here; it belongs further out, beside " + besideOf(k, name)
	case len(names) > 12:
		hint = "no such key; see Traefik's documentation"
	}
	shown := cart.Show(name+" "+near, n.Plain())
	d.faults = append(d.faults, misshapen{n, key + "." + name, fmt.Sprintf("%s.%s = %s is not allowed (%s)", key, name, shown, hint)})
}

// besideOf looks for a key further out, and returns which of the sections around is beside it.
func besideOf(k *traefik.Key, name string) string {
	for ; k.Above != nil; k = k.Above {
		if found := k.Above.Find(name); found != nil && !found.Ignored && k.Name != "" {
			return k.Name
		}
	}
	return ""
}

// belowOf looks for a key further down in a section.
func belowOf(k *traefik.Key, name string) string {
	for _, below := range k.Below {
		if below.Ignored {
			continue
		}
		if found := below.Find(name); found != nil && !found.Ignored {
			return below.Name + "." + found.Name
		}
	}
	return ""
}

func wantSection(k *traefik.Key) string { return "want a map with keys such as " + some(k) }

// some returns the first few keys of a section.
func some(k *traefik.Key) string {
	names := k.Names()
	if len(names) > 3 {
		names = names[:3]
	}
	return strings.Join(names, ", ")
}

// hasElements tells what has something below it as Traefik sees it: a map with a value in it, or a list with a map in it.
func hasElements(n *layer.Node) bool {
	elements, _ := n.Map()
	for _, element := range elements {
		if !element.Null() {
			return true
		}
	}
	list, _ := n.List()
	for _, element := range list {
		if _, isMap := element.Map(); isMap {
			return true
		}
	}
	return false
}

// simple returns a value as the text that the file provider makes of it.
func simple(n *layer.Node) string {
	if number, ok := n.Plain().(float64); ok {
		return strings.TrimSuffix(strconv.FormatFloat(number, 'f', 6, 64), ".000000")
	}
	return n.Scalar()
}
