package cases

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cart-llm/cart/e2e/engine"
	"github.com/traefik/paerser/parser"
)

// Group G: operations, metrics, logging, configuration errors.

func init() {
	tests = append(tests,
		test{"G02", normalDisconnects},
		test{"G03", userChosenNames},
		test{"G05", spellingsOfValues},
		test{"G06", workerList},
		test{"G07", badReload},
		test{"G08", localErrors},
		test{"G09", refusalsAreSeen},
		test{"G10", pinnedTraefik},
		test{"G11", ownEndpoints},
	)
}

// G02: Normal disconnects are not errors.
func normalDisconnects(t *testing.T, s *stage) {
	r := s.lab(t).start(t, 2, engine.Config{"logLevel": "info", "maxLoad": 1000})
	logged := len(r.e.Log())
	g := newGate(t)
	r.all(func(x *exchange) {
		switch name := label(x); {
		case strings.HasPrefix(name, "before"):
			g.silent(x)
		case strings.HasPrefix(name, "during"):
			x.events()
			x.until(g.open)
		default:
			g.streaming(x)
		}
	})
	const clients = 100
	kinds := []string{"before", "during", "after"}
	streams := r.hold(clients, func(i int) query { return askStream(prose(fmt.Sprint(kinds[i%3], " ", i), 200)) })
	for i, w := range streams {
		r.eventually(slack*5*time.Second, func() error {
			if a := w.soFar(); i%3 == 1 && a.status == 0 || i%3 == 2 && len(a.body) == 0 {
				return fmt.Errorf("client %d has %v", i, &a)
			}
			return nil
		})
		if i%2 == 0 {
			w.close()
		} else {
			w.reset()
		}
	}
	r.settled()
	r.unharmed()
	news := r.e.Log()[logged:]
	for _, line := range strings.Split(news, "\n") {
		low := strings.ToLower(line)
		if strings.Contains(low, "the limit of open files is low") {
			continue // told once, whenever the first middleware is built
		}
		if strings.Contains(low, `"level":"error"`) || strings.Contains(low, `"level":"warn"`) || strings.Contains(line, " ERR ") ||
			strings.Contains(line, "goroutine ") || strings.Contains(low, "abort") {
			t.Errorf("logged: %s", line)
		}
	}
	if lines := r.logLines(); len(lines) > clients {
		t.Errorf("%d log lines, want one for each client at most", len(lines))
	}
	// They are counted as what they are.
	r.all(nil)
	counted := regexp.MustCompile(`(?i)client_?-?(closed|gone|left)"?[^0-9\n]*([0-9]+)`)
	r.eventually(slack*time.Second, func() error {
		page := string(r.do(get("/workers")).body)
		if a := r.do(get("/metrics")); a.peer() == "" {
			page += string(a.body)
		}
		if m := counted.FindStringSubmatch(page); m == nil || m[2] != fmt.Sprint(clients) {
			return fmt.Errorf("departures counted as client_closed = %q, want %d in /workers or /metrics", m, clients)
		}
		return nil
	})
	if l, ok := r.e.(*lab); ok {
		r.eventually(slack*time.Second, func() error {
			lines := 0
			for _, line := range strings.Split(l.AccessLog(), "\n") {
				if !strings.Contains(line, `"`+r.name+"-") || !strings.Contains(line, "POST ") {
					continue
				}
				lines++
				if !strings.Contains(line, `" 499 `) && !strings.Contains(line, `" 200 `) {
					t.Errorf("access log: %s, want 499 or 200", line)
				}
			}
			if lines != clients {
				return fmt.Errorf("%d lines in the access log, want %d", lines, clients)
			}
			return nil
		})
	}
}

// keys counts the names and elements of a JSON value.
func keys(v any) int {
	n := 0
	switch v := v.(type) {
	case map[string]any:
		for _, inner := range v {
			n += 1 + keys(inner)
		}
	case []any:
		for _, inner := range v {
			n += 1 + keys(inner)
		}
	}
	return n
}

