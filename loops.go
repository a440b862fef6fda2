package cart

import (
	"fmt"
	"runtime"
	"sync"
	"time"
)

// Most of the work on a request is done by goroutines that live as long as the process: keyLoops cut the key out of the
// body, decideLoops choose the replica and give its place back. An interpreted call allocates every variable and every
// intermediate value of the called function, about 100 ns each, reached or not; a loop that never returns pays that once.
// Handing over to it costs less than calling a function of twenty lines.
var (
	decidersOnce sync.Once
	keyJobs      = make(chan *exchange, 256)
	decideJobs   = make(chan *exchange, 256)
	learnJobs    = make(chan *exchange, 256)
	endJobs      = make(chan *exchange, 256)
	firstJobs    = make(chan *exchange, 256)
	watchJobs    = make(chan *exchange, 256)
)

// What a decideLoop is asked for.
const (
	opChoose  = iota // pick a replica
	opRelease        // end the present attempt
	opEnd            // end the last attempt; decideLoop compares with the order
	opFind           // only walk down the tree
	opInsert         // only insert into the tree what was found last
	opLearn          // the rest of opChoose, when the request is on its way
	opAny            // what the exchange says
)

// Where few requests are under way, or few come, a request does not wait for what it does not need: the lesson for the tree and
// the end's accounts. Another goroutine does that while the replica works. The pool's lock is handed over with it, so
// everyone sees the pool as if it had been done at once. When all cores are busy that would only make the others wait.
const (
	fewRunning = 2                           // requests
	longPause  = int64(5 * time.Millisecond) // since the last decision
)

// loopState is what a loop works on, and what has to be put right when it panics.
type loopState struct {
	jobs   chan *exchange
	op     int // of a decideLoop: opAny, or what its jobs are, which come with the lock held
	ex     *exchange
	locked bool
}

// keptLength is the length of a text above which a loop returns, and is begun again with empty variables, in bytes. Interpreted,
// the value of each expression stays in memory until the same expression is evaluated again, and a part of a text keeps all of
// it: where a rare branch was taken that would be tens of megabytes for hours. Beginning again takes about 0.1 ms.
const keptLength = 1 << 20

// startDeciders starts the loops, once in a process.
func startDeciders() {
	decidersOnce.Do(func() {
		n := runtime.GOMAXPROCS(0)
		if n < 4 {
			n = 4 // so that a body of many megabytes does not hold up the others
		}
		for i := 0; i < n; i++ {
			go guard("first byte loop", func() { forever(firstLoop, firstJobs, opAny) })
			go guard("watch loop", func() { forever(watchLoop, watchJobs, opAny) })
			go guard("key loop", func() { forever(keyLoop, keyJobs, opAny) })
			go guard("decide loop", func() { forever(decideLoop, decideJobs, opAny) })
		}
		// Two of these will do: their jobs come with the lock, so they never wait.
		for i := 0; i < 2; i++ {
			go guard("learn loop", func() { forever(decideLoop, learnJobs, opLearn) })
			go guard("end loop", func() { forever(decideLoop, endJobs, opEnd) })
		}
	})
}

// forever runs a loop again after a panic or a long text.
func forever(loop func(*loopState), jobs chan *exchange, op int) {
	for {
		survive(loop, &loopState{jobs: jobs, op: op})
	}
}

// survive turns the panic of a loop into a log line and an answer without a replica.
func survive(loop func(*loopState), state *loopState) {
	defer func() {
		r := recover()
		if r == nil {
			return
		}
		ex := state.ex
		if state.locked {
			ex.pool.mu.Unlock()
		}
		newLogger("error", "json", 0).print(levelError, "panic in a decision", "panic", fmt.Sprint(r))
		if ex == nil || state.op == opLearn {
			return // nobody waits for it
		}
		ex.chosen = nil
		ex.refusal = refusedFailed
		if ex.attempt == nil {
			ex.key = "" // else what was taught under it may have to be taken back
		}
		ex.done <- 1
	}()
	loop(state)
}

// choose picks a replica that ex has not tried yet, takes a place on it and teaches the tree. Without one it returns nil
// and why not. at is the time in nanoseconds of the Unix epoch, 0 = now.
func choose(p *pool, ex *exchange, at int64) (a *attempt, refusal string) {
	if ex.pool != p {
		ex.pool = p // a learn loop may be reading it
	}
	ex.op = opChoose
	ex.waits = true
	ex.calm = false
	if ex.attempt != nil && ex.tried == nil {
		ex.tried = []int{ex.attempt.life}
	}
	if !ex.long && (len(ex.key) > keptLength || len(ex.body) > keptLength) {
		ex.long = true // of a request it is told already, and a loop may be reading it
	}
	ex.quick = ex.set.quick && ex.endpoint != endpointOther && ex.tried == nil
	ex.at = at
	ex.begun = time.Now()
	decideJobs <- ex
	<-ex.done
	return ex.chosen, ex.refusal
}

// release ends the present attempt of ex, however it went.
func release(ex *exchange, a *attempt, at int64) {
	if ex.attempt != a {
		ex.attempt = a // firstLoop may be reading it
	}
	ex.op = opRelease
	ex.at = at
	decideJobs <- ex
	<-ex.done
}

func wasTried(ex *exchange, r *replica) bool {
	for _, life := range ex.tried {
		if life == r.life {
			return true
		}
	}
	return false
}

// byteTexts are the strings of one byte.
var byteTexts = everyByte()

func everyByte() []string {
	out := make([]string, 256)
	for i := range out {
		out[i] = string([]byte{byte(i)})
	}
	return out
}
