package cart

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"time"
)

// readBody reads the whole body of a routed request, as far as the bound allows.
func readBody(req *http.Request, most int64) ([]byte, *refusal) {
	length := req.ContentLength
	if length > most {
		if length <= 2*most && req.Header.Get("Expect") == "" {
			// Many clients look for an answer only after they have sent everything.
			io.CopyN(io.Discard, req.Body, length)
		}
		return nil, refusals[refusedTooLarge]
	}
	if length == 0 || req.Body == nil {
		return nil, nil
	}
	if length > 0 && length <= eagerBody {
		body := make([]byte, length)
		if _, err := io.ReadFull(req.Body, body); err != nil {
			return nil, uploadFailed(err)
		}
		return body, nil
	}
	// Longer, or of unknown length: memory follows what really comes.
	buffer := bytes.NewBuffer(make([]byte, 0, eagerBody/8))
	n, err := buffer.ReadFrom(io.LimitReader(req.Body, most+1))
	if n > most {
		io.CopyN(io.Discard, req.Body, most)
		return nil, refusals[refusedTooLarge]
	}
	if err == nil && length > 0 && n < length {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return nil, uploadFailed(err)
	}
	return buffer.Bytes(), nil
}

// eagerBody is the announced length up to which the memory is taken at once.
const eagerBody = 1 << 20

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
