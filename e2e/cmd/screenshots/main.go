// Command screenshots takes the pictures in the documentation: Traefik's dashboard with CART in it, in a headless Chromium.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"image/png"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/cart-llm/cart/e2e/replica"
	"github.com/cart-llm/cart/e2e/traefik"
)

// mostBytes keeps the pictures small enough for a repository.
const mostBytes = 300 << 10

func main() {
	out := flag.String("o", "", "the `FILE` to write; by default docs/images/dashboard.png")
	flag.Parse()
	if err := run(*out); err != nil {
		fmt.Fprintln(os.Stderr, "screenshots:", err)
		os.Exit(1)
	}
}

func run(out string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	browser, err := findBrowser()
	if err != nil {
		return err
	}
	root, err := traefik.Root()
	if err != nil {
		return err
	}
	if out == "" {
		out = filepath.Join(root, "docs", "images", "dashboard.png")
	}
	var urls []string
	for i := 0; i < 3; i++ {
		r, err := replica.Start(replica.Options{})
		if err != nil {
			return err
		}
		defer r.Kill()
		urls = append(urls, r.URL())
	}
	tr, err := traefik.Start(ctx, traefik.Options{Root: root, Static: object{
		"entryPoints": object{"internal": object{"address": "127.0.0.1:0"}},
	}})
	if err != nil {
		return err
	}
	defer func() { _ = tr.Stop() }()
	if err := tr.Write("cart.yml", dynamic(urls)); err != nil {
		return err
	}
	if err := tr.WaitApplied(ctx); err != nil {
		return err
	}
	page := tr.URLAPI() + "/dashboard/#/http/middlewares/cart@file"
	if err := shows(ctx, browser, page, append(urls, "Success", "Used by routers", "llm@file", "llm-internal@file")); err != nil {
		return err
	}
	return picture(ctx, browser, page, out)
}

// object is a piece of configuration.
type object = map[string]any

// dynamic is what the README shows: a router for clients, one for the operator's pages, and the middleware that they share.
func dynamic(urls []string) object {
	return object{"http": object{
		"routers": object{
			"llm": object{
				"rule": "PathPrefix(`/v1`)", "entryPoints": []string{traefik.EntryPoint}, "middlewares": []string{"cart"}, "service": "noop@internal",
			},
			"llm-internal": object{
				"rule": "Path(`/workers`) || Path(`/health`)", "entryPoints": []string{"internal"}, "middlewares": []string{"cart"},
				"service": "noop@internal",
			},
		},
		"middlewares": object{"cart": object{"plugin": object{traefik.Alias: object{
			"workers": []object{{"url": urls[0]}, {"url": urls[1]}, {"url": urls[2], "maxLoad": 12}},
			"policy":  "threshold",
			"cache":   object{"threshold": 0.5, "balanceAbsThreshold": 5},
			"health":  object{"interval": "5s"},
		}}}},
	}}
}

// findBrowser returns Chromium: $CHROMIUM, or one of its names on the PATH.
func findBrowser() (string, error) {
	if named := os.Getenv("CHROMIUM"); named != "" {
		return exec.LookPath(named)
	}
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if found, err := exec.LookPath(name); err == nil {
			return found, nil
		}
	}
	return "", errors.New("no Chromium found: apt-get install chromium, or set CHROMIUM to one")
}

// chromium runs the browser on a page until its scripts have been idle for a while, with a profile of its own.
func chromium(ctx context.Context, browser, page string, options ...string) (string, error) {
	profile, err := os.MkdirTemp("", "cart-chromium-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(profile)
	args := append([]string{
		"--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--user-data-dir=" + profile,
		"--window-size=1280,1080", "--virtual-time-budget=10000",
	}, options...)
	var messages strings.Builder
	cmd := exec.CommandContext(ctx, browser, append(args, page)...)
	cmd.Stderr = &messages
	content, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s", browser, err, messages.String())
	}
	return string(content), nil
}

// shows sees that what the picture is for is on the page.
func shows(ctx context.Context, browser, page string, texts []string) error {
	content, err := chromium(ctx, browser, page, "--dump-dom")
	if err != nil {
		return err
	}
	for _, text := range texts {
		if !strings.Contains(content, text) {
			return fmt.Errorf("%s does not show %q:\n%s", page, text, content)
		}
	}
	return nil
}

// picture writes a picture of the page, in place of the one there only if it is good.
func picture(ctx context.Context, browser, page, out string) error {
	taken, err := os.MkdirTemp("", "cart-screenshot-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(taken)
	name := filepath.Join(taken, "shot.png")
	if _, err := chromium(ctx, browser, page, "--screenshot="+name); err != nil {
		return err
	}
	content, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	if _, err := png.DecodeConfig(bytes.NewReader(content)); err != nil {
		return err
	}
	if len(content) > mostBytes {
		return fmt.Errorf("the picture has %d bytes, want at most %d", len(content), mostBytes)
	}
	if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(out, content, 0o644); err != nil {
		return err
	}
	fmt.Printf("%s (%d KiB)\n", out, len(content)>>10)
	return nil
}
