package traefik

import (
	_ "embed"
	"reflect"
	"strconv"
	"strings"

	"github.com/traefik/paerser/file"
	"github.com/traefik/paerser/types"
	"go.yaml.in/yaml/v3"
)

// Key is a key of Traefik's dynamic configuration.
type Key struct {
	Name       string // as it is written; Traefik takes it whatever the case of its letters
	Kind       Kind
	Above      *Key   // what it stands in, nil = nothing
	Below      []*Key // of a Section its keys, in the order that Traefik has them
	Each       *Key   // of a Map or List of sections what each element is
	Ignored    bool   // by the file provider, which takes it all the same
	MayBeEmpty bool   // as a Section, which stands for its defaults then

	tag  reflect.StructTag
	leaf reflect.Type // of Value and Values
}

// Kind is what a key holds.
type Kind int

// The kinds.
const (
	Section Kind = iota
	Map          // of names
	List         // of sections
	Values       // a list of values
	Value
	Anything // a plugin's own configuration
)

// Dynamic is the whole of it.
var Dynamic = readKeys(keysText)

// keysText has a line for each key: its path, in which * stands for a name and [] for an element of a list, what it holds,
// and the tags that the decoder heeds. e2e/configs writes it, out of the official Traefik.
//
//go:embed keys.txt
var keysText string

func readKeys(text string) *Key {
	root := &Key{}
	for _, line := range strings.Split(strings.TrimSpace(text), "\n") {
		words := strings.Split(line, " ")
		root.at(strings.Split(words[0], ".")).set(words[1], words[2:])
	}
	return root
}

// at returns the key at a path below this one, which is made if it is not there.
func (k *Key) at(path []string) *Key {
	for _, step := range path {
		switch step {
		case "*", "[]":
			k.Kind = map[string]Kind{"*": Map, "[]": List}[step]
			if k.Each == nil {
				k.Each = &Key{Above: k, Ignored: k.Ignored}
			}
			k = k.Each
		default:
			below := k.Find(step)
			if below == nil {
				below = &Key{Name: step, Above: k, Ignored: k.Ignored}
				k.Below = append(k.Below, below)
			}
			k = below
		}
	}
	return k
}

// Find returns the key of a section that is written so, nil if there is none.
func (k *Key) Find(name string) *Key {
	for _, below := range k.Below {
		if strings.EqualFold(below.Name, name) {
			return below
		}
	}
	return nil
}

// Names returns the names of a section's keys, less those that Traefik ignores.
func (k *Key) Names() []string {
	var names []string
	for _, below := range k.Below {
		if !below.Ignored {
			names = append(names, below.Name)
		}
	}
	return names
}

// leaves are the types of values.
var leaves = map[string]reflect.Type{
	"string": reflect.TypeFor[string](), "bool": reflect.TypeFor[bool](), "int": reflect.TypeFor[int](), "int64": reflect.TypeFor[int64](),
	"uint32": reflect.TypeFor[uint32](), "types.Duration": reflect.TypeFor[types.Duration](),
}

func (k *Key) set(kind string, tags []string) {
	var tag string
	for _, t := range tags {
		name, value, _ := strings.Cut(t, "=")
		tag += name + `:"` + value + `" `
	}
	k.tag = reflect.StructTag(tag)
	isIgnored := k.tag.Get("file") == "-"
	k.Ignored = k.Ignored || isIgnored // of what is around it only the keys are looked at
	k.MayBeEmpty = isIgnored || k.tag.Get("file") == "allowEmpty"
	element, isList := strings.CutPrefix(kind, "[]")
	switch {
	case kind == "map" || kind == "list":
		// What is below tells more.
	case kind == "any":
		k.Kind = Anything
	case leaves[element] == nil || (isList && element != "string"):
		panic("keys.txt: no such kind of value: " + kind)
	default:
		k.Kind = Value
		k.leaf = leaves[element]
		if isList {
			k.Kind = Values
		}
	}
}

// Text tells whether a value is any text.
func (k *Key) Text() bool { return k.leaf != nil && k.leaf.Kind() == reflect.String }

// Wants says what a value has to be, "" if the text is that.
func (k *Key) Wants(text string) string {
	v := reflect.New(k.leaf).Elem()
	if k.leaf == leaves["types.Duration"] {
		var d types.Duration
		if d.Set(text) != nil {
			return "want a duration such as 10s, 1m30s or 30 (seconds)"
		}
		return ""
	}
	switch {
	case v.Kind() == reflect.Bool:
		if _, err := strconv.ParseBool(text); err != nil {
			return "want true or false"
		}
	case v.CanInt():
		if _, err := strconv.ParseInt(text, 10, 64); err != nil {
			return "want a whole number"
		}
	case v.CanUint():
		if _, err := strconv.ParseUint(text, 10, k.leaf.Bits()); err != nil {
			return "want a whole number, 0 or above"
		}
	}
	return ""
}

// typ returns the type that the decoder is to fill.
func (k *Key) typ() reflect.Type {
	switch k.Kind {
	case Map:
		return reflect.MapOf(reflect.TypeFor[string](), k.Each.element())
	case List:
		return reflect.SliceOf(k.Each.typ())
	case Values:
		return reflect.SliceOf(k.leaf)
	case Value:
		return k.leaf
	case Anything:
		return reflect.TypeFor[pluginConfiguration]()
	}
	var fields []reflect.StructField
	for _, below := range k.Below {
		name := strings.ToUpper(below.Name[:1]) + below.Name[1:]
		fields = append(fields, reflect.StructField{Name: name, Type: below.element(), Tag: below.tag})
	}
	return reflect.StructOf(fields)
}

// element is typ, by way of a pointer for a section.
func (k *Key) element() reflect.Type {
	if k.Kind == Section {
		return reflect.PointerTo(k.typ())
	}
	return k.typ()
}

var dynamicType = Dynamic.typ()

// TakesFile returns what the file provider has against a dynamic configuration, nil if it takes it.
func TakesFile(written map[string]any) (err error) {
	defer recovered(&err)
	text, err := yaml.Marshal(written)
	if err != nil {
		return err
	}
	return file.DecodeContent(string(text), ".yaml", reflect.New(dynamicType).Interface())
}
