// Command cart checks configurations of the CART plugin without Traefik, and turns those of the Rust cache-aware-router
// into Traefik's.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// The exit statuses.
const (
	exitGood  = 0
	exitFault = 1 // the command did its work, and something has to be put right
	exitUsage = 2 // the command could not do its work
)

// exitHelp tells of them, for all commands alike.
const exitHelp = `Exit status: 0 all is well, 1 something has to be put right, as the lines say, 2 the command line is wrong, or a file
cannot be read or written.`

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// What ends a command that has printed why.
var (
	errFault  = errors.New("faults found")
	errUnread = errors.New("files not read")
)

func run(args []string, stdout, stderr io.Writer) int {
	root := &cobra.Command{
		Use:   "cart",
		Short: "Check and migrate configurations of CART, the cache-aware router inside Traefik",
		Long: `CART is a Traefik middleware plugin that sends LLM requests to the replica whose prefix cache already holds the
beginning of their prompt. This command works on its configuration files; it needs neither Traefik nor a network.`,
		Version:       version(),
		SilenceErrors: true,
		SilenceUsage:  true,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return fmt.Errorf("unknown command %q (want check or migrate)", args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			return errors.New("a command is missing (want check or migrate)")
		},
	}
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.CompletionOptions.HiddenDefaultCmd = true
	root.AddCommand(checkCommand(), migrateCommand())
	cmd, err := root.ExecuteC()
	switch {
	case err == nil:
		return exitGood
	case errors.Is(err, errFault):
		return exitFault
	case errors.Is(err, errUnread):
		return exitUsage
	}
	fmt.Fprintf(stderr, "cart: %v\nTry '%s --help'.\n", err, cmd.CommandPath())
	return exitUsage
}

func version() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		return info.Main.Version
	}
	return "unknown"
}
