// Command operate makes what docs/operations.md shows: "operate screenshots FOLDER" takes pictures of the page of /workers
// with a load behind it, "operate symptoms" plants five mistakes and faults one after another and prints what the page and the
// metrics say of each. Everything runs on 127.0.0.1.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/cart-llm/cart/e2e/browser"
	"github.com/cart-llm/cart/e2e/engine"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "operate:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, arguments []string) error {
	switch {
	case len(arguments) == 2 && arguments[0] == "screenshots":
		return screenshots(ctx, arguments[1])
	case len(arguments) > 0 && len(arguments) <= 2 && arguments[0] == "symptoms":
		only := ""
		if len(arguments) == 2 {
			only = arguments[1]
		}
		return runSymptoms(ctx, only)
	}
	return fmt.Errorf("usage: operate screenshots FOLDER | operate symptoms [NAME]")
}

// screenshots shows the page at work, with one replica that was killed, as on a screen and on a phone.
func screenshots(ctx context.Context, folder string) (err error) {
	s, err := setUp(ctx, 5, fast, engine.Config{"health": engine.Config{"failureThreshold": 2}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.tearDown()) }()
	b, err := browser.Start()
	if err != nil {
		return err
	}
	defer b.Close()
	looks := map[string]browser.Look{
		"workers.png":       {Width: 1280, Height: 800, Scale: 1.5},
		"workers-dark.png":  {Width: 1280, Height: 800, Dark: true},
		"workers-phone.png": {Width: 390, Height: 844, Phone: true},
	}
	pages := map[string]*browser.Page{}
	for name, look := range looks {
		if pages[name], err = b.Open(s.page(), look); err != nil {
			return err
		}
	}
	loaded, end := context.WithCancel(ctx)
	defer end()
	done := make(chan struct{})
	load := usual
	load.clients = 24
	load.turns = 8
	go func() {
		defer close(done)
		load.run(loaded, s.traefik.URL())
	}()
	pause(ctx, 25*time.Second)
	s.replicas[4].Kill()
	pause(ctx, 6*time.Second)
	for name, page := range pages {
		png, err := page.Screenshot()
		if err == nil {
			err = os.WriteFile(filepath.Join(folder, name), png, 0o644)
		}
		if err != nil {
			return err
		}
		fmt.Println(filepath.Join(folder, name))
	}
	end()
	<-done
	return ctx.Err()
}
