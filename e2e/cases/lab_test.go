package cases

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cart-llm/cart"
	"github.com/cart-llm/cart/e2e/engine"
	"github.com/cart-llm/cart/e2e/traefik"
)

// TestMain lets more cases run side by side than there are processors: most of their time they wait.
func TestMain(m *testing.M) {
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue {
		_ = flag.Set("test.parallel", "8")
	}
	go pauses.watch()
	code := m.Run()
	if labStage != nil {
		if err := labStage.e.(*lab).stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// uploadWait is the lab's bound on the time that an upload takes.
var uploadWait = scaled(10*time.Second, 3*time.Second)

// labStage is the one Traefik for all cases that use a lab.
var labStage *stage

// lab is a stage for cases that look at the process: heap, goroutines, the access log, slow uploads. On the engine traefik
// that is another Traefik, on the compiled one this very process.
func (s *stage) lab(t *testing.T) *stage {
	t.Helper()
	if s.kind != engine.Traefik {
		return s
	}
	if labStage == nil {
		l, err := startLab()
		if err != nil {
			t.Fatal(err)
		}
		setup := engine.Setup{Middlewares: map[string]engine.Config{}, Routers: map[string]engine.Router{}}
		labStage = &stage{kind: s.kind, e: l, setup: setup}
	}
	l := labStage.e.(*lab)
	logged := len(l.Log())
	t.Cleanup(func() {
		if log := l.Log()[logged:]; strings.Contains(log, "panic") || strings.Contains(log, "Error in Go routine") {
			t.Errorf("the server's log tells of a panic:\n%s", log)
		} else if t.Failed() && log != "" {
			t.Logf("the server's log:\n%s", log)
		}
	})
	return labStage
}

func startLab() (*lab, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	began := time.Now()
	tr, err := traefik.Start(ctx, traefik.Options{TLS: true, LogLevel: "ERROR", Static: map[string]any{
		"api":       map[string]any{"debug": true},
		"accessLog": map[string]any{"addInternals": true}, // the routers lead to noop@internal
		"entryPoints": map[string]any{traefik.EntryPoint: map[string]any{"transport": map[string]any{
			"respondingTimeouts": map[string]any{"readTimeout": uploadWait.String()},
		}}},
	}})
	if err != nil {
		return nil, err
	}
	return &lab{
		Traefik: tr, loaded: time.Since(began),
		plain: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 256}},
		tls: &http.Client{Transport: &http.Transport{
			TLSClientConfig: &tls.Config{RootCAs: tr.RootCAs()}, ForceAttemptHTTP2: true,
		}},
	}, nil
}

// lab is a Traefik that shows what goes on inside.
type lab struct {
	*traefik.Traefik
	loaded time.Duration // from the start of the process to its first answer
	plain  *http.Client
	tls    *http.Client
}

func (l *lab) stop() error {
	l.plain.CloseIdleConnections()
	l.tls.CloseIdleConnections()
	return l.Stop()
}

func (l *lab) Client() *http.Client    { return l.plain }
func (l *lab) ClientTLS() *http.Client { return l.tls }

func (l *lab) MiddlewareError(name string) string {
	m, err := l.Middleware(context.Background(), name)
	if err != nil {
		return err.Error()
	}
	return strings.Join(m.Errors, "; ")
}

func (l *lab) Reload(s engine.Setup) error {
	type object = map[string]any
	routers, middlewares := object{}, object{}
	for name, config := range s.Middlewares {
		middlewares[name] = object{"plugin": object{traefik.Alias: config}}
	}
	for name, r := range s.Routers {
		for entryPoint, more := range map[string]object{traefik.EntryPoint: {}, traefik.EntryPointTLS: {"tls": object{}}} {
			more["rule"] = "Host(`" + r.Host + "`)"
			more["entryPoints"] = []string{entryPoint}
			more["middlewares"] = []string{r.Middleware}
			more["service"] = "noop@internal"
			routers[name+"-"+entryPoint] = more
		}
	}
	content := object{}
	if len(routers) > 0 { // an empty map would make Traefik refuse the file
		content["http"] = object{"routers": routers, "middlewares": middlewares}
	}
	if err := l.Write("lab.yml", content); err != nil {
		return err
	}
	return l.WaitApplied(context.Background())
}

