package cart

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

const aChat = `{"model":"m","messages":[{"role":"user","content":"a question long enough to be known again"}]}`

// startReplica starts a replica that answers as told, and returns its address.
func startReplica(t *testing.T, answer http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(answer)
	t.Cleanup(s.Close)
	return s.URL
}

// answering returns a replica's behaviour: that status, and its name with the number of bytes that came as the body.
func answering(name string, status int, calls *atomic.Int64) http.HandlerFunc {
	return func(rw http.ResponseWriter, req *http.Request) {
		calls.Add(1)
		body, _ := io.ReadAll(req.Body)
		rw.Header().Set("Retry-After", "7")
		rw.WriteHeader(status)
		io.WriteString(rw, name+" got "+strconv.Itoa(len(body)))
	}
}

// twoReplicas configures two replicas of which the first is tried first, without probes and with short waits.
func twoReplicas(first, second string) *Config {
	c := CreateConfig()
	c.LogLevel = "error"
	c.Workers = []WorkerConfig{{URL: first}, {URL: second, LoadPenalty: "10"}}
	c.Health.Interval = "0"
	c.Health.Metrics.Interval = "0"
	c.Health.Models.Interval = "0"
	c.Proxy.InitialBackoff = "1ms"
	c.Proxy.AddDecisionHeaders = "true"
	return c
}

// state returns what GET /workers would tell of the test's middleware.
func state(t *testing.T) *workersAnswer {
	t.Helper()
	p := registered(t.Name())
	if p == nil {
		t.Fatalf("no pool named %q", t.Name())
	}
	return describe(p, time.Now().UnixNano())
}

// checkIdle waits until every place has been given back.
func checkIdle(t *testing.T) {
	t.Helper()
	eventually(t, "all places are given back", func() bool {
		for _, w := range state(t).Workers {
			if w.Load != 0 {
				return false
			}
		}
		return true
	})
}

// deadAddress returns an address at which nobody listens. On Linux it is one that no server of a test gets by chance later.
func deadAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.2:0")
	if err != nil {
		l, err = net.Listen("tcp", "127.0.0.1:0")
	}
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return "http://" + l.Addr().String()
}

func TestServe_triesAnotherReplica(t *testing.T) {
	for _, status := range []int{408, 429, 500, 502, 503, 504, 529} {
		var calls, good atomic.Int64
		a, b := startReplica(t, answering("a", status, &calls)), startReplica(t, answering("b", 200, &good))
		url := serve(t, twoReplicas(a, b))
		res, got := post(t, url+"/v1/chat/completions", aChat)
		want := "b got " + strconv.Itoa(len(aChat))
		if res.StatusCode != 200 || got != want || calls.Load() != 1 || good.Load() != 1 {
			t.Errorf("after %d: answer = %d %q after %d and %d calls, want 200 %q after one each", status, res.StatusCode, got, calls.Load(), good.Load(), want)
		}
		if peer, why := res.Header.Get("X-Routed-Peer"), res.Header.Get("X-Cart-Reason"); peer != b || why != reasonRetry {
			t.Errorf("after %d: x-routed-peer = %q, x-cart-reason = %q, want %q, %q", status, peer, why, b, reasonRetry)
		}
		checkIdle(t)
		leavePool(t)
	}
}

// leavePool makes room for another pool under the test's name.
func leavePool(t *testing.T) {
	t.Helper()
	registryMu.Lock()
	defer registryMu.Unlock()
	delete(registry, t.Name())
}

func TestServe_aRefusalOfTheRequestIsTheAnswer(t *testing.T) {
	for _, status := range []int{400, 401, 404, 422, 501} {
		var calls, other atomic.Int64
		a, b := startReplica(t, answering("a", status, &calls)), startReplica(t, answering("b", 200, &other))
		url := serve(t, twoReplicas(a, b))
		res, got := post(t, url+"/v1/chat/completions", aChat)
		if res.StatusCode != status || !strings.HasPrefix(got, "a got") || other.Load() != 0 {
			t.Errorf("answer = %d %q with %d calls to the other, want %d from a alone", res.StatusCode, got, other.Load(), status)
		}
		leavePool(t)
	}
}

