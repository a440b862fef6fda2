package cart

import (
	"bytes"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// scrape is what GET /metrics would tell of a pool: each series with its value.
func scrape(t *testing.T, p *pool) map[string]float64 {
	t.Helper()
	rec := httptest.NewRecorder()
	serveMetrics(p, rec, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if got := rec.Header().Get("Content-Type"); rec.Code != 200 || got != "text/plain; version=0.0.4; charset=utf-8" {
		t.Errorf("GET /metrics = %d, Content-Type %q", rec.Code, got)
	}
	return parseMetrics(t, rec.Body.String())
}

var sampleLine = regexp.MustCompile(`^([a-z_]+)(\{[^ ]*\}) ([^ ]+)$`)

// parseMetrics reads the text format and wants HELP and TYPE before the samples of each family, and each series once.
func parseMetrics(t *testing.T, text string) map[string]float64 {
	t.Helper()
	out := map[string]float64{}
	family, kind, helped := "", "", ""
	for _, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		words := strings.SplitN(line, " ", 4)
		if words[0] == "#" && len(words) == 4 && words[1] == "HELP" {
			helped = words[2]
			continue
		}
		if words[0] == "#" && len(words) == 4 && words[1] == "TYPE" && words[2] == helped {
			family = words[2]
			kind = words[3]
			continue
		}
		m := sampleLine.FindStringSubmatch(line)
		if m == nil {
			t.Fatalf("/metrics has the line %q", line)
		}
		name := m[1]
		if kind == "histogram" {
			for _, suffix := range []string{"_bucket", "_sum", "_count"} {
				name = strings.TrimSuffix(name, suffix)
			}
		}
		if name != family || !strings.HasPrefix(name, "cart_") || (kind == "counter") != strings.HasSuffix(name, "_total") {
			t.Errorf("/metrics has %q in the family %s (%s)", line, family, kind)
		}
		value, err := strconv.ParseFloat(m[3], 64)
		if _, twice := out[m[1]+m[2]]; twice || err != nil || value < 0 || !strings.HasPrefix(m[2], `{pool="`) {
			t.Errorf("/metrics has %q: twice %v, %v", line, twice, err)
		}
		out[m[1]+m[2]] = value
	}
	return out
}

// checkSeries compares some series; those of the replica a have "$a" in place of its label.
func checkSeries(t *testing.T, got, want map[string]float64) {
	t.Helper()
	for series, value := range want {
		name, labels, _ := strings.Cut(series, "{")
		full := name + `{pool="` + t.Name() + `"`
		if labels != "" {
			full += "," + regexp.MustCompile(`\$([a-z])`).ReplaceAllString(strings.TrimSuffix(labels, "}"), `replica="http://$1"`)
		}
		if n, ok := got[full+"}"]; !ok || math.Abs(n-value) > 1e-9 {
			t.Errorf("/metrics: %s} = %v, there: %v, want %v", full, n, ok, value)
		}
	}
}

func TestMetrics_tellWhatHappened(t *testing.T) {
	p := poolOf(t, "ab")
	byLetter(t, p, "b").load = 2
	prompt := strings.Repeat("p", 100)
	first := take(t, p, ask(p, prompt), 0) // a, which is less loaded
	ex := ask(p, prompt+strings.Repeat("q", 100))
	again := take(t, p, ex, 0) // half of it is known on a
	endWith(p, ex, again, 500, nil, 0)
	other := ask(p, "")
	other.endpoint = endpointOther
	take(t, p, other, 0)
	retried := ask(p, strings.Repeat("r", 10))
	retried.tried = []int{first.life}
	take(t, p, retried, 0)
	refuse(p, httptest.NewRecorder(), endpointChat, refusals[refusedTooLarge])
	countDeparture(p)
	b := byLetter(t, p, "b")
	b.breaker.open(second(0), 1)
	b.pushedUntil = math.MaxInt64
	for i := 0; i < 3; i++ {
		b.probed("gone", &p.set.health)
	}
	got := scrape(t, p)
	checkSeries(t, got, map[string]float64{
		`cart_requests_total{$a,reason="miss"}`:            1,
		`cart_requests_total{$a,reason="cache_hit"}`:       1,
		`cart_requests_total{$a,reason="passthrough"}`:     1,
		`cart_requests_total{$b,reason="retry"}`:           1,
		`cart_requests_total{$b,reason="hit_overloaded"}`:  0,
		`cart_retries_total`:                               1,
		`cart_refusals_total{reason="body_too_large"}`:     1,
		`cart_refusals_total{reason="all_full"}`:           0,
		`cart_client_departures_total`:                     1,
		`cart_replica_load{$a}`:                            2,
		`cart_replica_load{$b}`:                            3,
		`cart_replica_max_load{$a}`:                        3,
		`cart_replica_up{$a}`:                              1,
		`cart_replica_up{$b}`:                              0,
		`cart_replica_downs_total{$a}`:                     0,
		`cart_replica_downs_total{$b}`:                     1,
		`cart_replica_pushed_back{$a}`:                     0,
		`cart_replica_pushed_back{$b}`:                     1,
		`cart_replica_failures_total{$a}`:                  1,
		`cart_breaker_state{$a,state="closed"}`:            1,
		`cart_breaker_state{$b,state="closed"}`:            0,
		`cart_breaker_state{$b,state="open"}`:              1,
		`cart_breaker_state{$b,state="halfOpen"}`:          0,
		`cart_breaker_openings_total{$b}`:                  1,
		`cart_usable_replicas`:                             1,
		`cart_decision_seconds_count`:                      3,
		`cart_known_ratio_count`:                           3,
		`cart_known_ratio_bucket{le="0"}`:                  2,
		`cart_known_ratio_bucket{le="0.4"}`:                2,
		`cart_known_ratio_bucket{le="0.5"}`:                3,
		`cart_known_ratio_sum`:                             0.5,
		`cart_prompt_characters_total`:                     310,
		`cart_known_characters_total`:                      100,
		`cart_matched_characters_total`:                    100,
		`cart_replica_claimed_characters{$a}`:              101, // with the name of the key space
		`cart_replica_claimed_characters{$b}`:              11,
		`cart_tree_nodes`:                                  3,
		`cart_tree_max_nodes`:                              1000000,
		`cart_first_byte_seconds_count{$a,decision="hit"}`: 0,
	})
	if sum := got[`cart_decision_seconds_sum{pool="`+t.Name()+`"}`]; sum <= 0 || sum > 60 {
		t.Errorf("cart_decision_seconds_sum = %v, want the time of three decisions", sum)
	}
}

func TestMetrics_timeFirstBytes(t *testing.T) {
	p := poolOf(t, "a")
	byLetter(t, p, "a").worker.maxLoad = 100
	for _, row := range []struct {
		took     float64 // seconds
		why      string
		status   int
		endpoint endpoint
	}{
		{0.005, reasonMiss, 200, endpointChat},
		{0.02, reasonRetry, 200, endpointChat}, // on the bound
		{0.3, reasonHit, 200, endpointChat},
		{1000, reasonHit, 200, endpointMessages},
		{0.1, reasonHit, 404, endpointChat},        // no good answer
		{0, reasonPassthrough, 200, endpointOther}, // not routed, so not timed
		{0, reasonMiss, 200, endpointChat},         // a stream, which is counted when it begins
	} {
		for _, end := range []int{opEnd, opRelease} {
			ex := ask(p, "")
			a := take(t, p, ex, 0)
			a.why = row.why
			ex.endpoint = row.endpoint
			ex.firstByte = time.Duration(row.took * float64(time.Second))
			if end == opRelease {
				endWith(p, ex, a, row.status, nil, 0)
				continue
			}
			ex.attempt = a
			ex.answered = row.status < 400
			ex.result = outcomeSuccess
			ex.cancel = func() {}
			ex.op = opEnd
			decideJobs <- ex
		}
	}
	eventually(t, "all have ended", func() bool { return describe(p, 0).Workers[0].Load == 0 })
	checkSeries(t, scrape(t, p), map[string]float64{
		`cart_first_byte_seconds_count{$a,decision="other"}`:            4,
		`cart_first_byte_seconds_sum{$a,decision="other"}`:              0.05,
		`cart_first_byte_seconds_bucket{$a,decision="other",le="0.01"}`: 2,
		`cart_first_byte_seconds_bucket{$a,decision="other",le="0.02"}`: 4,
		`cart_first_byte_seconds_bucket{$a,decision="other",le="+Inf"}`: 4,
		`cart_first_byte_seconds_count{$a,decision="hit"}`:              4,
		`cart_first_byte_seconds_bucket{$a,decision="hit",le="0.2"}`:    0,
		`cart_first_byte_seconds_bucket{$a,decision="hit",le="0.35"}`:   2,
		`cart_first_byte_seconds_bucket{$a,decision="hit",le="60"}`:     2,
		`cart_first_byte_seconds_bucket{$a,decision="hit",le="+Inf"}`:   4,
		`cart_first_byte_seconds_sum{$a,decision="hit"}`:                2000.6,
	})
}

func TestMetrics_seriesOfReplicasComeAndGo(t *testing.T) {
	p := poolOf(t, "ab")
	running := take(t, p, ask(p, "one"), 0)
	letter := letterOf(running)
	sum := func() int64 {
		n := int64(0)
		for _, count := range describe(p, 0).Reasons {
			n += count
		}
		return n
	}
	setLetters(t, p, "c")
	for _, letter := range []string{"a", "b", "c"} {
		_, there := scrape(t, p)[`cart_replica_load{pool="`+t.Name()+`",replica="http://`+letter+`"}`]
		if want := letter == "c" || letter == letterOf(running); there != want {
			t.Errorf("series of %s while one drains = %v, want %v", letter, there, want)
		}
	}
	ex := ask(p, "one")
	endWith(p, ex, running, 200, nil, 0)
	for series := range scrape(t, p) {
		if strings.Contains(series, `replica="http://`) && !strings.Contains(series, `replica="http://c"`) {
			t.Errorf("%s is there after %s has gone", series, letter)
		}
	}
	if last := describe(p, 0).LastDecisions; len(last) != 0 {
		t.Errorf("the latest decisions in /workers = %+v, want none of a replica that has gone", last)
	}
	if got := sum(); got != 1 {
		t.Errorf("decisions in /workers = %d, want the one of the replica that has gone", got)
	}
	take(t, p, ask(p, "two"), 0)
	if got := sum(); got != 2 {
		t.Errorf("decisions in /workers = %d, want 2", got)
	}
}

// TestMetrics_seriesDoNotDependOnRequests is about memory, here and in Prometheus: what clients make up is no label.
func TestMetrics_seriesDoNotDependOnRequests(t *testing.T) {
	const requests = 10000
	c := CreateConfig()
	for i := 0; i < 4; i++ {
		c.Workers = append(c.Workers, WorkerConfig{URL: "http://127.0.0.1:" + strconv.Itoa(10000+i)})
	}
	p := quietPool(t, c)
	h := newHandler(p, p.set, policies[p.set.policy])
	for _, r := range p.replicas {
		setTransport(r, benchTransport{})
	}
	before := scrape(t, p)
	for i := 0; i < requests; i++ {
		n := strconv.Itoa(i)
		path, body := "/v1/chat/completions", `{"model":"m`+n+`","messages":[{"role":"user","content":"`+n+`"}]}`
		switch i % 4 {
		case 1:
			path = "/v1/" + n
		case 2:
			path = "/v1/completions"
			body = `{"model":"` + n + `","prompt":"` + n + `","cache_salt":"` + n + `"}`
		}
		req := httptest.NewRequest(http.MethodPost, path, bytes.NewReader([]byte(body)))
		req.Header.Set("X-Request-Id", n)
		h.ServeHTTP(httptest.NewRecorder(), req)
	}
	after := scrape(t, p)
	if len(after) != len(before) {
		t.Errorf("series after %d requests = %d, want %d as before", requests, len(after), len(before))
	}
	sum, timed := 0.0, 0.0
	for series, n := range after {
		if _, ok := before[series]; !ok {
			t.Errorf("%s came with the requests", series)
		}
		if strings.HasPrefix(series, "cart_requests_total{") {
			sum += n
		}
		if strings.HasPrefix(series, "cart_first_byte_seconds_count{") {
			timed += n
		}
	}
	if sum != requests {
		t.Errorf("cart_requests_total = %v in all, want %d", sum, requests)
	}
	if timed != requests*3/4 {
		t.Errorf("cart_first_byte_seconds_count = %v in all, want %d, for all that are routed and no others", timed, requests*3/4)
	}
}

func TestMetrics_everyReasonHasASeriesFromTheStart(t *testing.T) {
	p := poolOf(t, "a")
	got := scrape(t, p)
	for _, why := range allReasons {
		checkSeries(t, got, map[string]float64{`cart_requests_total{$a,reason="` + why + `"}`: 0})
	}
	for why := range refusals {
		checkSeries(t, got, map[string]float64{`cart_refusals_total{reason="` + why + `"}`: 0})
	}
	byLetter(t, p, "a").reasons["of_a_new_policy"] = 2
	checkSeries(t, scrape(t, p), map[string]float64{`cart_requests_total{$a,reason="of_a_new_policy"}`: 2})
}

func TestLabelValue_escapes(t *testing.T) {
	for value, want := range map[string]string{
		"http://a:8000": "http://a:8000", `a"b`: `a\"b`, `a\b`: `a\\b`, "a\nb": `a\nb`, "é{},= ": "é{},= ",
	} {
		if got := labelValue(value); got != want {
			t.Errorf("labelValue(%q) = %q, want %q", value, got, want)
		}
	}
}

// TestStream_isTimedAtItsFirstByte wants the time of the first byte, not of the headers, and while the stream still runs.
func TestStream_isTimedAtItsFirstByte(t *testing.T) {
	goOn := make(chan bool)
	url := startReplica(t, func(rw http.ResponseWriter, req *http.Request) {
		rw.WriteHeader(200)
		rw.(http.Flusher).Flush()
		<-goOn
		io.WriteString(rw, "data: one\n\n")
		rw.(http.Flusher).Flush()
		<-goOn
		io.WriteString(rw, "data: two\n\n")
	})
	c := CreateConfig()
	c.LogLevel = "error"
	c.Health.Interval = "0"
	c.Health.Metrics.Interval = "0"
	c.Health.Models.Interval = "0"
	c.Workers = []WorkerConfig{{URL: url}}
	for _, idle := range []string{"5m", "0"} {
		c.Proxy.StreamIdleTimeout = idle
		address := serve(t, c)
		timed := func() float64 {
			return scrape(t, registered(t.Name()))[`cart_first_byte_seconds_count{pool="`+t.Name()+`",replica="`+url+`",decision="other"}`]
		}
		res, err := http.Post(address+"/v1/chat/completions", "application/json", strings.NewReader(aChat))
		if err != nil {
			t.Fatal(err)
		}
		if n := timed(); n != 0 {
			t.Errorf("streamIdleTimeout %s: timed = %v when only headers have come, want 0", idle, n)
		}
		goOn <- true
		buffer := make([]byte, 64)
		n, err := io.ReadAtLeast(res.Body, buffer, 11)
		if err != nil || string(buffer[:n]) != "data: one\n\n" {
			t.Fatalf("streamIdleTimeout %s: the first event = %q, %v", idle, buffer[:n], err)
		}
		eventually(t, "the first byte is timed", func() bool { return timed() == 1 })
		goOn <- true
		rest, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil || string(rest) != "data: two\n\n" {
			t.Errorf("streamIdleTimeout %s: the rest = %q, %v", idle, rest, err)
		}
		checkIdle(t)
		if n := timed(); n != 1 {
			t.Errorf("streamIdleTimeout %s: timed = %v at the end, want 1 still", idle, n)
		}
		leavePool(t)
	}
}

func TestHistogram_answersWithACopy(t *testing.T) {
	h := newHistogram(firstByteBounds)
	h.counts[0] = 2
	h.counts[15] = 1 // above all bounds
	h.sum = 61 * time.Second
	got := h.answer(firstByteSeconds)
	got.total()
	h.counts[0]++
	if got.Count != 3 || got.Sum != 61 || got.Counts[0] != 2 || len(got.Counts) != len(got.Bounds)+1 || got.Bounds[14] != 60 {
		t.Errorf("answer() = %+v, want 3 counts in seconds, apart from the histogram's own", got)
	}
}
