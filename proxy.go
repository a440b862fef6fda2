package cart

import (
	"context"
	"errors"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httputil"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// exchange is one client request and all that is tried to answer it.
type exchange struct {
	route
	h        *handler
	whole    context.Context // ends with proxy.requestTimeout; nil = there is none
	endWhole func()
	endpoint endpoint

	text       strings.Builder // collects the body of a routed request
	body       string          // which is then here
	space, key string
	long       bool // body or key is longer than keptLength
	streamed   bool // the request asks for a streamed answer; with a long head or tail it is told only if settings.costs
	bulk       bool // it goes over the connections for large requests: see newBulkTransport

	models      bool   // GET or HEAD /v1/models, whose answer is kept
	modelsTurn  int    // the pool's when it was asked for
	credentials string // shown with it
	gaveUp      int32  // 1 = it took longer than modelsWait; atomic

	// The decision: see decideLoop.
	begun     time.Time      // when the present attempt was asked for
	took      time.Duration  // that the decision took, the wait for the loops included
	op        int            // what is asked for
	at        int64          // when, in nanoseconds of the Unix epoch; 0 = now
	keyOnly   bool           // only the key is asked for
	done      chan int       // answers
	chosen    *attempt       // nil: nobody is usable
	refusal   string         // and why
	explained *explainAnswer // the decision is only written down there; nil = it is carried out

	waits   bool                   // for all of what it asks for
	calm    bool                   // it does not, for others hardly ask at the same time: see fewRunning
	tried   []int                  // lives of the replicas tried so far, the present one included; nil = it is the first
	attempt *attempt               // the present one
	next    *attempt               // taken for the retry that follows
	proxy   *httputil.ReverseProxy // of the present one

	// How the present attempt went.
	answered  bool          // response headers came
	firstByte time.Duration // from begun to the first byte of a routed request's answer of known length; 0 = there was none
	status    int           // of the answer; 0 = a usual one below 400
	result    outcome       // for the breaker; of an answer that came to its end, it is a success
	broken    bool          // the transport failed, not the answer
	pushed    time.Duration // the replica asked to be left alone that long
	timer     *time.Timer   // bounds the silence of a short answer
	cancel    func()        // gives the attempt up
	finished  bool          // the last attempt came to its end
	rw        http.ResponseWriter
	req       *http.Request  // of the client
	out       *http.Request  // of the present attempt
	res       *http.Response // of a stream that is to be watched
	dressed   bool           // out's headers have to be changed for the replica
	peer      []string       // the replica's name as a header's value; nil: it is not told
	charges   []charge

	tail []byte // of a good answer, which may tell of tokens; nil = it is not kept
}

// exchangeKey finds the exchange in the context of a request to a replica. A pointer, for Yaegi compares context keys of
// other types by their shape.
var exchangeKey = new(int)

// errTryNext makes ReverseProxy drop an answer for which another replica has been taken.
var errTryNext = errors.New("the answer is worth another replica")

// modelsWait bounds the wait for a list of models, so that a hanging replica does not hold up clients at their start.
const modelsWait = time.Second

// take gives the exchange what it goes by.
func (ex *exchange) take(h *handler) {
	ex.pool = h.pool
	ex.set = h.set
	ex.policy = h.policy
}

// tries returns how many replicas were tried, the present one included.
func (ex *exchange) tries() int {
	if ex.tried == nil {
		return 1
	}
	return len(ex.tried)
}

// left returns why the client does not wait for an answer any more, nil if it does.
func (ex *exchange) left() error { return ex.req.Context().Err() }

// limitWhole puts the whole of an exchange under proxy.requestTimeout.
func limitWhole(ctx context.Context, ex *exchange) context.Context {
	ex.whole, ex.endWhole = context.WithTimeout(ctx, ex.set.requestWait)
	return ex.whole
}

// refuseChosen tells the client that there is no replica for it.
func refuseChosen(ex *exchange) {
	endAttempt(ex)
	if ex.endWhole != nil {
		ex.endWhole()
	}
	refuse(ex.pool, ex.rw, ex.endpoint, refusals[ex.refusal])
}

// tryOthers goes on with the replicas that were taken for a retry.
func tryOthers(ex *exchange) {
	for ex.next != nil {
		release(ex, ex.attempt, 0)
		endAttempt(ex)
		ex.attempt = ex.next
		ex.next = nil
		ex.answered = false
		ex.firstByte = 0
		ex.status = 0
		ex.result = outcomeNeutral
		ex.broken = false
		ex.pushed = 0
		ex.timer = nil
		ex.tail = nil
		ctx := ex.req.Context()
		if ex.whole != nil {
			ctx = ex.whole
		}
		draw := float64(time.Now().UnixNano()%1000) / 1000
		if !pause(ctx, wait(&ex.set.backoff, ex.tries()-2, draw)) {
			fail(ex.rw, ex, ctx.Err())
			return
		}
		if ex.set.logDecisions {
			logDecision(ex)
		}
		ex.begun = time.Now()
		renew(ctx, ex)
		ex.proxy = ex.attempt.worker.proxy
		if ex.streamed {
			ex.proxy = ex.attempt.worker.streams
		}
		ex.proxy.ServeHTTP(ex.rw, ex.out)
	}
}

// renew makes the request of the next attempt.
func renew(ctx context.Context, ex *exchange) {
	ex.unusual = true
	ex.dressed = true
	if ex.set.peerHeader {
		ex.peer = ex.attempt.worker.peer
	}
	attemptCtx, cancel := context.WithCancel(context.WithValue(ctx, exchangeKey, ex))
	ex.cancel = cancel
	out := ex.req.WithContext(attemptCtx)
	switch {
	case ex.buffered:
		fresh, err := http.NewRequest(http.MethodPost, "/", strings.NewReader(ex.body))
		if err == nil {
			out.Body = fresh.Body
			out.GetBody = fresh.GetBody
			out.ContentLength = fresh.ContentLength
			out.TransferEncoding = nil
			out.Trailer = nil
		}
	case ex.replayable:
		out.Body = http.NoBody
		out.ContentLength = 0
	default:
		// The transport closes a body even when it could not connect; the retry still needs it.
		out.Body = io.NopCloser(out.Body)
	}
	if ex.models && ex.attempt.others > 0 && mayRetry(ex) {
		ex.timer = time.AfterFunc(modelsWait, func() {
			atomic.StoreInt32(&ex.gaveUp, 1)
			ex.cancel()
		})
	}
	ex.out = out
}

// chooseAgain waits a moment for a place when all replicas are full, and says whether there was one. An answer reaches its
// client a little before its place is free: a client that sends one request after the other must not be refused for that.
// If there is none the request has been answered.
func chooseAgain(ex *exchange) bool {
	for d := time.Millisecond; d <= 16*time.Millisecond; d *= 4 {
		if ex.refusal != refusedFull || !pause(ex.req.Context(), d) {
			break
		}
		if choose(ex.pool, ex, 0); ex.chosen != nil {
			return true
		}
	}
	refuseChosen(ex)
	return false
}

// endAttempt gives up what is left of an attempt's connection and time.
func endAttempt(ex *exchange) {
	if ex.cancel != nil {
		ex.cancel()
	}
	if ex.timer != nil {
		ex.timer.Stop()
	}
}

// endExchange ends the last attempt: whatever way it went, the place on the replica is released. That is waited for: the end
// of a short answer goes to the client only when the handler returns, so that then its place is free.
func endExchange(ex *exchange) {
	if ex.finished && ex.endWhole == nil {
		if ex.calm {
			ex.pool.mu.Lock()
			endJobs <- ex // which gives the lock back
			return
		}
		ex.op = opEnd
		decideJobs <- ex
		<-ex.done
		return
	}
	endRare(ex)
}

// endRare ends an exchange that broke off, or had a limit to its time.
func endRare(ex *exchange) {
	cancelled := ex.out != nil && ex.out.Context().Err() != nil
	endAttempt(ex)
	if !ex.finished {
		// It is the replica's fault unless the client left or its time was over.
		ex.result = outcomeNeutral
		ex.broken = true
		switch {
		case ex.left() != nil:
			countDeparture(ex.pool)
		case ex.answered && outOfTime(ex):
			// It was answering; the limit is ours.
		default:
			ex.result = outcomeFailure
			if ex.answered {
				logBroken(ex, cancelled)
			}
		}
	}
	if ex.endWhole != nil {
		ex.endWhole()
	}
	release(ex, ex.attempt, 0)
}

// mayRetry says whether the request can go to another replica: it can be sent again, tries are left, and its time is not
// over. Nothing has been sent to the client where this is asked.
func mayRetry(ex *exchange) bool {
	return ex.replayable && ex.tries() <= ex.set.maxRetries && ex.left() == nil && !outOfTime(ex)
}

// outOfTime says whether proxy.requestTimeout is over.
func outOfTime(ex *exchange) bool {
	return ex.whole != nil && ex.whole.Err() != nil
}

// fail tells the client that no replica answered.
func fail(rw http.ResponseWriter, ex *exchange, err error) {
	var timeout net.Error
	switch {
	case ex.left() != nil:
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
	// No select: see CONTRIBUTING.md.
	waited, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	<-waited.Done()
	return ctx.Err() == nil
}

// share returns the matched part of a key of that length, 0 to 1.
func (a *attempt) share(total int) float64 {
	if total == 0 {
		return 0
	}
	return float64(a.matched) / float64(total)
}
