package check

import (
	"bytes"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
	"github.com/moby/patternmatcher"
	"github.com/moby/patternmatcher/ignorefile"
)

// image is what a Dockerfile comes to.
type image struct {
	file       string // the Dockerfile, from the repository's root
	args       []instructions.ArgCommand
	stages     []instructions.Stage
	entrypoint []string
	cmd        []string
	workdir    string
}

func readImage(t *testing.T, file string) image {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root(t), file))
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := parser.Parse(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	stages, args, err := instructions.Parse(parsed.AST, nil)
	if err != nil {
		t.Fatal(err)
	}
	i := image{file: file, args: args, stages: stages, workdir: "/"}
	for _, command := range stages[len(stages)-1].Commands {
		switch c := command.(type) {
		case *instructions.EntrypointCommand:
			i.entrypoint = c.CmdLine
		case *instructions.CmdCommand:
			i.cmd = c.CmdLine
		case *instructions.WorkdirCommand:
			i.workdir = c.Path
		}
	}
	return i
}

// lay puts the files of the last stage where its COPY instructions put them, out of the files that the build sees.
func (i image) lay(t *testing.T, s *stage) {
	t.Helper()
	context := i.context(t)
	for _, command := range i.stages[len(i.stages)-1].Commands {
		c, ok := command.(*instructions.CopyCommand)
		if !ok {
			continue
		}
		mode := os.FileMode(0o644)
		if c.Chmod != "" {
			parsed, err := strconv.ParseUint(c.Chmod, 8, 32)
			if err != nil {
				t.Fatalf("%s: %v", c, err)
			}
			mode = os.FileMode(parsed)
		}
		for _, pattern := range c.SourcePaths {
			if i.copy(t, s, context, pattern, c.DestPath, mode) == 0 {
				t.Errorf("%s: %s: no file of the build is %q", i.file, c, pattern)
			}
		}
	}
}

// copy does what COPY does with one source: a folder's content, or files that match a pattern.
func (i image) copy(t *testing.T, s *stage, context []string, pattern, target string, mode os.FileMode) (copied int) {
	t.Helper()
	for _, name := range context {
		to := target
		matches, err := path.Match(pattern, name)
		switch inside, below := strings.CutPrefix(name, pattern+"/"); {
		case err != nil:
			t.Fatal(err)
		case below:
			to = path.Join(target, inside)
		case matches && strings.HasSuffix(target, "/"):
			to = path.Join(target, path.Base(name))
		case !matches:
			continue
		}
		content, err := os.ReadFile(filepath.Join(root(t), name))
		if err != nil {
			t.Fatal(err)
		}
		s.write(t, to, string(content), mode)
		copied++
	}
	return copied
}

// context lists the files that the build sees: those that the .dockerignore beside the Dockerfile lets through.
func (i image) context(t *testing.T) []string {
	t.Helper()
	list, err := os.Open(filepath.Join(root(t), i.file+".dockerignore"))
	if err != nil {
		t.Fatal(err)
	}
	defer list.Close()
	patterns, err := ignorefile.ReadAll(list)
	if err != nil {
		t.Fatal(err)
	}
	ignore, err := patternmatcher.New(patterns)
	if err != nil {
		t.Fatal(err)
	}
	var seen []string
	err = filepath.WalkDir(root(t), func(p string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root(t), p)
		if err != nil {
			return err
		}
		if entry.IsDir() && slices.Contains([]string{".git", ".cache"}, name) {
			return filepath.SkipDir
		}
		if !entry.Type().IsRegular() {
			return nil
		}
		ignored, err := ignore.MatchesOrParentMatches(filepath.ToSlash(name))
		if err == nil && !ignored {
			seen = append(seen, filepath.ToSlash(name))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return seen
}

// layBase lays what the official image has and CART's does not bring: the binary, and an entry point that, like the official one,
// puts the binary before arguments that are none of a command's.
func (s *stage) layBase(t *testing.T) {
	t.Helper()
	binary := s.path("/usr/local/bin/traefik")
	if err := os.MkdirAll(filepath.Dir(binary), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(traefikBinary(t), binary); err != nil {
		copyFile(t, traefikBinary(t), binary)
	}
	s.write(t, "/entrypoint.sh", "#!/bin/sh\ncase $1 in -*) set -- traefik \"$@\" ;; esac\nexec \"$@\"\n", 0o755)
	s.env = append(s.env, "PATH="+filepath.Dir(binary)+":"+os.Getenv("PATH"), "TRAEFIK_ENTRYPOINT="+s.path("/entrypoint.sh"))
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	source, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	target, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(target, source); err != nil {
		t.Fatal(err)
	}
	if err := target.Close(); err != nil {
		t.Fatal(err)
	}
}
