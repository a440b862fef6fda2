package cart

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/http/httputil"
	"net/textproto"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// exchange is one client request and all that is tried to answer it.
type exchange struct {
	pool     *pool
	set      *settings
	policy   policy
	client   context.Context // ends when the client leaves
	endpoint endpoint

	body       string // of a routed request
	buffered   bool   // body holds the whole body
	replayable bool   // the request can be sent again
	space, key string

	models      bool   // GET or HEAD /v1/models, whose answer is kept
	credentials string // shown with it
	query       bool   // it has a query: not kept

	// The decision: see decideLoop.
	op      int      // what is asked for
	at      int64    // when, in nanoseconds of the Unix epoch; 0 = now
	waits   bool     // the end of a release is waited for
	keyOnly bool     // only the key is asked for
	done    chan int // answers
	tree    *tree    // of opFind and opInsert
	chosen  *attempt // nil: nobody is usable
	refusal string   // and why

	tried   []int    // ids of the replicas tried so far, the present one included
	attempt *attempt // the present one
	next    *attempt // taken for the retry that follows

	// How the present attempt went.
	answered bool          // response headers came
	status   int           // of the answer
	result   outcome       // for the breaker
	broken   bool          // the transport failed, not the answer
	pushed   time.Duration // the replica asked to be left alone that long
	timer    *time.Timer   // bounds the silence of a short answer
	cancel   func()        // gives the attempt up
	rw       http.ResponseWriter
	charges  []charge
}

// exchangeKey finds the exchange in the context of a request to a replica. A pointer, for Yaegi compares context keys of
// other types by their shape.
var exchangeKey = new(int)

// errTryNext makes ReverseProxy drop an answer for which another replica has been taken.
var errTryNext = errors.New("the answer is worth another replica")

// modelsWait bounds the wait for a list of models, so that a hanging replica does not hold up clients at their start.
const modelsWait = time.Second

// forward sends the request to the replica that was chosen, and to others until one answers, or tells the client that
// none does.
func forward(h *handler, rw http.ResponseWriter, req *http.Request, ex *exchange) {
	if ex.chosen == nil {
		refuse(h.pool, rw, ex.endpoint, refusals[ex.refusal])
		return
	}
	if h.logDecisions {
		logDecision(ex)
	}
	ex.attempt = ex.chosen
	if h.set.requestWait > 0 {
		forwardInTime(h, rw, req, ex)
		return
	}
	try(h, rw, req, ex)
	if ex.next != nil {
		tryOthers(h, rw, req, ex)
	}
}

// forwardInTime is forward with proxy.requestTimeout.
func forwardInTime(h *handler, rw http.ResponseWriter, req *http.Request, ex *exchange) {
	ctx, cancel := context.WithTimeout(req.Context(), h.set.requestWait)
	defer cancel()
	req = req.WithContext(ctx)
	try(h, rw, req, ex)
	if ex.next != nil {
		tryOthers(h, rw, req, ex)
	}
}

// tryOthers goes on with the replicas that were taken for a retry.
func tryOthers(h *handler, rw http.ResponseWriter, req *http.Request, ex *exchange) {
	for ex.next != nil {
		ex.attempt = ex.next
		ex.next = nil
		ex.reset()
		draw := float64(time.Now().UnixNano()%1000) / 1000
		if !pause(req.Context(), wait(&ex.set.backoff, len(ex.tried)-2, draw)) {
			release(ex, ex.attempt, 0)
			fail(rw, ex, req.Context().Err())
			return
		}
		if h.logDecisions {
			logDecision(ex)
		}
		try(h, rw, req, ex)
	}
}

// reset forgets how the attempt before went.
func (ex *exchange) reset() {
	ex.answered = false
	ex.status = 0
	ex.result = outcomeNeutral
	ex.broken = false
	ex.pushed = 0
	ex.timer = nil
}

// try makes one attempt. Whatever way it ends, the panic by which ReverseProxy cuts a broken stream included, the place on
// the replica is released.
func try(h *handler, rw http.ResponseWriter, req *http.Request, ex *exchange) {
	ctx, cancel := context.WithCancel(context.WithValue(req.Context(), exchangeKey, ex))
	ex.cancel = cancel
	ex.rw = rw
	finished := false
	defer func() {
		cancel()
		if ex.timer != nil {
			ex.timer.Stop()
		}
		if !finished || ex.next != nil {
			endTry(ex, finished)
			return
		}
		ex.op = opRelease
		decideJobs <- ex
	}()
	out := req.WithContext(ctx)
	setBody(out, ex)
	h.proxy.ServeHTTP(rw, out)
	finished = true
}