func TestServe_aDeadReplicaIsPassedOver(t *testing.T) {
	var calls atomic.Int64
	b := startReplica(t, answering("b", 200, &calls))
	url := serve(t, twoReplicas(deadAddress(t), b))
	res, got := post(t, url+"/v1/chat/completions", aChat)
	if res.StatusCode != 200 || res.Header.Get("X-Routed-Peer") != b {
		t.Errorf("answer = %d %q, want 200 from b", res.StatusCode, got)
	}
	checkIdle(t)
	if s := state(t); s.Workers[0].Failures != 1 || s.Workers[0].Claims != 0 || s.Workers[1].Claims == 0 {
		t.Errorf("failures, claims of the dead one = %d, %d, claims of the other %d, want 1, 0 and some",
			s.Workers[0].Failures, s.Workers[0].Claims, s.Workers[1].Claims)
	}
}

func TestServe_bothPushBack(t *testing.T) {
	var calls atomic.Int64
	a, b := startReplica(t, answering("a", 429, &calls)), startReplica(t, answering("b", 429, &calls))
	url := serve(t, twoReplicas(a, b))
	res, got := post(t, url+"/v1/chat/completions", aChat)
	if res.StatusCode != 429 || !strings.HasPrefix(got, "b got") || res.Header.Get("Retry-After") != "7" || calls.Load() != 2 {
		t.Errorf("answer = %d %q, Retry-After %q after %d calls, want the last replica's 429 as it is after 2",
			res.StatusCode, got, res.Header.Get("Retry-After"), calls.Load())
	}
	checkIdle(t)
	for _, w := range state(t).Workers {
		if !w.PushedBack || w.Failures != 0 || w.Breaker != "closed" || w.Claims != 0 {
			t.Errorf("%s: pushedBack %v, %d failures, breaker %s, %d claims, want pushed back and nothing else",
				w.URL, w.PushedBack, w.Failures, w.Breaker, w.Claims)
		}
	}
}

func TestServe_nobodyAnswers(t *testing.T) {
	url := serve(t, twoReplicas(deadAddress(t), deadAddress(t)))
	res, got := post(t, url+"/v1/messages", `{"model":"m","messages":[{"role":"user","content":"q"}]}`)
	if res.StatusCode != http.StatusBadGateway || !strings.Contains(got, `"type":"error"`) || strings.Contains(got, "127.0.0.") {
		t.Errorf("answer = %d %q, want 502 in Anthropic's dialect without an address", res.StatusCode, got)
	}
	checkIdle(t)
	if s := state(t); s.Tree.Nodes != 0 || s.Retries != 1 || s.Refused[refusedFailed] != 1 {
		t.Errorf("tree nodes, retries, refusals = %d, %d, %v, want 0, 1 and one %s", s.Tree.Nodes, s.Retries, s.Refused, refusedFailed)
	}
}

func TestServe_withoutReplicas(t *testing.T) {
	c := CreateConfig()
	c.LogLevel = "error"
	url := serve(t, c)
	res, got := post(t, url+"/v1/chat/completions", aChat)
	if res.StatusCode != 503 || res.Header.Get("Retry-After") == "" || !strings.Contains(got, `"code":"`+refusedNone+`"`) {
		t.Errorf("answer = %d %q, Retry-After %q, want 503 with Retry-After and code %s", res.StatusCode, got, res.Header.Get("Retry-After"), refusedNone)
	}
	health, err := http.Get(url + "/health")
	if err != nil {
		t.Fatal(err)
	}
	defer health.Body.Close()
	if health.StatusCode != 503 {
		t.Errorf("GET /health = %d, want 503", health.StatusCode)
	}
}