// series is how many names and numbers the rig's pages show.
func (r *rig) series() int {
	r.t.Helper()
	var v any
	if err := json.Unmarshal(r.ok(get("/workers")).body, &v); err != nil {
		r.t.Fatal(err)
	}
	n := keys(v)
	if a := r.do(get("/metrics")); a.peer() == "" && a.status == 200 {
		n += strings.Count(string(a.body), "\n")
	}
	return n
}

// G03: Label and memory growth by user-chosen names.
func userChosenNames(t *testing.T, s *stage) {
	r := s.lab(t).start(t, 2, engine.Config{"cache": engine.Config{"maxTreeBytes": 1 << 20}})
	random := func(i int) string { return fmt.Sprintf("%x", sha256.Sum256([]byte{byte(i), byte(i >> 8)})) }
	some := func(from, to int) {
		var wg sync.WaitGroup
		for c := 0; c < 2; c++ {
			wg.Add(1)
			go func() {
				defer wg.Done()
				for i := from + c; i < to; i += 2 {
					name := random(i)
					q := post("/v1/chat/completions", `{"model":"`+name+`","messages":[{"role":"user","content":"`+name+`"}]}`)
					if i%3 == 0 {
						q = get("/" + name + "?" + name)
					}
					if i%3 == 1 {
						q.target = "/v1/" + name
					}
					r.ok(q)
				}
			}()
		}
		wg.Wait()
		r.forget()
	}
	const first = 200
	some(0, first)
	before, heap := r.series(), r.s.heap(t)
	some(first, int(scaled(10_000, 1500)))
	if now := r.series(); now > before+2 { // a reason may occur for the first time
		t.Errorf("names and series = %d, after the first %d requests %d, want no more", now, first, before)
	}
	r.grown(heap, 16<<20, "with random names")
	gone := r.mocks[1].addr
	r.with(engine.Config{"workers": workersOf(r.mocks[0])})
	r.settled()
	for _, path := range []string{"/workers", "/metrics"} {
		if a := r.do(get(path)); a.peer() == "" && strings.Contains(string(a.body), gone) {
			t.Errorf("%s shows the removed replica: %s", path, a.body)
		}
	}
}

// spelling is one way to write one setting.
type spelling struct {
	key   string
	value any    // as in YAML and TOML
	bad   bool   // it is refused
	every string // for the interval: 10s or never
}