// endTry ends an attempt that did not simply succeed.
func endTry(ex *exchange, finished bool) {
	if !finished {
		// The answer broke off. It is the replica's fault unless the client left.
		ex.result = outcomeNeutral
		ex.broken = true
		if ex.client.Err() == nil {
			ex.result = outcomeFailure
		} else {
			countDeparture(ex.pool)
		}
	}
	release(ex, ex.attempt, 0)
}

// setBody gives a request to a replica its body, the whole of it anew where it is at hand.
func setBody(out *http.Request, ex *exchange) {
	if !ex.buffered {
		setStream(out, ex)
		return
	}
	// NewRequest makes body and GetBody natively; an interpreted reader would be called for each block.
	fresh, err := http.NewRequest(http.MethodPost, "/", strings.NewReader(ex.body))
	if err == nil {
		out.Body = fresh.Body
		out.GetBody = fresh.GetBody
		out.ContentLength = fresh.ContentLength
		out.TransferEncoding = nil
		out.Trailer = nil
	}
}

// setStream is setBody for a body that is not kept.
func setStream(out *http.Request, ex *exchange) {
	if ex.replayable {
		out.Body = http.NoBody
		out.ContentLength = 0
	} else {
		// The transport closes a body even when it could not connect; the retry still needs it.
		out.Body = io.NopCloser(out.Body)
	}
	if ex.models && ex.attempt.others > 0 && mayRetry(ex) {
		ex.timer = time.AfterFunc(modelsWait, ex.cancel)
	}
}

func newTransport(set *settings) *http.Transport {
	dialer := &net.Dialer{Timeout: set.connectWait, KeepAlive: 30 * time.Second}
	transport := &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		TLSClientConfig:       set.tls,
		TLSHandshakeTimeout:   set.connectWait,
		ResponseHeaderTimeout: set.firstByteWait,
		ForceAttemptHTTP2:     true,
		DisableCompression:    true,
		MaxIdleConnsPerHost:   256,
		IdleConnTimeout:       90 * time.Second,
		ExpectContinueTimeout: time.Second,
		WriteBufferSize:       64 << 10,
	}
	// Yaegi takes the bare method value for a function with one parameter more.
	transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		return dialer.DialContext(ctx, network, address)
	}
	return transport
}

// newProxy returns the one ReverseProxy of a pool. Its hooks find the exchange in the request's context.
func newProxy(transport *http.Transport, log *logger) *httputil.ReverseProxy {
	// Yaegi makes it an http.RoundTripper here, not in the literal below.
	var tidy http.RoundTripper = &tidyTransport{transport: transport}
	return &httputil.ReverseProxy{
		Rewrite:        rewrite,
		Transport:      tidy,
		ModifyResponse: modifyResponse,
		ErrorHandler:   attemptFailed,
		FlushInterval:  -1,
		// Broken copies are accounted for by try; Traefik would show them as errors of its own.
		ErrorLog: slog.NewLogLogger(log.out.Handler(), levelDebug),
	}
}

// rewrite aims the request at the replica. The rules for headers are those of Traefik's own services.
func rewrite(pr *httputil.ProxyRequest) {
	ex := pr.In.Context().Value(exchangeKey).(*exchange)
	w := ex.attempt.worker
	in, out := pr.In, pr.Out
	u := out.URL
	u.Scheme = w.base.Scheme
	u.Host = w.base.Host
	if w.base.Path != "" {
		joinPath(u, w.base, in.URL)
	}
	// ReverseProxy drops what it cannot parse; replicas get the query as it came.
	u.RawQuery = in.URL.RawQuery
	// ReverseProxy removes these too, for it cannot know that the entry point has set them.
	for _, name := range forwardedHeaders {
		if v, ok := in.Header[name]; ok {
			out.Header[name] = v
		}
	}
	ip, _, err := net.SplitHostPort(in.RemoteAddr)
	if err == nil {
		if prior := in.Header["X-Forwarded-For"]; len(prior) > 0 {
			ip = strings.Join(prior, ", ") + ", " + ip
		}
		out.Header["X-Forwarded-For"] = []string{ip}
	}
	// The entry point answers it when the body is read; a replica's 100 would be a second one.
	delete(out.Header, "Expect")
	if len(in.Header["Upgrade"]) > 0 {
		dropH2C(out.Header)
	}
	if len(w.headers) > 0 {
		addHeaders(out, w.headers)
	}
}

