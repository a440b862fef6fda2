package cart

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func TestLogger_limitsLinesPerSecond(t *testing.T) {
	l := newLogger("info", "json", 0)
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
		{103, linesPerSecond + 3, linesPerSecond, 0},
		{102, 1, 0, 0}, // came late
		{103, 1, 0, 0},
		{110, 2, 2, 5},
		{50, 1, 1, 0}, // the clock was set back
	} {
		passed, told := 0, 0
		for i := 0; i < step.lines; i++ {
			dropped, ok := l.allow(levelWarn, step.second)
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
	return &logger{out: slog.New(slog.NewJSONHandler(out, &slog.HandlerOptions{Level: level})), least: level,
		alarms: limit{most: linesPerSecond}}
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
	l.alarms = limit{most: linesPerSecond, dropped: 7}
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
	}{
		{"debug", levelDebug}, {"info", levelInfo}, {"warn", levelWarn}, {"error", levelError},
	} {
		for _, format := range []string{"json", "text"} {
			l := newLogger(row.level, format, 0)
			if l.least != row.least {
				t.Errorf("newLogger(%q, %q).least = %v, want %v", row.level, format, l.least, row.least)
			}
			for _, level := range []slog.Level{levelDebug, levelInfo, levelWarn, levelError} {
				if got, want := l.out.Enabled(context.Background(), level), level >= row.least; got != want {
					t.Errorf("newLogger(%q, %q) writes %v = %v, want %v", row.level, format, level, got, want)
				}
			}
		}
	}
}

// TestLogger_writesAFewLinesOfAFlood is about 10,000 refusals: at most 10 lines in each second, and none forgotten.
func TestLogger_writesAFewLinesOfAFlood(t *testing.T) {
	const flood = 10000
	p := quietPool(t, CreateConfig())
	var out bytes.Buffer
	p.log = captured(&out, levelInfo)
	begun := time.Now()
	for i := 0; i < flood; i++ {
		refuse(p, httptest.NewRecorder(), endpointChat, refusals[refusedFull])
	}
	seconds := int(time.Since(begun)/time.Second) + 2 // begun ones
	lines := strings.Count(out.String(), "\n")
	if lines < linesPerSecond || lines > seconds*linesPerSecond {
		t.Errorf("%d refusals wrote %d lines in %d seconds, want at most %d in each", flood, lines, seconds, linesPerSecond)
	}
	got := scrape(t, p)[`cart_log_lines_dropped_total{pool="`+t.Name()+`",level="warn"}`]
	if int(got)+lines != flood {
		t.Errorf("%d lines written and %v counted as dropped, want %d in all", lines, got, flood)
	}
	p.log.alarms.second = 0 // it is long ago
	p.log.tellDropped(time.Now().Unix())
	told := int64(0)
	for _, line := range strings.Split(strings.TrimSpace(out.String()), "\n") {
		var one struct {
			DroppedLines int64 `json:"droppedLines"`
		}
		if err := json.Unmarshal([]byte(line), &one); err != nil {
			t.Fatalf("line %q: %v", line, err)
		}
		told += one.DroppedLines
	}
	if _, lost := p.log.lost(); told < flood-int64(seconds*linesPerSecond) || told > lost {
		t.Errorf("the lines tell of %d dropped ones, want nearly %d", told, lost)
	}
}

// decisionLine is what is logged of a decision.
type decisionLine struct {
	Level           string  `json:"level"`
	Msg             string  `json:"msg"`
	Pool            string  `json:"pool"`
	Reason          string  `json:"reason"`
	Replica         string  `json:"replica"`
	Load            int     `json:"load"`
	LeastLoad       int     `json:"leastLoad"`
	Matched         int     `json:"matched"`
	Total           int     `json:"total"`
	Ratio           float64 `json:"ratio"`
	DecisionSeconds float64 `json:"decisionSeconds"`
	Attempt         int     `json:"attempt"`
	Path            string  `json:"path"`
	RequestID       string  `json:"requestId"`
	Traceparent     string  `json:"traceparent"`
	DroppedLines    int     `json:"droppedLines"`
}

