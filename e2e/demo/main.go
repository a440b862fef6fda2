// Command demo shows what cache-aware routing is worth: it starts simulated vLLM replicas and the official Traefik with
// CART as a local plugin, sends the same conversations through round-robin and then through CART's policy threshold, and
// prints both. Everything runs on 127.0.0.1. KEEP=1 leaves it running; NO_COLOR turns colours off.
//
// It exits with 0 if CART did better, 1 if it did not or something failed, 130 after Ctrl-C.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/cart-llm/cart/e2e/process"
)

func main() {
	out := newTerminal(os.Stdout)
	process.RunMain("demo", func(ctx context.Context) error {
		return run(ctx, out, os.Getenv("KEEP") == "1")
	})
}

// run is the demo from its first line to its last; whatever it started has ended when it returns.
func run(ctx context.Context, out *terminal, keep bool) (err error) {
	work := newWorkload()
	out.introduce(work)
	s, err := setUp(ctx, out)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.tearDown()) }()

	out.headline("The same conversations, twice")
	var outcomes []*outcome
	for _, way := range ways {
		if err := s.resetCaches(); err != nil {
			return err
		}
		o := drive(ctx, work, s.front(way), func(now *outcome) { out.progress(way, work, now) })
		out.endProgress(way, work, o)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err := s.alive(); err != nil {
			return err
		}
		outcomes = append(outcomes, o)
	}
	out.table(outcomes, s.replicaURLs())
	verdict := judge(outcomes[0], outcomes[1])
	out.verdict(outcomes[0], outcomes[1], verdict)
	out.addresses(s, keep)
	if keep {
		return errors.Join(s.wait(ctx), verdict)
	}
	return verdict
}

// way is one of the two policies to compare.
type way struct {
	policy string // of the middleware
	path   string // prefix of its router
}

// ways are compared in this order; the second is to win.
var ways = []way{{policy: "roundRobin", path: "/roundRobin"}, {policy: "threshold"}}

// bestRatio is the mean time to first token of the second way, as a share of the first's, that the demo asks for.
const bestRatio = 0.6

// judge returns an error unless CART did clearly better.
func judge(plain, cart *outcome) error {
	var errs []error
	if cart.failed() > 0 || plain.failed() > 0 {
		errs = append(errs, fmt.Errorf("%d requests failed", cart.failed()+plain.failed()))
		for _, err := range []error{plain.firstError, cart.firstError} {
			if err != nil {
				errs = append(errs, err)
			}
		}
	}
	if cart.hitRatio() <= plain.hitRatio() {
		errs = append(errs, fmt.Errorf("CART did not win: its hit ratio is %.2f, that of %s %.2f",
			cart.hitRatio(), ways[0].policy, plain.hitRatio()))
	}
	if float64(cart.mean()) > bestRatio*float64(plain.mean()) {
		errs = append(errs, fmt.Errorf("CART did not win: its mean time to first token is %v, that of %s %v",
			cart.mean().Round(time.Millisecond), ways[0].policy, plain.mean().Round(time.Millisecond)))
	}
	return errors.Join(errs...)
}