func addHeaders(out *http.Request, headers []header) {
	for _, h := range headers {
		if h.name == "Host" {
			out.Host = h.value[0]
		} else {
			out.Header[h.name] = h.value
		}
	}
}

// joinPath puts the replica's base path before the path as it came, escapes included.
func joinPath(u, base, in *url.URL) {
	if in.RawPath != "" || base.RawPath != "" {
		u.RawPath = base.EscapedPath() + in.EscapedPath()
	}
	u.Path = base.Path + in.Path
}

// dropH2C removes the offer of HTTP/2 without TLS, which ReverseProxy passes on: it is between the client and Traefik.
func dropH2C(h http.Header) {
	if strings.EqualFold(h.Get("Upgrade"), "h2c") {
		h.Del("Upgrade")
		h.Del("Connection")
	}
}

var forwardedHeaders = []string{"X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "Forwarded"}

// modifyResponse judges a replica's answer: it takes another replica and returns errTryNext, or lets the answer pass.
func modifyResponse(res *http.Response) error {
	ex := res.Request.Context().Value(exchangeKey).(*exchange)
	ex.status = res.StatusCode
	if res.StatusCode < 400 {
		ex.result = outcomeSuccess
		ex.answered = true
	} else if takeNext(ex, res) {
		return errTryNext
	}
	if ex.charges != nil {
		settleNow(ex) // this answer may stream for minutes
	}
	if ex.set.peerHeader {
		res.Header["X-Routed-Peer"] = ex.attempt.worker.peer
	}
	if ex.set.decisionHead {
		addDecision(ex, res)
	}
	if res.Header["Content-Type"] == nil {
		ex.rw.Header()["Content-Type"] = nil // else net/http would guess one
	}
	if ex.models {
		return passModels(ex, res)
	}
	if res.ContentLength == 0 || res.StatusCode == http.StatusSwitchingProtocols {
		return nil
	}
	wait := ex.set.idleWait
	if res.ContentLength < 0 || res.ContentLength > shortAnswer {
		if wait > 0 {
			res.Body = newWatchedBody(res.Body, wait, ex.cancel)
		}
	} else if wait > 0 {
		// Too short to be worth a call for each block read: the whole of it has to come in that time.
		ex.timer = time.AfterFunc(wait, ex.cancel)
	}
	if res.ContentLength > 0 && res.Request.Method != http.MethodHead {
		return awaitFirst(res)
	}
	return nil
}

// takeNext judges a failure status and takes another replica if it is worth one.
func takeNext(ex *exchange, res *http.Response) bool {
	status := res.StatusCode
	// A refusal leaves nothing in the replica's cache.
	ex.answered = false
	if status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable || status == 529 {
		ex.pushed = retryAfter(res.Header, time.Now())
	} else if status >= 500 {
		ex.result = outcomeFailure
	}
	if ex.set.retryStatus[status] && mayRetry(ex) {
		ex.next, _ = choose(ex.pool, ex, 0)
	}
	return ex.next != nil
}

// addDecision tells the client why it was routed there.
func addDecision(ex *exchange, res *http.Response) {
	share := strconv.FormatFloat(ex.attempt.share(len(ex.key)), 'f', 2, 64)
	res.Header["X-Cart-Reason"] = []string{ex.attempt.why}
	res.Header["X-Cart-Match"] = []string{share}
}

// shortAnswer is the length up to which an answer fits into one read of ReverseProxy's buffer.
const shortAnswer = 32 << 10

// passModels keeps a list of models that came in time.
func passModels(ex *exchange, res *http.Response) error {
	if res.StatusCode == http.StatusOK && res.Request.Method == http.MethodGet {
		if err := keepModels(ex.pool, res); err != nil {
			return err
		}
	}
	if ex.timer != nil {
		ex.timer.Stop()
	}
	return nil
}

// awaitFirst waits for the first byte of an answer of known length. Nothing is sent to the client before it is there, for
// until then another replica can answer.
func awaitFirst(res *http.Response) error {
	body := bufio.NewReader(res.Body)
	if _, err := body.Peek(1); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return err
	}
	// The end of the attempt's context closes what is left.
	res.Body = io.NopCloser(body)
	return nil
}

// tidyTransport takes out of interim answers what belongs to the connection: ReverseProxy passes them on as they are.
type tidyTransport struct {
	transport *http.Transport
}

func (t *tidyTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	trace := interim // a copy: WithClientTrace chains the hooks before it into the one it is given
	return t.transport.RoundTrip(req.WithContext(httptrace.WithClientTrace(req.Context(), &trace)))
}

