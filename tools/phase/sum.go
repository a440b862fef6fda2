package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// sumFile names the file with one line a phase: passed, failed, skipped, "ok" or "FAIL", the phase's name.
type sumFile string

func (s sumFile) reset() error {
	if err := os.Remove(string(s)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (s sumFile) add(name string, failed bool, c counts) error {
	if err := os.MkdirAll(filepath.Dir(string(s)), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(string(s), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	verdict := "ok"
	if failed {
		verdict = "FAIL"
	}
	_, err = fmt.Fprintf(f, "%d %d %d %s %s\n", c.passed, c.failed, c.skipped, verdict, name)
	return errors.Join(err, f.Close())
}

// print writes the closing lines: which phases failed, and the sum of the tests alone on the last line. It fails when
// a phase did.
func (s sumFile) print(w io.Writer) error {
	content, err := os.ReadFile(string(s))
	if err != nil {
		return err
	}
	var total counts
	var failed []string
	for _, line := range strings.Split(strings.TrimSpace(string(content)), "\n") {
		var c counts
		var verdict string
		if _, err := fmt.Sscan(line, &c.passed, &c.failed, &c.skipped, &verdict); err != nil {
			return fmt.Errorf("%s: %q: %w", s, line, err)
		}
		total.passed += c.passed
		total.failed += c.failed
		total.skipped += c.skipped
		if verdict == "FAIL" {
			failed = append(failed, strings.SplitN(line, " ", 5)[4])
		}
	}
	if len(failed) > 0 {
		fmt.Fprintf(w, "failed: %s\n%s\n", strings.Join(failed, ", "), total)
		return phaseFailed{}
	}
	fmt.Fprintln(w, total)
	return nil
}
