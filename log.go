package cart

import (
	"context"
	"log/slog"
	"math"
	"os"
	"sync"
	"time"
)

// logger writes structured lines to standard output: what a plugin prints through fmt or log reaches Traefik's own log
// under the wrong level. Warnings and errors are limited to linesPerSecond, so that a flood of refusals cannot fill a disk,
// and lines at debug, of which each request has one, to what log.maxPerSecond says. What is left out is counted and told.
type logger struct {
	out   *slog.Logger
	least slog.Level // what is below is not written

	mu      sync.Mutex // guards the rest; not held while a line is written
	details limit      // of lines at debug
	alarms  limit      // of warnings and errors
	waiting []logLine  // of printLater, oldest first
	writing bool       // a goroutine works on them
}

// linesPerSecond bounds the warnings and errors of one pool.
const linesPerSecond = 10

// mostWaiting bounds the lines that wait while standard output is stuck.
const mostWaiting = 1000

// logLine is a line that has not been written yet.
type logLine struct {
	level   slog.Level
	message string
	pairs   []interface{}
}

// limit lets the first lines of every second pass and counts the others.
type limit struct {
	most    int // lines a second; 0 = all
	second  int64
	lines   int   // passed in that second
	dropped int   // since a line told of them
	lost    int64 // dropped in all
}

// Levels of print.
const (
	levelDebug = slog.LevelDebug
	levelInfo  = slog.LevelInfo
	levelWarn  = slog.LevelWarn
	levelError = slog.LevelError
)

// newLogger returns a logger for lines of that level and above; details is how many lines at debug may be written in a
// second, 0 = all.
func newLogger(level, format string, details int) *logger {
	least := levelInfo
	switch level {
	case "debug":
		least = levelDebug
	case "warn":
		least = levelWarn
	case "error":
		least = levelError
	}
	options := &slog.HandlerOptions{Level: least}
	var h slog.Handler
	if format == "text" {
		h = slog.NewTextHandler(os.Stdout, options)
	} else {
		h = slog.NewJSONHandler(os.Stdout, options)
	}
	return &logger{out: slog.New(h), least: least, details: limit{most: details}, alarms: limit{most: linesPerSecond}}
}

// print writes one line with pairs of names and values. Standard output may be slow: no lock may be held here.
func (l *logger) print(level slog.Level, message string, pairs ...interface{}) {
	if level != levelInfo {
		dropped, ok := l.allow(level, time.Now().Unix())
		if !ok {
			return
		}
		if dropped > 0 {
			pairs = append(pairs, "droppedLines", dropped)
		}
	}
	l.out.Log(context.Background(), level, message, pairs...)
}

// longestID bounds what is logged of a request's id, which a client can make up.
const longestID = 128

// logDecision writes the line of a decision, with the ids by which access logs know the request.
func logDecision(ex *exchange) {
	a, p, req := ex.attempt, ex.pool, ex.req
	log := p.logger()
	dropped, ok := log.allow(levelDebug, time.Now().Unix())
	if !ok {
		return
	}
	pairs := []interface{}{"pool", p.name, "reason", a.why, "replica", a.worker.name, "load", a.load, "leastLoad", a.least,
		"matched", a.matched, "total", a.total, "ratio", math.Round(1000*a.share(a.total)) / 1000,
		"decisionSeconds", ex.took.Seconds(), "attempt", ex.tries(), "path", req.URL.Path}
	for _, id := range []struct{ header, name string }{{"X-Request-Id", "requestId"}, {"Traceparent", "traceparent"}} {
		if value := req.Header.Get(id.header); value != "" {
			if len(value) > longestID {
				value = value[:longestID]
			}
			pairs = append(pairs, id.name, value)
		}
	}
	if dropped > 0 {
		pairs = append(pairs, "droppedLines", dropped)
	}
	log.out.Log(context.Background(), levelDebug, "decision", pairs...)
}

// logBroken writes a line on an answer of which the client has a part and gets no more. silent says that CART gave it up.
func logBroken(ex *exchange, silent bool) {
	why := "the replica broke it off"
	if silent {
		why = "nothing came for " + ex.set.idleWait.String() + " (proxy.streamIdleTimeout)"
	}
	p := ex.pool
	p.logger().print(levelWarn, "an answer broke off", "pool", p.name, "replica", ex.attempt.worker.name, "why", why)
}

// printLater is print for who holds a lock: the line is written by a goroutine, after those before it.
func (l *logger) printLater(level slog.Level, message string, pairs ...interface{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.waiting) >= mostWaiting {
		l.alarms.dropped++
		l.alarms.lost++
		return
	}
	l.waiting = append(l.waiting, logLine{level: level, message: message, pairs: pairs})
	if !l.writing {
		l.writing = true
		go guard("log lines", func() { l.writeWaiting() })
	}
}

// writeWaiting writes the lines of printLater until none is left.
func (l *logger) writeWaiting() {
	for {
		line, ok := l.nextWaiting()
		if !ok {
			return
		}
		l.print(line.level, line.message, line.pairs...)
	}
}

func (l *logger) nextWaiting() (line logLine, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.waiting) == 0 {
		l.writing = false
		return logLine{}, false
	}
	line = l.waiting[0]
	l.waiting = l.waiting[1:]
	return line, true
}

// allow says whether a line of that level, which is not info, may be written in that second, and how many were not since
// the last one.
func (l *logger) allow(level slog.Level, second int64) (dropped int, ok bool) {
	if level < l.least {
		return 0, false // it is not wanted, so it is not lost either
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if level >= levelWarn {
		return l.alarms.pass(second)
	}
	return l.details.pass(second)
}

func (l *limit) pass(second int64) (dropped int, ok bool) {
	if l.most == 0 {
		return 0, true
	}
	// Who read the clock just before the second changed may come after who read it then. Further back the clock was set.
	if second > l.second || second < l.second-1 {
		l.second = second
		l.lines = 0
	}
	if l.lines >= l.most {
		l.dropped++
		l.lost++
		return 0, false
	}
	l.lines++
	dropped = l.dropped
	l.dropped = 0
	return dropped, true
}

// lost returns how many lines were left out since the start: at debug, and warnings and errors.
func (l *logger) lost() (details, alarms int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.details.lost, l.alarms.lost
}

// tellDropped tells of warnings that were left out when a second has passed without another one.
func (l *logger) tellDropped(second int64) {
	l.mu.Lock()
	over := l.alarms.dropped > 0 && second > l.alarms.second
	l.mu.Unlock()
	if over {
		l.print(levelWarn, "log lines were left out")
	}
}
