// Command dist packs a release of the plugin, laid out for plugins-local: unpacked in Traefik's working directory, it is found
// as the local plugin github.com/cart-llm/cart.
//
//	dist -root . -version v1.2.3 -o dist
//
// writes cart-v1.2.3.tar.gz, cart-v1.2.3.zip and SHA256SUMS. The same sources make the same bytes: names are sorted, times and
// modes fixed, and nothing tells of the machine.
package main

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// layout is where Traefik looks for the plugin, below its working directory.
const layout = "plugins-local/src/github.com/cart-llm/cart"

// packed is the time of all files: the first that a zip archive can tell.
var packed = time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC)

func main() {
	root := flag.String("root", ".", "the repository's root")
	version := flag.String("version", "", "of the release, such as v1.2.3")
	out := flag.String("o", "dist", "folder for the archives")
	flag.Parse()
	if err := dist(*root, *version, *out); err != nil {
		fmt.Fprintln(os.Stderr, "dist:", err)
		os.Exit(1)
	}
}

var isVersion = regexp.MustCompile(`^[0-9A-Za-z][0-9A-Za-z.+-]*$`)

func dist(root, version, out string) error {
	if !isVersion.MatchString(version) {
		return fmt.Errorf("version = %q is not allowed (want something like v1.2.3)", version)
	}
	files, err := sources(root)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	var sums strings.Builder
	for _, form := range []struct {
		ending string
		pack   func(w io.Writer, files []file) error
	}{{".tar.gz", packTar}, {".zip", packZip}} {
		name := "cart-" + version + form.ending
		sum, err := write(filepath.Join(out, name), func(w io.Writer) error { return form.pack(w, files) })
		if err != nil {
			return err
		}
		fmt.Fprintf(&sums, "%s  %s\n", sum, name)
	}
	fmt.Print(sums.String())
	return os.WriteFile(filepath.Join(out, "SHA256SUMS"), []byte(sums.String()), 0o644)
}

// file is one to be packed.
type file struct {
	name    string // in the archive
	content []byte
}

// sources reads what the plugin is made of, in the order of the names.
func sources(root string) ([]file, error) {
	var paths []string
	for _, pattern := range []string{"*.go", "go.mod", "go.sum", ".traefik.yml", "LICENSE", "README.md", "CHANGELOG.md"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			return nil, err
		}
		if len(found) == 0 {
			return nil, fmt.Errorf("no %s in %s", pattern, root)
		}
		paths = append(paths, found...)
	}
	paths = slices.DeleteFunc(paths, func(path string) bool { return strings.HasSuffix(path, "_test.go") })
	err := filepath.WalkDir(filepath.Join(root, "vendor"), func(path string, entry os.DirEntry, err error) error {
		if err == nil && entry.Type().IsRegular() {
			paths = append(paths, path)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	slices.Sort(paths)
	var files []file
	for _, path := range paths {
		content, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return nil, err
		}
		files = append(files, file{layout + "/" + filepath.ToSlash(name), content})
	}
	return files, nil
}

// write makes a file and returns its SHA-256.
func write(path string, fill func(io.Writer) error) (string, error) {
	f, err := os.Create(path)
	if err != nil {
		return "", err
	}
	hash := sha256.New()
	err = errors.Join(fill(io.MultiWriter(f, hash)), f.Close())
	return fmt.Sprintf("%x", hash.Sum(nil)), err
}

func packTar(w io.Writer, files []file) error {
	compressed, err := gzip.NewWriterLevel(w, gzip.BestCompression)
	if err != nil {
		return err
	}
	archive := tar.NewWriter(compressed)
	for _, f := range files {
		header := &tar.Header{Name: f.name, Mode: 0o644, Size: int64(len(f.content)), ModTime: packed, Format: tar.FormatUSTAR}
		if err := archive.WriteHeader(header); err != nil {
			return err
		}
		if _, err := archive.Write(f.content); err != nil {
			return err
		}
	}
	return errors.Join(archive.Close(), compressed.Close())
}

func packZip(w io.Writer, files []file) error {
	archive := zip.NewWriter(w)
	for _, f := range files {
		header := &zip.FileHeader{Name: f.name, Method: zip.Deflate, Modified: packed}
		header.SetMode(0o644)
		entry, err := archive.CreateHeader(header)
		if err != nil {
			return err
		}
		if _, err := entry.Write(f.content); err != nil {
			return err
		}
	}
	return archive.Close()
}
