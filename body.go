package cart

import (
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"time"
)

// readBody reads the whole body of a request into ex.body, as far as the bound allows. It is a string, so that the key can
// be a part of it without a copy.
func readBody(ex *exchange) *refusal {
	ex.buffered = true
	ex.replayable = true
	length := ex.req.ContentLength
	if length <= 0 || length > ex.set.eagerBody || ex.req.Body == nil {
		return readLongBody(ex)
	}
	var body strings.Builder
	body.Grow(int(length))
	buffer := copyBuffers.Get().(*[]byte)
	n, err := io.CopyBuffer(&body, ex.req.Body, *buffer)
	copyBuffers.Put(buffer)
	if err != nil || n < length {
		return uploadFailed(err)
	}
	ex.body = body.String()
	return nil
}

// copyBuffers are lent to reads of bodies.
var copyBuffers = sync.Pool{New: func() interface{} {
	b := make([]byte, 32<<10)
	return &b
}}

// eagerBody is the announced length up to which the memory is taken at once. Above it, and without a length, memory
// follows what really comes.
const eagerBody = 1 << 20

func readLongBody(ex *exchange) *refusal {
	req, most := ex.req, ex.set.maxBody
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
	var body strings.Builder
	n, err := io.Copy(&body, io.LimitReader(req.Body, most+1))
	if n > most {
		io.CopyN(io.Discard, req.Body, most)
		return refusals[refusedTooLarge]
	}
	if err != nil || n < length {
		return uploadFailed(err)
	}
	ex.body = body.String()
	return nil
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
}

func newWatchedBody(body io.ReadCloser, wait time.Duration, giveUp func()) *watchedBody {
	timer := time.AfterFunc(wait, giveUp)
	return &watchedBody{body: body, timer: timer, wait: wait}
}

func (b *watchedBody) Read(p []byte) (int, error) {
	b.timer.Reset(b.wait)
	n, err := b.body.Read(p)
	b.timer.Stop()
	return n, err
}

func (b *watchedBody) Close() error {
	b.timer.Stop()
	return b.body.Close()
}