// cutting returns a behaviour that answers the beginning of a stream and breaks the connection.
func cutting() http.HandlerFunc {
	return func(rw http.ResponseWriter, req *http.Request) {
		io.Copy(io.Discard, req.Body)
		conn, buffer, err := rw.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		io.WriteString(buffer, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n8\r\ndata: 1\n\r\n")
		buffer.Flush()
		conn.Close()
	}
}

func TestServe_aStreamThatBreaksIsBrokenForTheClientToo(t *testing.T) {
	var calls atomic.Int64
	url := serve(t, twoReplicas(startReplica(t, cutting()), startReplica(t, answering("b", 200, &calls))))
	res, err := http.Post(url+"/v1/chat/completions", "application/json", strings.NewReader(aChat))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	got, err := io.ReadAll(res.Body)
	if err == nil || string(got) != "data: 1\n" {
		t.Errorf("the broken stream = %q, %v, want what came and an error", got, err)
	}
	checkIdle(t)
	s := state(t)
	if calls.Load() != 0 || s.Retries != 0 || s.Workers[0].Failures != 1 || s.Workers[0].Claims == 0 {
		t.Errorf("after a broken stream: %d calls to the other, %d retries, %d failures, %d claims, want 0, 0, 1 and the claims kept",
			calls.Load(), s.Retries, s.Workers[0].Failures, s.Workers[0].Claims)
	}
}

func TestServe_eventsPassOneByOne(t *testing.T) {
	read := make(chan bool)
	url := serve(t, twoReplicas(startReplica(t, func(rw http.ResponseWriter, req *http.Request) {
		io.Copy(io.Discard, req.Body)
		rw.Header().Set("Content-Type", "text/event-stream")
		for i := 0; i < 3; i++ {
			io.WriteString(rw, "data: "+strconv.Itoa(i)+"\n\n")
			rw.(http.Flusher).Flush()
			<-read // the client has it before the next is written
		}
	}), deadAddress(t)))
	res, err := http.Post(url+"/v1/chat/completions", "application/json", strings.NewReader(aChat))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	lines := bufio.NewReader(res.Body)
	for i := 0; i < 3; i++ {
		line, err := lines.ReadString('\n')
		if want := "data: " + strconv.Itoa(i) + "\n"; err != nil || line != want {
			t.Errorf("event %d = %q, %v, want %q", i, line, err, want)
		}
		lines.ReadString('\n')
		read <- true
	}
	if rest, err := io.ReadAll(lines); err != nil || len(rest) != 0 {
		t.Errorf("the end of the stream = %q, %v, want a clean one", rest, err)
	}
	checkIdle(t)
}

// hanging returns a behaviour that tells when it has a request and when that request is given up, and answers nothing.
func hanging(came, gone chan bool) http.HandlerFunc {
	return func(rw http.ResponseWriter, req *http.Request) {
		io.Copy(io.Discard, req.Body)
		came <- true
		select {
		case <-req.Context().Done():
			gone <- true
		case <-time.After(10 * time.Second):
		}
	}
}

func TestServe_aClientThatLeavesEndsTheRequest(t *testing.T) {
	came, gone := make(chan bool, 1), make(chan bool, 1)
	var calls atomic.Int64
	url := serve(t, twoReplicas(startReplica(t, hanging(came, gone)), startReplica(t, answering("b", 200, &calls))))
	ctx, leave := context.WithCancel(context.Background())
	defer leave()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/chat/completions", strings.NewReader(aChat))
	if err != nil {
		t.Fatal(err)
	}
	failed := make(chan error, 1)
	go func() {
		defer func() { recover() }()
		res, err := http.DefaultClient.Do(req)
		if err == nil {
			res.Body.Close()
		}
		failed <- err
	}()
	<-came
	leave()
	select {
	case <-gone:
	case <-time.After(time.Second):
		t.Errorf("the replica's request goes on a second after the client left")
	}
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Errorf("the client's request = %v, want it cancelled", err)
	}
	checkIdle(t)
	s := state(t)
	if calls.Load() != 0 || s.Workers[0].Failures != 0 || s.Workers[0].Claims != 0 || len(s.Refused) != 0 {
		t.Errorf("after the client left: %d calls to the other, %d failures, %d claims, refused %v, want none of these",
			calls.Load(), s.Workers[0].Failures, s.Workers[0].Claims, s.Refused)
	}
}

