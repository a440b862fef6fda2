package catalog

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// installPlugin puts the repository where the interpreter looks, as the archive of a release has it: a release's dependencies come
// from vendor/, tests and all else lie beside.
func installPlugin(t *testing.T, goPath string) {
	t.Helper()
	target := filepath.Join(goPath, "src", "github.com", "cart-llm", "cart")
	for name, content := range releaseFiles(t) {
		name = filepath.Join(target, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// releaseFiles are what a release of the repository would have now: all that git does not ignore, export-ignore left out, as GitHub
// packs it.
func releaseFiles(t *testing.T) map[string][]byte {
	t.Helper()
	index := filepath.Join(t.TempDir(), "index")
	git := func(args ...string) []byte {
		t.Helper()
		cmd := exec.Command("git", args...)
		cmd.Dir = root(t)
		// An index of its own leaves the user's alone.
		cmd.Env = append(os.Environ(), "GIT_INDEX_FILE="+index)
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("git %v: %v", args, err)
		}
		return out
	}
	git("add", "--all", ".")
	tree := strings.TrimSpace(string(git("write-tree")))
	files := map[string][]byte{}
	for archive := tar.NewReader(bytes.NewReader(git("archive", "--format=tar", tree))); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if header.Typeflag != tar.TypeReg {
			continue
		}
		if files[header.Name], err = io.ReadAll(archive); err != nil {
			t.Fatal(err)
		}
	}
}
