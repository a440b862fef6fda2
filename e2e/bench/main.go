// Command bench measures what CART costs and what it saves beside other proxies, all in one run on this machine:
//
//	bench                the targets before instant backends, by turns, as Markdown tables, and issue 5's limits 1 and 2
//	bench -quick         the same in less than a minute: chat, 1 and 32 KB
//	bench -streams       1,000 SSE streams at once through CART and through Traefik's own balancer
//	bench -memory        2 GB of distinct prompts through CART with a tree bounded to 256 MiB
//
// A figure says something only beside the others of its run: the client, the backends and the proxy share the machine, so
// a busy one slows all of them. Everything listens on 127.0.0.1.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"

	"github.com/cart-llm/cart/e2e/process"
)

func main() {
	if len(os.Args) > 1 && (os.Args[1] == roleBackends || os.Args[1] == roleCart) {
		if err := playRole(os.Args[1], os.Args[2:]); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", os.Args[1], err)
			os.Exit(process.ExitFailed)
		}
		return
	}
	o, err := parseOptions(os.Args[1:], os.Stderr)
	if err != nil {
		os.Exit(process.ExitUsage)
	}
	// The client's own garbage collections would show as the proxies' latency.
	debug.SetGCPercent(400)
	process.RunMain("bench", func(ctx context.Context) error { return run(ctx, o) })
}

// run does what the options ask for; whatever it started has ended when it returns.
func run(ctx context.Context, o *options) (err error) {
	out := io.Writer(os.Stdout)
	if o.file != "" {
		f, err := os.Create(o.file)
		if err != nil {
			return err
		}
		defer f.Close()
		out = io.MultiWriter(os.Stdout, f)
	}
	s := &stage{progress: os.Stderr, before: o.before}
	defer func() { err = errors.Join(err, s.tearDown()) }()
	switch {
	case o.streams:
		return benchStreams(ctx, s, o, out)
	case o.memory:
		return benchMemory(ctx, s, o, out)
	default:
		return benchTargets(ctx, s, o, out)
	}
}
