package cart

import "time"

// A replica's queue is what the policy cost goes by: the characters of prompts that were sent to it, less what it was
// thought to know of them, until their answers begin. A streamed answer begins with its first byte. One that comes whole
// shows nothing until its end, so its part of the queue is an estimate that is worked off at the replica's pace. The statements
// that keep the queue are in decideLoop.

// wholeQueue is the part of a queue whose answers come whole. They are taken to be begun in the order they were sent, so when
// one has come, all that was sent before it is through.
type wholeQueue struct {
	count int   // requests in flight
	chars int   // of these, uncached
	sent  int64 // characters ever sent
	done  int64 // of these, worked off at the time at
	at    int64 // nanoseconds of the Unix epoch
	pace  int64 // characters a second by which done grows
}

// A replica's pace is learnt: the queue that a request saw when it was sent, by the time until its answer began. It goes up
// by an eighth where that was faster and down by a 64th where it was slower, so that about one in nine is faster: most are
// held up by what has nothing to do with the queue, above all by the writing of answers that come whole. A queue that is
// taken for too short does far more harm than one that is taken for too long.
const (
	firstPace = 4000 // characters a second, as leastPace
	leastPace = 400
	paceUp    = 8
	paceDown  = 64
	paceQueue = 4096 // characters; shorter queues say nothing
)

// begin notes that the first byte of a streamed answer has come. The caller holds the lock.
func (a *attempt) begin() {
	if a.queued > 0 && a.streamed {
		a.replica.queue -= a.queued
		a.replica.waiting--
		a.queued = 0
	}
}

// left returns the characters that are still to be worked off at now.
func (w *wholeQueue) left(now int64) int {
	left := w.sent - w.done - (now-w.at)/int64(time.Millisecond)*w.pace/1000
	if w.count == 0 || left < 0 {
		return 0
	}
	return int(left)
}
