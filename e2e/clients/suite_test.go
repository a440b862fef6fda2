package clients

import (
	"context"
	"encoding/xml"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cart-llm/cart/e2e/traefik"
)

// suite is the tests in one language.
type suite struct {
	language  string
	program   string // of the language
	installer string // of its packages, "" = part of it
	needs     string // what to install when it is missing or too old
	version   []string
	command   func(program, results string) []string
	env       func(installed string) []string
}

var python = suite{
	language: "python",
	program:  or(os.Getenv("PYTHON"), "python3"),
	needs:    "Python 3.11",
	version:  []string{"-c", "import sys; sys.exit(sys.version_info < (3, 11))"},
	command: func(program, results string) []string {
		return []string{program, "-m", "pytest", "--junitxml", results}
	},
	env: func(installed string) []string { return []string{"PYTHONPATH=" + installed} },
}

var node = suite{
	language:  "node",
	program:   or(os.Getenv("NODE"), "node"),
	installer: "npm",
	needs:     "Node 20",
	version:   []string{"-e", "process.exit(Number(process.versions.node.split('.')[0] < 20))"},
	command: func(program, results string) []string {
		// One file after the other: some share a pool, and its faults.
		return []string{program, "--test", "--test-concurrency=1", "--test-reporter=junit", "--test-reporter-destination=" + results}
	},
	env: func(string) []string { return nil }, // the packages are linked beside the tests
}

func or(value, otherwise string) string {
	if value == "" {
		return otherwise
	}
	return value
}

// limit bounds one suite. It takes about 20 s, most of which are waits that SDKs are told to make; on a busy machine far more.
const limit = 4 * time.Minute

// require skips the test where the language is missing on a developer's machine. In CI it must be there.
func (s suite) require(t *testing.T) {
	t.Helper()
	err := exec.Command(s.program, s.version...).Run()
	if err == nil && s.installer != "" {
		_, err = exec.LookPath(s.installer)
	}
	if err == nil {
		return
	}
	message := fmt.Sprintf("the tests of the SDKs in %s need %s or later as %s on the PATH: %v", s.language, s.needs, s.program, err)
	if os.Getenv("CI") == "true" {
		t.Fatal(message)
	}
	t.Skip(message)
}

// install fetches the pinned packages for a language, or for the engine, if they are not in .cache yet, and returns where
// they are.
func install(t *testing.T, what string) string {
	t.Helper()
	root, err := traefik.Root()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("bash", filepath.Join(root, "tools", "fetch-clients"), what)
	var problems strings.Builder
	cmd.Stderr = &problems
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s%s", cmd.Args, err, out, problems.String())
	}
	return strings.TrimSpace(string(out))
}

// run runs the suite, or some files that are no part of it, against a lab and returns the tests' results.
func (s suite) run(t *testing.T, l *lab, installed string, files ...string) []result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	results := filepath.Join(l.dir, "results.xml")
	args := append(s.command(s.program, results), files...)
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir = s.language
	cmd.WaitDelay = 10 * time.Second
	cmd.Env = append(os.Environ(), "CART_LAB="+l.labFile(), "PYTHONDONTWRITEBYTECODE=", "NO_PROXY=127.0.0.1", "no_proxy=127.0.0.1")
	cmd.Env = append(cmd.Env, s.env(installed)...)
	out, runErr := cmd.CombinedOutput()
	list, err := readResults(results)
	failed := false
	for _, r := range list {
		failed = failed || r.failure != ""
	}
	// A failed test is shown by itself; anything else that is wrong is not.
	if err != nil || len(list) == 0 || (runErr != nil) != failed {
		t.Errorf("%v: %v; results: %v\n%s", args, runErr, err, out)
	}
	return list
}

// result is what became of one test in another language.
type result struct {
	name    string
	failure string // "" = none
	skipped bool
	seconds float64
}

// report makes each of them a test of Go's, which is then counted.
func report(t *testing.T, list []result) {
	t.Helper()
	for _, r := range list {
		t.Run(r.name, func(t *testing.T) {
			t.Logf("took %.1f s", r.seconds)
			if r.skipped {
				t.Skip("skipped by the suite")
			}
			if r.failure != "" {
				t.Error(r.failure)
			}
		})
	}
}

// junit is the part of JUnit's format that counts here. Node nests suites, pytest does not.
type junit struct {
	Name   string  `xml:"name,attr"`
	Suites []junit `xml:"testsuite"`
	Cases  []struct {
		Name     string      `xml:"name,attr"`
		Seconds  float64     `xml:"time,attr"`
		Class    string      `xml:"classname,attr"`
		Failures []junitText `xml:"failure"`
		Errors   []junitText `xml:"error"`
		Skipped  *struct{}   `xml:"skipped"`
	} `xml:"testcase"`
}

type junitText struct {
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

func readResults(path string) ([]result, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var root junit
	if err := xml.Unmarshal(content, &root); err != nil {
		return nil, err
	}
	return root.results(""), nil
}

func (j junit) results(above string) []result {
	var out []result
	for _, c := range j.Cases {
		r := result{name: above + c.Name, skipped: c.Skipped != nil, seconds: c.Seconds}
		if above == "" && strings.HasPrefix(c.Class, "test_") {
			r.name = strings.TrimPrefix(c.Class, "test_") + "/" + c.Name
		}
		for _, f := range append(c.Failures, c.Errors...) {
			r.failure += f.Message + "\n" + f.Text + "\n"
		}
		out = append(out, r)
	}
	for _, nested := range j.Suites {
		below := above
		if nested.Name != "pytest" {
			below += nested.Name + "/"
		}
		out = append(out, nested.results(below)...)
	}
	return out
}
