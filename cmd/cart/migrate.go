package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"

	"github.com/cart-llm/cart/cmd/internal/migrate"
	"github.com/spf13/cobra"
)

func migrateCommand() *cobra.Command {
	var o migrate.Options
	var to string
	var force, quiet bool
	cmd := &cobra.Command{
		Use:   "migrate FILE...",
		Short: "Turn a configuration of the Rust cache-aware-router into Traefik's",
		Long: `Reads a configuration of the Rust cache-aware-router (sections server, workers, cache, health, proxy, circuit_breaker,
logging; several files are laid over each other, as with its repeated --config) and writes

  traefik.yml          Traefik's static configuration: the address, the plugin, the folder with the rest
  dynamic/cart.yml     the router and CART's settings, for people to change
  dynamic/workers.yml  the list of workers as a service, for a generator to rewrite

into the folder given with -o, or to standard output without it. To standard error goes an account of every key of
the source: what it has become, where its meaning or default differs, and what could not be carried over and why.
Durations may be numbers with _secs or _ms behind the key, or texts such as 10s.

CART then finds the workers through Traefik's API, which traefik.yml opens to this machine only. --inline puts them into
dynamic/cart.yml instead, and needs no API.

Start Traefik in the folder, with the plugin's source in plugins-local/src/github.com/cart-llm/cart below it:
traefik --configFile=traefik.yml

At 1 the files are written, and what is left to do by hand is told; at 2 nothing is written.
` + exitHelp,
		Example: `  cart migrate config.yaml                 # look first
  cart migrate config.yaml -o traefik
  cart migrate base.yaml workers.yaml -o traefik`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("no file to migrate")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, _, err := net.SplitHostPort(o.API); o.API != "" && err != nil {
				return fmt.Errorf("--api %s: want HOST:PORT", o.API)
			}
			r, err := migrate.Files(args, o)
			if err != nil {
				return err
			}
			if to == "" {
				print(cmd.OutOrStdout(), r.Files)
			} else if err := write(to, r.Files, force); err != nil {
				return err
			}
			return account(cmd.ErrOrStderr(), r, quiet)
		},
	}
	flags := cmd.Flags()
	flags.StringVarP(&to, "output", "o", "", "write into this `FOLDER`; it is made if it is not there")
	flags.BoolVar(&o.Inline, "inline", false, "put the list of workers into dynamic/cart.yml")
	flags.StringVar(&o.API, "api", "", "let Traefik's API listen on this `HOST:PORT` (default 127.0.0.1:8080)")
	flags.BoolVar(&force, "force", false, "write over files that are there")
	flags.BoolVarP(&quiet, "quiet", "q", false, "account only for what is left to do by hand")
	return cmd
}

func print(out io.Writer, files []migrate.File) {
	for i, f := range files {
		if i > 0 {
			fmt.Fprintln(out, "---")
		}
		fmt.Fprintf(out, "# %s\n%s", f.Name, f.Content)
	}
}

// write puts the files into a folder, all of them or, if one is there already, none.
func write(to string, files []migrate.File, force bool) error {
	for _, f := range files {
		name := filepath.Join(to, f.Name)
		if _, err := os.Stat(name); err == nil && !force {
			return fmt.Errorf("%s is there already (--force writes over it)", name)
		} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	for _, f := range files {
		name := filepath.Join(to, f.Name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(name, f.Content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

func account(out io.Writer, r *migrate.Result, quiet bool) error {
	for _, line := range r.Account {
		if line.Lost || !quiet {
			fmt.Fprintln(out, line)
		}
	}
	for _, fault := range r.Faults {
		fmt.Fprintln(out, "dynamic/cart.yml:", fault)
	}
	if r.Lost() {
		return errFault
	}
	return nil
}
