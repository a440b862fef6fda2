package cart

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// copyBuffers are lent to reads of bodies.
var copyBuffers = sync.Pool{New: func() interface{} {
	b := make([]byte, 32<<10)
	return &b
}}

// eagerBody is the announced length up to which the memory is taken at once. Above it, and without a length, memory
// follows what really comes.
const eagerBody = 2 << 20

// readLong reads the body of a request into ex.text, as far as the bound allows, and inspects it if that is asked for. It
// says whether the request may go on, and has answered it if not.
func readLong(ex *exchange) bool {
	set := ex.h.set
	failed := readUpTo(ex, set.maxBody)
	if failed == nil && set.mediaStatus > 0 {
		failed = inspectMedia(ex.req, ex.text.String(), set.mediaStatus)
	}
	if failed != nil {
		refuse(ex.h.pool, ex.rw, ex.endpoint, failed)
	}
	return failed == nil
}

func readUpTo(ex *exchange, most int64) *refusal {
	req := ex.req
	length := req.ContentLength
	if length > most {
		if length <= 2*most && req.Header.Get("Expect") == "" {
			// Many clients look for an answer only after they have sent everything.
			io.CopyN(io.Discard, req.Body, length)
		}
		return refusals[refusedTooLarge]
	}
	if req.Body == nil || length == 0 {
		return nil
	}
	if length > 0 && length <= eagerBody {
		ex.text.Grow(int(length))
	}
	n, err := io.Copy(&ex.text, io.LimitReader(req.Body, most+1))
	if n > most {
		io.CopyN(io.Discard, req.Body, most)
		return refusals[refusedTooLarge]
	}
	if err != nil || n < length {
		return uploadFailed(err)
	}
	return nil
}

// refuseUpload answers a request whose body ended early.
func refuseUpload(ex *exchange, err error) {
	refuse(ex.h.pool, ex.rw, ex.endpoint, uploadFailed(err))
}

func uploadFailed(err error) *refusal {
	var slow net.Error
	if errors.As(err, &slow) && slow.Timeout() {
		return refusals[refusedSlowUpload]
	}
	return refusals[refusedUpload]
}

// watchedBody is a replica's answer that is given up when nothing comes for too long. The time runs only while it is being
// read, so a slow client does not end it.
type watchedBody struct {
	body  io.ReadCloser
	timer *time.Timer
	wait  time.Duration
	ex    *exchange // whose end is to be looked at; nil = of no interest
}

func newWatchedBody(body io.ReadCloser, wait time.Duration, giveUp func()) *watchedBody {
	timer := time.AfterFunc(wait, giveUp)
	return &watchedBody{body: body, timer: timer, wait: wait}
}

// Read is called for each event of a stream, and its frame is there while that waits for one: no more in it than has to be.
func (b *watchedBody) Read(p []byte) (n int, err error) {
	b.timer.Reset(b.wait)
	n, err = b.body.Read(p)
	b.timer.Stop()
	if err != nil {
		b.ended(p)
	}
	return n, err
}

func (b *watchedBody) ended(p []byte) {
	if b.ex != nil {
		noteEnd(b.ex, p)
	}
}

func (b *watchedBody) Close() error {
	b.timer.Stop()
	return b.body.Close()
}

// silence gives up a stream of which nothing has come for too long, without a call for each of its events. From time to time it
// reads no bytes of the body, for which Go takes the body's lock, and then looks for the next chunk. Who waits for bytes of the
// body holds that lock meanwhile. So the answer comes with the bytes, and at once when bytes are there that nobody has read yet:
// a client that is slow is not taken for a replica that is silent.
//
// More exactly, the answer comes with the third event after the question. A mutex may pass by who asked for it once, so the lock
// comes with the second event, and what is read there with the one after it. No stream whose pauses are shorter than its wait
// may be given up, so that is done when a question has had no answer for three waits.
type silence struct {
	body   io.Reader
	ctx    context.Context // of the attempt
	wait   time.Duration
	giveUp func()
	timer  *time.Timer // until the next question
}

// leastSilence is the wait from which on it is done so. A shorter one is exact: see watchedBody. Who waits for minutes wants to
// be rid of what is dead some day; who sets less wants it soon.
const leastSilence = time.Minute

// silenceSteps is how often it asks in one wait.
const silenceSteps = 8

// mostSilence is how many waits a question may have no answer.
const mostSilence = 3

// newSilence begins to watch. Its frame lives as long as the stream, with those of its callers: it is for loops to call.
func newSilence(ctx context.Context, body io.Reader, wait time.Duration, giveUp func()) *silence {
	s := &silence{body: body, ctx: ctx, wait: wait, giveUp: giveUp}
	s.timer = time.AfterFunc(wait, func() { guard("silence of a stream", s.ask) })
	s.timer.Reset(wait / silenceSteps)
	return s
}

func (s *silence) ask() {
	if s.ctx.Err() != nil {
		return
	}
	end := time.AfterFunc(mostSilence*s.wait, s.giveUp)
	_, err := s.body.Read(nil)
	end.Stop()
	if err == nil && s.ctx.Err() == nil {
		s.timer.Reset(s.wait / silenceSteps)
	}
}
