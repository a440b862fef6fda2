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
	"sort"
	"strconv"
	"strings"
	"sync"
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
	}
	// Yaegi takes the bare method value for a function with one parameter more.
	transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		return dialer.DialContext(ctx, network, address)
	}
	return transport
}

// newBulkTransport returns further connections to the replicas that transport reaches, for requests of more than bulkBody whose
// answer is not streamed. With the usual buffer of 4 KiB a body takes two writes and a copy of all but its beginning, in memory
// that is garbage afterwards; bulkBuffer saves both for most of them. Streams hold their connections for long, and there may be
// thousands, so theirs stay small.
func newBulkTransport(transport *http.Transport) *http.Transport {
	bulk := transport.Clone()
	bulk.WriteBufferSize = bulkBuffer
	return bulk
}

// bulkBody and bulkBuffer are in bytes. With 64 KiB bodies of 32 KB take 5 % less of the processor and 6 % less time, those of
// 128 KB the same as without (make bench).
const (
	bulkBody   = 4 << 10
	bulkBuffer = 64 << 10
)

// newProxy returns a ReverseProxy towards one replica, which copies answers with what is lent to it. Its Director is the
// standard library's own: it aims the request, and leaves headers and query as Traefik's own services do. All that is ours is
// in replicaTransport, the one hook that is called on the way: each costs some microseconds interpreted.
func newProxy(base *url.URL, transport, bulk *http.Transport, log *logger, lent httputil.BufferPool) *httputil.ReverseProxy {
	proxy := httputil.NewSingleHostReverseProxy(base)
	// Yaegi makes it an http.RoundTripper here, not in the assignment below.
	var replica http.RoundTripper = &replicaTransport{transport: transport, bulk: bulk}
	proxy.Transport = replica
	proxy.ErrorHandler = attemptFailed
	proxy.BufferPool = lent
	// Broken copies are accounted for by forward; Traefik would show them as errors of its own.
	proxy.ErrorLog = slog.NewLogLogger(log.out.Handler(), levelDebug)
	return proxy
}

// buffers lends ReverseProxy what it copies answers with: else it makes 32 KiB for each, and collecting that garbage costs
// more than these two calls.
var buffers httputil.BufferPool = &bufferPool{}

type bufferPool struct{}

func (*bufferPool) Get() []byte {
	b := *(answerBuffers.Get().(*[]byte))
	copy(b, noBytes) // for endMark
	return b
}

func (*bufferPool) Put(b []byte) { answerBuffers.Put(&b) }

var answerBuffers = sync.Pool{New: func() interface{} {
	b := make([]byte, 16<<10)
	return &b
}}

// streamBuffers does so for requests that ask for a stream, which holds its buffer for long and is a small event at a time.
var streamBuffers httputil.BufferPool = &streamPool{}

type streamPool struct{}

func (*streamPool) Get() []byte { return make([]byte, streamBuffer) }

func (*streamPool) Put(_ []byte) {}

// streamBuffer is in bytes: as long as the transport's own, and enough for the last pieces of a stream, which noteEnd looks at.
const streamBuffer = 4 << 10

// replicaTransport sends a request to the replica of the exchange's present attempt and judges the answer.
type replicaTransport struct {
	transport *http.Transport
	bulk      *http.Transport // see newBulkTransport
}