// G05: Durations and numbers as strings, bare numbers, garbage.
func spellingsOfValues(t *testing.T, s *stage) {
	r := s.rig(t)
	list := []spelling{
		{key: "health.interval", value: "10s", every: "10s"}, {key: "health.interval", value: 10, every: "10s"},
		{key: "health.interval", value: "10", every: "10s"}, {key: "health.interval", value: 0, every: "never"},
		{key: "health.interval", value: "-1s", bad: true}, {key: "health.interval", value: "abc", bad: true},
		{key: "maxLoad", value: "5"}, {key: "maxLoad", value: 5}, {key: "maxLoad", value: 0, bad: true},
		{key: "maxLoad", value: -1, bad: true}, {key: "maxLoad", value: "1e3", bad: true},
		{key: "proxy.remoteMediaUrlPolicy", value: "422"}, {key: "proxy.remoteMediaUrlPolicy", value: 422},
		{key: "proxy.remoteMediaUrlPolicy", value: 200, bad: true}, {key: "proxy.remoteMediaUrlPolicy", value: 700, bad: true},
		{key: "workers", value: "http://127.0.0.1:1,http://127.0.0.1:2", bad: true},
		{key: "workers", value: []any{"http://127.0.0.1:1"}, bad: true}, // workers[0]=
	}
	formats := []string{"yaml", "labels"}
	if s.kind == engine.Traefik {
		formats = append(formats, "toml")
	}
	type variant struct {
		*rig
		spelling
		format string
	}
	var variants []variant
	var toml strings.Builder
	s.mu.Lock()
	for _, format := range formats {
		for i, one := range list {
			v := variant{&rig{t: t, s: s, e: s.e, name: fmt.Sprintf("%s-%s-%d", r.name, format, i), mocks: []*mock{startMock(t)}}, one, format}
			v.host = v.name + ".test"
			variants = append(variants, v)
			config := withKey(engine.Config{
				"workers": workersOf(v.mocks...), "logLevel": "error", "health": engine.Config{"endpoint": "/" + v.name},
			}, one.key, one.value)
			switch format {
			case "toml":
				writeTOML(&toml, v.name, v.host, config)
				continue
			case "labels":
				config = fromLabels(t, config)
			}
			s.setup.Middlewares[v.name] = config
			s.setup.Routers[v.name] = engine.Router{Host: v.host, Middleware: v.name}
		}
	}
	t.Cleanup(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, v := range variants {
			delete(s.setup.Middlewares, v.name)
			delete(s.setup.Routers, v.name)
		}
		if toml.Len() > 0 {
			_ = s.e.(files).Remove("spellings.toml")
		}
		if err := s.e.Reload(s.setup); err != nil { // so that no reading of the folder is under way when the next case writes
			t.Error(err)
		}
	})
	var err error
	if toml.Len() > 0 {
		err = s.e.(files).Write("spellings.toml", toml.String())
	}
	if err == nil {
		err = s.e.Reload(s.setup)
	}
	s.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(scaled(3*time.Second, 600*time.Millisecond)) // for the probes that ought not to be
	for _, v := range variants {
		what := fmt.Sprintf("%s as %v (%T) in %s", v.key, v.value, v.value, v.format)
		why := v.buildError()
		probed := func() (n int) {
			for _, x := range v.mocks[0].probed() {
				if x.target == "/"+v.name { // a pool of a case before may still know the port
					n++
				}
			}
			return n
		}
		probes := probed()
		if v.every != "" && v.every != "never" && probes == 0 {
			v.eventually(slack*3*time.Second, func() error {
				if probes = probed(); probes == 0 {
					return fmt.Errorf("%s: no probe", what)
				}
				return nil
			})
		}
		if v.bad {
			named := strings.Contains(why, v.key) && strings.Contains(why, fmt.Sprint(v.value))
			if v.key == "workers" { // it is Traefik's decoder that refuses these, before New
				named = strings.Contains(why, "'Workers[0]' expected a map, got 'string'")
			}
			if !named {
				t.Errorf("%s: error %q, want the key and the value named", what, why)
			}
			if probes > 0 {
				t.Errorf("%s: %d probes came of it", what, probes)
			}
			continue
		}
		if why != "" {
			t.Errorf("%s: error %q, want none", what, why)
			continue
		}
		if v.every == "10s" && probes != 1 || v.every == "never" && probes != 0 {
			t.Errorf("%s: %d probes, want %s", what, probes, v.every)
		}
		if v.key == "maxLoad" {
			if page := string(v.do(get("/workers")).body); !strings.Contains(page, `"maxLoad":5`) {
				t.Errorf("%s: /workers = %s, want a maxLoad of 5", what, page)
			}
		}
		if v.key == "proxy.remoteMediaUrlPolicy" {
			q := post("/v1/chat/completions", `{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"https://h.example/a"}}]}]}`)
			if a := v.do(q); a.status != 422 {
				t.Errorf("%s: a request with a remote image got %v, want 422", what, &a)
			}
		}
	}
}

// withKey sets a key with dots in it.
func withKey(config engine.Config, key string, value any) engine.Config {
	if outer, inner, ok := strings.Cut(key, "."); ok {
		return engine.Merged(config, engine.Config{outer: engine.Config{inner: value}})
	}
	return engine.Merged(config, engine.Config{key: value})
}

// flattened gives each scalar of a configuration its label.
func flattened(prefix string, value any, into map[string]string) {
	switch v := value.(type) {
	case engine.Config:
		for key, inner := range v {
			flattened(prefix+"."+key, inner, into)
		}
	case []any:
		for i, inner := range v {
			flattened(fmt.Sprintf("%s[%d]", prefix, i), inner, into)
		}
	default:
		into[prefix] = fmt.Sprint(v)
	}
}

