package process

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// Exit statuses of the commands that measure.
const (
	ExitFailed      = 1
	ExitUsage       = 2
	ExitInterrupted = 130
)

// RunMain is the rest of such a command's main: it runs until it is done or the command is told to stop, and exits accordingly.
func RunMain(name string, run func(ctx context.Context) error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE)
	err := run(ctx)
	interrupted := ctx.Err() != nil
	stop()
	switch {
	case interrupted:
		fmt.Fprintln(os.Stderr, "\nStopped.")
		os.Exit(ExitInterrupted)
	case err != nil:
		fmt.Fprintf(os.Stderr, "\n%s: %v\n", name, err)
		os.Exit(ExitFailed)
	}
}
