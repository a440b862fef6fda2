package seeing

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cart-llm/cart/e2e/browser"
	"github.com/cart-llm/cart/e2e/engine"
)

// open starts a Chromium. Without one the test is skipped, and fails where CI runs it.
func open(t *testing.T) *browser.Browser {
	t.Helper()
	if !engine.Selected(engine.Traefik) {
		t.Skip("runs on the engine traefik alone")
	}
	if _, err := browser.Find(); err != nil && os.Getenv("CI") == "" {
		t.Skip(err)
	}
	b, err := browser.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

// tab opens an address and fails the test when its console has something to complain about at the end.
func tab(t *testing.T, b *browser.Browser, address string, look browser.Look) *browser.Page {
	t.Helper()
	p, err := b.Open(address, look)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { clean(t, p, address) })
	return p
}

// clean closes a tab; further calls do nothing.
func clean(t *testing.T, p *browser.Page, address string) {
	t.Helper()
	p.Close()
	for _, problem := range p.Problems() {
		t.Errorf("%s: the console says: %s", address, problem)
	}
}

// shows waits until an element's text has what is wanted.
func shows(t *testing.T, p *browser.Page, within time.Duration, selector, want string) {
	t.Helper()
	eventually(t, within, func() error {
		text, err := p.Text(selector)
		if err == nil && !strings.Contains(text, want) {
			err = fmt.Errorf("%s shows %q, want %q in it", selector, text, want)
		}
		return err
	})
}

// TestPage is one browser's look at a live Traefik, since a browser takes a while to start.
func TestPage(t *testing.T) {
	b := open(t)
	r := start(t, engine.Traefik, 3, engine.Config{"health": engine.Config{"interval": "100ms", "failureThreshold": 2}})
	for i := 0; i < 12; i++ {
		r.chat(strings.Repeat("a story that is told again. ", 30))
	}
	p := tab(t, b, r.e.URL()+"/workers", browser.Look{})
	shows(t, p, 20*time.Second, "#usable", "3 of 3 usable")
	shows(t, p, 20*time.Second, "#reasons", "cache_hit")
	shows(t, p, 20*time.Second, "#knownText", "were cached, ")
	for _, one := range r.replicas {
		shows(t, p, 20*time.Second, "#replicas", one.URL())
	}

	t.Run("a killed replica is shown within 3 s", func(t *testing.T) {
		killed := r.replicas[1]
		killed.Kill()
		eventually(t, 20*time.Second, func() error {
			if s := r.state(); s.Workers[1].Healthy {
				return fmt.Errorf("/workers: %+v, want it down", s.Workers[1])
			}
			return nil
		})
		// Of which the router's answer, the page's second and a slow machine take their parts.
		shows(t, p, 3*time.Second, "#replicas tbody tr.down", killed.URL())
		shows(t, p, 3*time.Second, "#replicas tbody tr.down .state.bad", "down")
		shows(t, p, 3*time.Second, "#replicas tbody tr.down .why", "connection refused")
		shows(t, p, 3*time.Second, "#usable", "2 of 3 usable")
		shows(t, p, 3*time.Second, "#verdict", killed.URL()+" is down")
		var title string
		if err := p.Eval("document.title", &title); err != nil || !strings.HasPrefix(title, "(!) CART") {
			t.Errorf("title = %q, %v, want it to warn", title, err)
		}
	})
	t.Run("requests show while it is open", func(t *testing.T) {
		for i := 0; i < 30; i++ {
			r.chat(strings.Repeat("a story that is told again. ", 30))
		}
		shows(t, p, 10*time.Second, "#tiles", "hits")
		shows(t, p, 10*time.Second, "#last", "cache_hit")
	})
	t.Run("keys", func(t *testing.T) {
		if err := p.Press("p"); err != nil {
			t.Fatal(err)
		}
		shows(t, p, 5*time.Second, "#age", "paused")
		if err := p.Press("p"); err != nil {
			t.Fatal(err)
		}
		shows(t, p, 10*time.Second, "#age", "live")
		if err := p.Press("s"); err != nil {
			t.Fatal(err)
		}
		shows(t, p, 10*time.Second, "#age", "since start")
		shows(t, p, 10*time.Second, "#verdict", "down")
		var focused string
		err := p.Press("\t")
		if err == nil {
			err = p.Eval("document.activeElement.id", &focused)
		}
		if err != nil || focused != "span" {
			t.Errorf("Tab goes to %q, %v, want the first button", focused, err)
		}
	})
	t.Run("on a phone, in the dark", func(t *testing.T) {
		phone := tab(t, b, r.e.URL()+"/workers", browser.Look{Width: 390, Height: 844, Phone: true, Dark: true})
		shows(t, phone, 20*time.Second, "#replicas", r.replicas[0].URL())
		fits(t, phone, 390)
		var light []float64
		if err := phone.Eval("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)", &light); err != nil || light[0] > 60 {
			t.Errorf("the background is %v, %v, want it dark", light, err)
		}
	})
	t.Run("behind a path prefix", func(t *testing.T) {
		behind := httptest.NewServer(http.StripPrefix("/llm/router", proxyTo(t, r.e.URL())))
		defer behind.Close()
		prefixed := tab(t, b, behind.URL+"/llm/router/workers", browser.Look{})
		shows(t, prefixed, 20*time.Second, "#replicas", r.replicas[0].URL())
		clean(t, prefixed, "behind a prefix")
	})
	t.Run("a source that does not answer", func(t *testing.T) {
		dead := httptest.NewServer(http.NotFoundHandler())
		defer dead.Close() // a 404 in plain text is an API that is not there
		r.with(engine.Config{"workers": []any{}, "discovery": engine.Config{
			"service": "vllm@file", "interval": "200ms", "api": engine.Config{"address": dead.URL},
		}})
		shows(t, p, 20*time.Second, "#verdict", "Discovery fails: ")
		shows(t, p, 20*time.Second, "#verdict", "The last known replicas stay.")
	})
}

