package cart

import (
	"context"
	"log/slog"
	"os"
	"sync"
	"time"
)

// logger writes structured lines to standard output: what a plugin prints through fmt or log reaches Traefik's own log
// under the wrong level. Warnings and errors are limited to linesPerSecond, so that a flood of refusals cannot fill a disk.
type logger struct {
	out   *slog.Logger
	debug bool // lines at debug are wanted; asked before they are made

	mu      sync.Mutex // guards the rest
	second  int64
	lines   int
	dropped int
}

const linesPerSecond = 10

// Levels of print.
const (
	levelDebug = slog.LevelDebug
	levelInfo  = slog.LevelInfo
	levelWarn  = slog.LevelWarn
	levelError = slog.LevelError
)

func newLogger(level, format string) *logger {
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
	return &logger{out: slog.New(h), debug: least == levelDebug}
}

// print writes one line with pairs of names and values.
func (l *logger) print(level slog.Level, message string, pairs ...interface{}) {
	if level >= levelWarn {
		dropped, ok := l.allow(time.Now().Unix())
		if !ok {
			return
		}
		if dropped > 0 {
			pairs = append(pairs, "droppedLines", dropped)
		}
	}
	l.out.Log(context.Background(), level, message, pairs...)
}

// allow says whether a line may be written in that second, and how many were not since the last one.
func (l *logger) allow(second int64) (dropped int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if second != l.second {
		l.second = second
		l.lines = 0
	}
	if l.lines >= linesPerSecond {
		l.dropped++
		return 0, false
	}
	l.lines++
	dropped = l.dropped
	l.dropped = 0
	return dropped, true
}
