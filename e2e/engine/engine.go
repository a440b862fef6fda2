// Package engine serves the plugin in three ways that behave alike to a client: compiled into the test, interpreted in
// the test as Traefik interprets it, and in the official Traefik binary.
package engine

import (
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/cart-llm/cart/e2e/traefik"
)

// Engine is a running server whose routers lead to the plugin.
type Engine interface {
	// Reload replaces the whole configuration and returns when the new one is in force.
	Reload(s Setup) error
	// URL is the address for HTTP/1.1 without TLS; URLTLS the one with TLS, where HTTP/2 is offered.
	URL() string
	URLTLS() string
	// Client speaks HTTP/1.1 to URL, ClientTLS speaks HTTP/2 to URLTLS.
	Client() *http.Client
	ClientTLS() *http.Client
	// MiddlewareError is why the middleware could not be built, "" if it was.
	MiddlewareError(name string) string
	// Log is what the server has logged.
	Log() string
}

// Setup is a whole dynamic configuration.
type Setup struct {
	// Middlewares are the plugin's configurations by name, as a user would write them in YAML: with numbers and so on.
	Middlewares map[string]Config
	Routers     map[string]Router
}

// Config is one configuration of the plugin.
type Config = map[string]any

// Router sends the requests for a host to a middleware, or to a plain address.
type Router struct {
	// Host is the Host header it is for; "" = any, after all routers that name one.
	Host string
	// Middleware is the name of one of the Setup's.
	Middleware string
	// Priority orders the routers of one host, highest first.
	Priority int
	// Plain is an address to which Traefik's own service passes the requests. Only the engine Traefik has it.
	Plain string
}

// Kind names an engine.
type Kind string

// The engines.
const (
	Compiled Kind = "compiled"
	Yaegi    Kind = "yaegi"
	Traefik  Kind = "traefik"
)

// Each runs f as a subtest on every engine, or on the one that $ENGINE names.
func Each(t *testing.T, f func(t *testing.T, kind Kind)) {
	t.Helper()
	kinds := []Kind{Compiled, Yaegi, Traefik}
	if only := os.Getenv("ENGINE"); only != "" {
		kinds = []Kind{Kind(only)}
	}
	for _, kind := range kinds {
		t.Run(string(kind), func(t *testing.T) { f(t, kind) })
	}
}

// Start serves the setup until the test ends. A panic in the server's log fails the test.
func Start(t testing.TB, kind Kind, s Setup) Engine {
	t.Helper()
	captureStdout()
	var e Engine
	switch kind {
	case Compiled:
		e = startInProcess(t, compiledLoader{})
	case Yaegi:
		e = startInProcess(t, newYaegiLoader(t))
	case Traefik:
		e = startTraefik(t, traefik.Options{TLS: true, LogLevel: "ERROR"})
	default:
		t.Fatalf("ENGINE = %q, want %s, %s or %s", kind, Compiled, Yaegi, Traefik)
	}
	watchLog(t, e)
	if err := e.Reload(s); err != nil {
		t.Fatalf("Reload() = %v\n%s", err, e.Log())
	}
	return e
}

// watchLog fails the test at its end if the log tells of a panic, and shows the log of a test that failed.
func watchLog(t testing.TB, e Engine) {
	t.Cleanup(func() {
		if log := e.Log(); strings.Contains(log, "panic") || strings.Contains(log, "Error in Go routine") {
			t.Errorf("the server's log tells of a panic:\n%s", log)
		} else if t.Failed() && log != "" {
			t.Logf("the server's log:\n%s", log)
		}
	})
}

// Selected tells whether Each runs that engine.
func Selected(kind Kind) bool {
	only := os.Getenv("ENGINE")
	return only == "" || only == string(kind)
}

// Merged returns base with change laid over it, maps key by key.
func Merged(base, change Config) Config {
	out := Config{}
	for key, value := range base {
		out[key] = value
	}
	for key, value := range change {
		below, isMap := out[key].(Config)
		above, stillMap := value.(Config)
		if isMap && stillMap {
			value = Merged(below, above)
		}
		out[key] = value
	}
	return out
}
