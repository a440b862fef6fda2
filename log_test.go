package cart

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
)

func TestLogger_limitsLinesPerSecond(t *testing.T) {
	l := newLogger("info", "json")
	for _, step := range []struct {
		second  int64
		lines   int // tried in that second
		passed  int
		dropped int // told by the first that passes
	}{
		{100, 3, 3, 0},
		{100, 20, linesPerSecond - 3, 0},
		{101, 1, 1, 13},
		{102, linesPerSecond, linesPerSecond, 0},
		{103, linesPerSecond + 5, linesPerSecond, 0},
		{110, 2, 2, 5},
	} {
		passed, told := 0, 0
		for i := 0; i < step.lines; i++ {
			dropped, ok := l.allow(step.second)
			if ok {
				passed++
				told += dropped
			}
		}
		if passed != step.passed || told != step.dropped {
			t.Errorf("allow(%d) %d times: %d passed telling of %d dropped, want %d telling of %d",
				step.second, step.lines, passed, told, step.passed, step.dropped)
		}
	}
}

// captured returns a logger that writes JSON lines of that level and above to the buffer.
func captured(out *bytes.Buffer, level slog.Level) *logger {
	return &logger{out: slog.New(slog.NewJSONHandler(out, &slog.HandlerOptions{Level: level}))}
}

func TestLogger_writesStructuredLines(t *testing.T) {
	var out bytes.Buffer
	l := captured(&out, levelInfo)
	l.print(levelWarn, "replica is down", "replica", "http://a:1", "load", 3)
	var line struct {
		Level   string `json:"level"`
		Msg     string `json:"msg"`
		Replica string `json:"replica"`
		Load    int    `json:"load"`
	}
	if err := json.Unmarshal(out.Bytes(), &line); err != nil {
		t.Fatalf("print() wrote %q, want JSON: %v", out.String(), err)
	}
	if line.Level != "WARN" || line.Msg != "replica is down" || line.Replica != "http://a:1" || line.Load != 3 {
		t.Errorf("print() wrote %q, want level, message and pairs", out.String())
	}
}

func TestLogger_aFloodOfWarningsIsCutAndTold(t *testing.T) {
	var out bytes.Buffer
	l := captured(&out, levelInfo)
	for i := 0; i < 100; i++ {
		l.print(levelWarn, "request refused")
	}
	// The second may have changed once or twice on a slow machine.
	if n := strings.Count(out.String(), "\n"); n < linesPerSecond || n > 4*linesPerSecond {
		t.Errorf("100 warnings wrote %d lines, want about %d", n, linesPerSecond)
	}
	out.Reset()
	l.second = 0
	l.lines = 0
	l.dropped = 7
	l.print(levelWarn, "request refused")
	if !strings.Contains(out.String(), `"droppedLines":7`) {
		t.Errorf("the line after a flood = %q, want it to tell of 7 dropped", out.String())
	}
	out.Reset()
	for i := 0; i < 30; i++ {
		l.print(levelInfo, "replica is up")
	}
	if n := strings.Count(out.String(), "\n"); n != 30 {
		t.Errorf("30 lines at info wrote %d lines, want all: only warnings and errors are limited", n)
	}
}

func TestNewLogger_goesByItsLevel(t *testing.T) {
	for _, row := range []struct {
		level string
		least slog.Level
		debug bool
	}{
		{"debug", levelDebug, true}, {"info", levelInfo, false}, {"warn", levelWarn, false}, {"error", levelError, false},
	} {
		for _, format := range []string{"json", "text"} {
			l := newLogger(row.level, format)
			if l.debug != row.debug {
				t.Errorf("newLogger(%q, %q).debug = %v, want %v", row.level, format, l.debug, row.debug)
			}
			for _, level := range []slog.Level{levelDebug, levelInfo, levelWarn, levelError} {
				if got, want := l.out.Enabled(context.Background(), level), level >= row.least; got != want {
					t.Errorf("newLogger(%q, %q) writes %v = %v, want %v", row.level, format, level, got, want)
				}
			}
		}
	}
}
