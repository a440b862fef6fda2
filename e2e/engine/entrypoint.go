package engine

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/http"
	"runtime/debug"
	"strings"
	"sync"
)

// forwardedHeaders does to a request what Traefik's entry point does by default: nothing that a client says about where
// it comes from is believed.
func forwardedHeaders(r *http.Request) {
	for name := range r.Header {
		if strings.HasPrefix(name, "X-Forwarded-") {
			r.Header.Del(name)
		}
	}
	ip, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		ip = r.RemoteAddr
	}
	proto, port := "http", "80"
	if r.TLS != nil {
		proto, port = "https", "443"
	}
	if _, p, err := net.SplitHostPort(r.Host); err == nil {
		port = p
	}
	r.Header.Set("X-Real-Ip", ip)
	r.Header.Set("X-Forwarded-Proto", proto)
	r.Header.Set("X-Forwarded-Port", port)
	r.Header.Set("X-Forwarded-Host", r.Host)
	r.Header.Set("X-Forwarded-Server", "engine")
}

// recovered is Traefik's recovery middleware: http.ErrAbortHandler travels on, any other panic is logged and answered
// with 500, or with a broken connection when the answer has begun.
func recovered(w http.ResponseWriter, r *http.Request, log *lockedBuffer, next http.HandlerFunc) {
	wrapped := &responseWriter{ResponseWriter: w}
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
			panic(http.ErrAbortHandler)
		}
		log.add("panic in ServeHTTP: %v\n%s", p, debug.Stack())
		if wrapped.headersSent {
			panic(http.ErrAbortHandler)
		}
		http.Error(w, http.StatusText(http.StatusInternalServerError), http.StatusInternalServerError)
	}()
	next(wrapped, r)
}

// responseWriter is a compiled wrapper that flushes and hijacks, as the one is that Traefik hands to plugins.
type responseWriter struct {
	http.ResponseWriter
	headersSent bool
}

func (w *responseWriter) WriteHeader(code int) {
	w.headersSent = true
	w.ResponseWriter.WriteHeader(code)
}

func (w *responseWriter) Write(b []byte) (int, error) {
	w.headersSent = true
	return w.ResponseWriter.Write(b)
}

func (w *responseWriter) Flush() {
	if f, ok := w.ResponseWriter.(http.Flusher); ok {
		f.Flush()
	}
}

func (w *responseWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	h, ok := w.ResponseWriter.(http.Hijacker)
	if !ok {
		return nil, nil, fmt.Errorf("not a hijacker: %T", w.ResponseWriter)
	}
	return h.Hijack()
}

// lockedBuffer is a log that is written from many goroutines.
type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) add(format string, args ...any) {
	_, _ = b.Write(fmt.Appendf(nil, format+"\n", args...))
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
