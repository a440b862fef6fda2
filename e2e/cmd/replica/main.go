// Command replica runs one simulated vLLM server as a process of its own. Its first line of output is
// "listening http://127.0.0.1:PORT pid N"; with -control, a second one is "control http://127.0.0.1:PORT".
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/cart-llm/cart/e2e/replica"
)

func main() {
	o := options()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func options() replica.Options {
	var o replica.Options
	var models string
	flag.StringVar(&o.Name, "name", "replica", "name in /_sim/stats")
	flag.StringVar(&o.Addr, "addr", "127.0.0.1:0", "host:port to listen on")
	flag.StringVar(&o.Control, "control", "", "host:port of a listener for /_sim alone, which no fault closes")
	flag.StringVar(&models, "model", "", "served model ids, separated by commas (default: any)")
	flag.IntVar(&o.BlockTokens, "block-tokens", 16, "tokens in a cache block")
	flag.IntVar(&o.CacheTokens, "cache-tokens", 131072, "capacity of the KV cache in tokens")
	flag.IntVar(&o.CharsPerToken, "chars-per-token", 4, "prompt bytes in a token")
	flag.Float64Var(&o.PrefillRate, "prefill-rate", 0, "uncached prompt tokens a second (0: no time)")
	flag.Float64Var(&o.DecodeRate, "decode-rate", 0, "answer tokens a second and sequence (0: no time)")
	flag.DurationVar(&o.StepTime, "step", 0, "work in steps, of this length when no prompt is computed (0: no steps)")
	flag.DurationVar(&o.StepEach, "step-each", 0, "what each decoding sequence adds to a step")
	flag.IntVar(&o.ChunkTokens, "chunk-tokens", 1024, "prompt tokens that a step computes at most")
	flag.IntVar(&o.MaxRunning, "max-running", 256, "sequences that run at once")
	flag.IntVar(&o.OutputTokens, "output-tokens", 16, "length of an answer when the request sets none")
	flag.Parse()
	if models != "" {
		o.Models = strings.Split(models, ",")
	}
	return o
}

func run(ctx context.Context, o replica.Options) error {
	r, err := replica.Start(o)
	if err != nil {
		return err
	}
	fmt.Printf("listening %s pid %d\n", r.URL(), os.Getpid())
	if r.ControlURL() != "" {
		fmt.Printf("control %s\n", r.ControlURL())
	}
	<-ctx.Done()
	return r.Close()
}