// fromLabels is what Traefik's decoder of Docker labels makes of a configuration.
func fromLabels(t *testing.T, config engine.Config) engine.Config {
	t.Helper()
	labels := map[string]string{}
	flattened("traefik.http.middlewares.m.plugin.cart", config, labels)
	var out struct {
		HTTP struct {
			Middlewares map[string]struct {
				Plugin map[string]map[string]any
			}
		}
	}
	if err := parser.Decode(labels, &out, "traefik"); err != nil {
		t.Fatalf("labels %v: %v", labels, err)
	}
	return out.HTTP.Middlewares["m"].Plugin["cart"]
}

// writeTOML writes a router and its middleware.
func writeTOML(b *strings.Builder, name, host string, config engine.Config) {
	fmt.Fprintf(b, "[http.routers.%s]\nrule = \"Host(`%s`)\"\nmiddlewares = [%q]\nservice = \"noop@internal\"\nentryPoints = [\"web\"]\n", name, host, name)
	path := "http.middlewares." + name + ".plugin.cart"
	var tables []string
	fmt.Fprintf(b, "[%s]\n", path)
	for key, value := range config {
		switch v := value.(type) {
		case engine.Config:
			table := fmt.Sprintf("[%s.%s]\n", path, key)
			for inner, value := range v {
				table += fmt.Sprintf("%s = %s\n", inner, tomlScalar(value))
			}
			tables = append(tables, table)
		case []any:
			for _, element := range v {
				worker, ok := element.(engine.Config)
				if !ok {
					fmt.Fprintf(b, "%s = [%s]\n", key, tomlScalar(element))
					continue
				}
				tables = append(tables, fmt.Sprintf("[[%s.%s]]\nurl = %s\n", path, key, tomlScalar(worker["url"])))
			}
		default:
			fmt.Fprintf(b, "%s = %s\n", key, tomlScalar(v))
		}
	}
	sort.Strings(tables)
	b.WriteString(strings.Join(tables, ""))
}

func tomlScalar(v any) string {
	if s, ok := v.(string); ok {
		return strconv.Quote(s)
	}
	return fmt.Sprint(v)
}

// G06: Worker list hygiene. Duplicates are refused.
func workerList(t *testing.T, s *stage) {
	r := s.start(t, 1, nil)
	m := r.mocks[0]
	upper := "HTTP://" + strings.ToUpper(m.addr)
	for _, one := range []struct {
		urls []any
		bad  string // the entry that the error has to name
	}{
		{[]any{m.url() + "/", m.url()}, "workers[1]"},
		{[]any{m.url(), upper}, "workers[1]"},
		{[]any{m.url(), " " + m.url() + " "}, "workers[1]"},
		{[]any{"http://r1:80", "http://r1"}, "workers[1]"},
		{[]any{m.addr}, "workers[0]"},
		{[]any{"r1:80"}, "workers[0]"},
		{[]any{"r1"}, "workers[0]"},
		{[]any{m.url(), "ftp://r1"}, "workers[1]"},
		{[]any{m.url(), ""}, "workers[1]"},
		{[]any{m.url(), "  "}, "workers[1]"},
		{[]any{"http://"}, "workers[0]"},
	} {
		var workers []any
		for _, u := range one.urls {
			workers = append(workers, engine.Config{"url": u})
		}
		r.with(engine.Config{"workers": workers})
		index := len(one.urls) - 1
		last := strings.TrimSpace(one.urls[index].(string))
		if why := r.buildError(); !strings.Contains(why, one.bad) || !strings.Contains(strings.ToLower(why), strings.ToLower(last)) {
			t.Errorf("workers %q: error %q, want %s and its value named", one.urls, why, one.bad)
		}
	}

	good := map[string]*mock{m.url() + "/": m, upper: m, " " + m.url() + " ": m, m.url(): m}
	if ln, err := net.Listen("tcp", "[::1]:0"); err == nil {
		six := &mock{ln: ln, addr: ln.Addr().String(), conns: map[net.Conn]bool{}}
		go six.accept(ln)
		t.Cleanup(six.stop)
		good[six.url()] = six
	} else {
		t.Logf("no IPv6 here: %v", err)
	}
	for address, m := range good {
		r.with(engine.Config{"workers": []any{engine.Config{"url": address}}})
		if why := r.buildError(); why != "" {
			t.Errorf("worker %q: error %q, want none", address, why)
			continue
		}
		m.forget()
		if a := r.ok(get("/v1/files/x")); a.peer() != m.url() || len(m.requests()) != 1 || m.requests()[0].target != "/v1/files/x" {
			t.Errorf("worker %q: the answer is of %q and it saw %v", address, a.peer(), m.requests())
		}
		if n := len(r.state().Workers); n != 1 {
			t.Errorf("worker %q: %d replicas in /workers, want 1", address, n)
		}
	}
	for _, base := range []string{"/base/", "/base"} {
		r.with(engine.Config{"workers": []any{engine.Config{"url": m.url() + base}}})
		m.forget()
		r.ok(ask("below a path"))
		if x := m.requests(); len(x) != 1 || x[0].target != "/base/v1/chat/completions" {
			t.Errorf("base path %q: the replica saw %v, want one slash between", base, x)
		}
	}

	secure := httptest.NewUnstartedServer(http.NotFoundHandler())
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	secure.StartTLS()
	t.Cleanup(secure.Close)
	r.with(engine.Config{"workers": append(workersOf(m), engine.Config{"url": secure.URL}), "health": engine.Config{"interval": "100ms"}})
	if why := r.buildError(); why != "" {
		t.Fatalf("worker %q: error %q, want none", secure.URL, why)
	}
	r.waitState(slack*2*time.Second, func(st workersState) error {
		if w := st.Workers[1]; w.Healthy || !strings.Contains(w.Why, "certificate") {
			return fmt.Errorf("replica with a self-signed certificate = %+v, want it out because of that", w)
		}
		return nil
	})
	r.ok(ask("the other one"))
}