// fits wants nothing to be cut off at the right.
func fits(t *testing.T, p *browser.Page, width float64) {
	t.Helper()
	var wide float64
	if err := p.Eval("document.documentElement.scrollWidth", &wide); err != nil || wide > width {
		t.Errorf("the page is %v wide, %v, want it to fit into %v", wide, err, width)
	}
}

// proxyTo passes requests to an address as Traefik does behind a stripPrefix.
func proxyTo(t *testing.T, address string) http.Handler {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	return httputil.NewSingleHostReverseProxy(u)
}

// hostile serves the real page, and to its script states that try to be markup and script.
type hostile struct {
	mu    sync.Mutex
	page  string
	head  http.Header
	state map[string]any
	fail  bool
}

func (h *hostile) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case strings.Contains(r.Header.Get("Accept"), "text/html"):
		for _, name := range []string{"Content-Type", "Content-Security-Policy"} {
			w.Header().Set(name, h.head.Get(name))
		}
		_, _ = w.Write([]byte(h.page))
	case h.fail:
		w.WriteHeader(http.StatusBadGateway)
	default:
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(h.state)
	}
}

// TestPage_showsWhatIsHostileAsText puts markup and script into every text that the page gets.
func TestPage_showsWhatIsHostileAsText(t *testing.T) {
	b := open(t)
	// A replica whose answer to the probe is markup: its text comes back as the reason why it is down.
	const markup = `<img/src=x/onerror=window.pwned=1>`
	bad := badReplica(t, "HTTP/1.1 "+markup+" no\r\n\r\n")
	r := start(t, engine.Traefik, 1, engine.Config{"health": engine.Config{"failureThreshold": 1}})
	workers := append([]any{}, r.config["workers"].([]any)...)
	r.with(engine.Config{"workers": append(workers, engine.Config{"url": bad + "/'onload=alert(1)"})})
	p := tab(t, b, r.e.URL()+"/workers", browser.Look{})
	shows(t, p, 20*time.Second, "#replicas tbody tr.down .why", markup)
	unharmed(t, p)

	h := &hostile{state: map[string]any{}}
	req, _ := http.NewRequest(http.MethodGet, r.e.URL()+"/workers", nil)
	req.Header.Set("Accept", "text/html")
	resp, err := r.e.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	h.page, h.head = readAll(t, resp), resp.Header
	if err := json.Unmarshal([]byte(r.do(http.MethodGet, "/workers", "").body), &h.state); err != nil {
		t.Fatal(err)
	}
	poison(h.state, `"><img src=x onerror="window.pwned=1"><script>window.pwned=1</script>{{pwned}}`)
	h.state["reasons"] = map[string]any{markup: 3}
	server := httptest.NewServer(h)
	defer server.Close()
	evil := tab(t, b, server.URL+"/workers", browser.Look{})
	shows(t, evil, 20*time.Second, "#replicas", `<script>window.pwned=1</script>`)
	shows(t, evil, 20*time.Second, "#reasons", markup)
	unharmed(t, evil)
	clean(t, evil, server.URL)

	// When the router stops answering, the page says so and keeps what it last knew. That is an error in the console too.
	gone, err := b.Open(server.URL+"/workers", browser.Look{})
	if err != nil {
		t.Fatal(err)
	}
	defer gone.Close()
	shows(t, gone, 20*time.Second, "#age", "live")
	h.mu.Lock()
	h.fail = true
	h.mu.Unlock()
	shows(t, gone, 20*time.Second, "#age", "no answer from the router")
	shows(t, gone, time.Second, "#replicas", "<script>")
}

// poison replaces every text of a state.
func poison(value any, text string) any {
	switch v := value.(type) {
	case map[string]any:
		for key := range v {
			v[key] = poison(v[key], text)
		}
	case []any:
		for i := range v {
			v[i] = poison(v[i], text)
		}
	case string:
		return text
	}
	return value
}

// unharmed wants no element and no variable that a text made.
func unharmed(t *testing.T, p *browser.Page) {
	t.Helper()
	var made int
	err := p.Eval("document.querySelectorAll('main img, main script, main iframe').length + (window.pwned ? 1000 : 0)", &made)
	if err != nil || made != 0 {
		t.Errorf("%d elements or scripts came out of a text, %v", made, err)
	}
}

// badReplica answers every connection with that text.
func badReplica(t *testing.T, text string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			buffer := make([]byte, 4096)
			_, _ = c.Read(buffer)
			_, _ = c.Write([]byte(text))
			c.Close()
		}
	}()
	return "http://" + l.Addr().String()
}
