package engine

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/cart-llm/cart/e2e/traefik"
)

const dynamicFile = "engine.yml"

// Official is the official binary, which has more to it than an Engine.
type Official struct {
	*traefik.Traefik
	plain, tls *http.Client
}

// StartOfficial runs the official binary, with static configuration of the test's own, until the test ends. A panic in its
// log fails the test.
func StartOfficial(t testing.TB, static map[string]any, openFiles int) *Official {
	t.Helper()
	e := startTraefik(t, traefik.Options{TLS: true, LogLevel: "ERROR", Static: static, OpenFiles: openFiles})
	watchLog(t, e)
	return e
}

func startTraefik(t testing.TB, o traefik.Options) *Official {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute) // it may have to be downloaded
	defer cancel()
	tr, err := traefik.Start(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	e := &Official{
		Traefik: tr,
		plain:   &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 256, DisableCompression: true}},
		tls: &http.Client{Transport: &http.Transport{
			TLSClientConfig:    &tls.Config{RootCAs: tr.RootCAs()},
			ForceAttemptHTTP2:  true,
			DisableCompression: true,
		}},
	}
	t.Cleanup(func() {
		e.plain.CloseIdleConnections()
		e.tls.CloseIdleConnections()
		if err := tr.Stop(); err != nil {
			t.Errorf("Stop() = %v, want nil", err)
		}
	})
	return e
}

// Client is as Engine has it.
func (e *Official) Client() *http.Client { return e.plain }

// ClientTLS is as Engine has it.
func (e *Official) ClientTLS() *http.Client { return e.tls }

// MiddlewareError is as Engine has it.
func (e *Official) MiddlewareError(name string) string {
	m, err := e.Middleware(context.Background(), name)
	// A file that was removed just before makes Traefik apply its directory twice: the middleware comes with the second.
	for end := time.Now().Add(5 * time.Second); err != nil && time.Now().Before(end); m, err = e.Middleware(context.Background(), name) {
		time.Sleep(50 * time.Millisecond)
	}
	if err != nil {
		return err.Error()
	}
	if m.Status == "disabled" && len(m.Errors) == 0 {
		return "disabled without an error"
	}
	return strings.Join(m.Errors, "; ")
}

// Reload is as Engine has it.
func (e *Official) Reload(s Setup) error {
	if err := e.Write(dynamicFile, dynamic(s)); err != nil {
		return err
	}
	return e.WaitApplied(context.Background())
}

func dynamic(s Setup) map[string]any {
	http := map[string]any{}
	middlewares, routers, services := map[string]any{}, map[string]any{}, map[string]any{}
	for name, config := range s.Middlewares {
		middlewares[name] = map[string]any{"plugin": map[string]any{traefik.Alias: config}}
	}
	for name, r := range s.Routers {
		service := "noop@internal"
		if r.Plain != "" {
			service = name
			servers := []any{map[string]any{"url": r.Plain}}
			services[name] = map[string]any{"loadBalancer": map[string]any{"servers": servers}}
		}
		plain := router(r, service)
		plain["entryPoints"] = []string{traefik.EntryPoint}
		secure := router(r, service)
		secure["entryPoints"] = []string{traefik.EntryPointTLS}
		secure["tls"] = map[string]any{}
		routers[name], routers[name+"-tls"] = plain, secure
	}
	// An empty map would make Traefik refuse the file.
	for key, value := range map[string]map[string]any{"middlewares": middlewares, "routers": routers, "services": services} {
		if len(value) > 0 {
			http[key] = value
		}
	}
	if len(http) == 0 {
		return map[string]any{}
	}
	return map[string]any{"http": http}
}

func router(r Router, service string) map[string]any {
	out := map[string]any{"rule": "PathPrefix(`/`)", "priority": 1 + r.Priority, "service": service}
	if r.Host != "" {
		out["rule"] = fmt.Sprintf("Host(`%s`)", r.Host)
		out["priority"] = 1000 + r.Priority
	}
	if r.Middleware != "" {
		out["middlewares"] = []string{r.Middleware}
	}
	return out
}
