package layer

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// located are files in which the value of each setting is the number of the line that it is on.
var located = map[string]string{
	"a.toml": `[a]
x = 2
"y.z" = 3
b.c = 4
[[a.list]]
x = 6
[[a.list]]
x = 8
inner = { x = 9, "y" = 9 }
[a.list.deep]
x = 11
[[a.list.tables]]
x = 13
[other]
values = [ 15,
  16,
  { x = 17 } ]
`,
	"a.yml": `a:
  x: 2
  y.z: 3
  list:
    - x: 5
    - &anchor
      x: 7
      deep: {x: 8,
        y: 9}
  b:
    <<: *anchor
    z: 12
  # a comment
  c: 14
  d: [15,
    16]
`,
	"a.json": `{
  "a": { "x": 2,
    "list": [ { "x": 3 },
      { "x": 4 } ] }
}
`,
}

func TestRead_tellsLines(t *testing.T) {
	for name, content := range located {
		documents, mistakes := Read(write(t, name, content), never)
		if len(documents) != 1 || len(mistakes) != 0 {
			t.Fatalf("Read(%s) = %d documents, %v, want one", name, len(documents), mistakes)
		}
		checkLines(t, name, documents[0], "")
	}
}

func checkLines(t *testing.T, file string, n *Node, key string) {
	for _, name := range n.Keys() {
		checkLines(t, file, n.Get(name), strings.TrimPrefix(key+"."+name, "."))
	}
	list, isList := n.List()
	for _, element := range list {
		checkLines(t, file, element, key+"[]")
	}
	if _, isMap := n.Map(); isMap || isList {
		return
	}
	if got, want := n.At.String(), n.Scalar(); !strings.HasSuffix(got, file+":"+want) {
		t.Errorf("%s: %s is said to be at %s, want line %s", file, key, got, want)
	}
}

// TestRead_documents: "---" divides a file, and what is empty is no document.
func TestRead_documents(t *testing.T) {
	for content, want := range map[string]int{"": 0, "# x\n": 0, "a: 1\n": 1, "a: 1\n---\n---\nb: 2\n": 2, "null\n": 0} {
		documents, mistakes := Read(write(t, "a.yml", content), never)
		if len(documents) != want || len(mistakes) != 0 {
			t.Errorf("Read(%q) = %d documents, %v, want %d", content, len(documents), mistakes, want)
		}
	}
}

// TestRead_templates: a file is run as a template where Traefik would, and lines are told as long as they are the file's.
func TestRead_templates(t *testing.T) {
	t.Setenv("LAYER_TEST", "one")
	always := func([]*Node) bool { return true }
	for _, row := range []struct {
		content   string
		templated func([]*Node) bool
		text      string
		line      int
	}{
		{"\nx: {{ env \"LAYER_TEST\" }}\n", always, "one", 2},
		{"{{ if true }}\nx: {{ \"Two Three\" | normalize }}\n{{ end }}\n", always, "Two-Three", 2},
		{"{{ range until 3 }}\n{{ end }}\nx: y\n", always, "y", 0},
		{"x: \"{{ env }}\"\n", never, "{{ env }}", 1},
		{"x: '{{ split \"a-b\" \"-\" | last }}'\n", always, "b", 1},
	} {
		documents, mistakes := Read(write(t, "a.yml", row.content), row.templated)
		if len(mistakes) > 0 || len(documents) != 1 {
			t.Errorf("Read(%q) = %d documents, %v, want one", row.content, len(documents), mistakes)
			continue
		}
		if x := documents[0].Get("x"); x.Text() != row.text || x.At.Line != row.line {
			t.Errorf("Read(%q): x = %q in line %d, want %q in line %d", row.content, x.Text(), x.At.Line, row.text, row.line)
		}
	}
}

func never([]*Node) bool { return false }

func write(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}
