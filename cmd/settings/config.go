package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	"github.com/cart-llm/cart"
)

// setting is one key of the configuration.
type setting struct {
	key          string // with its path, such as cache.threshold
	defaultValue string // "" = none
	meaning      string // whole sentences, without the default
}

// group is the settings of one struct.
type group struct {
	key      string // of the struct, such as cache; "" for the configuration itself
	about    string
	settings []setting
}

// comments are those of the configuration's source: of types by name, of fields by type and field.
type comments struct {
	types  map[string]string
	fields map[string]string
}

// readGroups reads the configuration of the project at root.
func readGroups(root string) ([]group, error) {
	c, err := readComments(filepath.Join(root, "config.go"))
	if err != nil {
		return nil, err
	}
	var groups []group
	walk(&groups, c, "", "", reflect.ValueOf(*cart.CreateConfig()))
	return groups, nil
}

func readComments(path string) (*comments, error) {
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	c := &comments{types: map[string]string{}, fields: map[string]string{}}
	for _, decl := range file.Decls {
		types, ok := decl.(*ast.GenDecl)
		if !ok || types.Tok != token.TYPE {
			continue
		}
		for _, spec := range types.Specs {
			one := spec.(*ast.TypeSpec)
			c.types[one.Name.Name] = sentence(types.Doc.Text())
			fields, ok := one.Type.(*ast.StructType)
			if !ok {
				continue
			}
			last := ""
			for _, field := range fields.Fields.List {
				if text := sentence(field.Doc.Text()); text != "" {
					last = text // one comment may be for two fields
				}
				for _, name := range field.Names {
					c.fields[one.Name.Name+"."+name.Name] = last
				}
			}
		}
	}
	return c, nil
}

// walk adds the group of a struct and those below it.
func walk(groups *[]group, c *comments, key, about string, v reflect.Value) {
	at := len(*groups)
	*groups = append(*groups, group{key: key, about: about})
	for i := range v.NumField() {
		field := v.Type().Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name == "-" {
			continue
		}
		path := name
		if key != "" {
			path = key + "." + name
		}
		comment := c.fields[v.Type().Name()+"."+field.Name]
		switch {
		case field.Type.Kind() == reflect.Struct:
			walk(groups, c, path, plain(comment, field.Name, c), v.Field(i))
		case field.Type.Kind() == reflect.Slice && field.Type.Elem().Kind() == reflect.Struct:
			walk(groups, c, path+"[]", plain(comment, field.Name, c), reflect.New(field.Type.Elem()).Elem())
		default:
			s := setting{key: path, meaning: plain(comment, field.Name, c), defaultValue: defaultOf(v.Field(i), comment)}
			(*groups)[at].settings = append((*groups)[at].settings, s)
		}
	}
}

var (
	toldDefault   = regexp.MustCompile(`(?:, default|\bDefault:?) (.*?)(?:: [^.]*)?\.(?: |$)`)
	markedDefault = regexp.MustCompile(` \(default\)`)
)

// defaultOf returns the default of a scalar, from the comment where the configuration does not have it.
func defaultOf(v reflect.Value, comment string) string {
	if v.Kind() == reflect.String && v.String() != "" {
		return readable(v.String())
	}
	if told := toldDefault.FindStringSubmatch(comment); told != nil && told[1] != "none" {
		return told[1]
	}
	return ""
}

// readable writes long sizes in MiB.
func readable(value string) string {
	if n, err := strconv.Atoi(value); err == nil && n >= 1<<20 && n%(1<<20) == 0 {
		return fmt.Sprintf("%dMiB", n>>20)
	}
	return value
}

// plain makes a field's comment the text of a table: without its name and its default, which have columns of their own.
func plain(comment, name string, c *comments) string {
	comment = toldDefault.ReplaceAllStringFunc(comment, func(told string) string {
		if strings.HasPrefix(told, ",") {
			return ". "
		}
		return ""
	})
	comment = markedDefault.ReplaceAllString(comment, "")
	if !strings.HasPrefix(comment, name+" and ") {
		comment = strings.TrimPrefix(comment, name+" ")
	}
	for _, verb := range []string{"is ", "are "} {
		comment = strings.TrimPrefix(comment, verb)
	}
	// Other fields are known by their keys.
	for _, field := range fieldNames(c) {
		comment = regexp.MustCompile(`\b`+field+`\b`).ReplaceAllString(comment, "`"+keyName(field)+"`")
	}
	return strings.TrimSpace(comment)
}

// fieldNames returns the names that can only be a field's: with a capital inside.
func fieldNames(c *comments) []string {
	var names []string
	for path := range c.fields {
		_, name, _ := strings.Cut(path, ".")
		if strings.ToLower(name[1:]) != name[1:] && strings.ToUpper(name) != name {
			names = append(names, name)
		}
	}
	return names
}

func keyName(field string) string {
	for _, whole := range []string{"API", "CA", "TLS", "DNS", "URL"} {
		if strings.HasPrefix(field, whole) {
			return strings.ToLower(whole) + field[len(whole):]
		}
	}
	return strings.ToLower(field[:1]) + field[1:]
}

func sentence(doc string) string { return strings.Join(strings.Fields(doc), " ") }
