package main

import (
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"sort"
	"strings"
)

// report gathers what a command printed: events of `go test -json`, the text of `go test -v`, or anything else.
type report struct {
	results map[testID]string   // pass, fail, skip or running
	output  map[testID][]string // by test; under "" what belongs to the package
	plain   []string            // lines that are no events and belong to no test
	current string              // the test that prints, in `go test -v` text
	order   []testID            // failures, in the order in which they came
}

type testID struct{ pkg, test string }

// event is what test2json writes; build-output events carry ImportPath instead of Package.
type event struct {
	Action     string
	Package    string
	ImportPath string
	Test       string
	Output     string
}

// running is the result of a test that has begun and not ended.
const running = "running"

func newReport() *report {
	return &report{results: map[testID]string{}, output: map[testID][]string{}}
}

var (
	textBegins = regexp.MustCompile(`^=== (RUN|CONT|NAME)\s+(\S+)`)
	textResult = regexp.MustCompile(`^\s*--- (PASS|FAIL|SKIP): (\S+) \(`)
)

// line takes one line of output, with its line end.
func (r *report) line(text string) {
	var ev event
	if strings.HasPrefix(text, "{") && json.Unmarshal([]byte(text), &ev) == nil && ev.Action != "" {
		r.event(ev)
		return
	}
	if m := textBegins.FindStringSubmatch(text); m != nil {
		r.current = m[2]
		if m[1] == "RUN" {
			r.event(event{Action: "run", Test: m[2]})
		}
		return
	}
	m := textResult.FindStringSubmatch(text)
	if m == nil && r.current == "" {
		r.plain = append(r.plain, text)
		return
	}
	if m != nil {
		r.current = m[2]
	}
	r.event(event{Action: "output", Test: r.current, Output: text})
	if m != nil {
		r.event(event{Action: strings.ToLower(m[1]), Test: m[2]})
		r.current = ""
	}
}

func (r *report) event(ev event) {
	id := testID{ev.Package, ev.Test}
	switch ev.Action {
	case "run":
		r.results[id] = running
	case "output":
		r.output[id] = append(r.output[id], ev.Output)
	case "build-output":
		r.plain = append(r.plain, ev.Output)
	case "pass", "fail", "skip":
		r.result(id, ev.Action)
	}
}

func (r *report) result(id testID, action string) {
	if action == "fail" {
		r.order = append(r.order, id)
	}
	if id.test != "" {
		r.results[id] = action
	}
}

// counts are numbers of tests. A test with subtests is not counted itself, unless it failed and none of them did.
type counts struct{ passed, failed, skipped int }

func (c counts) String() string {
	text := fmt.Sprintf("%d passed, %d failed", c.passed, c.failed)
	if c.skipped > 0 {
		text += fmt.Sprintf(", %d skipped", c.skipped)
	}
	return text
}

func (r *report) counts() counts {
	parents := map[testID]bool{}
	blamed := map[testID]bool{} // tests and packages with a failed test below them
	for id, action := range r.results {
		for i, c := range id.test {
			if c != '/' {
				continue
			}
			parent := testID{id.pkg, id.test[:i]}
			parents[parent] = true
			blamed[parent] = blamed[parent] || action == "fail"
		}
		if action == "fail" {
			blamed[testID{id.pkg, ""}] = true
		}
	}
	var c counts
	for id, action := range r.results {
		switch {
		case action == "fail" && !blamed[id]:
			c.failed++
		case parents[id]:
		case action == "pass":
			c.passed++
		case action == "skip":
			c.skipped++
		}
	}
	// A package can fail without a test of its own: it does not compile, or it panics outside of one.
	for _, id := range r.order {
		if id.test == "" && !blamed[id] {
			c.failed++
		}
	}
	return c
}

var noise = regexp.MustCompile(`^(=== (RUN|PAUSE|CONT|NAME)\b|\s*--- (PASS|SKIP): |PASS$|ok  \t|\?   \t)`)

// printDetails prints the output of what failed: plain lines, then each failed test, then failed packages.
func (r *report) printDetails(w io.Writer) {
	printLines(w, r.plain)
	sort.SliceStable(r.order, func(i, j int) bool {
		a, b := r.order[i], r.order[j]
		return a.pkg == b.pkg && a.test != "" && b.test == ""
	})
	for _, id := range append(r.unfinished(), r.order...) {
		if id.test != "" && id.pkg != "" && len(r.output[id]) > 0 {
			fmt.Fprintln(w, id.pkg)
		}
		if r.results[id] == running {
			fmt.Fprintf(w, "--- never ended: %s\n", id.test)
		}
		printLines(w, r.output[id])
	}
}

// unfinished returns the tests that were running when their package failed, by a panic or out of time.
func (r *report) unfinished() []testID {
	var ids []testID
	for id, action := range r.results {
		if action == running {
			ids = append(ids, id)
		}
	}
	sort.Slice(ids, func(i, j int) bool { return ids[i].pkg+" "+ids[i].test < ids[j].pkg+" "+ids[j].test })
	return ids
}

// Of one test at most so many lines are shown from its beginning and from its end: a server's log, a dump of goroutines.
const headLines, tailLines = 150, 50

func printLines(w io.Writer, lines []string) {
	var told []string
	for _, line := range lines {
		if !noise.MatchString(strings.TrimSuffix(line, "\n")) {
			told = append(told, line)
		}
	}
	if left := len(told) - headLines - tailLines; left > 0 {
		cut := fmt.Sprintf("... %d lines left out\n", left)
		told = append(append(told[:headLines:headLines], cut), told[headLines+left:]...)
	}
	for _, line := range told {
		fmt.Fprint(w, line)
	}
}
