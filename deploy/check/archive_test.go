package check

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

const (
	module  = "github.com/cart-llm/cart"
	version = "v0.0.0-check"
	layout  = "plugins-local/src/" + module
)

// distOnce makes the release archives once for all tests.
var distOnce = sync.OnceValues(func() (dir string, err error) {
	dir = filepath.Join(scratch, "dist")
	return dir, makeDist(dir)
})

// distDir is the folder that distOnce made.
func distDir(t *testing.T) string {
	t.Helper()
	dir, err := distOnce()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// makeDist is what `make dist` does.
func makeDist(dir string) error {
	cmd := exec.Command("go", "-C", "../../tools", "run", "./dist", "-root", "..", "-version", version, "-o", dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%v: %w\n%s", cmd, err, out)
	}
	return nil
}

// unpack puts the plugin where Traefik looks for it, from the release archive.
func (s *stage) unpack(t *testing.T) {
	t.Helper()
	for name, content := range readTar(t, filepath.Join(distDir(t), "cart-"+version+".tar.gz")) {
		s.write(t, name, content, 0o644)
	}
}

// TestArchive: Traefik starts from each unpacked archive and routes a chat.
func TestArchive(t *testing.T) {
	t.Parallel()
	dir := distDir(t)
	archives := map[string]map[string]string{
		".tar.gz": readTar(t, filepath.Join(dir, "cart-"+version+".tar.gz")),
		".zip":    readZip(t, filepath.Join(dir, "cart-"+version+".zip")),
	}
	if !maps.Equal(archives[".tar.gz"], archives[".zip"]) {
		t.Error("the two archives have different files")
	}
	for ending, files := range archives {
		t.Run(ending, func(t *testing.T) {
			t.Parallel()
			for name := range files {
				inside, ok := strings.CutPrefix(name, layout+"/")
				if !ok || strings.HasSuffix(name, "_test.go") || strings.Contains(inside, "testdata") {
					t.Errorf("%s has no place in a release", name)
				}
			}
			for _, name := range []string{".traefik.yml", "go.mod", "plugin.go", "LICENSE", "vendor/modules.txt"} {
				if files[layout+"/"+name] == "" {
					t.Errorf("no %s", name)
				}
			}
			s := newStage(t)
			for name, content := range files {
				s.write(t, name, content, 0o644)
			}
			urls, address := startReplicas(t), s.listen(t)
			s.put(t, filepath.Join(root(t), "examples", "file"), etc, s.fileEdits(address, urls))
			s.start(t, "--configFile="+s.path(etc+"/traefik.yml"))
			asker{base: "http://" + address}.chat(t, "an archive")
		})
	}
}

// TestArchive_isReproducible: the same sources make the same bytes, and the sums that come with them are theirs.
func TestArchive_isReproducible(t *testing.T) {
	first, second := distDir(t), t.TempDir()
	if err := makeDist(second); err != nil {
		t.Fatal(err)
	}
	sums, err := os.ReadFile(filepath.Join(first, "SHA256SUMS"))
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, name := range []string{"cart-" + version + ".tar.gz", "cart-" + version + ".zip"} {
		one, err := os.ReadFile(filepath.Join(first, name))
		other, otherErr := os.ReadFile(filepath.Join(second, name))
		if err := errors.Join(err, otherErr); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(one, other) {
			t.Errorf("%s differs from one time to the next", name)
		}
		want = append(want, fmt.Sprintf("%x  %s\n", sha256.Sum256(one), name))
	}
	if string(sums) != strings.Join(want, "") {
		t.Errorf("SHA256SUMS =\n%swant\n%s", sums, strings.Join(want, ""))
	}
}

// TestArchive_asDocumented: the commands of docs/deployment.md put the plugin where Traefik looks for it.
func TestArchive_asDocumented(t *testing.T) {
	s := newStage(t)
	commands := documented(t, "docs/deployment.md", "sha256sum -c", "ls /opt/traefik/plugins-local")
	line := strings.NewReplacer("v0.1.0", version, "/opt/traefik", s.dir).Replace(strings.Join(commands, " && "))
	cmd := exec.Command("sh", "-c", line)
	cmd.Dir = distDir(t)
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "plugin.go") {
		t.Errorf("%s: %v\n%s", line, err, out)
	}
}

// documented returns the commands of a document that begin with one of these.
func documented(t *testing.T, document string, beginnings ...string) (commands []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root(t), document))
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(string(text), "\n") {
		line, _, _ = strings.Cut(strings.TrimPrefix(line, "$ "), " #")
		for _, beginning := range beginnings {
			if strings.HasPrefix(line, beginning) {
				commands = append(commands, line)
			}
		}
	}
	if len(commands) != len(beginnings) {
		t.Fatalf("%s has the commands %q, want %d", document, commands, len(beginnings))
	}
	return commands
}

// TestArchive_needsAVersion: a release without one would be found under no name.
func TestArchive_needsAVersion(t *testing.T) {
	for _, bad := range []string{"", "../v1", "v1 2"} {
		out, err := exec.Command("go", "-C", "../../tools", "run", "./dist", "-root", "..", "-version", bad, "-o", t.TempDir()).CombinedOutput()
		if err == nil || !strings.Contains(string(out), "is not allowed") {
			t.Errorf("dist -version %q: %v, %s, want a refusal", bad, err, out)
		}
	}
}

func readTar(t *testing.T, name string) map[string]string {
	t.Helper()
	content, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	plain, err := gzip.NewReader(bytes.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	var names []string
	for archive := tar.NewReader(plain); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, header.Name)
		files[header.Name] = string(text)
		if header.Mode != 0o644 || header.Uid != 0 || header.ModTime.Year() != 1980 {
			t.Errorf("%s has mode %o, user %d and time %v, want them fixed", header.Name, header.Mode, header.Uid, header.ModTime)
		}
	}
	if !slices.IsSorted(names) {
		t.Errorf("the files of %s are not in order", name)
	}
	return files
}

func readZip(t *testing.T, name string) map[string]string {
	t.Helper()
	archive, err := zip.OpenReader(name)
	if err != nil {
		t.Fatal(err)
	}
	defer archive.Close()
	files := map[string]string{}
	for _, f := range archive.File {
		r, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		r.Close()
		if err != nil {
			t.Fatal(err)
		}
		files[f.Name] = string(text)
	}
	return files
}
