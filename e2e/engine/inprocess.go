package engine

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"sort"
	"sync"
	"sync/atomic"
	"testing"
)

// loader builds one handler of the plugin.
type loader interface {
	build(ctx context.Context, next http.Handler, config Config, name string) (http.Handler, error)
}

// inProcess repeats what Traefik does with a plugin: New for every router at every reload, the context of the handlers
// before cancelled first, the requests switched over last.
type inProcess struct {
	loader      loader
	suffix      string
	plain, tls  *httptest.Server
	plainClient *http.Client
	log         lockedBuffer
	logged      int // length of the captured output when this engine started
	routes      atomic.Pointer[[]route]

	mu     sync.Mutex
	cancel context.CancelFunc
	errs   map[string]error
	pools  map[string]bool // names of all middlewares so far
}

// route is a router that could be built.
type route struct {
	name    string
	router  Router
	handler http.Handler
}

// started makes the middlewares' names differ from test to test: the compiled plugin keeps its state by name for the life
// of the process, which all tests share.
var started atomic.Int64

func startInProcess(t testing.TB, l loader) *inProcess {
	t.Helper()
	e := &inProcess{loader: l, logged: stdout.log.len(), suffix: fmt.Sprintf("-%d@file", started.Add(1)), cancel: func() {}}
	e.pools = map[string]bool{}
	e.routes.Store(&[]route{})
	e.plain = httptest.NewUnstartedServer(http.HandlerFunc(e.serve))
	e.plain.Config.ErrorLog = log.New(&e.log, "", 0)
	e.plain.Start()
	e.tls = httptest.NewUnstartedServer(http.HandlerFunc(e.serve))
	e.tls.Config.ErrorLog = log.New(&e.log, "", 0)
	e.tls.EnableHTTP2 = true
	e.tls.StartTLS()
	if transport, ok := e.tls.Client().Transport.(*http.Transport); ok {
		transport.DisableCompression = true // what a test does not send, it does not want sent
	}
	e.plainClient = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 256, DisableCompression: true}}
	t.Cleanup(func() {
		e.plainClient.CloseIdleConnections()
		for _, s := range []*httptest.Server{e.plain, e.tls} {
			s.CloseClientConnections()
			s.Close()
		}
		e.empty()
	})
	return e
}

// empty takes the replicas from all pools and ends them. In a process a pool outlasts its last handler by 10 s, and would go on
// probing addresses that another test's server may get by then, which would count its probes.
func (e *inProcess) empty() {
	none := Setup{Middlewares: map[string]Config{}, Routers: map[string]Router{}}
	for name := range e.pools {
		none.Middlewares[name] = Config{"workers": []any{}, "logLevel": "error"}
		none.Routers[name] = Router{Middleware: name}
	}
	_ = e.Reload(none) // it never fails: what it built is asked for by MiddlewareError
	e.cancel()
}

func (e *inProcess) URL() string             { return e.plain.URL }
func (e *inProcess) URLTLS() string          { return e.tls.URL }
func (e *inProcess) Client() *http.Client    { return e.plainClient }
func (e *inProcess) ClientTLS() *http.Client { return e.tls.Client() }
func (e *inProcess) Log() string             { return e.log.String() + stdout.log.since(e.logged) }

func (e *inProcess) MiddlewareError(name string) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.errs[name]; err != nil {
		return err.Error()
	}
	return ""
}

func (e *inProcess) Reload(s Setup) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.cancel()
	ctx, cancel := context.WithCancel(context.Background())
	e.cancel = cancel
	e.errs = map[string]error{}
	var routes []route
	for name, router := range s.Routers {
		e.pools[router.Middleware] = true
		handler, err := e.buildRouter(ctx, s, router)
		if err != nil {
			e.errs[router.Middleware] = err
			continue
		}
		routes = append(routes, route{name: name, router: router, handler: handler})
	}
	sort.Slice(routes, func(i, j int) bool { return routes[i].before(&routes[j]) })
	e.routes.Store(&routes)
	return nil
}

func (e *inProcess) buildRouter(ctx context.Context, s Setup, r Router) (handler http.Handler, err error) {
	if r.Plain != "" {
		return nil, errors.New("a plain service needs the engine traefik")
	}
	config, ok := s.Middlewares[r.Middleware]
	if !ok {
		return nil, fmt.Errorf("middleware %q does not exist", r.Middleware)
	}
	config, err = written(config)
	if err != nil {
		return nil, err
	}
	// In Traefik a panic here ends all reloading for good; in a test it is enough to be seen.
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic in New: %v", p)
			e.log.add("%v", err)
		}
	}()
	next := http.HandlerFunc(http.NotFound) // Traefik's noop@internal answers 418; nothing should get there
	return e.loader.build(ctx, next, config, r.Middleware+e.suffix)
}

// serve is the entry point.
func (e *inProcess) serve(w http.ResponseWriter, r *http.Request) {
	forwardedHeaders(r)
	recovered(w, r, &e.log, func(w http.ResponseWriter, r *http.Request) {
		for _, route := range *e.routes.Load() {
			if route.router.Host == "" || route.router.Host == r.Host {
				route.handler.ServeHTTP(w, r)
				return
			}
		}
		http.NotFound(w, r)
	})
}

func (a *route) before(b *route) bool {
	if (a.router.Host == "") != (b.router.Host == "") {
		return a.router.Host != ""
	}
	if a.router.Priority != b.router.Priority {
		return a.router.Priority > b.router.Priority
	}
	return a.name < b.name
}