// interim is called before ReverseProxy's own hook: the one that is added last comes first.
var interim = httptrace.ClientTrace{Got1xxResponse: tidyInterim}

func tidyInterim(code int, h textproto.MIMEHeader) error {
	for _, line := range h["Connection"] {
		for _, name := range strings.Split(line, ",") {
			h.Del(strings.TrimSpace(name))
		}
	}
	for _, name := range hopByHop {
		h.Del(name)
	}
	return nil
}

var hopByHop = []string{"Connection", "Proxy-Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Te",
	"Trailer", "Transfer-Encoding", "Upgrade"}

// attemptFailed takes the errors of an attempt: nothing has been sent to the client yet.
func attemptFailed(rw http.ResponseWriter, req *http.Request, err error) {
	ex := req.Context().Value(exchangeKey).(*exchange)
	if errors.Is(err, errTryNext) {
		return
	}
	ex.broken = true
	ex.answered = false
	if ex.client.Err() != nil {
		ex.result = outcomeNeutral
		fail(rw, ex, ex.client.Err())
		return
	}
	ex.result = outcomeFailure
	var dial *net.OpError
	refused := errors.As(err, &dial) && dial.Op == "dial"
	if !ex.replayable && !refused && errors.Is(err, io.ErrUnexpectedEOF) {
		ex.result = outcomeNeutral // the client's upload broke off
	}
	p := ex.pool
	if p.log.debug {
		p.log.print(levelDebug, "attempt failed", "pool", p.name, "replica", ex.attempt.worker.name, "error", err.Error())
	}
	if mayRetry(ex) || (refused && len(ex.tried) <= ex.set.maxRetries) {
		if ex.next, _ = choose(ex.pool, ex, 0); ex.next != nil {
			return
		}
	}
	fail(rw, ex, err)
}

// mayRetry says whether the request can go to another replica: it can be sent again, tries are left, and its time is not
// over. Nothing has been sent to the client where this is asked.
func mayRetry(ex *exchange) bool {
	return ex.replayable && len(ex.tried) <= ex.set.maxRetries && ex.client.Err() == nil
}

// fail tells the client that no replica answered.
func fail(rw http.ResponseWriter, ex *exchange, err error) {
	var timeout net.Error
	switch {
	case ex.client.Err() != nil:
		// Nobody reads it; the access log shows that it was the client who left.
		countDeparture(ex.pool)
		rw.WriteHeader(statusClientClosed)
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		refuse(ex.pool, rw, ex.endpoint, refusals[refusedTimeout])
	default:
		refuse(ex.pool, rw, ex.endpoint, refusals[refusedFailed])
	}
}

// statusClientClosed is the status by which access logs tell that the client left first.
const statusClientClosed = 499

// retryAfter reads how long a replica wants to be left alone: seconds or a date; 1 s without it, at most 30 s.
func retryAfter(h http.Header, now time.Time) time.Duration {
	const most = 30 * time.Second
	out := time.Second
	if value := h.Get("Retry-After"); value != "" {
		if seconds, err := strconv.Atoi(value); err == nil || errors.Is(err, strconv.ErrRange) {
			if seconds > 30 {
				seconds = 30
			}
			out = time.Duration(seconds) * time.Second
		} else if at, err := http.ParseTime(value); err == nil {
			out = at.Sub(now)
		}
	}
	if out > most {
		return most
	}
	if out < 0 {
		return 0
	}
	return out
}

// wait returns the pause before retry n, counted from 0; draw spreads it, 0 to 1.
func wait(b *backoff, n int, draw float64) time.Duration {
	d := float64(b.initial) * math.Pow(b.multiplier, float64(n))
	if d > float64(b.max) {
		d = float64(b.max)
	}
	return time.Duration(d * (1 + b.jitter*(2*draw-1)))
}

// pause waits and says whether the client is still there.
func pause(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// share returns the matched part of a key of that length, 0 to 1.
func (a *attempt) share(total int) float64 {
	if total == 0 {
		return 0
	}
	return float64(a.matched) / float64(total)
}

func logDecision(ex *exchange) {
	a, p := ex.attempt, ex.pool
	if a == nil {
		a = ex.chosen
	}
	p.log.print(levelDebug, "decision", "pool", p.name, "reason", a.why, "replica", a.worker.name, "load", a.load,
		"matched", a.matched, "total", len(ex.key), "attempt", len(ex.tried))
}
