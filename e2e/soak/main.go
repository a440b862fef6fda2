// Command soak keeps the official Traefik with CART under load while things break, and ends with a verdict.
//
// It has a few hundred clients lead conversations over all four endpoints with simulated replicas, first in calm, then the
// same conversations, and more of them, in a storm: replicas are killed and come back, one flaps, the configuration is
// reloaded all the time, workers are taken out and put back, clients leave and send nonsense. Everything runs on 127.0.0.1.
//
// DUR is how long calm and storm last together, 3m by default. Exit status: 0 if all is well, 1 if not, 130 after Ctrl-C.
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
	process.RunMain("soak", func(ctx context.Context) error {
		lasts, err := duration(os.Getenv("DUR"))
		if err != nil {
			return err
		}
		return run(ctx, lasts)
	})
}

// duration reads DUR. Less than 15 s is too short for a replica to be killed and to come back.
func duration(text string) (time.Duration, error) {
	if text == "" {
		return 3 * time.Minute, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 15*time.Second {
		return 0, fmt.Errorf("DUR = %q, want a duration of at least 15s, such as 20s or 3m", text)
	}
	return d, nil
}

// run is the soak from its first line to its last; whatever it started has ended when it returns.
func run(ctx context.Context, lasts time.Duration) (err error) {
	fmt.Printf("%d replicas, %d clients; calm for %v, then the storm for %v\n\n", replicas, clients,
		(lasts / 3).Round(time.Second), (lasts - lasts/3).Round(time.Second))
	s, err := setUp(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.tearDown()) }()

	before, err := s.traefik.settled(ctx, footprint{})
	if err != nil {
		return err
	}
	calm, err := s.calm(ctx, lasts/3)
	if err != nil {
		return err
	}
	storm, err := s.storm(ctx, lasts-lasts/3)
	if err != nil {
		return err
	}
	found, err := s.inspect(ctx, before)
	if err != nil {
		return err
	}
	found.calm, found.storm = calm, storm
	return found.verdict(os.Stdout)
}