// fetch returns the body of an address of the API.
func (l *lab) fetch(path string) ([]byte, error) {
	resp, err := stateClient.Get(l.URLAPI() + path)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var b bytes.Buffer
	_, err = b.ReadFrom(resp.Body)
	return b.Bytes(), err
}

// heap is what the server holds after a garbage collection, in bytes. The compiled engine shares it with the test.
func (s *stage) heap(t *testing.T) int {
	t.Helper()
	l, ok := s.e.(*lab)
	if !ok {
		runtime.GC()
		runtime.GC() // pools are emptied by the second
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	for i := 0; i < 2; i++ {
		if _, err := l.fetch("/debug/pprof/heap?gc=1&debug=1"); err != nil {
			t.Fatal(err)
		}
	}
	body, err := l.fetch("/debug/vars")
	if err != nil {
		t.Fatal(err)
	}
	var vars struct {
		Memstats runtime.MemStats `json:"memstats"`
	}
	if err := json.Unmarshal(body, &vars); err != nil || vars.Memstats.HeapAlloc == 0 {
		t.Fatalf("GET /debug/vars = %.200s, %v", body, err)
	}
	return int(vars.Memstats.HeapAlloc)
}

var goroutineTotal = regexp.MustCompile(`goroutine profile: total (\d+)`)

// goroutines is how many there are in the server. The compiled engine shares them with the test.
func (s *stage) goroutines(t *testing.T) int {
	t.Helper()
	l, ok := s.e.(*lab)
	if !ok {
		return runtime.NumGoroutine()
	}
	body, err := l.fetch("/debug/pprof/goroutine?debug=1")
	if err != nil {
		t.Fatal(err)
	}
	m := goroutineTotal.FindSubmatch(body)
	if m == nil {
		t.Fatalf("GET /debug/pprof/goroutine = %.200s", body)
	}
	n, _ := strconv.Atoi(string(m[1]))
	return n
}

// goroutinesBack waits until there are about as many goroutines as there were.
func (r *rig) goroutinesBack(before int) {
	r.t.Helper()
	const about = 15 // connections kept open, those of this very question
	r.eventually(slack*5*time.Second, func() error {
		r.e.Client().CloseIdleConnections()
		r.e.ClientTLS().CloseIdleConnections()
		if now := r.s.goroutines(r.t); now > before+about {
			return fmt.Errorf("%d goroutines, want about the %d there were", now, before)
		}
		return nil
	})
}

// grown fails the test when the heap is more than so much above what it was.
func (r *rig) grown(before, most int, what string) {
	r.t.Helper()
	now := 0
	err := poll(slack*2*time.Second, func() error {
		if now = r.s.heap(r.t); now > before+most {
			return fmt.Errorf("the heap has grown by %d kB", (now-before)>>10)
		}
		return nil
	})
	if err != nil {
		r.t.Errorf("%s: %v, want at most %d kB", what, err, most>>10)
	}
}

// slowUploads serves the compiled plugin behind an entry point that bounds the time of an upload, as Traefik's does.
func slowUploads(t *testing.T, mocks ...*mock) *rig {
	t.Helper()
	c := cart.CreateConfig()
	c.LogLevel = "error"
	for _, m := range mocks {
		c.Workers = append(c.Workers, cart.WorkerConfig{URL: m.url()})
	}
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	h, err := cart.New(ctx, http.NotFoundHandler(), c, fmt.Sprintf("uploads-%d@file", time.Now().UnixNano()))
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{ReadTimeout: uploadWait, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Header.Set("X-Forwarded-For", "127.0.0.1") // tells it from a probe
		h.ServeHTTP(w, r)
	})}
	go func() { _ = server.Serve(ln) }()
	t.Cleanup(func() { _ = server.Close() })
	return &rig{t: t, e: bare{url: "http://" + ln.Addr().String()}, mocks: mocks, host: "uploads.test"}
}

// bare is an engine of which only the address is used.
type bare struct {
	engine.Engine
	url string
}

func (b bare) URL() string { return b.url }
