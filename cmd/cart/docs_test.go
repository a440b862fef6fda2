package main

import (
	"bytes"
	"image/png"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// documents are all Markdown files of the repository's root and docs.
func documents(t *testing.T) []string {
	t.Helper()
	var out []string
	for _, pattern := range []string{"../../*.md", "../../docs/*.md"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, files...)
	}
	if len(out) < 4 {
		t.Fatalf("there are only the documents %v", out)
	}
	return out
}

var (
	fence = regexp.MustCompile("(?ms)^```(yaml|toml|json)\n(.*?)^```$")
	link  = regexp.MustCompile(`\]\(([^)\s#]*)(?:#[^)\s]*)?\)`)
)

// TestDocs_examples: every configuration of CART in the documents is good.
func TestDocs_examples(t *testing.T) {
	checked := 0
	for _, document := range documents(t) {
		text, err := os.ReadFile(document)
		if err != nil {
			t.Fatal(err)
		}
		for _, example := range fence.FindAllSubmatch(text, -1) {
			if !bytes.Contains(example[2], []byte("plugin")) || bytes.Contains(example[2], []byte("moduleName")) {
				continue
			}
			checked++
			name := filepath.Join(t.TempDir(), "example."+string(example[1]))
			if err := os.WriteFile(name, example[2], 0o644); err != nil {
				t.Fatal(err)
			}
			var out, errs bytes.Buffer
			if status := run([]string{"check", "--no-files", name}, &out, &errs); status != exitGood {
				t.Errorf("%s: cart check of an example = %d, %s%s\n%s", document, status, &out, &errs, example[2])
			}
		}
	}
	if checked < 6 {
		t.Errorf("the documents have %d examples of configurations, want at least 6", checked)
	}
}

// TestDocs_links: no link within the repository leads nowhere.
func TestDocs_links(t *testing.T) {
	for _, document := range append(documents(t), readmes(t)...) {
		text, err := os.ReadFile(document)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range link.FindAllStringSubmatch(string(text), -1) {
			if found[1] == "" || strings.Contains(found[1], "://") {
				continue
			}
			if _, err := os.Stat(filepath.Join(filepath.Dir(document), found[1])); err != nil {
				t.Errorf("%s links to %s: %v", document, found[1], err)
			}
		}
	}
}

// TestDocs_pictures: what `make screenshots` took is a picture that a repository can keep.
func TestDocs_pictures(t *testing.T) {
	content, err := os.ReadFile("../../docs/images/dashboard.png")
	if err != nil {
		t.Fatal(err)
	}
	picture, err := png.DecodeConfig(bytes.NewReader(content))
	if err != nil || picture.Width < 1000 || len(content) > 300<<10 {
		t.Errorf("docs/images/dashboard.png is %d wide and has %d bytes, %v; want a picture of at least 1000 and at most 300 KiB", picture.Width, len(content), err)
	}
}
