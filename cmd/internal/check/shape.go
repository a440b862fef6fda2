package check

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/cart-llm/cart"
	"github.com/cart-llm/cart/cmd/internal/layer"
)

// misshapen is a value of the wrong kind: a text where a list should be and so on. Traefik's decoder refuses it before the
// plugin sees it, with an error that has the names of Go in it and not the ones of the file.
type misshapen struct {
	node *layer.Node
	key  string
	text string
}

// shapes compares a configuration with the plugin's. file says that it goes through Traefik's file provider.
func shapes(n *layer.Node, file bool) []misshapen {
	s := &shaper{file: file}
	s.structure(n, reflect.TypeOf(cart.Config{}), "")
	return s.out
}

type shaper struct {
	file bool
	out  []misshapen
}

func (s *shaper) fail(n *layer.Node, key, allowed string) { s.failShown(n, key, show(n), allowed) }

func (s *shaper) failShown(n *layer.Node, key, value, allowed string) {
	if key == "" {
		s.out = append(s.out, misshapen{n, key, fmt.Sprintf("the configuration = %s is not allowed (want %s)", value, allowed)})
		return
	}
	s.add(n, key, value, "want "+allowed)
}

func (s *shaper) add(n *layer.Node, key, value, hint string) {
	s.out = append(s.out, misshapen{n, key, fmt.Sprintf("%s = %s is not allowed (%s)", key, value, hint)})
}

// value follows a type: structs, maps and lists of texts, texts.
func (s *shaper) value(n *layer.Node, t reflect.Type, key string) {
	switch {
	case n.Null():
	case t.Kind() == reflect.Struct:
		s.structure(n, t, key)
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct:
		s.structures(n, t.Elem(), key)
	case t.Kind() == reflect.Slice:
		s.texts(n, key)
	case t.Kind() == reflect.Map:
		s.textMap(n, key)
	case t.Kind() == reflect.String && !scalar(n):
		s.fail(n, key, "one value")
	}
}

func (s *shaper) structure(n *layer.Node, t reflect.Type, key string) {
	elements, ok := n.Map()
	if !ok {
		if key != "" || n.Scalar() != "true" { // which stands for all defaults
			s.fail(n, key, "a map with keys such as "+someKeys(t))
		}
		return
	}
	if s.file && key != "" && !hasValues(n) {
		s.emptyMap(n, key)
		return
	}
	seen := map[string]string{}
	for _, name := range n.Keys() {
		field, ok := fieldOf(t, name)
		if !ok || elements[name].Null() {
			continue
		}
		if first := seen[field.Name]; first != "" {
			s.add(elements[name], join(key, name), cart.Show(name, elements[name].Plain()),
				"the same key as "+join(key, first)+", which is there in another spelling: keep one of them")
			continue
		}
		seen[field.Name] = name
		s.value(elements[name], field.Type, join(key, field.Tag.Get("json")))
	}
}

func (s *shaper) structures(n *layer.Node, t reflect.Type, key string) {
	list, ok := n.List()
	if !ok {
		if elements, isMap := n.Map(); isMap {
			if len(elements) > 0 { // one element without its list
				s.structure(n, t, key+"[0]")
			}
			return
		}
		if n.Scalar() == "" {
			return // an empty list
		}
		s.fail(n, key, "a list of maps with keys such as "+someKeys(t))
		return
	}
	for i, element := range list {
		s.structure(element, t, key+"["+strconv.Itoa(i)+"]")
	}
}

func (s *shaper) texts(n *layer.Node, key string) {
	if scalar(n) {
		return // texts with commas between them
	}
	list, ok := n.List()
	for _, element := range list {
		ok = ok && scalar(element)
	}
	if !ok {
		s.fail(n, key, "a list of values, or one text with commas between them")
	}
}

func (s *shaper) textMap(n *layer.Node, key string) {
	elements, ok := n.Map()
	if !ok {
		shown := show(n)
		if scalar(n) {
			shown = "a text" // which may be a secret
		}
		s.failShown(n, key, shown, "a map of names and values")
		return
	}
	if s.file && !hasValues(n) {
		s.emptyMap(n, key)
		return
	}
	for _, name := range n.Keys() {
		if element := elements[name]; !element.Null() && !scalar(element) {
			s.fail(element, key+"."+name, "one value")
		}
	}
}

// emptyMap refuses a map of which Traefik's file provider makes a text, having found no value in it.
func (s *shaper) emptyMap(n *layer.Node, key string) {
	s.add(n, key, "a map without values", "give it a value, or leave "+key+" out")
}

// hasValues tells whether something stands in a map.
func hasValues(n *layer.Node) bool {
	elements, _ := n.Map()
	for _, element := range elements {
		if !element.Null() {
			return true
		}
	}
	return false
}

// scalar tells a value that is neither map nor list.
func scalar(n *layer.Node) bool {
	_, isMap := n.Map()
	_, isList := n.List()
	return !isMap && !isList
}

// fieldOf returns the field that a key fills, whatever the case of its letters.
func fieldOf(t reflect.Type, key string) (reflect.StructField, bool) {
	for i := 0; i < t.NumField(); i++ {
		if f := t.Field(i); strings.EqualFold(f.Name, key) && f.Tag.Get("json") != "-" {
			f.Tag = reflect.StructTag(`json:"` + strings.Split(f.Tag.Get("json"), ",")[0] + `"`)
			return f, true
		}
	}
	return reflect.StructField{}, false
}

func someKeys(t reflect.Type) string {
	var keys []string
	for i := 0; i < t.NumField() && len(keys) < 3; i++ {
		if name := strings.Split(t.Field(i).Tag.Get("json"), ",")[0]; name != "-" {
			keys = append(keys, name)
		}
	}
	return strings.Join(keys, ", ")
}

func join(key, name string) string {
	if key == "" {
		return name
	}
	return key + "." + name
}

// show returns a value for a message. What is in a map may be secret, so only its keys are told.
func show(n *layer.Node) string {
	if _, ok := n.Map(); ok {
		keys := n.Keys()
		switch {
		case len(keys) == 0:
			return "{}"
		case !hasElements(n):
			return "a map with nothing in it"
		case len(keys) > 8:
			return fmt.Sprintf("a map with %s and %d more", strings.Join(keys[:6], ", "), len(keys)-6)
		}
		return "a map with " + strings.Join(keys, ", ")
	}
	if list, ok := n.List(); ok {
		return fmt.Sprintf("a list of %d", len(list))
	}
	if n.Null() {
		return "nothing"
	}
	if date, ok := n.Plain().(time.Time); ok {
		return date.Format(time.RFC3339)
	}
	text, err := json.Marshal(n.Scalar())
	if err != nil {
		return n.Scalar()
	}
	return string(text)
}