// G07: Bad config on hot reload keeps the service up.
func badReload(t *testing.T, s *stage) {
	t.Parallel()
	const interval = 200 * time.Millisecond
	r := s.start(t, 2, engine.Config{"health": engine.Config{"interval": interval.String()}})
	other := *r
	other.name += "-other"
	other.host = other.name + ".test"
	s.put(t, other.name, r.config)
	t.Cleanup(func() { s.put(t, other.name, nil) })
	q := ask(prose("warmed", 4096))
	home := r.warm(q)
	g := newGate(t)
	r.all(func(x *exchange) {
		if strings.Contains(string(x.received()), `"stream":true`) {
			g.streaming(x)
			return
		}
		x.json(200, `{"ok":true}`)
	})
	streams := r.hold(5, func(i int) query { return askStream(prose(fmt.Sprint(i, " runs"), 500)) })
	good := r.config
	for key, values := range map[string][]any{
		"circuitBreaker.failureThreshold": {0, -1}, "circuitBreaker.successThreshold": {0, -3}, "circuitBreaker.timeout": {0, "-1s"},
		"health.failureThreshold": {0, -1}, "health.successThreshold": {0, -1}, "health.interval": {"-5s"}, "health.timeout": {0, "-1s"},
		"maxLoad": {0, -1}, "proxy.maxRetries": {-1}, "proxy.connectTimeout": {0, "-2s"}, "policy": {"prayer"}, "noSuchKey": {1},
	} {
		for _, value := range values {
			s.put(t, r.name, withKey(good, key, value))
			if why := r.buildError(); !strings.Contains(why, key) || !strings.Contains(why, fmt.Sprint(value)) {
				t.Errorf("%s = %v: error %q, want both named", key, value, why)
			}
			if a := r.do(ask("to the bad one")); a.status != 404 && a.status/100 != 5 {
				t.Errorf("%s = %v: its router answers %v, want 404 or 5xx", key, value, &a)
			}
			other.ok(ask("to the other router"))
		}
	}
	s.put(t, r.name, good)
	if why := r.buildError(); why != "" {
		t.Errorf("after the repair: error %q, want none", why)
	}
	if a := r.ok(q); a.peer() != home.url() || a.header.get("x-cart-reason") != "cache_hit" {
		t.Errorf("after the repair a warmed prompt went to %s (%s), want %s (cache_hit)", a.peer(), a.header.get("x-cart-reason"), home.url())
	}
	r.waitState(slack*time.Second, func(st workersState) error {
		if st.load() != 5 {
			return fmt.Errorf("loads in /workers after the repair = %v, want the 5 streams", st.loads())
		}
		return nil
	})
	g.release()
	r.whole(streams)
	r.settled()
	// No loop is left over from the reloads: each of the two pools probes once in an interval.
	before, began := len(home.probed()), time.Now()
	time.Sleep(5 * interval)
	if n, most := len(home.probed())-before, 2*(int(time.Since(began)/interval)+1); n > most || n < 4 {
		t.Errorf("%d probes in %v, want %d at most", n, time.Since(began), most)
	}
}

