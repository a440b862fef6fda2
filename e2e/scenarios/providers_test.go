package scenarios

import (
	"crypto/sha1" // a form of passwords that Traefik reads
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cart-llm/cart/e2e/engine"
	"github.com/cart-llm/cart/e2e/process"
	"github.com/cart-llm/cart/e2e/traefik"
)

type object = map[string]any

// discoveryInterval is the default, which the test of providers keeps.
const discoveryInterval = 5 * time.Second

// provider is where an operator keeps the list of servers of the service vllm.
type provider interface {
	// set makes these the servers. It does not wait.
	set(t *testing.T, urls ...string)
}

// TestProviders: with the official Traefik, a server that is added to a service of any provider takes requests within two
// intervals of discovery, without a restart; one that is removed drains; and one that Traefik has down gets none.
func TestProviders(t *testing.T) {
	if !engine.Selected(engine.Traefik) {
		t.Skip("runs on the engine traefik only: it is about its providers")
	}
	remote, redis := startHTTPSource(t), startRedis(t)
	static := object{
		"http":                      object{"endpoint": remote.URL, "pollInterval": "200ms"},
		"providersThrottleDuration": "20ms",
	}
	if redis != nil {
		static["redis"] = object{"endpoints": []string{redis.address}, "rootKey": "traefik"}
	}
	e := engine.StartOfficial(t, object{"providers": static}, 4096)
	r := &rig{t: t, e: e}

	stories := map[string]provider{"file": &fileSource{e: e}, "http": remote, "redis": redis}
	r.setup = engine.Setup{Middlewares: map[string]engine.Config{}, Routers: map[string]engine.Router{}}
	for name := range stories {
		r.setup.Middlewares[name] = engine.Merged(plainConfig, engine.Config{
			"logLevel":  "info",
			"discovery": engine.Config{"service": "vllm@" + name, "api": engine.Config{"address": e.URLAPI()}},
		})
		r.setup.Routers[name] = engine.Router{Host: name + ".test", Middleware: name}
	}
	// The file's API is one that wants a password, of which the configuration does not know at first.
	discovery := engine.Config{"discovery": engine.Config{"api": engine.Config{"address": e.URL(), "user": "cart", "password": "wr0ng"}}}
	r.setup.Middlewares["file"] = engine.Merged(r.setup.Middlewares["file"], discovery)
	if err := e.Write("api.yml", guardedAPI("cart", "s3cret")); err != nil {
		t.Fatal(err)
	}
	r.reload()
	r.to(t, "file").waitServed()
	t.Run("password", func(t *testing.T) {
		mine := r.to(t, "file")
		mine.waitState(10*time.Second, func(s poolState) error {
			if !strings.Contains(s.Discovery.Error, "refuses access with status 401") {
				return fmt.Errorf("with a wrong password /workers says %+v", s.Discovery)
			}
			return nil
		})
		change := engine.Config{"discovery": engine.Config{"api": engine.Config{"password": "s3cret"}}}
		r.setup.Middlewares["file"] = engine.Merged(r.setup.Middlewares["file"], change)
		r.reload()
		mine.waitServed()
		if shown := string(mine.get("/workers").body) + e.Log(); strings.Contains(shown, "s3cret") || strings.Contains(shown, "wr0ng") {
			t.Errorf("a password is shown in /workers or in the log: %s", shown)
		}
	})
	if !strings.Contains(e.Log(), "the limit of open files is low") {
		t.Errorf("with 4096 open files nothing in the log says that these are few: %s", e.Log())
	}
	t.Run("health", func(t *testing.T) { honoursTraefiksHealthCheck(t, e, r) })
	if redis == nil {
		delete(stories, "redis")
		t.Run("redis", func(t *testing.T) {
			t.Skip("NOT TESTED: no redis-server on the PATH; install Debian's package redis-server")
		})
	}
	// Side by side, for it mostly waits.
	var all []*provided
	for name, p := range stories {
		all = append(all, provide(r.to(t, name), name, p))
	}
	for _, step := range []struct {
		do   func(*provided)
		what string // has to happen within two intervals
	}{
		{(*provided).begin, ""}, {(*provided).add, ""}, {(*provided).seeAdded, "takes requests after it was added"},
		{(*provided).remove, ""}, {(*provided).seeRemoved, "is gone after it was removed"}, {(*provided).seeDrained, ""},
	} {
		var took time.Duration // since it was done to all
		for _, p := range all {
			step.do(p)
			took += p.took
			if step.what == "" {
				continue
			}
			t.Logf("%s: a server %s: %v", p.name, step.what, took.Round(time.Millisecond))
			if took > 2*discoveryInterval {
				t.Errorf("%s: a server %s: %v, want at most two intervals of %v", p.name, step.what, took, discoveryInterval)
			}
		}
	}
}

