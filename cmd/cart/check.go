package main

import (
	"errors"
	"fmt"

	"github.com/cart-llm/cart/cmd/internal/check"
	"github.com/spf13/cobra"
)

func checkCommand() *cobra.Command {
	var o check.Options
	var quiet bool
	cmd := &cobra.Command{
		Use:   "check FILE...",
		Short: "Tell what is wrong with configurations of the plugin, without Traefik",
		Long: `Finds CART's configurations in the files, decodes them as Traefik 3.7 does, validates them as the plugin does, and
prints every fault with its file, line, key, value and what is allowed.

A file may hold
  - Traefik's dynamic configuration: http.middlewares.NAME.plugin.cart, as YAML, TOML or JSON; templates are run as
    Traefik's file provider runs them
  - Kubernetes manifests of kind Middleware with spec.plugin.cart, also several in one file or in a List; values that
    stand in a secret (urn:k8s:secret:...) are not checked
  - a Compose file whose services have labels traefik.http.middlewares.NAME.plugin.cart...
  - labels, one NAME=VALUE a line, with --labels
  - the plugin's settings alone, as they stand below plugin.cart
  - Traefik's static configuration: what it calls the plugin, its entry points and whether it has an API are taken from it
and FILE may be - for standard input, read as YAML or JSON.

Of Traefik's dynamic configuration all the rest is checked too: routers, services, other middlewares, serversTransports,
tcp, udp and tls. A key that Traefik does not know or a value of the wrong kind makes it refuse the whole file; a router
that names a middleware or service that is nowhere in the files is off. So give all files of a directory together; names
with another provider, such as auth@docker, are not looked for, and entry points only in a static configuration among the
files. Rules and other plugins are not checked, and neither are routers in labels and manifests.

Several files are laid over each other in the order given: maps are merged key by key, lists and single values are
replaced, an empty file changes nothing. (Traefik itself does not merge a middleware that is in two files.)

The plugin may have another name than cart in Traefik's static configuration. It is then known by --plugin, by the static
configuration among the files, or by keys that hardly another plugin has, such as workers.

To standard error go notes on what is allowed but hardly meant: they leave the exit status as it is.

` + exitHelp + " No configuration of CART in the files is something to be put right.",
		Example: `  cart check dynamic/*.yml
  cart check base.yml workers.yml            # one over the other
  kubectl get middlewares -A -o yaml | cart check -
  cart check --no-files cart.toml            # on another machine than Traefik's
  cart check --labels labels.txt`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("no file to check")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			r := check.Files(args, o)
			for _, f := range r.Faults {
				fmt.Fprintln(cmd.OutOrStdout(), f)
			}
			if !quiet {
				for _, good := range r.Good {
					fmt.Fprintln(cmd.OutOrStdout(), good)
				}
				for _, note := range r.Notes {
					fmt.Fprintln(cmd.ErrOrStderr(), "note:", note)
				}
			}
			if r.Unread {
				return errUnread
			}
			if len(r.Faults) > 0 {
				return errFault
			}
			return nil
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.Plugin, "plugin", "", "check the configurations of the plugin of this `NAME` only")
	flags.BoolVar(&o.Labels, "labels", false, "files without an ending .yml, .yaml, .toml or .json are lists of labels")
	flags.BoolVar(&o.NoFiles, "no-files", false, "do not look at the files that a configuration names (keys, certificates)")
	flags.BoolVarP(&quiet, "quiet", "q", false, "print nothing but faults")
	return cmd
}