// G08: Local errors in the caller's dialect. The machine form has the refusal of media.
func localErrors(t *testing.T, s *stage) {
	r := s.start(t, 2, engine.Config{
		"maxLoad": 1, "circuitBreaker": engine.Config{"failureThreshold": 1000}, "health": engine.Config{"interval": 0},
		"proxy": engine.Config{"maxBodyBytes": 2000, "remoteMediaUrlPolicy": 451},
	})
	paths := []string{"/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses"}
	small := `{"model":"m1","prompt":"hi","input":"hi","messages":[{"role":"user","content":"hi"}]}`
	media := `{"model":"m1","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"https://h.example/a"}}]}]}`
	each := func(what, body string, statuses ...int) {
		t.Helper()
		for _, path := range paths {
			a := r.do(post(path, body))
			if err := localError(a, path, statuses...); err != nil {
				t.Errorf("%s: %v", what, err)
			}
			if a.status == 503 && a.header.get("Retry-After") == "" {
				t.Errorf("%s: no Retry-After with 503", what)
			}
		}
	}
	each("too large", `{"model":"m1","prompt":"`+prose("large", 3000)+`"}`, 413)
	each("remote media", media, 451)
	each("not to be inspected", `{"model":"m1","prompt":"cut`, 415)
	r.all(func(x *exchange) { x.close() })
	each("nobody answers", small, 502)
	// HEAD has no body, and what follows on the connection is not disturbed.
	text := r.raw("HEAD /v1/chat/completions HTTP/1.1\r\nHost: " + r.host + "\r\n\r\nGET /health HTTP/1.1\r\nHost: " + r.host + "\r\nConnection: close\r\n\r\n")
	head, rest, ok := strings.Cut(text, "\r\n\r\n")
	if !ok || !strings.HasPrefix(head, "HTTP/1.1 502 ") || !strings.HasPrefix(rest, "HTTP/1.1 200 ") {
		t.Errorf("HEAD and GET on one connection = %q, want 502 without a body, then 200", text)
	}
	r.all(func(x *exchange) { x.wait(time.Minute) })
	r.with(engine.Config{"proxy": engine.Config{"firstByteTimeout": "300ms"}})
	each("too late", small, 504)
	r.with(engine.Config{"proxy": engine.Config{"firstByteTimeout": 0}})
	g := newGate(t)
	r.all(g.streaming)
	streams := r.hold(2, func(i int) query { return askStream(fmt.Sprint(i)) })
	each("full", small, 503)
	g.release()
	r.whole(streams)
	r.with(engine.Config{"workers": []any{}})
	each("no replica", small, 503)
	if text := r.raw("HEAD /health HTTP/1.1\r\nHost: " + r.host + "\r\nConnection: close\r\n\r\n"); !strings.HasPrefix(text, "HTTP/1.1 503 ") || !strings.HasSuffix(text, "\r\n\r\n") {
		t.Errorf("HEAD /health = %q, want 503 without a body", text)
	}
}