func (t *replicaTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx := req.Context()
	ex := ctx.Value(exchangeKey).(*exchange)
	if ex.dressed {
		dress(req, ex.attempt.worker.headers)
	}
	trace := interim // a copy: WithClientTrace chains the hooks before it into the one it is given
	out := req.WithContext(httptrace.WithClientTrace(ctx, &trace))
	if ex.buffered {
		// Without ReverseProxy's wrapper the transport sees that the body is at hand, and writes it together with the headers.
		out.Body = ex.out.Body
	}
	transport := t.transport
	if ex.bulk {
		transport = t.bulk
	}
	res, err := transport.RoundTrip(out)
	if err != nil {
		return nil, err
	}
	if res.StatusCode < 400 {
		ex.answered = true
	} else if takeNext(ex, res) {
		return nil, errTryNext
	}
	if ex.peer != nil {
		res.Header["X-Routed-Peer"] = ex.peer
	}
	length := res.ContentLength
	if ex.unusual || length <= 0 || res.Header["Content-Type"] == nil {
		return passUnusual(ex, res)
	}
	if ex.set.idleWait > 0 {
		if length <= shortAnswer {
			// Too short to be worth a call for each block read: the whole of it has to come in that time.
			ex.timer = time.AfterFunc(ex.set.idleWait, ex.cancel)
		} else {
			watch(ex, res)
		}
	}
	// Nothing is sent to the client before the first byte is there, for until then another replica can answer.
	size := firstRead
	if length < firstRead {
		size = int(length)
	}
	body := bufio.NewReaderSize(res.Body, size)
	_, err = body.Peek(1)
	if err != nil {
		return nil, cutShort(res, err)
	}
	// The end of the attempt's context closes what is left.
	res.Body = io.NopCloser(body)
	size = body.Buffered()
	if int64(size) < length {
		res.ContentLength = -1 // which makes ReverseProxy pass on each block as it comes
		res.Body = io.NopCloser(keepTail(ex, body, length))
	} else if ex.answered {
		ex.tail, _ = body.Peek(size)
	}
	ex.firstByte = time.Since(ex.begun)
	return res, nil
}

// passUnusual prepares all answers but those with a length and a type: streams above all, and what those do not need is a
// function of its own.
func passUnusual(ex *exchange, res *http.Response) (*http.Response, error) {
	ex.status = res.StatusCode
	if ex.charges != nil {
		settleNow(ex) // this answer may stream for minutes
	}
	if ex.set.decisionHead || ex.models || res.ContentLength >= 0 || res.Header["Content-Type"] == nil {
		return passRare(ex, res)
	}
	ex.res = res
	watchJobs <- ex
	<-ex.done
	ex.res = nil
	return res, nil
}

// passRare does that, also for streams of which something else is to be told or that are no streams of events.
func passRare(ex *exchange, res *http.Response) (*http.Response, error) {
	if ex.set.decisionHead {
		share := strconv.FormatFloat(ex.attempt.share(len(ex.key)), 'f', 2, 64)
		res.Header["X-Cart-Reason"] = []string{ex.attempt.why}
		res.Header["X-Cart-Match"] = []string{share}
	}
	if res.Header["Content-Type"] == nil {
		ex.rw.Header()["Content-Type"] = nil // keeps net/http from guessing
	}
	if ex.models {
		if err := passModels(ex, res); err != nil {
			return nil, err
		}
		return res, nil
	}
	if res.ContentLength == 0 || res.StatusCode == http.StatusSwitchingProtocols {
		return res, nil
	}
	if res.ContentLength < 0 {
		ex.res = res
		watchJobs <- ex
		<-ex.done
		ex.res = nil
		return res, nil
	}
	if ex.set.idleWait > 0 {
		watch(ex, res)
	}
	if ex.req.Method != http.MethodHead {
		if err := awaitFirst(ex, res); err != nil {
			return nil, cutShort(res, err)
		}
		if ex.endpoint != endpointOther {
			ex.firstByte = time.Since(ex.begun)
		}
	}
	return res, nil
}

// watchLoop has streams looked at while they pass. Yaegi keeps the frame in which a value of ours becomes an interface for as
// long as the value, and the frames of all who called it: for a stream that would be RoundTrip's with every request it made.
// The frame of a loop is there anyway.
func watchLoop(state *loopState) {
	var ex *exchange
	var res *http.Response
	var watched *watchedBody
	var quiet *silence
	var timer *time.Timer
	var head, body, end io.Reader
	for {
		ex = <-state.jobs
		state.ex = ex
		res = ex.res
		watched = nil
		body = res.Body
		if ex.set.idleWait >= leastSilence && res.ProtoMajor == 1 { // the locks of HTTP/2 are others
			quiet = newSilence(ex.out.Context(), body, ex.set.idleWait, ex.cancel)
			ex.timer = quiet.timer
		} else if ex.set.idleWait > 0 {
			timer = time.AfterFunc(ex.set.idleWait, ex.cancel)
			ex.timer = timer
			watched = &watchedBody{body: res.Body, timer: timer, wait: ex.set.idleWait}
		}
		if ex.answered && ex.endpoint != endpointOther {
			// The end of the attempt's context closes what is left.
			head = headReader(ex, body, watched)
			if watched != nil {
				watched.ex = ex
				body = watchedReader(watched)
				res.Body = io.NopCloser(io.MultiReader(head, body))
			} else {
				end = endReader(ex)
				res.Body = io.NopCloser(io.MultiReader(head, body, end))
			}
		} else if watched != nil {
			res.Body = watchedCloser(watched)
		}
		ex.done <- 1
		if ex.long {
			return
		}
	}
}

