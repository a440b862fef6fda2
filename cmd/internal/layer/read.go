package layer

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"text/template"
	"unicode"

	"github.com/BurntSushi/toml"
	"github.com/Masterminds/sprig/v3"
	"go.yaml.in/yaml/v3"
)

// Stdin is the name of standard input among files. It is read as YAML, of which JSON is a part.
const Stdin = "-"

// Mistake is what keeps a file from being read.
type Mistake struct {
	At     Position
	Text   string
	Unread bool // the file could not even be read
}

// Error makes a Mistake an error.
func (m *Mistake) Error() string { return m.At.String() + ": " + m.Text }

// Read returns the documents of a file: none of an empty one, several of a YAML file with "---" in it. templated tells of
// documents whether Traefik's file provider would run the file as a template first.
func Read(name string, templated func(documents []*Node) bool) ([]*Node, []*Mistake) {
	content, err := readAll(name)
	if err != nil {
		return nil, []*Mistake{{Position{File: name}, cause(err), true}}
	}
	documents, mistakes := parse(name, content)
	if !bytes.Contains(content, []byte("{{")) || (len(mistakes) == 0 && !templated(documents)) {
		return documents, mistakes
	}
	rendered, err := render(content)
	if err != nil {
		return nil, []*Mistake{mistakeOf(name, err)}
	}
	documents, mistakes = parse(name, rendered)
	if bytes.Count(rendered, []byte("\n")) != bytes.Count(content, []byte("\n")) {
		// Lines of the rendered text are no lines of the file.
		forgetLines(documents)
		for _, m := range mistakes {
			m.At.Line = 0
		}
	}
	return documents, mistakes
}

func readAll(name string) ([]byte, error) {
	if name == Stdin {
		return io.ReadAll(os.Stdin)
	}
	return os.ReadFile(name)
}

// cause is an error without the name of the file, which stands before it anyway.
func cause(err error) string {
	var failed *os.PathError
	if errors.As(err, &failed) {
		return failed.Err.Error()
	}
	return err.Error()
}

// render runs a file as Traefik's file provider does: a template with the functions of sprig, and no data.
func render(content []byte) ([]byte, error) {
	functions := sprig.TxtFuncMap()
	functions["split"] = strings.Split
	functions["normalize"] = func(name string) string {
		return strings.Join(strings.FieldsFunc(name, func(c rune) bool {
			return !unicode.IsLetter(c) && !unicode.IsNumber(c)
		}), "-")
	}
	t, err := template.New("").Funcs(functions).Parse(string(content))
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err = t.Execute(&out, false)
	return out.Bytes(), err
}

func parse(name string, content []byte) ([]*Node, []*Mistake) {
	switch ext := strings.ToLower(filepath.Ext(name)); {
	case ext == ".toml":
		return parseTOML(name, content)
	case ext == ".yml", ext == ".yaml", ext == ".json", name == Stdin:
		return parseYAML(name, content)
	default:
		text := fmt.Sprintf("the ending %q is not allowed (want .yml, .yaml, .toml or .json)", ext)
		return nil, []*Mistake{{At: Position{File: name}, Text: text}}
	}
}

func parseYAML(name string, content []byte) ([]*Node, []*Mistake) {
	var documents []*Node
	decoder := yaml.NewDecoder(bytes.NewReader(content))
	for {
		var document yaml.Node
		err := decoder.Decode(&document)
		if errors.Is(err, io.EOF) {
			return documents, nil
		}
		var value any
		if err == nil {
			err = document.Decode(&value)
		}
		if err != nil {
			return nil, mistakesOfYAML(name, err)
		}
		if value == nil {
			continue
		}
		value = textKeys(value)
		lines := index{}
		addYAML(lines, &document, nil)
		n := Build(value, name, lines.line)
		if _, ok := n.Map(); !ok {
			return nil, []*Mistake{{At: n.At, Text: "a map has to be at the top of the file"}}
		}
		documents = append(documents, n)
	}
}

func parseTOML(name string, content []byte) ([]*Node, []*Mistake) {
	value := map[string]any{}
	if _, err := toml.Decode(string(content), &value); err != nil {
		return nil, []*Mistake{mistakeOf(name, err)}
	}
	if len(value) == 0 {
		return nil, nil
	}
	plain := plainLists(value)
	return []*Node{Build(plain, name, linesOfTOML(content).line)}, nil
}

func (x index) line(path string) (int, bool) {
	line, ok := x[path]
	return line, ok
}

// textKeys turns maps with keys such as 8080 into maps with texts for keys.
func textKeys(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for key, element := range v {
			v[key] = textKeys(element)
		}
	case map[any]any:
		out := make(map[string]any, len(v))
		for key, element := range v {
			out[fmt.Sprint(key)] = textKeys(element)
		}
		return out
	case []any:
		for i, element := range v {
			v[i] = textKeys(element)
		}
	}
	return value
}

// plainLists turns the lists of tables that the TOML parser makes into lists of anything.
func plainLists(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for key, element := range v {
			v[key] = plainLists(element)
		}
	case []map[string]any:
		out := make([]any, len(v))
		for i, element := range v {
			out[i] = plainLists(element)
		}
		return out
	case []any:
		for i, element := range v {
			v[i] = plainLists(element)
		}
	}
	return value
}

func forgetLines(documents []*Node) {
	for _, n := range documents {
		n.At.Line = 0
		elements, _ := n.List()
		for _, key := range n.Keys() {
			elements = append(elements, n.Get(key))
		}
		forgetLines(elements)
	}
}

var atLine = regexp.MustCompile(`^(?:template: :)?(?:line )?(\d+):(?:\d+:)? ?(.*)$`)

// mistakesOfYAML takes the errors of the YAML parser apart: it finds one that ends it, or several.
func mistakesOfYAML(name string, err error) []*Mistake {
	var several *yaml.TypeError
	if !errors.As(err, &several) {
		return []*Mistake{mistakeOf(name, err)}
	}
	var out []*Mistake
	for _, text := range several.Errors {
		out = append(out, mistakeOf(name, errors.New(text)))
	}
	return out
}

// mistakeOf tells the line where the parser gives one.
func mistakeOf(name string, err error) *Mistake {
	var failed toml.ParseError
	if errors.As(err, &failed) {
		text := strings.TrimPrefix(failed.Error(), fmt.Sprintf("toml: line %d", failed.Position.Line))
		return &Mistake{At: Position{name, failed.Position.Line}, Text: "not TOML: " + strings.TrimLeft(text, ": ")}
	}
	text, isYAML := strings.CutPrefix(err.Error(), "yaml: ")
	at := Position{File: name}
	if found := atLine.FindStringSubmatch(text); found != nil {
		at.Line, _ = strconv.Atoi(found[1])
		text = found[2]
	}
	if isYAML {
		text = "not YAML: " + text
	}
	return &Mistake{At: at, Text: text}
}
