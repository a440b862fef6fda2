package cart

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"
)

// handler is the middleware on one router, for one generation of the configuration. It owns nothing that must survive a
// reload: that is the pool's.
type handler struct {
	route
	eager int64 // length up to which a body is read at once; 0 = none, for all are inspected
}

// route is what each exchange takes over from its handler, in one assignment. The flags are those of a request whose prompt is
// routed.
type route struct {
	pool       *pool
	set        *settings
	policy     policy
	quick      bool // decideLoop's common case will do: it is the first choice, and the policy is one of these
	unusual    bool // the answer needs more than to be passed on: see passUnusual
	buffered   bool // body holds the whole body
	replayable bool // the request can be sent again
}

func newHandler(p *pool, set *settings, rule policy) *handler {
	return &handler{eager: set.eagerBody, route: route{pool: p, set: set, policy: rule, quick: set.quick,
		unusual: set.decisionHead, buffered: true, replayable: true}}
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
	p := join(ctx, name, set, fmt.Sprintf("%v", *config))
	rule := policies[set.policy]
	if set.shadow {
		rule = shadowed(p, rule)
	}
	return newHandler(p, set, rule), nil
}

// ServeHTTP answers CART's own endpoints and sends everything else to a replica. It is one function, and everything that
// does not have to be in it is in keyLoop and decideLoop: see there what a call costs.
func (h *handler) ServeHTTP(rw http.ResponseWriter, req *http.Request) {
	ex := &exchange{h: h, rw: rw, req: req, endpoint: routedPaths[req.URL.Path], done: make(chan int, 1)}
	if ex.endpoint == endpointOther || req.Method != http.MethodPost {
		serveOther(h, ex)
		return
	}
	length := req.ContentLength
	if length <= 0 || length > h.eager {
		// No length, a long body, or one to be inspected.
		if !readLong(ex) {
			return
		}
	} else {
		// Into a string, so that the key can be a part of it without a copy.
		buffer := copyBuffers.Get().(*[]byte)
		ex.text.Grow(int(length))
		n, err := io.CopyBuffer(&ex.text, req.Body, *buffer)
		copyBuffers.Put(buffer)
		if n < length {
			refuseUpload(ex, err)
			return
		}
	}
	ex.begun = time.Now()
	keyJobs <- ex
	<-ex.done
	if ex.chosen == nil && !chooseAgain(ex) {
		return
	}
	// Also when ReverseProxy panics to cut a broken stream.
	defer endExchange(ex)
	ex.proxy.ServeHTTP(rw, ex.out)
	if ex.next != nil {
		tryOthers(ex)
	}
	ex.finished = true
}

// serveOther answers everything that is not routed by its prompt.
func serveOther(h *handler, ex *exchange) {
	ex.take(h)
	ex.endpoint = endpointOther
	set, rw, req := h.set, ex.rw, ex.req
	path := req.URL.Path
	if req.Method == http.MethodGet || req.Method == http.MethodHead {
		switch {
		case path == set.healthPath && path != "":
			serveHealth(h.pool, rw, req)
			return
		case path == set.workersPath && path != "":
			serveWorkers(h.pool, rw, req)
			return
		case path == set.metricsPath && path != "":
			serveMetrics(h.pool, rw, req)
			return
		case path == "/v1/models":
			// What depends on more than the credentials is asked for each time.
			if req.URL.RawQuery == "" && len(req.Header["Origin"]) == 0 {
				turn, served := serveModels(h.pool, rw, req)
				if served {
					return
				}
				ex.models = true
				ex.modelsTurn = turn
				ex.credentials = credentials(req)
			}
		}
	}
	if req.Method == http.MethodPost && asksToExplain(req, set) {
		serveExplain(ex)
		return
	}
	ex.replayable = req.Body == nil || req.Body == http.NoBody || req.ContentLength == 0
	if set.mediaStatus > 0 && req.Method == http.MethodPost {
		// No spelling of a path gets around the inspection.
		if !readLong(ex) {
			return
		}
		ex.buffered = true
		ex.replayable = true
		ex.body = ex.text.String()
		ex.long = len(ex.body) > keptLength
	}
	ctx := req.Context()
	if set.requestWait > 0 {
		ctx = limitWhole(ctx, ex)
	}
	ex.dressed = true
	ex.begun = time.Now()
	decideJobs <- ex
	<-ex.done
	if ex.chosen == nil {
		refuseChosen(ex)
		return
	}
	renew(ctx, ex)
	defer endExchange(ex)
	ex.proxy.ServeHTTP(rw, ex.out)
	if ex.next != nil {
		tryOthers(ex)
	}
	ex.finished = true
	if managing[path] > 0 {
		managed(ex)
	}
}
