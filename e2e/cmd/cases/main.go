// Command cases runs the public cases on every engine and lists them by id with what became of each. FULL=1 runs them at
// full length, ENGINE on one engine, RUN those whose id matches. To be started in the module's folder.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"
)

// maxSkips is how many cases may be skipped, each for a reason, on one engine.
const maxSkips = 3

func main() {
	if err := run(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "cases:", err)
		os.Exit(1)
	}
}

func run(out io.Writer) error {
	list, err := os.ReadFile("cases/testdata/cases.list")
	if err != nil {
		return err
	}
	kinds := []string{"compiled", "traefik"}
	if only := os.Getenv("ENGINE"); only != "" {
		kinds = []string{only}
	}
	var columns []*column
	for _, kind := range kinds {
		c, err := play(kind)
		if err != nil {
			return err
		}
		columns = append(columns, c)
	}
	fmt.Fprintf(out, "%-4s", "id")
	for _, c := range columns {
		fmt.Fprintf(out, " %-9s", c.kind)
	}
	fmt.Fprintln(out, " case")
	for _, line := range strings.Split(string(list), "\n") {
		fields := strings.SplitN(line, "\t", 3)
		if len(fields) < 3 || strings.HasPrefix(line, "#") {
			continue
		}
		fmt.Fprintf(out, "%-4s", fields[0])
		for _, c := range columns {
			fmt.Fprintf(out, " %-9s", c.result(fields[0]))
		}
		fmt.Fprintln(out, "", fields[2])
	}
	var errs []error
	for _, c := range columns {
		fmt.Fprintf(out, "%s: %d passed, %d skipped, %d failed, %d missing, in %.0f s\n",
			c.kind, c.total["pass"], c.total["skip"], c.total["FAIL"], c.total["missing"], c.took.Seconds())
		errs = append(errs, c.verdict(out))
	}
	return errors.Join(errs...)
}

// column is what became of the cases on one engine.
type column struct {
	kind    string
	results map[string]string   // by id
	told    map[string][]string // by id: what a test said
	total   map[string]int
	took    time.Duration
	err     error // of the run as a whole
	rest    []string
}

// play runs the tests on one engine.
func play(kind string) (*column, error) {
	pattern := "^TestCases$"
	if only := os.Getenv("RUN"); only != "" {
		pattern = "^TestCases$/^" + kind + "$/" + only
	}
	args := []string{"test", "-json", "-count=1", "-timeout", "90m", "-run", pattern}
	if kind == "compiled" && os.Getenv("FULL") == "" {
		args = append(args, "-race")
	}
	tool := os.Getenv("GO")
	if tool == "" {
		tool = "go"
	}
	cmd := exec.Command(tool, append(args, "./cases")...)
	cmd.Env = append(os.Environ(), "ENGINE="+kind)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	c := &column{kind: kind, results: map[string]string{}, told: map[string][]string{}, total: map[string]int{}}
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		c.event(line)
		if err != nil {
			break
		}
	}
	c.err = cmd.Wait()
	c.took = time.Since(began)
	return c, nil
}

// event takes one line of `go test -json`.
func (c *column) event(line []byte) {
	var ev struct{ Action, Test, Output string }
	if len(bytes.TrimSpace(line)) == 0 {
		return
	}
	if json.Unmarshal(line, &ev) != nil {
		c.rest = append(c.rest, string(line))
		return
	}
	parts := strings.Split(ev.Test, "/")
	if len(parts) < 3 || parts[0] != "TestCases" {
		if ev.Action == "output" || ev.Action == "build-output" {
			c.rest = append(c.rest, ev.Output)
		}
		return
	}
	id := parts[2]
	switch old := c.results[id]; ev.Action {
	case "output":
		if strings.Contains(ev.Output, "_test.go:") {
			c.told[id] = append(c.told[id], ev.Output)
		}
	case "fail":
		c.results[id] = "FAIL"
	case "skip": // a part that is skipped counts for the whole
		if old != "FAIL" {
			c.results[id] = "skip"
		}
	case "pass":
		if old == "" && len(parts) == 3 {
			c.results[id] = "pass"
		}
	}
}

// result is what became of a case, and counts it.
func (c *column) result(id string) string {
	r := c.results[id]
	if r == "" {
		if r = "missing"; os.Getenv("RUN") != "" {
			return "-"
		}
	}
	c.total[r]++
	return r
}

// verdict tells more of what did not pass.
func (c *column) verdict(out io.Writer) error {
	const most = 400
	for id, r := range c.results {
		if r == "pass" {
			continue
		}
		fmt.Fprintf(out, "--- %s %s on %s\n", r, id, c.kind)
		for i, line := range c.told[id] {
			if i == 10 {
				fmt.Fprintf(out, "... and %d lines more\n", len(c.told[id])-i)
				break
			}
			if len(line) > most {
				line = line[:most] + "...\n"
			}
			fmt.Fprint(out, line)
		}
	}
	switch {
	case c.total["FAIL"] > 0 || c.total["missing"] > 0:
		return fmt.Errorf("%s: %d failed, %d missing", c.kind, c.total["FAIL"], c.total["missing"])
	case c.total["skip"] > maxSkips:
		return fmt.Errorf("%s: %d skipped, at most %d may be", c.kind, c.total["skip"], maxSkips)
	case c.err != nil:
		return fmt.Errorf("%s: %w\n%s", c.kind, c.err, strings.Join(c.rest, ""))
	}
	return nil
}
