// Command phase runs one step of the Makefile: a heading line with its time, the details only when it fails.
//
//	phase NAME -- COMMAND...         any command
//	phase -tests NAME -- COMMAND...  one that prints `go test -json` events or `go test -v` text; no test run = failure,
//	                                 unless -none-ok says that a selection may match nothing
//	phase -total                     the sum of all phases since -reset, as "N passed, N failed"
//	phase -reset                     forget them
//
// The sum is kept in the folder named by -state.
package main

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

func main() {
	tests := flag.Bool("tests", false, "count the tests in the output")
	noneOK := flag.Bool("none-ok", false, "accept that no test ran")
	total := flag.Bool("total", false, "print the sum of all phases")
	reset := flag.Bool("reset", false, "forget the phases so far")
	state := flag.String("state", ".cache", "folder of the sum")
	flag.Parse()
	sum := sumFile(filepath.Join(*state, "phases"))

	var err error
	switch args := flag.Args(); {
	case *reset:
		err = sum.reset()
	case *total:
		err = sum.print(os.Stdout)
	case len(args) < 3 || args[1] != "--":
		err = errors.New("usage: phase [-tests [-none-ok]] NAME -- COMMAND")
	default:
		err = run(phase{args[0], args[2:], *tests, *noneOK}, sum)
	}
	if err == nil {
		return
	}
	var failed phaseFailed
	if !errors.As(err, &failed) {
		fmt.Fprintln(os.Stderr, "phase:", err)
	}
	os.Exit(1)
}

// phaseFailed says that everything about the failure is printed already.
type phaseFailed struct{}

func (phaseFailed) Error() string { return "the phase failed" }

type phase struct {
	name    string
	command []string
	tests   bool // its output tells of tests
	noneOK  bool // even of none
}

// run prints the heading, runs the command and prints what became of it.
func run(p phase, sum sumFile) error {
	fmt.Printf("%-24s ", p.name)

	started := time.Now()
	rep := newReport()
	cmdErr := runLines(p.command, rep.line)
	took := time.Since(started)

	counts := rep.counts()
	failed := cmdErr != nil || counts.failed > 0
	if p.tests && !p.noneOK && !failed && counts.passed == 0 {
		failed, cmdErr = true, errors.New("no test ran")
	}
	if failed && p.tests && counts.failed == 0 {
		counts.failed = 1
	}

	verdict := "ok  "
	if failed {
		verdict = "FAIL"
	}
	fmt.Printf("%s %7.1fs", verdict, took.Seconds())
	if p.tests {
		fmt.Printf("  %s", counts)
	}
	fmt.Println()
	if err := sum.add(p.name, failed, counts); err != nil {
		return err
	}
	if !failed {
		return nil
	}
	rep.printDetails(os.Stdout)
	if cmdErr != nil {
		fmt.Printf("%s: %v\n", p.name, cmdErr)
	}
	fmt.Println()
	return phaseFailed{}
}

// runLines runs the command and hands over each line of its two outputs.
func runLines(command []string, line func(string)) error {
	cmd := exec.Command(command[0], command[1:]...)
	out, in, err := os.Pipe()
	if err != nil {
		return err
	}
	cmd.Stdout, cmd.Stderr = in, in
	// A terminal interrupts the command too; what it prints then is worth showing.
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	if err := cmd.Start(); err != nil {
		return err
	}
	in.Close()
	go func() {
		for s := range signals {
			if s == syscall.SIGTERM {
				_ = cmd.Process.Signal(s) // it may be over
			}
		}
	}()

	read := make(chan error, 1)
	go func() { read <- eachLine(out, line) }()
	waitErr := cmd.Wait()
	// A process that the command left behind may hold the pipe open for ever.
	select {
	case err = <-read:
	case <-time.After(5 * time.Second):
		err = errors.New("it left a process behind that holds its output open")
	}
	return errors.Join(waitErr, err)
}

func eachLine(r io.Reader, line func(string)) error {
	buffered := bufio.NewReader(r)
	for {
		text, err := buffered.ReadString('\n')
		if text != "" {
			line(text)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
