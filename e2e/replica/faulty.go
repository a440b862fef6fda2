package replica

import (
	"net/http"
	"time"
)

// meet applies a fault to a request whose body has been read. It returns the writer to go on with, or nil when the request
// has been dealt with.
func (p *process) meet(f *Fault, w http.ResponseWriter, r *http.Request) http.ResponseWriter {
	switch f.Kind {
	case Hang, HangHealth:
		select {
		case <-r.Context().Done():
		case <-p.ending:
		}
		panic(http.ErrAbortHandler)
	case Slow:
		if sleep(r.Context(), f.Delay) != nil {
			return nil
		}
		return &slowWriter{ResponseWriter: w, r: r, delay: f.EventDelay}
	case Cut:
		return &cutWriter{ResponseWriter: w, r: r, events: f.Events, bytes: f.Bytes, byBytes: f.Bytes > 0}
	case Status:
		f.answer(w)
		return nil
	}
	return w
}

func (f *Fault) answer(w http.ResponseWriter) {
	for name, value := range f.Headers {
		w.Header().Set(name, value)
	}
	status := f.Status
	if status == 0 {
		status = http.StatusInternalServerError
	}
	if f.Body == "" {
		writeJSON(w, status, openAIError(status, "InternalServerError", "simulated failure"))
		return
	}
	writeBody(w, status, "application/json", []byte(f.Body))
}

// slowWriter waits before each write. The first one of a plain answer counts as an event too.
type slowWriter struct {
	http.ResponseWriter
	r     *http.Request
	delay time.Duration
}

func (s *slowWriter) Write(b []byte) (int, error) {
	if err := sleep(s.r.Context(), s.delay); err != nil {
		return 0, err
	}
	return s.ResponseWriter.Write(b)
}

func (s *slowWriter) Unwrap() http.ResponseWriter { return s.ResponseWriter }

// cutWriter resets the connection once it has let through what it may.
type cutWriter struct {
	http.ResponseWriter
	r       *http.Request
	events  int
	bytes   int
	byBytes bool
}

func (c *cutWriter) WriteHeader(status int) {
	if !c.byBytes && c.events == 0 {
		resetConn(c.r)
	}
	c.ResponseWriter.WriteHeader(status)
}

func (c *cutWriter) Write(b []byte) (int, error) {
	if c.byBytes {
		if len(b) < c.bytes {
			c.bytes -= len(b)
			return c.ResponseWriter.Write(b)
		}
		_, _ = c.ResponseWriter.Write(b[:c.bytes])
		c.cut()
	}
	if c.events == 0 {
		c.cut()
	}
	c.events--
	n, err := c.ResponseWriter.Write(b)
	if c.events == 0 {
		c.cut()
	}
	return n, err
}

func (c *cutWriter) cut() {
	_ = http.NewResponseController(c.ResponseWriter).Flush()
	resetConn(c.r)
}

func (c *cutWriter) Unwrap() http.ResponseWriter { return c.ResponseWriter }
