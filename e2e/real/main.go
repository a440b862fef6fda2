// Command real compares CART with Traefik's own balancers and the Rust routers before three real vLLM servers on the CPU:
//
//	real                          two workloads of multi-turn chats, then a restart under load; Markdown tables, limits kept or missed
//	real -parts install           only installs vLLM and the routers
//	real -parts compare -workloads even -seeds 1 -targets cart-cost,sglang-router      a part of it
//	real -parts restart           one server is killed and started again under load through CART
//
// The model is tiny and its weights are random, but prompts are computed and cached for real. The servers share the
// machine's cores, so it shows what a cached prompt is worth, and hardly what balance is; for that see fleet. A figure says
// something only beside the others of its run. Everything listens on 127.0.0.1.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/cart-llm/cart/e2e/compare"
	"github.com/cart-llm/cart/e2e/process"
	"github.com/cart-llm/cart/e2e/proxies"
)

const (
	threshold = "cart-threshold"
	cost      = "cart-cost"
)

// The parts of a run.
const (
	partInstall = "install"
	partCompare = "compare"
	partRestart = "restart"
)

// options are the command line.
type options struct {
	*compare.Options
	dir   string // of vLLM and its model
	parts []string
	rival string // the policy through which one server is restarted
}

func main() {
	o, err := parse(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(process.ExitUsage)
	}
	process.RunMain("real", func(ctx context.Context) error { return run(ctx, o) })
}

func parse(args []string) (*options, error) {
	f := flag.NewFlagSet("real", flag.ContinueOnError)
	o := &options{}
	f.StringVar(&o.dir, "vllm", "", "folder for vLLM and its model, 6 GB (default: .cache/vllm in the repository)")
	parts := f.String("parts", partCompare+","+partRestart, "what to do: install, compare, restart")
	f.StringVar(&o.rival, "restart-target", threshold, "what the load of the part restart goes through")
	parsed := compare.Flags(f, []string{
		proxies.WRR, proxies.P2C, proxies.LeastTime, proxies.SGLangRouter, proxies.VLLMRouter, threshold, cost,
	}, 3)
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	var err error
	o.Options, err = parsed()
	for _, part := range strings.Split(*parts, ",") {
		if !slices.Contains([]string{partInstall, partCompare, partRestart}, part) {
			err = errors.Join(err, fmt.Errorf("part %q: want some of %s,%s,%s", part, partInstall, partCompare, partRestart))
		}
		o.parts = append(o.parts, part)
	}
	if !proxies.IsCart(o.rival) {
		err = errors.Join(err, fmt.Errorf("restart-target %q: want cart-POLICY", o.rival))
	}
	return o, err
}

func run(ctx context.Context, o *options) (err error) {
	out, done, err := o.Output()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, done()) }()
	engine, err := install(ctx, o.dir, os.Stderr)
	if err != nil || !slices.ContainsFunc(o.parts, func(part string) bool { return part != partInstall }) {
		return err
	}
	servers, err := startServers(ctx, engine, os.Stderr)
	defer func() { err = errors.Join(err, servers.stop()) }()
	if err != nil {
		return err
	}
	for _, part := range o.parts {
		switch part {
		case partCompare:
			err = compareAll(ctx, o, servers, out)
		case partRestart:
			err = restart(ctx, o, servers, out)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