func TestLogDecision_tellsWhyAndWhichRequest(t *testing.T) {
	p := poolOf(t, "ab")
	byLetter(t, p, "b").load = 1
	byLetter(t, p, "a").worker.maxLoad = 9
	var out bytes.Buffer
	p.log = captured(&out, levelDebug)
	p.log.details.most = 2
	const trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	var lines []decisionLine
	for i, id := range []string{"", "req-1", "never seen"} {
		ex := ask(p, strings.Repeat("k", 100*(i+1)))
		ex.attempt = take(t, p, ex, 0)
		req := httptest.NewRequest("POST", "/v1/chat/completions", nil)
		if id != "" {
			req.Header.Set("x-request-id", id)
			req.Header.Set("traceparent", trace)
		}
		p.log.details.second = time.Now().Unix() + 1 // whether or not the second changes now, it is the same one
		ex.req = req
		logDecision(ex)
	}
	p.log.details.second = 0
	ex := ask(p, "")
	ex.attempt = take(t, p, ex, 0)
	req := httptest.NewRequest("POST", "/v1/completions", nil)
	req.Header.Set("x-request-id", strings.Repeat("long \"\n", 100))
	ex.req = req
	logDecision(ex)
	for _, line := range strings.Split(strings.TrimSpace(out.String()), "\n") {
		var one decisionLine
		if err := json.Unmarshal([]byte(line), &one); err != nil {
			t.Fatalf("line %q: %v", line, err)
		}
		if one.DecisionSeconds <= 0 || one.DecisionSeconds > 60 {
			t.Errorf("decisionSeconds = %v in %q", one.DecisionSeconds, line)
		}
		one.DecisionSeconds = 0
		lines = append(lines, one)
	}
	want := []decisionLine{
		{Level: "DEBUG", Msg: "decision", Pool: t.Name(), Reason: reasonMiss, Replica: "http://a", Load: 1, Total: 100, Attempt: 1,
			Path: "/v1/chat/completions"},
		{Level: "DEBUG", Msg: "decision", Pool: t.Name(), Reason: reasonHit, Replica: "http://a", Load: 2, LeastLoad: 1, Matched: 100, Total: 200,
			Ratio: 0.5, Attempt: 1, Path: "/v1/chat/completions", RequestID: "req-1", Traceparent: trace},
		{Level: "DEBUG", Msg: "decision", Pool: t.Name(), Reason: reasonNoText, Replica: "http://b", Load: 2, LeastLoad: 1, Attempt: 1,
			Path: "/v1/completions", RequestID: strings.Repeat("long \"\n", 100)[:longestID], DroppedLines: 1},
	}
	if len(lines) != len(want) {
		t.Fatalf("%d lines, want %d: two in a second and one later\n%s", len(lines), len(want), out.String())
	}
	for i := range want {
		if lines[i] != want[i] {
			t.Errorf("line %d = %+v, want %+v", i, lines[i], want[i])
		}
	}
	if details, _ := p.log.lost(); details != 1 {
		t.Errorf("dropped lines at debug = %d, want 1", details)
	}
}

func TestLogDecision_alsoAsText(t *testing.T) {
	p := poolOf(t, "a")
	var out bytes.Buffer
	p.log = captured(&out, levelDebug)
	p.log.out = slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: levelDebug}))
	ex := ask(p, "k")
	ex.attempt = take(t, p, ex, 0)
	ex.req = httptest.NewRequest("POST", "/v1/chat/completions", nil)
	ex.req.Header.Set("x-request-id", `an id with "quotes" level=ERROR`)
	logDecision(ex)
	for _, want := range []string{"level=DEBUG", "msg=decision", "reason=only_one", "replica=http://a", "total=1", "ratio=0",
		`requestId="an id with \"quotes\" level=ERROR"`} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the line is %q, want %s in it", out.String(), want)
		}
	}
}

// TestLogger_printLaterWritesInOrderWithoutItsCaller wants lines of who holds a lock written, in their order, by another.
func TestLogger_printLaterWritesInOrderWithoutItsCaller(t *testing.T) {
	stuck, out := make(chan bool), &slowWriter{}
	out.wait = stuck
	l := &logger{out: slog.New(slog.NewJSONHandler(out, nil)), least: levelInfo, alarms: limit{most: linesPerSecond}}
	for i := 0; i < mostWaiting+50; i++ {
		l.printLater(levelInfo, strconv.Itoa(i))
	}
	close(stuck)
	written(t, l)
	for i, line := range strings.Split(strings.TrimSpace(out.text()), "\n") {
		if !strings.Contains(line, `"msg":"`+strconv.Itoa(i)+`"`) {
			t.Fatalf("line %d is %q", i, line)
		}
	}
	_, lost := l.lost()
	if n := strings.Count(out.text(), "\n"); n < mostWaiting || int64(n)+lost != mostWaiting+50 {
		t.Errorf("%d lines written and %d lost, want %d in all", n, lost, mostWaiting+50)
	}
}