// G09: Refusals are visible to the operator.
func refusalsAreSeen(t *testing.T, s *stage) {
	r := s.start(t, 2, engine.Config{
		"logLevel": "info", "maxLoad": 17, "health": engine.Config{"interval": 0},
		"proxy": engine.Config{"maxBodyBytes": 2345, "remoteMediaUrlPolicy": 451},
	})
	g := newGate(t)
	r.all(g.streaming)
	refused := func(what, limit string, q query, status int) {
		t.Helper()
		before := r.state()
		lines := len(r.logLines())
		if a := r.do(q); a.status != status {
			t.Errorf("%s: %v, want %d", what, &a, status)
		}
		why := ""
		for name, n := range r.state().Refused {
			if n != before.Refused[name] {
				if n != before.Refused[name]+1 || why != "" {
					t.Errorf("%s: refused in /workers = %v, before %v, want one more of one", what, r.state().Refused, before.Refused)
				}
				why = name
			}
		}
		if why == "" {
			t.Errorf("%s: refused in /workers = %v, want one more", what, r.state().Refused)
		}
		var news []string
		r.eventually(slack*time.Second, func() error {
			if news = r.logLines()[lines:]; len(news) == 0 {
				return fmt.Errorf("%s: no log line", what)
			}
			return nil
		})
		_, said, _ := strings.Cut(news[0], `"msg"`)
		if len(news) != 1 || !strings.Contains(said, `"`+why+`"`) || !strings.Contains(said, limit) {
			t.Errorf("%s: logged %q, want one line with the reason %s and the limit %s", what, news, why, limit)
		}
	}
	large := post("/v1/chat/completions", `{"prompt":"`+prose("large", 3000)+`"}`)
	refused("too large", "2345", large, 413)
	refused("remote media", "451", post("/v1/chat/completions", `{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"https://h.example/a"}}]}]}`), 451)
	refused("bad body", "415", post("/v1/chat/completions", `{"messages":[{"role"`), 415)
	streams := r.hold(34, func(i int) query { return askStream(fmt.Sprint(i)) })
	refused("full", "17", ask("one too many"), 503)
	g.release()
	r.whole(streams)
	r.with(engine.Config{"workers": []any{}})
	r.eventually(slack*time.Second, func() error {
		if lines := r.logLines(); len(lines) == 0 || !strings.Contains(lines[len(lines)-1], "no workers are configured") {
			return fmt.Errorf("no line says that there are no workers")
		}
		return nil
	})
	refused("no replica", "503", ask("to nobody"), 503)

	// A flood is counted in full and logged in part.
	r.with(engine.Config{"workers": workersOf(r.mocks...)})
	flood := int(scaled(10_000, 1500))
	lines, counted := len(r.logLines()), r.state().Refused["body_too_large"]
	began := time.Now()
	var wg sync.WaitGroup
	for c := 0; c < 4; c++ {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for i := 0; i < flood/4; i++ {
				r.post(large)
			}
		}()
	}
	wg.Wait()
	if n := r.state().Refused["body_too_large"] - counted; n != flood {
		t.Errorf("refusals counted = %d, want %d", n, flood)
	}
	time.Sleep(100 * time.Millisecond)
	n := len(r.logLines()) - lines
	seconds := int(time.Since(began)/time.Second) + 2 // begun ones; in the last a line may tell of those that were left out
	if n == 0 || n > 10*seconds {
		t.Errorf("%d log lines in about %d s, want some and at most 10 a second", n, seconds)
	}
}

// post sends a request on a connection that is kept.
func (r *rig) post(q query) int {
	req, err := http.NewRequest(q.method, r.e.URL()+q.target, bytes.NewReader(q.body))
	if err != nil {
		r.t.Error(err)
		return 0
	}
	req.Host = r.host
	for _, f := range q.header {
		req.Header.Add(f[0], f[1])
	}
	resp, err := r.e.Client().Do(req)
	if err != nil {
		r.t.Error(err)
		return 0
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode
}

// G10: Same behaviour compiled and under Yaegi on the pinned Traefik. That every case runs on both is the first half of it;
// TRAEFIK_BIN names another version to run them with.
func pinnedTraefik(t *testing.T, s *stage) {
	const floor = 200 // requests a second
	r := s.lab(t).start(t, 4, nil)
	if l, ok := r.e.(*lab); ok && l.loaded > slack*5*time.Second {
		t.Errorf("Traefik with the plugin took %v to start, want 5s at most", l.loaded)
	}
	end := time.Now().Add(scaled(10*time.Second, 1500*time.Millisecond))
	began := time.Now()
	var n atomic.Int64
	var wg sync.WaitGroup
	for c := 0; c < 8; c++ {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for i := 0; time.Now().Before(end); i++ {
				if status := r.post(ask(prose(fmt.Sprintf("client %d of some", c), 4000) + fmt.Sprint(i))); status != 200 {
					t.Errorf("status = %d, want 200", status)
				}
				n.Add(1)
			}
		}()
	}
	wg.Wait()
	rate := float64(n.Load()) / time.Since(began).Seconds()
	t.Logf("%.0f requests a second", rate)
	if s.kind == engine.Traefik && rate < floor {
		t.Errorf("%.0f requests a second, want at least %d", rate, floor)
	}
	r.settled()
	if log := r.e.Log(); strings.Contains(log, "reflect") {
		t.Errorf("the log tells of a fault of the interpreter:\n%.2000s", log)
	}
	r.forget()
}

