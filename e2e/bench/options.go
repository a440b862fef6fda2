package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
)

// options is the command line.
type options struct {
	sizes   []int // body bytes
	shapes  []*shape
	conc    []int // clients at once
	rounds  int
	dur     time.Duration // of one target in one round
	targets []string
	before  string // the root of a working tree to compare with
	file    string

	streams  bool
	count    int           // streams at once
	interval time.Duration // between two events of a stream
	profiles string        // folder for profiles, "" = none are kept
	memory   bool
	push     int64 // bytes of prompts
}

func parseOptions(args []string, errs io.Writer) (*options, error) {
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.SetOutput(errs)
	o := &options{}
	quick := f.Bool("quick", false, "less than a minute: -shapes chat -sizes 1k,32k -rounds 3 -dur 250ms, where not set")
	sizes := f.String("sizes", "1k,32k,128k,1m", "mean lengths of a body")
	shapes := f.String("shapes", strings.Join(shapeNames(), ","), "kinds of bodies")
	conc := f.String("conc", "1,32", "clients at once")
	f.IntVar(&o.rounds, "rounds", 5, "rounds; in each, all shapes and targets take turns")
	f.DurationVar(&o.dur, "dur", time.Second, "how long a target is measured in a round")
	targets := f.String("targets", strings.Join(targetNames, ","), "what to measure")
	f.StringVar(&o.before, "before", "", "root of another working tree, whose plugin is measured as cart-before")
	f.StringVar(&o.file, "o", "", "file to write the report to as well")
	f.BoolVar(&o.streams, "streams", false, "measure streams instead")
	f.IntVar(&o.count, "count", 1000, "with -streams: streams at once")
	f.DurationVar(&o.interval, "interval", 200*time.Millisecond, "with -streams: time between two events of a stream")
	f.StringVar(&o.profiles, "profiles", "", "with -streams: folder for profiles of heap and goroutines, idle and with all streams open")
	f.BoolVar(&o.memory, "memory", false, "measure memory instead")
	push := f.String("push", "2g", "with -memory: how much prompt text to send")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	if *quick {
		set := map[string]bool{}
		f.Visit(func(fl *flag.Flag) { set[fl.Name] = true })
		for name, value := range map[string]string{"shapes": "chat", "sizes": "1k,32k", "rounds": "3", "dur": "250ms"} {
			if !set[name] {
				_ = f.Set(name, value) // what stands here is right
			}
		}
	}
	err := errors.Join(
		each(*sizes, func(s string) error { return appendSize(&o.sizes, s) }),
		each(*shapes, func(s string) error { return o.addShape(s) }),
		each(*conc, func(s string) error { return appendSize(&o.conc, s) }),
		each(*targets, func(s string) error { return o.addTarget(s) }),
	)
	if n, sizeErr := parseSize(*push); sizeErr != nil {
		err = errors.Join(err, sizeErr)
	} else {
		o.push = int64(n)
	}
	if f.NArg() > 0 || o.rounds < 1 || o.dur <= 0 || o.count < 1 || o.interval <= 0 || o.streams && o.memory {
		err = errors.Join(err, errors.New("numbers have to be above 0, -streams and -memory exclude each other, and there are no arguments"))
	}
	if err != nil {
		fmt.Fprintln(errs, err)
	}
	return o, err
}

func each(list string, f func(string) error) error {
	var errs []error
	for _, item := range strings.Split(list, ",") {
		errs = append(errs, f(strings.TrimSpace(item)))
	}
	return errors.Join(errs...)
}

func appendSize(list *[]int, text string) error {
	n, err := parseSize(text)
	*list = append(*list, n)
	return err
}

// parseSize reads a number above 0 with an optional k, m or g.
func parseSize(text string) (int, error) {
	digits, unit := strings.ToLower(text), 0
	for i, suffix := range []string{"", "k", "m", "g"} {
		if i > 0 && strings.HasSuffix(digits, suffix) {
			digits, unit = strings.TrimSuffix(digits, suffix), 10*i
			break
		}
	}
	n, err := strconv.Atoi(digits)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("%q is no number above 0 with an optional k, m or g", text)
	}
	return n << unit, nil
}

// sizeName is the short form of a number of bytes.
func sizeName(n int) string {
	switch {
	case n >= 1<<20 && n%(1<<20) == 0:
		return fmt.Sprintf("%d MB", n>>20)
	case n >= 1<<10 && n%(1<<10) == 0:
		return fmt.Sprintf("%d KB", n>>10)
	default:
		return fmt.Sprintf("%d B", n)
	}
}

func (o *options) addShape(name string) error {
	for _, s := range allShapes {
		if s.name == name {
			o.shapes = append(o.shapes, s)
			return nil
		}
	}
	return fmt.Errorf("shape %q: want some of %s", name, strings.Join(shapeNames(), ","))
}

func (o *options) addTarget(name string) error {
	if !slices.Contains(targetNames, name) {
		return fmt.Errorf("target %q: want some of %s", name, strings.Join(targetNames, ","))
	}
	o.targets = append(o.targets, name)
	return nil
}

func shapeNames() []string {
	var names []string
	for _, s := range allShapes {
		names = append(names, s.name)
	}
	return names
}
