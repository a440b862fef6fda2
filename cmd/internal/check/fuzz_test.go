package check

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/cart-llm/cart/cmd/internal/source"
)

// FuzzFiles: whatever is in a file, the check ends with an answer. The seeds are the wrong files and the right ones.
func FuzzFiles(f *testing.F) {
	for _, pattern := range []string{"../../cart/testdata/wrong/*", "../traefik/testdata/forms/*/*"} {
		names, err := filepath.Glob(pattern)
		if err != nil || len(names) == 0 {
			f.Fatalf("Glob(%s) = %v, %v, want files", pattern, names, err)
		}
		for _, name := range names {
			content, err := os.ReadFile(name)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(content, filepath.Ext(name))
		}
	}
	f.Fuzz(func(t *testing.T, content []byte, ending string) {
		switch ending {
		case ".yml", ".toml", ".json", ".txt":
		default:
			return
		}
		if bytes.Contains(content, []byte("{{")) {
			return // a template may take its time, here as in Traefik
		}
		name := filepath.Join(t.TempDir(), "a"+ending)
		if err := os.WriteFile(name, content, 0o644); err != nil {
			t.Fatal(err)
		}
		r := Files([]string{name, name}, Options{Options: source.Options{Labels: true}, NoFiles: true})
		if len(r.Faults)+len(r.Good) == 0 {
			t.Errorf("Files(%q) = no fault and nothing good", content)
		}
	})
}
