package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// Exit statuses of the commands that start others.
const (
	ExitFailed      = 1
	ExitUsage       = 2
	ExitInterrupted = 130
)

// RunMain is the rest of such a command's main: it runs until it is done, the command is told to stop, or nobody reads what
// it prints any more, and exits accordingly. run has to end what it started when its context ends.
func RunMain(name string, run func(ctx context.Context) error) {
	ctx, cancel := context.WithCancelCause(context.Background())
	told := make(chan os.Signal, 1)
	signal.Notify(told, os.Interrupt, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) { // as under nohup
		signal.Notify(told, syscall.SIGHUP)
	}
	pipes := make(chan os.Signal, 1)
	signal.Notify(pipes, syscall.SIGPIPE)
	go func() {
		cancel(errors.New((<-told).String()))
	}()
	go func() {
		for got := range pipes {
			// A connection that the other side has closed raises it too, and that is everyday.
			if unread(os.Stdout) || unread(os.Stderr) {
				cancel(errors.New(got.String()))
			}
		}
	}()
	err := run(ctx)
	interrupted := context.Cause(ctx)
	signal.Stop(told)
	signal.Stop(pipes)
	switch {
	case interrupted != nil:
		fmt.Fprintf(os.Stderr, "\nStopped: %v.\n", interrupted)
		os.Exit(ExitInterrupted)
	case err != nil:
		fmt.Fprintf(os.Stderr, "\n%s: %v\n", name, err)
		os.Exit(ExitFailed)
	}
}

// unread says whether f is a pipe or a terminal whose other end is closed.
func unread(f *os.File) bool {
	poll := []unix.PollFd{{Fd: int32(f.Fd())}}
	n, err := unix.Poll(poll, 0)
	return err == nil && n > 0 && poll[0].Revents&(unix.POLLERR|unix.POLLHUP|unix.POLLNVAL) != 0
}