func TestServe_timeLimits(t *testing.T) {
	for _, row := range []struct {
		story     string
		firstByte string
		whole     string
		status    int
	}{
		{"the first byte is late, another replica is in time", "50ms", "0", 200},
		{"the whole takes too long", "0", "50ms", 504},
	} {
		came, gone := make(chan bool, 1), make(chan bool, 1)
		var calls atomic.Int64
		c := twoReplicas(startReplica(t, hanging(came, gone)), startReplica(t, answering("b", 200, &calls)))
		c.Proxy.FirstByteTimeout = row.firstByte
		c.Proxy.RequestTimeout = row.whole
		res, got := post(t, serve(t, c)+"/v1/chat/completions", aChat)
		if res.StatusCode != row.status {
			t.Errorf("%s: answer = %d %q, want %d", row.story, res.StatusCode, got, row.status)
		}
		checkIdle(t)
		if s := state(t); s.Workers[0].Failures != 1 {
			t.Errorf("%s: %d failures, want 1", row.story, s.Workers[0].Failures)
		}
		leavePool(t)
	}
}

func TestServe_bodiesHaveABound(t *testing.T) {
	var calls atomic.Int64
	c := twoReplicas(startReplica(t, answering("a", 200, &calls)), deadAddress(t))
	c.Proxy.MaxBodyBytes = "1000"
	url := serve(t, c)
	for _, row := range []struct {
		path   string
		length int
		status int
	}{
		{"/v1/chat/completions", 1000, 200}, {"/v1/chat/completions", 1001, 413}, {"/v1/messages", 1001, 413},
		{"/v1/embeddings", 5000, 200}, // not routed by its prompt, so not buffered
	} {
		res, got := post(t, url+row.path, strings.Repeat(" ", row.length))
		if res.StatusCode != row.status {
			t.Errorf("POST %s with %d bytes = %d %q, want %d", row.path, row.length, res.StatusCode, got, row.status)
		}
		if row.status == 200 && got != "a got "+strconv.Itoa(row.length) {
			t.Errorf("POST %s with %d bytes: the replica says %q", row.path, row.length, got)
		}
	}
}

func TestServe_fullReplicasRefuseRoutedRequestsOnly(t *testing.T) {
	came, gone := make(chan bool, 1), make(chan bool, 1)
	c := CreateConfig()
	c.LogLevel = "error"
	c.MaxLoad = "1"
	c.Health.Interval = "0"
	c.Health.Metrics.Interval = "0"
	c.Health.Models.Interval = "0"
	hang := hanging(came, gone)
	c.Workers = []WorkerConfig{{URL: startReplica(t, func(rw http.ResponseWriter, req *http.Request) {
		if req.URL.Path == "/v1/chat/completions" {
			hang(rw, req)
		}
	})}}
	url := serve(t, c)
	ctx, leave := context.WithCancel(context.Background())
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/chat/completions", strings.NewReader(aChat))
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		defer func() { recover() }()
		if res, err := http.DefaultClient.Do(req); err == nil {
			res.Body.Close()
		}
	}()
	<-came
	res, got := post(t, url+"/v1/chat/completions", aChat)
	if res.StatusCode != 503 || !strings.Contains(got, refusedFull) || res.Header.Get("Retry-After") != "1" {
		t.Errorf("a routed request when all are full = %d %q, want 503 %s with Retry-After 1", res.StatusCode, got, refusedFull)
	}
	if res, got := post(t, url+"/v1/embeddings", "{}"); res.StatusCode != 200 {
		t.Errorf("another request when all are full = %d %q, want 200", res.StatusCode, got)
	}
	leave()
	checkIdle(t)
}