// to returns a rig whose requests go to the middleware with that name.
func (r *rig) to(t *testing.T, name string) *rig {
	return &rig{t: t, e: r.e, host: name + ".test"}
}

// provided is a pool whose replicas come from one provider.
type provided struct {
	*rig
	name               string
	source             provider
	stays, goes, comes *ticker
	kept, moved        *chat // prompts of stays and goes
	crowd              *crowd
	stream             *held         // on goes
	took               time.Duration // the last wait
}

func provide(r *rig, name string, source provider) *provided {
	p := &provided{rig: r, name: name, source: source, stays: startTicker(r.t), goes: startTicker(r.t), comes: startTicker(r.t)}
	p.set(p.stays, p.goes)
	return p
}

func (p *provided) set(servers ...*ticker) {
	p.t.Helper()
	var urls []string
	for _, one := range servers {
		urls = append(urls, one.URL)
	}
	p.source.set(p.t, urls...)
}

func (p *provided) begin() {
	p.waitListed(p.stays.URL, p.goes.URL)
	p.kept, p.moved = p.promptAt(p.stays.URL), p.promptAt(p.goes.URL)
	p.crowd = p.rig.crowd(2)
	if p.stream = p.hold(p.moved.tokens(200)); p.stream.peer() != p.goes.URL {
		p.t.Fatalf("%s: a stream went to %s, want %s", p.name, p.stream.peer(), p.goes.URL)
	}
}

func (p *provided) add() { p.set(p.stays, p.goes, p.comes) }

func (p *provided) seeAdded() { p.took = p.waitUsed(p.comes) }

func (p *provided) remove() { p.set(p.stays, p.comes) }

func (p *provided) seeRemoved() {
	p.took = p.waitState(20*time.Second, func(s poolState) error {
		if got := listedIn(s); !slices.Equal(got, sorted(p.stays.URL, p.comes.URL)) {
			return fmt.Errorf("%s: replicas = %q, want %q", p.name, got, sorted(p.stays.URL, p.comes.URL))
		}
		return nil
	})
}

func (p *provided) seeDrained() {
	p.waitArrived(p.goes.URL, 1)
	before := p.goes.requests.Load()
	for range 5 {
		p.chat(p.moved)
	}
	checkTicks(p.t, p.stream, 200)
	if got := p.goes.requests.Load(); got != before {
		p.t.Errorf("%s: requests that reached the server after its removal = %d, want 0", p.name, got-before)
	}
	if a := p.chat(p.kept); a.peer() != p.stays.URL || a.reason() != "cache_hit" {
		p.t.Errorf("%s: a prompt known before went to %s (%s), want %s (cache_hit)", p.name, a.peer(), a.reason(), p.stays.URL)
	}
	p.crowd.stop()
	p.waitIdle()
}

