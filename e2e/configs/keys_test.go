package configs

import (
	"bytes"
	"debug/buildinfo"
	"debug/elf"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/cart-llm/cart/e2e/traefik"
)

var update = flag.Bool("update", false, "write the keys that the official Traefik knows")

// TestKeys: the keys that `cart check` knows of Traefik's dynamic configuration are those of the official binary. What it can
// decode stands in its type information, for its own decoder goes by that.
func TestKeys(t *testing.T) {
	root, err := traefik.Root()
	if err != nil {
		t.Fatal(err)
	}
	program, err := traefik.Binary(t.Context(), root)
	if err != nil {
		t.Fatal(err)
	}
	info, err := buildinfo.ReadFile(program)
	if err != nil || info.Main.Version != "v"+traefik.Version {
		t.Skipf("%s is not Traefik %s", program, traefik.Version)
	}
	types, err := readTypes(program)
	if err != nil {
		t.Skip(err)
	}
	at, err := types.find("*dynamic.Configuration")
	if err != nil {
		t.Fatal(err)
	}
	var keys bytes.Buffer
	types.keys(&keys, at, "", "")
	name := filepath.Join(root, "cmd/internal/traefik/keys.txt")
	if *update {
		if err := os.WriteFile(name, keys.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(keys.Bytes(), want) {
		t.Errorf("%s has other keys than Traefik %s; go test ./configs -run TestKeys -update writes them", name, traefik.Version)
	}
}

// typeInfo is the type information of a Go program for a 64-bit machine, laid out as in Go's internal/abi.
type typeInfo struct {
	sections []section
	base     uint64 // that offsets count from
	links    []byte // offsets of types
}

type section struct {
	address uint64
	content []byte
}

func readTypes(program string) (*typeInfo, error) {
	f, err := elf.Open(program)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info := &typeInfo{}
	var module []byte
	for _, s := range f.Sections {
		if s.Type != elf.SHT_PROGBITS {
			continue
		}
		content, err := s.Data()
		if err != nil {
			return nil, err
		}
		info.sections = append(info.sections, section{s.Addr, content})
		switch s.Name {
		case ".typelink":
			info.links = content
		case ".go.module":
			module = content
		}
	}
	// The base is one of the words that describe the module: the one from which the offsets lead to types.
	for i := 0; i+8 <= len(module); i += 8 {
		info.base = binary.LittleEndian.Uint64(module[i:])
		if info.plausible() {
			return info, nil
		}
	}
	return nil, errors.New("the program's type information was not found")
}

func (x *typeInfo) plausible() bool {
	if x.bytes(x.base, 1) == nil || len(x.links) < 4000 {
		return false
	}
	for i := 0; i < 1000; i++ {
		if x.name(x.linked(i)) == "" {
			return false
		}
	}
	return true
}

func (x *typeInfo) linked(i int) uint64 {
	return x.base + uint64(binary.LittleEndian.Uint32(x.links[4*i:]))
}

// find returns where a type is described. The list of types is sorted by their names.
func (x *typeInfo) find(name string) (uint64, error) {
	for i := 0; i < len(x.links)/4; i++ {
		if at := x.linked(i); x.name(at) == name {
			return at, nil
		}
	}
	return 0, fmt.Errorf("no type %s in the program", name)
}

// bytes returns n bytes from an address on, nil if they are not in the program.
func (x *typeInfo) bytes(address uint64, n uint64) []byte {
	for _, s := range x.sections {
		if address >= s.address && address+n <= s.address+uint64(len(s.content)) {
			return s.content[address-s.address:][:n]
		}
	}
	return nil
}

func (x *typeInfo) word(address uint64) uint64 {
	b := x.bytes(address, 8)
	if b == nil {
		return 0
	}
	return binary.LittleEndian.Uint64(b)
}

func (x *typeInfo) kind(at uint64) reflect.Kind {
	b := x.bytes(at+23, 1)
	if b == nil {
		return reflect.Invalid
	}
	return reflect.Kind(b[0] & 31)
}

// name is the type's as reflect's String tells it.
func (x *typeInfo) name(at uint64) string {
	head := x.bytes(at, 48)
	if head == nil {
		return ""
	}
	name, _, _ := x.text(x.base + uint64(binary.LittleEndian.Uint32(head[40:])))
	if head[20]&2 != 0 { // it has a star too many
		name = strings.TrimPrefix(name, "*")
	}
	return name
}

// text reads a name with its tag.
func (x *typeInfo) text(at uint64) (name, tag string, embedded bool) {
	flags := x.bytes(at, 1)
	if flags == nil {
		return "", "", false
	}
	name, next := x.counted(at + 1)
	if flags[0]&2 != 0 {
		tag, _ = x.counted(next)
	}
	return name, tag, flags[0]&8 != 0
}

func (x *typeInfo) counted(at uint64) (text string, next uint64) {
	head := x.bytes(at, 3)
	if head == nil {
		return "", at
	}
	n, size := binary.Uvarint(head)
	if size <= 0 {
		return "", at
	}
	at += uint64(size)
	return string(x.bytes(at, n)), at + n
}

// keys writes the keys below a type, one a line: the path, in which * stands for a name and [] for an element of a list, what
// the value is, and the tags that Traefik's decoder heeds.
func (x *typeInfo) keys(out *bytes.Buffer, at uint64, path, tags string) {
	switch kind := x.kind(at); kind {
	case reflect.Pointer:
		x.keys(out, x.word(at+48), path, tags)
	case reflect.Map:
		elem := x.word(at + 56)
		if x.kind(elem) == reflect.Interface {
			fmt.Fprintln(out, path+" any"+tags)
			return
		}
		if tags != "" {
			fmt.Fprintln(out, path+" map"+tags)
		}
		x.keys(out, elem, path+".*", "")
	case reflect.Slice:
		elem := x.word(at + 48)
		for x.kind(elem) == reflect.Pointer {
			elem = x.word(elem + 48)
		}
		if x.kind(elem) != reflect.Struct {
			fmt.Fprintln(out, path+" []"+x.kind(elem).String()+tags)
			return
		}
		if tags != "" {
			fmt.Fprintln(out, path+" list"+tags)
		}
		x.keys(out, elem, path+".[]", "")
	case reflect.Struct:
		fields, n := x.word(at+56), x.word(at+64)
		if tags != "" || n == 0 {
			fmt.Fprintln(out, strings.TrimPrefix(path, ".")+" map"+tags)
		}
		for i := uint64(0); i < n; i++ {
			x.field(out, fields+24*i, path)
		}
	default:
		what := kind.String()
		if name := x.name(at); strings.HasSuffix(name, ".Duration") {
			what = name
		}
		fmt.Fprintln(out, path+" "+what+tags)
	}
}

func (x *typeInfo) field(out *bytes.Buffer, at uint64, path string) {
	name, tag, embedded := x.text(x.word(at))
	of := x.word(at + 8)
	if embedded && x.kind(of) == reflect.Struct {
		if x.word(of+64) > 0 {
			x.keys(out, of, path, "")
		}
		return
	}
	if name[0] >= 'a' {
		return // the decoder cannot set it
	}
	shown := strings.Split(reflect.StructTag(tag).Get("yaml"), ",")[0]
	if !strings.EqualFold(shown, name) { // the decoder goes by the name in Go
		shown = name
	}
	tags := ""
	for _, key := range []string{"file", "label", "label-slice-as-struct"} {
		if value := reflect.StructTag(tag).Get(key); value != "" {
			tags += " " + key + "=" + value
		}
	}
	if path != "" {
		path += "."
	}
	x.keys(out, of, path+shown, tags)
}