func TestServe_sendsTheRequestAsItCame(t *testing.T) {
	seen := make(chan *http.Request, 1)
	c := twoReplicas("", deadAddress(t))
	c.Workers[0] = WorkerConfig{
		URL: startReplica(t, func(rw http.ResponseWriter, req *http.Request) {
			seen <- req
			rw.Header().Set("X-Answer", "yes")
		}) + "/base",
		Headers: map[string]string{"authorization": "Bearer the-replicas", "Host": "replica.example"},
	}
	url := serve(t, c)
	req, err := http.NewRequest(http.MethodDelete, url+"/v1/files/a%2Fb?q=1;2&r=%zz", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer the-clients")
	req.Header.Set("X-Forwarded-For", "10.0.0.1")
	req.Header.Set("X-Forwarded-Proto", "https")
	req.Header.Set("X-Own", "kept")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.Header.Get("X-Answer") != "yes" || res.Header.Get("X-Cart-Reason") != reasonPassthrough {
		t.Errorf("answer's headers = %v, want the replica's and reason %q", res.Header, reasonPassthrough)
	}
	got := <-seen
	for _, row := range []struct{ what, got, want string }{
		{"method", got.Method, "DELETE"},
		{"path and query", got.RequestURI, "/base/v1/files/a%2Fb?q=1;2&r=%zz"},
		{"host", got.Host, "replica.example"},
		{"Authorization", got.Header.Get("Authorization"), "Bearer the-replicas"},
		{"X-Forwarded-For", got.Header.Get("X-Forwarded-For"), "10.0.0.1, 127.0.0.1"},
		{"X-Forwarded-Proto", got.Header.Get("X-Forwarded-Proto"), "https"},
		{"X-Own", got.Header.Get("X-Own"), "kept"},
	} {
		if row.got != row.want {
			t.Errorf("the replica's request: %s = %q, want %q", row.what, row.got, row.want)
		}
	}
}

func TestServe_longRequestsForWholeAnswersHaveConnectionsOfTheirOwn(t *testing.T) {
	seen := make(chan string, 1)
	replica := startReplica(t, func(rw http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		seen <- req.RemoteAddr
		io.WriteString(rw, strconv.Itoa(len(body)))
	})
	url := serve(t, twoReplicas(replica, deadAddress(t)))
	from := map[bool]string{} // by whether the connection is one for long requests
	for _, row := range []struct {
		story  string
		length int
		tail   string
		bulk   bool
	}{
		{"short", 10, `]}`, false},
		{"long", bulkBody, `]}`, true},
		{"long, streamed", bulkBody, `],"stream":true}`, false},
		{"long, streamed, as Python writes it", bulkBody, `],"stream":true}`, false},
		{"long, streamed: false", 20 * bulkBody, `],"stream":false}`, true},
		{"short again", 10, `]}`, false},
	} {
		chat := `{"model":"m","messages":[{"role":"user","content":"` + strings.Repeat("x", row.length) + `"}` + row.tail
		if strings.Contains(row.story, "Python") {
			chat = strings.NewReplacer(":", ": ", ",", ", ").Replace(chat)
		}
		res, got := post(t, url+"/v1/chat/completions", chat)
		if want := strconv.Itoa(len(chat)); res.StatusCode != 200 || got != want {
			t.Errorf("%s: answer %d, the replica got %s bytes, want %s", row.story, res.StatusCode, got, want)
		}
		conn := <-seen
		if from[row.bulk] == "" {
			from[row.bulk] = conn
		}
		if conn != from[row.bulk] {
			t.Errorf("%s: came from %s, want from %s (connections for long requests: %v)", row.story, conn, from[row.bulk], from)
		}
	}
	if from[true] == from[false] {
		t.Errorf("all came over one connection, %s, want two", from[true])
	}
}

// build makes one more handler of the test's middleware, as Traefik does for a router.
func build(ctx context.Context, t *testing.T, c *Config) (http.Handler, error) {
	t.Helper()
	return New(ctx, nil, c, t.Name())
}

// through sends a chat through a handler and returns the reason of the decision and the replica.
func through(t *testing.T, h http.Handler) (why, peer string) {
	t.Helper()
	s := httptest.NewServer(h)
	defer s.Close()
	res, _ := post(t, s.URL+"/v1/chat/completions", aChat)
	return res.Header.Get("X-Cart-Reason"), res.Header.Get("X-Routed-Peer")
}

func TestNew_routersOfOneMiddlewareShareAPool(t *testing.T) {
	c := CreateConfig()
	c.LogLevel = "error"
	c.Proxy.AddDecisionHeaders = "true"
	c.Workers = []WorkerConfig{{URL: serveReplica(t, "a")}, {URL: serveReplica(t, "b")}, {URL: serveReplica(t, "c")}}
	ctx, leave := context.WithCancel(context.Background())
	defer leave()
	one, err := build(ctx, t, c)
	if err != nil {
		t.Fatal(err)
	}
	two, err := build(ctx, t, c)
	if err != nil {
		t.Fatal(err)
	}
	why, peer := through(t, one)
	if why != reasonMiss {
		t.Errorf("the first router: reason = %q, want %q", why, reasonMiss)
	}
	if why, again := through(t, two); why != reasonHit || again != peer {
		t.Errorf("the second router: %q, %q, want %q, %q", why, again, reasonHit, peer)
	}
}

func TestNew_aBadConfigurationThenAGoodOneKeepsTheTree(t *testing.T) {
	c := CreateConfig()
	c.LogLevel = "error"
	c.Proxy.AddDecisionHeaders = "true"
	c.Workers = []WorkerConfig{{URL: serveReplica(t, "a")}, {URL: serveReplica(t, "b")}}
	ctx1, leave1 := context.WithCancel(context.Background())
	good, err := build(ctx1, t, c)
	if err != nil {
		t.Fatal(err)
	}
	_, peer := through(t, good)

	bad := *c
	bad.Policy = "best"
	leave1()
	ctx2, leave2 := context.WithCancel(context.Background())
	if h, err := build(ctx2, t, &bad); err == nil || h != nil || !strings.Contains(err.Error(), `policy = "best"`) {
		t.Errorf("New(policy best) = %v, %v, want an error that names it", h, err)
	}
	// Requests that began on the old handler go on.
	if why, again := through(t, good); why != reasonHit || again != peer {
		t.Errorf("the old handler: %q, %q, want %q, %q", why, again, reasonHit, peer)
	}
	p := registered(t.Name())
	eventually(t, "the first handler leaves", func() bool {
		registryMu.Lock()
		defer registryMu.Unlock()
		return p.refs == 1
	})

	better := *c
	better.Workers = append([]WorkerConfig{}, c.Workers...)
	better.Workers = append(better.Workers, WorkerConfig{URL: serveReplica(t, "c")})
	leave2()
	ctx3, leave3 := context.WithCancel(context.Background())
	defer leave3()
	healed, err := build(ctx3, t, &better)
	if err != nil {
		t.Fatal(err)
	}
	if why, again := through(t, healed); why != reasonHit || again != peer {
		t.Errorf("after a bad configuration and a good one: %q, %q, want %q, %q", why, again, reasonHit, peer)
	}
	if n := len(state(t).Workers); n != 3 {
		t.Errorf("after a replica more: %d workers, want 3", n)
	}
}

func TestNew_aChangedKeyFileIsReadAgain(t *testing.T) {
	file := filepath.Join(t.TempDir(), "key")
	c := CreateConfig()
	c.LogLevel = "error"
	c.Health.Interval = "0"
	c.Health.Metrics.Interval = "0"
	c.Health.Models.Interval = "0"
	c.Workers = []WorkerConfig{{APIKeyFile: file, URL: startReplica(t, func(rw http.ResponseWriter, req *http.Request) {
		io.WriteString(rw, req.Header.Get("Authorization"))
	})}}
	ctx, leave := context.WithCancel(context.Background())
	defer leave()
	for _, key := range []string{"old", "new"} {
		if err := os.WriteFile(file, []byte(key), 0o600); err != nil {
			t.Fatal(err)
		}
		h, err := build(ctx, t, c)
		if err != nil {
			t.Fatal(err)
		}
		s := httptest.NewServer(h)
		if _, got := post(t, s.URL+"/v1/chat/completions", aChat); got != "Bearer "+key {
			t.Errorf("the replica was shown %q, want the key %q of the file", got, "Bearer "+key)
		}
		s.Close()
	}
}

func TestServe_aFailureCountsWhileTheNextReplicaStreams(t *testing.T) {
	var calls atomic.Int64
	finish := make(chan bool)
	c := twoReplicas(startReplica(t, answering("a", 500, &calls)), startReplica(t, func(rw http.ResponseWriter, req *http.Request) {
		io.Copy(io.Discard, req.Body)
		io.WriteString(rw, "data: 1\n\n")
		rw.(http.Flusher).Flush()
		<-finish
	}))
	c.CircuitBreaker.FailureThreshold = "1"
	url := serve(t, c)
	res, err := http.Post(url+"/v1/chat/completions", "application/json", strings.NewReader(aChat))
	if err != nil {
		t.Fatal(err)
	}
	// The second replica's answer has begun, so the first one's failure is its own.
	if w := state(t).Workers[0]; w.Breaker != "open" {
		t.Errorf("while the second replica streams: breaker of the first = %s after %d failures, want open after 1", w.Breaker, w.Failures)
	}
	close(finish)
	res.Body.Close()
	checkIdle(t)
}

// TestServe_streamsKeepToTheirClients has many streams at once, each of which must get its own events and nothing else:
// interpreted, values that a loop hands to compiled code can become those of a later turn.
func TestServe_streamsKeepToTheirClients(t *testing.T) {
	const streams, events = 24, 5
	all := make(chan bool)
	var open atomic.Int64
	url := startReplica(t, func(rw http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		if open.Add(1) == streams {
			close(all)
		}
		<-all
		for i := 0; i < events; i++ {
			rw.Write(body)
			rw.(http.Flusher).Flush()
		}
	})
	c := CreateConfig()
	c.LogLevel = "error"
	c.Health.Interval = "0"
	c.Health.Metrics.Interval = "0"
	c.Health.Models.Interval = "0"
	c.MaxLoad = "100"
	c.Workers = []WorkerConfig{{URL: url}}
	address := serve(t, c)
	wrong := make(chan string, streams)
	for i := 0; i < streams; i++ {
		startClient(address, `{"model":"m","messages":[{"role":"user","content":"`+strings.Repeat(strconv.Itoa(i)+" ", 200)+`"}]}`, events, wrong)
	}
	for i := 0; i < streams; i++ {
		if w := <-wrong; w != "" {
			t.Errorf("a stream %s", w)
		}
	}
	checkIdle(t)
}

func startClient(address, body string, times int, wrong chan string) {
	go guard("a client", func() { wrong <- echoed(address, body, times) })
}

// echoed posts a body and says what is wrong with the answer, which has to be the same so many times.
func echoed(address, body string, times int) string {
	res, err := http.Post(address+"/v1/chat/completions", "application/json", strings.NewReader(body))
	if err != nil {
		return err.Error()
	}
	defer res.Body.Close()
	got, err := io.ReadAll(res.Body)
	if err != nil {
		return "broke: " + err.Error()
	}
	if string(got) != strings.Repeat(body, times) {
		return "got " + strconv.Itoa(len(got)) + " bytes that are not its own"
	}
	return ""
}