// honoursTraefiksHealthCheck: CART probes nothing here, and yet a server gets no requests while Traefik has it down.
func honoursTraefiksHealthCheck(t *testing.T, e *engine.Official, shared *rig) {
	var sick atomic.Bool
	one, other := startTicker(t), startTicker(t)
	one.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && sick.Load() {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		one.serve(w, r)
	})
	config := engine.Merged(plainConfig, engine.Config{
		"health":    engine.Config{"interval": "0"},
		"discovery": engine.Config{"service": "checked@file", "interval": "200ms", "api": engine.Config{"address": e.URLAPI()}},
	})
	err := e.Write("checked.yml", object{"http": object{
		"services": object{"checked": object{"loadBalancer": object{
			"servers":     []object{{"url": one.URL}, {"url": other.URL}},
			"healthCheck": object{"path": "/health", "interval": "200ms", "timeout": "2s"},
		}}},
		"routers": object{
			// Traefik checks the servers of a service that a router uses.
			"checked-direct": object{"rule": "Host(`direct.test`)", "entryPoints": []string{"web"}, "service": "checked"},
			"checked":        object{"rule": "Host(`checked.test`)", "entryPoints": []string{"web"}, "service": "noop@internal", "middlewares": []string{"checked"}},
		},
		"middlewares": object{"checked": object{"plugin": object{traefik.Alias: config}}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	r := shared.to(t, "checked")
	eventually(t, 10*time.Second, func() error {
		if a := r.get("/workers"); a.status != http.StatusOK {
			return fmt.Errorf("GET /workers = %d %s", a.status, a.body)
		}
		return nil
	})
	r.waitListed(one.URL, other.URL)
	for _, down := range []bool{true, false} {
		sick.Store(down)
		r.waitState(20*time.Second, func(s poolState) error {
			if w, ok := s.worker(one.URL); !ok || w.Healthy == down {
				return fmt.Errorf("/workers says %+v of a server that Traefik has down: %v", w, down)
			}
			return nil
		})
		if !down {
			r.waitUsed(one)
			break
		}
		before := one.requests.Load()
		for i := range 10 {
			r.chat(newChat(fmt.Sprintf("while it is down %d", i)).tokens(1))
		}
		if got := one.requests.Load() - before; got != 0 {
			t.Errorf("10 requests, %d of them to a server that Traefik has down, want none", got)
		}
	}
}

// guardedAPI is a router to Traefik's API that wants a password.
func guardedAPI(user, password string) object {
	hash := sha1.Sum([]byte(password))
	users := []string{user + ":{SHA}" + base64.StdEncoding.EncodeToString(hash[:])}
	return object{"http": object{
		"routers": object{"guarded-api": object{
			"rule": "PathPrefix(`/api`)", "priority": 1 << 20, "entryPoints": []string{traefik.EntryPoint},
			"middlewares": []string{"guarded-api"}, "service": "api@internal",
		}},
		"middlewares": object{"guarded-api": object{"basicAuth": object{"users": users}}},
	}}
}

// services is a dynamic configuration with the service vllm.
func services(urls ...string) object {
	servers := []object{}
	for _, url := range urls {
		servers = append(servers, object{"url": url})
	}
	return object{"http": object{"services": object{"vllm": object{"loadBalancer": object{"servers": servers}}}}}
}

// fileSource is a file in the file provider's folder.
type fileSource struct{ e *engine.Official }

func (s *fileSource) set(t *testing.T, urls ...string) {
	t.Helper()
	if err := s.e.Write("workers.yml", services(urls...)); err != nil {
		t.Fatal(err)
	}
}

// httpSource is the endpoint of the HTTP provider.
type httpSource struct {
	*httptest.Server
	answer atomic.Value // string
}

func startHTTPSource(t *testing.T) *httpSource {
	t.Helper()
	s := &httpSource{}
	s.answer.Store(`{}`)
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, s.answer.Load())
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *httpSource) set(t *testing.T, urls ...string) {
	t.Helper()
	text, err := json.Marshal(services(urls...))
	if err != nil {
		t.Fatal(err)
	}
	s.answer.Store(string(text))
}

// redisSource is a key-value store.
type redisSource struct {
	address, port string
	keys          int // servers that have been written
}

// startRedis runs a Redis server until the test ends; nil if there is none on this machine.
func startRedis(t *testing.T) *redisSource {
	t.Helper()
	binary, err := exec.LookPath("redis-server")
	if err != nil {
		return nil
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &redisSource{address: l.Addr().String()}
	_, s.port, _ = net.SplitHostPort(s.address)
	l.Close()
	free, err := process.HoldPort(s.address) // until Redis has it, which asks for this very one
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = free() })
	cmd := exec.Command(binary, "--port", s.port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", t.TempDir())
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // an error means that it has ended
		_ = cmd.Wait()
	})
	eventually(t, 10*time.Second, func() error {
		out, err := exec.Command("redis-cli", "-p", s.port, "ping").CombinedOutput()
		if err != nil || !strings.Contains(string(out), "PONG") {
			return fmt.Errorf("redis-cli ping: %w: %s", err, out)
		}
		return nil
	})
	return s
}

// set writes all keys in one step, as a careful program does.
func (s *redisSource) set(t *testing.T, urls ...string) {
	t.Helper()
	const prefix = "traefik/http/services/vllm/loadbalancer/servers/"
	lines := []string{"MULTI"}
	for i, url := range urls {
		lines = append(lines, "SET "+prefix+strconv.Itoa(i)+"/url "+url)
	}
	for i := len(urls); i < s.keys; i++ {
		lines = append(lines, "DEL "+prefix+strconv.Itoa(i)+"/url")
	}
	s.keys = max(s.keys, len(urls))
	cmd := exec.Command("redis-cli", "-p", s.port)
	cmd.Stdin = strings.NewReader(strings.Join(append(lines, "EXEC"), "\n") + "\n")
	if out, err := cmd.CombinedOutput(); err != nil || strings.Contains(string(out), "ERR") {
		t.Fatalf("redis-cli: %v: %s", err, out)
	}
}
