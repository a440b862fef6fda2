package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// shown are the commands of the documents: what begins like this is run by that test, or is not run, and why. A target of
// make is run by the file named, and has to be in the Makefile.
var shown = []struct {
	command string
	file    string // of the test, from the repository's root; "" = it is not run
	test    string // a text in that file; or why it is not run
}{
	{"make demo", "e2e/demo/demo_test.go", "func Test"},
	{"make test", ".ci/run", "make test"},
	{"make load", "", "fetches 900 MB; gives a verdict by itself"},
	{"pip install aiperf", "", "part of make load"},
	{"aiperf profile", "e2e/clients/load/load.sh", "--prompt-prefix-pool-size 32 --prompt-prefix-length 3000 --prompt-input-tokens-mean 200"},
	{"cart check", "cmd/cart/check_test.go", `"check"`},
	{"kubectl get middlewares -A -o yaml | cart check -", "cmd/cart/check_test.go", `"check", "-"`},
	{"cart migrate", "cmd/cart/migrate_test.go", `"migrate"`},
	{"curl -s 'http://traefik:PORT/workers?explain=", "e2e/seeing/explain_test.go", "?explain="},
	{"docker build", "", "there is no Docker daemon: deploy/check/image_test.go does what the Dockerfile says"},
	{"sha256sum -c", "deploy/check/archive_test.go", "TestArchive_asDocumented"},
	{"ls /opt/traefik/plugins-local", "deploy/check/archive_test.go", "TestArchive_asDocumented"},
	{"helm install cart deploy/helm/cart", "deploy/check/helm_test.go", "TestHelm_asDocumented"},
	{"helm install traefik", "", "that chart is out of reach: deploy/check/values_test.go starts Traefik with what the values come to"},
}

var (
	shellFence = regexp.MustCompile("(?ms)^```(?:sh|console)\n(.*?)^```$")
	remark     = regexp.MustCompile(`\s+#.*$`)
	makeTarget = regexp.MustCompile(`^make ([a-z-]+)`)
)

// TestDocs_commands: every command in the documents is run by a test, or is known not to be.
func TestDocs_commands(t *testing.T) {
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	used := map[string]bool{}
	for _, document := range append(documents(t), readmes(t)...) {
		for _, command := range commandsOf(t, document) {
			row := -1
			for i := range shown {
				if strings.HasPrefix(command, shown[i].command) && (row < 0 || len(shown[i].command) > len(shown[row].command)) {
					row = i
				}
			}
			if row < 0 {
				t.Errorf("%s shows %q, which no test is known to run", document, command)
				continue
			}
			used[shown[row].command] = true
			if target := makeTarget.FindStringSubmatch(command); target != nil && !strings.Contains(string(makefile), "\n"+target[1]+":") {
				t.Errorf("%s shows %q, and there is no such target", document, command)
			}
		}
	}
	for _, row := range shown {
		if !used[row.command] {
			t.Errorf("no document shows %q any more", row.command)
		}
		if row.file == "" {
			continue
		}
		if text, err := os.ReadFile(filepath.Join("../..", row.file)); err != nil || !strings.Contains(string(text), row.test) {
			t.Errorf("%s is to run %q, but has no %q: %v", row.file, row.command, row.test, err)
		}
	}
}

// readmes are the documents below deploy and examples.
func readmes(t *testing.T) []string {
	t.Helper()
	var out []string
	for _, folder := range []string{"../../deploy", "../../examples"} {
		err := filepath.WalkDir(folder, func(path string, entry os.DirEntry, err error) error {
			if err == nil && strings.HasSuffix(path, ".md") && !entry.IsDir() {
				out = append(out, path)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// commandsOf returns the commands that a document shows: of a block with prompts, what follows them.
func commandsOf(t *testing.T, document string) []string {
	t.Helper()
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, block := range shellFence.FindAllStringSubmatch(string(text), -1) {
		prompts := strings.HasPrefix(block[1], "$ ")
		whole := strings.ReplaceAll(block[1], "\\\n", "")
		for _, line := range strings.Split(whole, "\n") {
			command, prompted := strings.CutPrefix(line, "$ ")
			command = strings.TrimSpace(remark.ReplaceAllString(command, ""))
			if command != "" && prompted == prompts && !strings.HasPrefix(command, "#") {
				out = append(out, command)
			}
		}
	}
	return out
}
