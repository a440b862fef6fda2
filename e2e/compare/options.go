package compare

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/cart-llm/cart/e2e/chats"
	"github.com/cart-llm/cart/e2e/proxies"
)

// Options are what a run compares.
type Options struct {
	Workloads []chats.Workload
	Targets   []string
	Seeds     int
	File      string // where the report goes too, "" = nowhere
}

// Flags adds the options' flags to those of a command. The returned function is to be called after Parse.
func Flags(f *flag.FlagSet, targets []string, seeds int) func() (*Options, error) {
	o := &Options{}
	workloads := f.String("workloads", "even,skewed", "workloads, separated by commas")
	names := f.String("targets", strings.Join(targets, ","), "what to compare; cart-POLICY is CART with a policy")
	talks := f.Int("talks", 0, "conversations of each workload, to see that all works (0: the workload's own number)")
	f.IntVar(&o.Seeds, "seeds", seeds, "how many times all are run, each time with other texts")
	f.StringVar(&o.File, "o", "", "file to write the report to as well")
	return func() (*Options, error) {
		var errs []error
		for _, name := range strings.Split(*workloads, ",") {
			switch name = strings.TrimSpace(name); name {
			case chats.Even.Name:
				o.Workloads = append(o.Workloads, chats.Even)
			case chats.Skewed.Name:
				o.Workloads = append(o.Workloads, chats.Skewed)
			default:
				errs = append(errs, fmt.Errorf("workload %q: want %s or %s", name, chats.Even.Name, chats.Skewed.Name))
			}
		}
		for _, name := range strings.Split(*names, ",") {
			if name = strings.TrimSpace(name); !proxies.Named(name) {
				errs = append(errs, fmt.Errorf("target %q: want some of %s", name, strings.Join(targets, ",")))
			}
			o.Targets = append(o.Targets, name)
		}
		for i := range o.Workloads {
			if *talks > 0 {
				o.Workloads[i].Talks = *talks
			}
		}
		if o.Seeds < 1 || *talks < 0 {
			errs = append(errs, fmt.Errorf("seeds = %d, talks = %d: want 1 or more, and no number below 0", o.Seeds, *talks))
		}
		return o, errors.Join(errs...)
	}
}

// Output is standard output, and the file of the options if they name one. The returned function closes it.
func (o *Options) Output() (out io.Writer, done func() error, err error) {
	if o.File == "" {
		return os.Stdout, func() error { return nil }, nil
	}
	f, err := os.Create(o.File)
	if err != nil {
		return nil, nil, err
	}
	return io.MultiWriter(os.Stdout, f), f.Close, nil
}
