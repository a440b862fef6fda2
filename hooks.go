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

// newProxy returns the ReverseProxy towards one replica. Its Director is the standard library's own: it aims the request,
// and leaves headers and query as Traefik's own services do. All that is ours is in replicaTransport, the one hook that is
// called on the way: each costs some microseconds interpreted.
func newProxy(base *url.URL, transport *http.Transport, log *logger) *httputil.ReverseProxy {
	proxy := httputil.NewSingleHostReverseProxy(base)
	// Yaegi makes it an http.RoundTripper here, not in the assignment below.
	var replica http.RoundTripper = &replicaTransport{transport: transport}
	proxy.Transport = replica
	proxy.ErrorHandler = attemptFailed
	// Broken copies are accounted for by forward; Traefik would show them as errors of its own.
	proxy.ErrorLog = slog.NewLogLogger(log.out.Handler(), levelDebug)
	return proxy
}

// replicaTransport sends a request to the replica of the exchange's present attempt and judges the answer.
type replicaTransport struct {
	transport *http.Transport
}

func (t *replicaTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx := req.Context()
	ex := ctx.Value(exchangeKey).(*exchange)
	if ex.dressed || ex.attempt.worker.headers != nil {
		dress(req, ex.attempt.worker.headers)
	}
	trace := interim // a copy: WithClientTrace chains the hooks before it into the one it is given
	res, err := t.transport.RoundTrip(req.WithContext(httptrace.WithClientTrace(ctx, &trace)))
	if err != nil {
		return nil, err
	}
	ex.res = res
	if res.StatusCode >= 400 && takeNext(ex) {
		return nil, errTryNext
	}
	judgeJobs <- ex
	<-ex.done
	if ex.failed != nil || ex.models {
		return res, passRare(ex)
	}
	if ex.first != nil {
		// Nothing is sent to the client before the first byte is there, for until then another replica can answer.
		if _, err = ex.first.Peek(1); err != nil {
			return nil, cutShort(res, err)
		}
		if int64(ex.first.Buffered()) < res.ContentLength {
			res.ContentLength = -1 // which makes ReverseProxy pass on each block as it comes
		}
	}
	return res, nil
}

// judgeLoop prepares one answer after another to pass to its client.
// Why it is a loop that never returns: see keyLoop.
func judgeLoop(state *loopState) {
	var ex *exchange
	var res *http.Response
	var set *settings
	var length int64
	var status int
	for {
		ex = <-judgeJobs
		state.ex = ex
		res = ex.res
		set = ex.set
		length = res.ContentLength
		status = res.StatusCode
		ex.status = status
		ex.failed = nil
		ex.first = nil
		if status < 400 {
			ex.result = outcomeSuccess
			ex.answered = true
		}
		if set.peerHeader {
			res.Header["X-Routed-Peer"] = ex.attempt.worker.peer
		}
		if ex.charges != nil {
			settleNow(ex) // this answer may stream for minutes
		}
		if set.decisionHead || res.Header["Content-Type"] == nil {
			addHeads(ex, res)
		}
		if length != 0 && !ex.models && status != http.StatusSwitchingProtocols {
			if length < 0 || length > shortAnswer {
				if set.idleWait > 0 {
					res.Body = newWatchedBody(res.Body, set.idleWait, ex.cancel)
				}
			} else if set.idleWait > 0 {
				// Too short to be worth a call for each block read: the whole of it has to come in that time.
				ex.timer = time.AfterFunc(set.idleWait, ex.cancel)
			}
			if length > 0 && ex.req.Method != http.MethodHead {
				ex.first = bufio.NewReader(res.Body)
				// The end of the attempt's context closes what is left.
				res.Body = io.NopCloser(ex.first)
			}
		}
		ex.done <- 1
	}
}

// dress puts on the headers that are meant for this replica, and takes off what is between the client and Traefik.
func dress(req *http.Request, headers []header) {
	// The entry point answers it when the body is read; a replica's 100 would be a second one.
	delete(req.Header, "Expect")
	if strings.EqualFold(req.Header.Get("Upgrade"), "h2c") {
		delete(req.Header, "Upgrade")
		delete(req.Header, "Connection")
	}
	for _, h := range headers {
		if h.name == "Host" {
			req.Host = h.value[0]
		} else {
			req.Header[h.name] = h.value
		}
	}
}

// takeNext judges a failure status and takes another replica if it is worth one.
func takeNext(ex *exchange) bool {
	res := ex.res
	status := res.StatusCode
	ex.status = status
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
	if ex.next == nil {
		return false
	}
	res.Body.Close()
	return true
}

// addHeads tells the client why it was routed there, if asked for, and keeps net/http from guessing a missing type.
func addHeads(ex *exchange, res *http.Response) {
	if ex.set.decisionHead {
		share := strconv.FormatFloat(ex.attempt.share(len(ex.key)), 'f', 2, 64)
		res.Header["X-Cart-Reason"] = []string{ex.attempt.why}
		res.Header["X-Cart-Match"] = []string{share}
	}
	if res.Header["Content-Type"] == nil {
		ex.rw.Header()["Content-Type"] = nil
	}
}

// shortAnswer is the length up to which an answer fits into one read of ReverseProxy's buffer.
const shortAnswer = 32 << 10

// passRare keeps a list of models that came in time, and drops an answer that could not be judged.
func passRare(ex *exchange) error {
	if ex.failed != nil {
		ex.res.Body.Close()
		return ex.failed
	}
	if ex.status == http.StatusOK && ex.req.Method == http.MethodGet {
		if err := keepModels(ex, ex.res); err != nil {
			ex.res.Body.Close()
			return err
		}
	}
	if ex.timer != nil {
		ex.timer.Stop()
	}
	return nil
}

// cutShort drops an answer that ended before its first byte.
func cutShort(res *http.Response, err error) error {
	res.Body.Close()
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// interim is called before ReverseProxy's own hook: the one that is added last comes first.
var interim = httptrace.ClientTrace{Got1xxResponse: tidyInterim}

func tidyInterim(code int, h textproto.MIMEHeader) error {
	dropHopByHop(http.Header(h))
	return nil
}

// dropHopByHop removes what is between a replica and Traefik.
func dropHopByHop(h http.Header) {
	for _, line := range h["Connection"] {
		for _, name := range strings.Split(line, ",") {
			h.Del(strings.TrimSpace(name))
		}
	}
	for _, name := range hopByHop {
		h.Del(name)
	}
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
