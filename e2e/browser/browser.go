// Package browser drives a headless Chromium, which Debian's package chromium has.
package browser

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// Find returns where a Chromium is: $CHROMIUM, or one on the PATH.
func Find() (string, error) {
	if path := os.Getenv("CHROMIUM"); path != "" {
		return path, nil
	}
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("no chromium on the PATH: apt-get install chromium, or set CHROMIUM")
}

// Browser is a running Chromium.
type Browser struct {
	ctx   context.Context
	close func()
}

// Start runs a Chromium. The caller must call Close.
func Start() (*Browser, error) {
	path, err := Find()
	if err != nil {
		return nil, err
	}
	// Chromium's own sandbox needs rights that root in a container lacks; it sees nothing but the test's pages.
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.Flag("disable-dev-shm-usage", true), chromedp.WSURLReadTimeout(60*time.Second))
	allocator, freeAllocator := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, closeTab := chromedp.NewContext(allocator)
	b := &Browser{ctx: ctx, close: func() { closeTab(); freeAllocator() }}
	if err := chromedp.Run(ctx); err != nil {
		b.Close()
		return nil, fmt.Errorf("%s does not start: %w", path, err)
	}
	return b, nil
}

// Close ends the Chromium.
func (b *Browser) Close() { b.close() }

// Look tells how a page is looked at.
type Look struct {
	Width, Height int64 // of the window; 0 = 1280 and 800
	Dark          bool
	Phone         bool // a small touch screen
	Scale         float64
}

// Page is a tab with an address.
type Page struct {
	ctx   context.Context
	close context.CancelFunc

	mu       sync.Mutex // guards problems
	problems []string
}

// Open opens an address in a tab of its own.
func (b *Browser) Open(address string, look Look) (*Page, error) {
	ctx, closeTab := chromedp.NewContext(b.ctx)
	p := &Page{ctx: ctx, close: closeTab}
	chromedp.ListenTarget(ctx, p.listen)
	if look.Width == 0 {
		look.Width, look.Height = 1280, 800
	}
	if look.Scale == 0 {
		look.Scale = 1
	}
	scheme := "light"
	if look.Dark {
		scheme = "dark"
	}
	// The tab lives as long as the context of its first action.
	if err := chromedp.Run(ctx); err != nil {
		p.Close()
		return nil, err
	}
	err := p.run(60*time.Second,
		log.Enable(), runtime.Enable(),
		emulation.SetFocusEmulationEnabled(true), // a tab in the background would sleep
		emulation.SetDeviceMetricsOverride(look.Width, look.Height, look.Scale, look.Phone),
		emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}),
		chromedp.Navigate(address))
	if err != nil {
		p.Close()
		return nil, fmt.Errorf("%s: %w", address, err)
	}
	return p, nil
}

// Close closes the tab.
func (p *Page) Close() { p.close() }

// listen gathers what the console would show in red.
func (p *Page) listen(event any) {
	var problem string
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		problem = e.ExceptionDetails.Error()
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.APITypeError || e.Type == runtime.APITypeWarning {
			problem = fmt.Sprint("console: ", e.Type)
			for _, argument := range e.Args {
				problem += " " + string(argument.Value)
			}
		}
	case *log.EventEntryAdded:
		if e.Entry.Level == log.LevelError || e.Entry.Level == log.LevelWarning {
			problem = e.Entry.Text + " " + e.Entry.URL
		}
	}
	if problem == "" {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.problems = append(p.problems, problem)
}

// Problems returns the errors and warnings in the console so far.
func (p *Page) Problems() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.problems...)
}

// Eval evaluates an expression of JavaScript into a value.
func (p *Page) Eval(expression string, into any) error {
	return p.run(20*time.Second, chromedp.Evaluate(expression, into))
}

// Text returns the text that a selector's element shows.
func (p *Page) Text(selector string) (string, error) {
	var text string
	err := p.Eval("document.querySelector("+quote(selector)+").innerText", &text)
	return text, err
}

// Press sends keys to the page.
func (p *Page) Press(keys string) error { return p.run(20*time.Second, chromedp.KeyEvent(keys)) }

// Screenshot returns the whole page as PNG.
func (p *Page) Screenshot() ([]byte, error) {
	var png []byte
	err := p.run(60*time.Second, chromedp.FullScreenshot(&png, 100))
	return png, err
}

func (p *Page) run(within time.Duration, actions ...chromedp.Action) error {
	ctx, cancel := context.WithTimeout(p.ctx, within)
	defer cancel()
	return chromedp.Run(ctx, actions...)
}

func quote(text string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(text) + "'"
}
