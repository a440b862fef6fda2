package main

import (
	"errors"
	"strings"
	"testing"
)

func TestReport_counts(t *testing.T) {
	tests := []struct {
		name   string
		output string
		want   counts
	}{
		{"nothing", "hello\n", counts{}},
		{"text", "=== RUN   TestA\n--- PASS: TestA (0.00s)\n--- SKIP: TestB (0.00s)\nPASS\n", counts{passed: 1, skipped: 1}},
		{"a parent is not counted", "--- PASS: TestA (0.00s)\n    --- PASS: TestA/x (0.00s)\n    --- PASS: TestA/y (0.00s)\n",
			counts{passed: 2}},
		{"a failed subtest counts once", "--- FAIL: TestA (0.00s)\n    --- FAIL: TestA/x (0.00s)\n    --- PASS: TestA/y (0.00s)\n",
			counts{passed: 1, failed: 1}},
		{"a parent that fails by itself", "--- FAIL: TestA (0.00s)\n    --- PASS: TestA/x (0.00s)\n", counts{passed: 1, failed: 1}},
		{"events", `{"Action":"pass","Package":"p","Test":"TestA"}
{"Action":"pass","Package":"p"}
{"Action":"fail","Package":"q","Test":"TestA"}
{"Action":"fail","Package":"q"}
`, counts{passed: 1, failed: 1}},
		{"a package that does not compile", `{"ImportPath":"p","Action":"build-output","Output":"p.go:1: bad\n"}
{"Action":"fail","Package":"p"}
`, counts{failed: 1}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := reportOf(tt.output).counts(); got != tt.want {
				t.Errorf("counts = %v, want %v", got, tt.want)
			}
		})
	}
}

func TestReport_detailsAreTheFailuresOnly(t *testing.T) {
	rep := reportOf(`{"Action":"output","Package":"p","Test":"TestGood","Output":"fine\n"}
{"Action":"pass","Package":"p","Test":"TestGood"}
{"Action":"output","Package":"p","Test":"TestBad","Output":"=== RUN   TestBad\n"}
{"Action":"output","Package":"p","Test":"TestBad","Output":"    x_test.go:3: broken\n"}
{"Action":"fail","Package":"p","Test":"TestBad"}
{"Action":"output","Package":"p","Output":"FAIL\tp\t0.1s\n"}
{"Action":"fail","Package":"p"}
`)
	var out strings.Builder
	rep.printDetails(&out)
	if want := "p\n    x_test.go:3: broken\nFAIL\tp\t0.1s\n"; out.String() != want {
		t.Errorf("details = %q, want %q", out.String(), want)
	}
}

func TestReport_detailsOfText(t *testing.T) {
	rep := reportOf(`=== RUN   TestGood
    value.go:1: fine
--- PASS: TestGood (0.00s)
=== RUN   TestBad
=== RUN   TestBad/x
    value.go:1: broken
--- FAIL: TestBad (0.00s)
    --- FAIL: TestBad/x (0.00s)
=== RUN   TestHangs
loading
panic: too late
`)
	var out strings.Builder
	rep.printDetails(&out)
	want := "--- never ended: TestHangs\nloading\npanic: too late\n" +
		"--- FAIL: TestBad (0.00s)\n    value.go:1: broken\n    --- FAIL: TestBad/x (0.00s)\n"
	if out.String() != want {
		t.Errorf("details = %q, want %q", out.String(), want)
	}
}

func TestReport_detailsNameTestsThatNeverEnded(t *testing.T) {
	rep := reportOf(`{"Action":"run","Package":"p","Test":"TestHangs"}
{"Action":"output","Package":"p","Test":"TestHangs","Output":"panic: test timed out after 1s\n"}
{"Action":"output","Package":"p","Output":"FAIL\tp\t1.0s\n"}
{"Action":"fail","Package":"p"}
`)
	var out strings.Builder
	rep.printDetails(&out)
	if want := "p\n--- never ended: TestHangs\npanic: test timed out after 1s\nFAIL\tp\t1.0s\n"; out.String() != want {
		t.Errorf("details = %q, want %q", out.String(), want)
	}
	if got, want := rep.counts(), (counts{failed: 1}); got != want {
		t.Errorf("counts = %v, want %v", got, want)
	}
}

func TestReport_longOutputIsCut(t *testing.T) {
	var out strings.Builder
	printLines(&out, strings.SplitAfter(strings.Repeat("line\n", 500), "\n"))
	if got := strings.Count(out.String(), "line\n"); got != headLines+tailLines-1 {
		t.Errorf("%d lines are shown, want %d", got, headLines+tailLines-1)
	}
}

func TestSum(t *testing.T) {
	sum := sumFile(t.TempDir() + "/sub/phases")
	for _, err := range []error{
		sum.reset(),
		sum.add("unit", false, counts{passed: 3, skipped: 1}),
		sum.add("e2e yaegi", true, counts{passed: 2, failed: 1}),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	var out strings.Builder
	if err := sum.print(&out); !errors.Is(err, phaseFailed{}) {
		t.Errorf("print = %v, want the failure of a phase", err)
	}
	if want := "failed: e2e yaegi\n5 passed, 1 failed, 1 skipped\n"; out.String() != want {
		t.Errorf("print = %q, want %q", out.String(), want)
	}
}

func reportOf(output string) *report {
	rep := newReport()
	for _, line := range strings.SplitAfter(output, "\n") {
		if line != "" {
			rep.line(line)
		}
	}
	return rep
}
