package cart

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/http/httputil"
	"net/textproto"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// newTransport returns the connections to the replicas of a pool.
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
	if ex.set.decisionHead || res.Header["Content-Type"] == nil {
		addHeads(ex, res)
	}
	if ex.models {
		return passModels(ex, res)
	}
	if res.ContentLength == 0 || res.StatusCode == http.StatusSwitchingProtocols {
		return nil
	}
	return watch(ex, res)
}

// watch guards the body of an answer: it has to begin while another replica can still be tried, and to go on.
func watch(ex *exchange, res *http.Response) error {
	if ex.set.idleWait > 0 {
		if res.ContentLength < 0 || res.ContentLength > shortAnswer {
			res.Body = newWatchedBody(res.Body, ex.set.idleWait, ex.cancel)
		} else {
			// Too short to be worth a call for each block read: the whole of it has to come in that time.
			ex.timer = time.AfterFunc(ex.set.idleWait, ex.cancel)
		}
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

// addHeads tells the client why it was routed there, if asked for, and keeps net/http from guessing a missing type.
func addHeads(ex *exchange, res *http.Response) {
	if res.Header["Content-Type"] == nil {
		ex.rw.Header()["Content-Type"] = nil
	}
	if !ex.set.decisionHead {
		return
	}
	share := strconv.FormatFloat(ex.attempt.share(len(ex.key)), 'f', 2, 64)
	res.Header["X-Cart-Reason"] = []string{ex.attempt.why}
	res.Header["X-Cart-Match"] = []string{share}
}

// shortAnswer is the length up to which an answer fits into one read of ReverseProxy's buffer.
const shortAnswer = 32 << 10

// passModels keeps a list of models that came in time.
func passModels(ex *exchange, res *http.Response) error {
	if res.StatusCode == http.StatusOK && res.Request.Method == http.MethodGet {
		if err := keepModels(ex, res); err != nil {
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
	if atomic.LoadInt32(&ex.gaveUp) == 1 {
		ex.result = outcomeNeutral // slow with its list of models, which says nothing about its work
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
