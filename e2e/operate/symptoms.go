package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sort"
	"strings"
	"time"

	"github.com/cart-llm/cart/e2e/browser"
	"github.com/cart-llm/cart/e2e/engine"
	"github.com/cart-llm/cart/e2e/replica"
)

// symptom is a mistake or a fault that is planted, and what the page has to say of it.
type symptom struct {
	name    string
	config  engine.Config
	options func(*replica.Options)
	load    func(*crowd)
	during  func(*stage)  // after the first half of the time
	longer  time.Duration // than usual
	verdict string
}

var symptoms = []symptom{
	{name: "healthy", verdict: "Affinity works"},
	{name: "threshold too high", config: engine.Config{"cache": engine.Config{"threshold": 0.97, "matchAbsThreshold": 1000000}},
		verdict: "is too high"},
	{name: "one hot tenant", config: engine.Config{"maxLoad": 64, "cache": engine.Config{"balanceAbsThreshold": 64}},
		load: func(c *crowd) { c.hot = 0.9; c.clients = 20 }, verdict: "is hot"},
	{name: "caches too small", options: func(o *replica.Options) { o.CacheTokens = 4000 }, verdict: "no longer hold what they were sent"},
	{name: "volatile prompt head", load: func(c *crowd) { c.volatile = true }, verdict: "changes at their head"},
	{name: "replica restarted", options: func(o *replica.Options) { o.CacheTokens = 400000 },
		load: func(c *crowd) {
			c.clients = 40
			c.tenants = 400
			c.system = 24000
			c.turns = 60
			c.thinks = 1200 * time.Millisecond
		},
		during: func(s *stage) {
			s.replicas[0].Kill()
			if err := s.replicas[0].Restart(); err != nil {
				panic(err) // its port was its own
			}
		}, longer: 12 * time.Second, verdict: "has lost its cache"},
}

// symptomTime is how long each load runs.
const symptomTime = 24 * time.Second

func runSymptoms(ctx context.Context, only string) error {
	b, err := browser.Start()
	if err != nil {
		return err
	}
	defer b.Close()
	var errs []error
	for _, one := range symptoms {
		if only == "" || strings.Contains(one.name, only) {
			if err := one.run(ctx, b); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", one.name, err))
			}
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return errors.Join(errs...)
}

// run plants the symptom and wants the page to name it before the load ends.
func (y *symptom) run(ctx context.Context, b *browser.Browser) (err error) {
	options, load := fast, usual
	if y.options != nil {
		y.options(&options)
	}
	if y.load != nil {
		y.load(&load)
	}
	s, err := setUp(ctx, 4, options, y.config)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.tearDown()) }()
	loaded, end := context.WithTimeout(ctx, symptomTime+y.longer)
	defer end()
	done := make(chan struct{})
	go func() {
		defer close(done)
		answered, failed := load.run(loaded, s.traefik.URL())
		fmt.Printf("  %d requests answered, %d not\n", answered, failed)
	}()
	if y.during != nil {
		pause(ctx, symptomTime/2)
	}
	page, err := b.Open(s.page(), browser.Look{})
	if err != nil {
		return err
	}
	defer page.Close()
	if y.during != nil {
		pause(ctx, 2*time.Second)
		y.during(s)
	} else {
		pause(ctx, symptomTime/2)
	}
	told, verdict, err := y.await(loaded, page)
	if err != nil {
		return err
	}
	f, err := s.figures()
	if err != nil {
		return err
	}
	y.print(&f, verdict)
	if shots := os.Getenv("SHOTS"); shots != "" {
		if png, err := page.Screenshot(); err == nil {
			_ = os.WriteFile(shots+"/"+strings.ReplaceAll(y.name, " ", "-")+".png", png, 0o644)
		}
	}
	end()
	<-done
	if !told {
		return fmt.Errorf("the page does not say %q", y.verdict)
	}
	return nil
}

// await reads the page until it names the symptom or the load ends.
func (y *symptom) await(loaded context.Context, page *browser.Page) (told bool, verdict string, err error) {
	for !told && loaded.Err() == nil {
		if verdict, err = page.Text("#verdict"); err != nil {
			return false, "", err
		}
		told = strings.Contains(verdict, y.verdict) && (y.name != "healthy" || !pause(loaded, symptomTime/4))
		pause(loaded, 200*time.Millisecond)
	}
	return told, verdict, nil
}

// print writes the figures since the start.
func (y *symptom) print(f *figures, verdict string) {
	all, hits := 0, 0
	for why, n := range f.Reasons {
		all += n
		if why == "cache_hit" {
			hits = n
		}
	}
	fmt.Printf("%s\n  page: %s\n", y.name, strings.ReplaceAll(verdict, "\n", " / "))
	fmt.Printf("  requests %d, cache_hit %.0f %%, known %.0f %%, matched %.0f %%, reasons %v, refused %v\n", all,
		100*float64(hits)/float64(all), 100*f.Characters.Known/f.Characters.Prompt,
		100*f.Characters.Matched/f.Characters.Prompt, f.Reasons, f.Refused)
	sort.SliceStable(f.Workers, func(i, j int) bool { return f.Workers[i].Requests > f.Workers[j].Requests })
	for _, w := range f.Workers {
		fmt.Printf("  %s: %.0f %% of requests, load %d, first byte of hits %.0f ms (%.0f), of others %.0f ms (%.0f), failures %d\n", w.URL,
			100*float64(w.Requests)/float64(all), w.Load, 1000*w.FirstByte.Hit.mean(), w.FirstByte.Hit.Count,
			1000*w.FirstByte.Other.mean(), w.FirstByte.Other.Count, w.Failures)
	}
}
