package cart

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httputil"
	"time"
)

// handler is the middleware on one router, for one generation of the configuration. It owns nothing that must survive a
// reload: that is the pool's.
type handler struct {
	pool   *pool
	set    *settings
	policy policy
	proxy  *httputil.ReverseProxy
}

// New builds the middleware. name is its qualified name, such as "cart@file": routers that use the same middleware share
// one pool. ctx is Traefik's sign that the configuration has been replaced; it ends long before the last request does. next
// is never called, for CART answers every request from a replica or by itself.
//
// The error names every key that is wrong, its value and what is allowed. Then the pool of that name, if there is one, is
// kept for the next good configuration.
func New(ctx context.Context, next http.Handler, config *Config, name string) (h http.Handler, err error) {
	// A panic here would end the goroutine in which Traefik applies configurations: none would be applied any more.
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("cart: panic while building %s: %v", name, r)
			h = nil
		}
	}()
	set, err := validate(config)
	if err != nil {
		join(ctx, name, nil, "")
		return nil, err
	}
	p, proxy := join(ctx, name, set, fmt.Sprintf("%v", *config))
	return &handler{pool: p, set: set, policy: policies[set.policy], proxy: proxy}, nil
}

// ServeHTTP answers CART's own endpoints and sends everything else to a replica.
func (h *handler) ServeHTTP(rw http.ResponseWriter, req *http.Request) {
	set := h.set
	path := req.URL.Path
	e := endpointOf(req.Method, path)
	ex := &exchange{endpoint: e, set: set, policy: h.policy, client: req.Context(), pool: h.pool}
	if e == endpointOther {
		if req.Method == http.MethodGet || req.Method == http.MethodHead {
			switch {
			case path == set.healthPath && path != "":
				serveHealth(h.pool, rw, req)
				return
			case path == set.workersPath && path != "":
				serveWorkers(h.pool, rw, req)
				return
			case path == "/v1/models":
				if serveModels(h.pool, rw, req) {
					return
				}
				ex.models = true
				ex.credentials = credentials(req)
				ex.query = req.URL.RawQuery != ""
			}
		}
		if set.mediaStatus > 0 && req.Method == http.MethodPost {
			serveInspected(h, rw, req, ex)
			return
		}
		ex.replayable = req.Body == nil || req.Body == http.NoBody || req.ContentLength == 0
		forward(h, rw, req, ex)
		return
	}

	body, failed := readBody(req, set.maxBody)
	if failed == nil && set.mediaStatus > 0 {
		failed = inspectMedia(req, body, set.mediaStatus)
	}
	if failed != nil {
		refuse(h.pool, rw, e, failed)
		return
	}
	began := time.Now()
	ex.body = body
	ex.buffered = true
	ex.replayable = true
	if len(req.Header["Content-Encoding"]) == 0 {
		ex.space, ex.key = keyOf(e, body)
	}
	ex.began = began
	forward(h, rw, req, ex)
}

// serveInspected buffers and inspects a body that would otherwise be streamed: with remote media refused, no spelling of a
// path gets around that.
func serveInspected(h *handler, rw http.ResponseWriter, req *http.Request, ex *exchange) {
	body, failed := readBody(req, h.set.maxBody)
	if failed == nil {
		failed = inspectMedia(req, body, h.set.mediaStatus)
	}
	if failed != nil {
		refuse(h.pool, rw, ex.endpoint, failed)
		return
	}
	ex.body = body
	ex.buffered = true
	ex.replayable = true
	forward(h, rw, req, ex)
}