// These are functions, for in a loop that never returns all bodies would become the last one: see CONTRIBUTING.md. They are
// short, for their frames live as long as the streams.
func watchedReader(b *watchedBody) io.Reader     { return b }
func watchedCloser(b *watchedBody) io.ReadCloser { return b }
func endReader(ex *exchange) io.Reader           { return &streamEnd{ex: ex} }

func headReader(ex *exchange, body io.Reader, watched *watchedBody) io.Reader {
	return &streamHead{ex: ex, body: body, watched: watched}
}

// firstLoop counts the first bytes of streams when they come, for their ends may be far off.
func firstLoop(state *loopState) {
	var ex *exchange
	var h *histogram
	var took time.Duration
	for {
		ex = <-state.jobs
		took = time.Since(ex.begun)
		ex.pool.mu.Lock()
		h = ex.attempt.replica.first
		if ex.attempt.why == reasonHit {
			h = ex.attempt.replica.hitFirst
		}
		h.counts[sort.SearchFloat64s(firstByteNanos, float64(took))]++
		h.sum += took
		if ex.attempt.queued > 0 {
			ex.attempt.begin()
		}
		ex.pool.mu.Unlock()
		if ex.long {
			return
		}
	}
}

// watch bounds the silence of an answer.
func watch(ex *exchange, res *http.Response) {
	if n := res.ContentLength; n >= 0 && n <= shortAnswer {
		ex.timer = time.AfterFunc(ex.set.idleWait, ex.cancel)
	} else {
		watched := newWatchedBody(res.Body, ex.set.idleWait, ex.cancel)
		ex.timer = watched.timer
		res.Body = watched
	}
}

// awaitFirst waits for the first byte of an answer, as RoundTrip does in its own statements.
func awaitFirst(ex *exchange, res *http.Response) error {
	body := bufio.NewReader(res.Body)
	_, err := body.Peek(1)
	length := res.ContentLength
	res.Body = io.NopCloser(body)
	if n := body.Buffered(); int64(n) < length {
		res.ContentLength = -1
		res.Body = io.NopCloser(keepTail(ex, body, length))
	} else if ex.answered && ex.endpoint != endpointOther {
		ex.tail, _ = body.Peek(n)
	}
	return err
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
func takeNext(ex *exchange, res *http.Response) bool {
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

// firstRead is how much of an answer is read before its headers go to the client, in bytes: what is there, up to this.
const firstRead = 4 << 10

// shortAnswer is the length up to which an answer fits into one read of ReverseProxy's buffer.
const shortAnswer = 16 << 10

// passModels keeps a list of models that came in time.
func passModels(ex *exchange, res *http.Response) error {
	if res.StatusCode == http.StatusOK && ex.req.Method == http.MethodGet {
		if err := keepModels(ex, res); err != nil {
			res.Body.Close()
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
	if errors.Is(err, io.EOF) {
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
	if left := ex.left(); left != nil {
		ex.result = outcomeNeutral
		fail(rw, ex, left)
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
	if log := p.logger(); log.least == levelDebug {
		log.print(levelDebug, "attempt failed", "pool", p.name, "replica", ex.attempt.worker.name, "error", err.Error())
	}
	if mayRetry(ex) || (refused && ex.tries() <= ex.set.maxRetries) {
		if ex.next, _ = choose(ex.pool, ex, 0); ex.next != nil {
			return
		}
	}
	fail(rw, ex, err)
}
