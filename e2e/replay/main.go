// Command replay plays recorded and generated workloads through CART's own decisions to modelled replicas, as fast as it can
// be computed, and prints a Markdown table of the policies: hit ratio, mean and 99th percentile of the time to first token.
//
// The replicas are models (replica.go), so ratios between policies are the result, not seconds. The traces were published by
// the Mooncake project; testdata/README.md says where and how.
package main

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
)

func main() {
	o := &options{}
	flag.Var((*words)(&o.policies), "policies", "which to compare, with commas")
	flag.Var((*numbers)(&o.instances), "instances", "numbers of Traefik instances, with commas")
	flag.IntVar(&o.seeds, "seeds", 3, "how many draws of chance the figures are geometric means of")
	flag.StringVar(&o.only, "only", "", "only scenarios whose name contains this")
	flag.Parse()
	if len(o.policies) == 0 {
		o.policies = []string{"roundRobin", "leastLoad", "threshold", "cost", oracle}
	}
	if len(o.instances) == 0 {
		o.instances = []int{1, 2, 4}
	}
	if o.seeds < 1 || flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	if err := run(o); err != nil {
		fmt.Fprintln(os.Stderr, "replay:", err)
		os.Exit(1)
	}
}

type options struct {
	policies  []string
	instances []int
	seeds     int
	only      string
}

type words []string

func (w *words) String() string { return strings.Join(*w, ",") }
func (w *words) Set(text string) error {
	*w = strings.Split(text, ",")
	return nil
}

type numbers []int

func (n *numbers) String() string { return fmt.Sprint(*n) }
func (n *numbers) Set(text string) error {
	*n = nil
	for _, word := range strings.Split(text, ",") {
		one := 0
		if _, err := fmt.Sscan(word, &one); err != nil || one < 1 || one > 100 {
			return fmt.Errorf("%q, want whole numbers from 1 to 100", word)
		}
		*n = append(*n, one)
	}
	return nil
}

func run(o *options) error {
	main, err := playAll(recorded(), o, o.instances)
	if err != nil {
		return err
	}
	more, err := playAll(special(), o, []int{1})
	if err != nil {
		return err
	}
	write(os.Stdout, o, main, more)
	return nil
}

// line is a scenario with so many instances, and each policy's results, one for each seed.
type line struct {
	scenario  scenario
	instances int
	results   map[string][]*result
}

// playAll plays each scenario with each policy, number of instances and seed, on all processors.
func playAll(scenarios []scenario, o *options, instances []int) ([]*line, error) {
	type job struct {
		line *line
		who  setup
	}
	var lines []*line
	var jobs []job
	for _, n := range instances {
		for _, s := range scenarios {
			if !strings.Contains(s.name, o.only) {
				continue
			}
			l := &line{scenario: s, instances: n, results: map[string][]*result{}}
			lines = append(lines, l)
			for _, p := range o.policies {
				if p == oracle && n > 1 {
					continue // it needs no router
				}
				l.results[p] = make([]*result, o.seeds)
				for seed := range o.seeds {
					jobs = append(jobs, job{l, setup{policy: p, instances: n, seed: int64(seed + 1)}})
				}
			}
		}
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	var failed error
	queue := make(chan job)
	for range runtime.GOMAXPROCS(0) {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for j := range queue {
				r, err := j.line.scenario.play(j.who)
				mu.Lock()
				if err != nil {
					failed = err
				}
				j.line.results[j.who.policy][j.who.seed-1] = r
				mu.Unlock()
			}
		}()
	}
	for _, j := range jobs {
		queue <- j
	}
	close(queue)
	wg.Wait()
	return lines, failed
}