// G11: /workers and /health answers. The machine form has them on an idle pool.
func ownEndpoints(t *testing.T, s *stage) {
	r := s.start(t, 3, engine.Config{"maxLoad": 1000, "health": engine.Config{"interval": "200ms", "timeout": "10s"}})
	hanging := r.mocks[2]
	hanging.answersProbes(func(x *exchange) { x.wait(time.Minute) })
	g := newGate(t)
	r.all(g.streaming)
	streams := r.hold(50, func(i int) query { return askStream(prose(fmt.Sprint(i, " runs"), 500)) })
	hits := len(r.hits())
	ask := func(method, path, accept string) {
		w := r.dial()
		defer w.close()
		began := time.Now()
		q := query{method: method, target: path, header: header{{"Accept", accept}}}
		w.write(r.headOf(q), q)
		w.read(method)
		took := since(began)
		a := w.soFar()
		what := fmt.Sprintf("%s %s for %q", method, path, accept)
		if a.err != nil || a.status != 200 || took > 10*50*time.Millisecond {
			t.Errorf("%s: after %v %v, want 200 within 50ms", what, took, &a)
			return
		}
		if a.header.get("Cache-Control") != "no-store" || a.peer() != "" {
			t.Errorf("%s: headers %v, want no-store and no x-routed-peer", what, a.header)
		}
		if method == "HEAD" {
			return
		}
		if path == "/workers" && accept != "text/html" {
			var page struct{ Workers []map[string]any }
			if err := json.Unmarshal(a.body, &page); err != nil || len(page.Workers) != 3 {
				t.Errorf("%s: %s, want JSON with three replicas", what, a.body)
				return
			}
			sum := 0.0
			for _, w := range page.Workers {
				load, ok := w["load"].(float64)
				_, healthy := w["healthy"].(bool)
				_, breaker := w["breaker"].(string)
				_, name := w["url"].(string)
				if !ok || load < 0 || !healthy || !breaker || !name {
					t.Errorf("%s: replica %v, want url, healthy, breaker and load", what, w)
				}
				sum += load
			}
			if sum != 50 {
				t.Errorf("%s: loads of %v in all, want 50", what, sum)
			}
		}
	}
	stop := make(chan struct{})
	var beside sync.WaitGroup
	beside.Add(1)
	go func() { // a few reloads meanwhile
		defer beside.Done()
		for n := 0; n < 3; n++ {
			select {
			case <-stop:
				return
			case <-time.After(300 * time.Millisecond):
				r.with(engine.Config{"maxLoad": 1000 + n})
			}
		}
	}()
	ticker := time.NewTicker(10 * time.Millisecond) // 100 a second
	defer ticker.Stop()
	for i := 0; i < int(scaled(1000, 150)); i++ {
		<-ticker.C
		ask([]string{"GET", "GET", "HEAD"}[i%3], []string{"/workers", "/health"}[i%2], []string{"*/*", "text/html", "application/json"}[i%5%3])
	}
	close(stop)
	beside.Wait()
	if n := len(r.hits()); n != hits {
		t.Errorf("%d requests reached the replicas, want none", n-hits)
	}
	g.release()
	r.whole(streams)
	r.settled()
}