// written waits until the lines of printLater are written.
func written(t *testing.T, l *logger) {
	t.Helper()
	eventually(t, "all lines are written", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return !l.writing
	})
}

// TestPool_writesNoLineUnderItsLock is about a standard output that is stuck: requests go on while replicas come and go.
func TestPool_writesNoLineUnderItsLock(t *testing.T) {
	stuck, out := make(chan bool), &slowWriter{}
	out.wait = stuck
	a := startAPI(t)
	a.list("http://a", "http://b!")
	p := quietPool(t, foundAt(a.url))
	p.log = &logger{out: slog.New(slog.NewJSONHandler(out, nil)), least: levelInfo, alarms: limit{most: linesPerSecond}}
	none, err := validate(CreateConfig())
	if err != nil {
		t.Fatal(err)
	}
	none.logLevel = p.set.logLevel // or the pool would take another logger
	var done int32
	go func() {
		for i, list := range [][]string{{"http://a", "http://b!"}, {"http://a!", "http://b"}, {}, {}, nil, {"http://a"}} {
			a.list(list...)
			if list == nil {
				a.fail(func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(500) })
			}
			l, _ := p.beginLook(noon.Add(time.Duration(10*i) * time.Second))
			findReplicas(l)
			p.endLook(l, noon.Add(time.Duration(10*i)*time.Second))
			a.fail(nil)
		}
		p.apply(none, "none")
		atomic.StoreInt32(&done, 1)
	}()
	eventually(t, "all is done though no line can be written", func() bool { return atomic.LoadInt32(&done) == 1 })
	close(stuck)
	written(t, p.log)
	for _, line := range []string{"replicas found", "Traefik's health check has news", "no replica is found", "discovery failed",
		"discovery works again", "no workers are configured"} {
		if !strings.Contains(out.text(), line) {
			t.Errorf("no line says %q: %s", line, out.text())
		}
	}
}

// slowWriter is a standard output that is stuck until wait is closed.
type slowWriter struct {
	wait chan bool
	mu   sync.Mutex
	all  bytes.Buffer
}

func (w *slowWriter) Write(p []byte) (int, error) {
	<-w.wait
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.all.Write(p)
}

func (w *slowWriter) text() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.all.String()
}

// TestLog_anAnswerThatBreaksOffIsTold wants one line on each, and none on those whose client left.
func TestLog_anAnswerThatBreaksOffIsTold(t *testing.T) {
	silent := func(rw http.ResponseWriter, req *http.Request) {
		io.Copy(io.Discard, req.Body)
		io.WriteString(rw, "data: 1\n\n")
		rw.(http.Flusher).Flush()
		<-req.Context().Done()
	}
	for _, row := range []struct {
		story  string
		answer http.HandlerFunc
		leaves bool
		want   string
	}{
		{"the replica breaks off", cutting(), false, `"why":"the replica broke it off"`},
		{"the replica falls silent", silent, false, `"why":"nothing came for 150ms (proxy.streamIdleTimeout)"`},
		{"the client leaves", silent, true, ""},
	} {
		var out bytes.Buffer
		c := twoReplicas(startReplica(t, row.answer), deadAddress(t))
		c.Proxy.StreamIdleTimeout = "150ms"
		url := serve(t, c)
		p := registered(t.Name())
		p.mu.Lock()
		p.log = captured(&out, levelWarn)
		p.mu.Unlock()
		res, err := http.Post(url+"/v1/chat/completions", "application/json", strings.NewReader(aChat))
		if err != nil {
			t.Fatal(err)
		}
		if !row.leaves {
			io.Copy(io.Discard, res.Body)
		}
		res.Body.Close()
		checkIdle(t)
		if lines := strings.Count(out.String(), "an answer broke off"); row.want == "" && lines > 0 ||
			row.want != "" && (lines != 1 || !strings.Contains(out.String(), row.want) || !strings.Contains(out.String(), c.Workers[0].URL)) {
			t.Errorf("%s: the log has %q, want one line with %q", row.story, out.String(), row.want)
		}
		leavePool(t)
	}
}
