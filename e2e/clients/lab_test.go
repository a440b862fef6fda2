package clients

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/cart-llm/cart/e2e/engine"
	"github.com/cart-llm/cart/e2e/replica"
	"github.com/cart-llm/cart/e2e/traefik"
)

// model is what all simulated replicas serve.
const model = "sim"

// pool is a middleware of its own, for one kind of story.
type pool struct {
	replicas int
	options  replica.Options
	config   engine.Config // merged over what all have in common
}

// pools are by the first part of their routers' paths: http://127.0.0.1:PORT/main/v1/... .
var pools = map[string]pool{
	// Nothing goes wrong here.
	"main": {replicas: 3, options: replica.Options{CacheTokens: 2 << 20}, config: engine.Config{"maxLoad": 50}},
	// Answers take so long that clients give up.
	"slow": {replicas: 2, options: replica.Options{DecodeRate: 10}, config: engine.Config{"maxLoad": 50}},
	// The replicas fail on command.
	"faulty": {replicas: 2},
	// There is place for one.
	"full": {replicas: 1, options: replica.Options{DecodeRate: 10}, config: engine.Config{"maxLoad": 1}},
	// What CART itself refuses, or does not wait for.
	"small": {replicas: 1, config: engine.Config{"proxy": engine.Config{"maxBodyBytes": 4096}}},
	"picky": {replicas: 1, config: engine.Config{"proxy": engine.Config{"remoteMediaUrlPolicy": 400}}},
	"hasty": {replicas: 1, config: engine.Config{"proxy": engine.Config{"firstByteTimeout": "300ms"}}},
	"empty": {},
}

// lab is an official Traefik with some pools.
type lab struct {
	t        *testing.T
	traefik  *engine.Official
	replicas map[string]*replica.Replica // the simulated ones, by address
	pools    map[string]poolAddress
	dir      string
}

// poolAddress is what the tests in other languages have to know of a pool.
type poolAddress struct {
	URL      string   `json:"url"`
	Replicas []string `json:"replicas"`
}

func newLab(t *testing.T) *lab {
	t.Helper()
	return &lab{
		t: t, traefik: engine.StartOfficial(t, nil, 0), replicas: map[string]*replica.Replica{}, pools: map[string]poolAddress{},
		dir: t.TempDir(),
	}
}

// startLab runs all pools of simulated replicas.
func startLab(t *testing.T) *lab {
	t.Helper()
	l := newLab(t)
	configs := map[string]engine.Config{}
	for name, p := range pools {
		l.startPool(name, p)
		configs[name] = p.config
	}
	l.configure(configs)
	l.write(model)
	return l
}

func (l *lab) startPool(name string, p pool) {
	l.t.Helper()
	urls := []string{}
	p.options.Models = []string{model}
	for i := 0; i < p.replicas; i++ {
		one, err := replica.Start(p.options)
		if err != nil {
			l.t.Fatal(err)
		}
		l.t.Cleanup(one.Kill)
		l.replicas[one.URL()] = one
		urls = append(urls, one.URL())
	}
	l.addPool(name, urls)
}

func (l *lab) addPool(name string, replicas []string) {
	l.pools[name] = poolAddress{URL: l.traefik.URL() + "/" + name, Replicas: replicas}
}

// configure gives each pool a router, which takes the pool's name off the path. The configurations are merged over what all
// have in common.
func (l *lab) configure(configs map[string]engine.Config) {
	l.t.Helper()
	routers, middlewares := map[string]any{}, map[string]any{}
	for name, config := range configs {
		workers := []any{}
		for _, url := range l.pools[name].Replicas {
			workers = append(workers, engine.Config{"url": url})
		}
		config = engine.Merged(engine.Config{
			"workers": workers, "logLevel": "error", "health": engine.Config{"interval": "1s"},
			"proxy": engine.Config{"addDecisionHeaders": true, "initialBackoff": "10ms"},
		}, config)
		middlewares[name] = map[string]any{"plugin": map[string]any{traefik.Alias: config}}
		middlewares["strip-"+name] = map[string]any{"stripPrefix": map[string]any{"prefixes": []string{"/" + name}}}
		routers[name] = map[string]any{
			"rule": "PathPrefix(`/" + name + "`)", "entryPoints": []string{traefik.EntryPoint},
			"middlewares": []string{"strip-" + name, name}, "service": "noop@internal",
		}
	}
	dynamic := map[string]any{"http": map[string]any{"routers": routers, "middlewares": middlewares}}
	if err := l.traefik.Write("clients.yml", dynamic); err != nil {
		l.t.Fatal(err)
	}
	if err := l.traefik.WaitApplied(l.t.Context()); err != nil {
		l.t.Fatal(err)
	}
	for name := range configs {
		if why := l.traefik.MiddlewareError(name); why != "" {
			l.t.Fatalf("the middleware %s cannot be built: %s", name, why)
		}
	}
}

func (l *lab) labFile() string  { return filepath.Join(l.dir, "lab.json") }
func (l *lab) sentFile() string { return filepath.Join(l.dir, "sent.jsonl") }

// write tells the tests in other languages where everything is.
func (l *lab) write(model string) {
	l.t.Helper()
	content, err := json.Marshal(map[string]any{"model": model, "pools": l.pools, "sent": l.sentFile()})
	if err == nil {
		err = os.WriteFile(l.labFile(), content, 0o644)
	}
	if err != nil {
		l.t.Fatal(err)
	}
}

// checkIdle waits until neither CART nor a replica counts a request any more.
func (l *lab) checkIdle(t *testing.T) {
	t.Helper()
	for name := range l.pools {
		for deadline := time.Now().Add(15 * time.Second); ; time.Sleep(10 * time.Millisecond) {
			err := l.idle(name)
			if err == nil {
				break
			}
			if time.Now().After(deadline) {
				t.Error(err)
				break
			}
		}
	}
}

func (l *lab) idle(name string) error {
	resp, err := l.traefik.Client().Get(l.pools[name].URL + "/workers")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	var state struct {
		Workers []struct {
			URL  string `json:"url"`
			Load int    `json:"load"`
		} `json:"workers"`
	}
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, &state); err != nil || resp.StatusCode != http.StatusOK {
		return fmt.Errorf("GET /%s/workers = %s %s, %w", name, resp.Status, text, err)
	}
	if len(state.Workers) != len(l.pools[name].Replicas) {
		return fmt.Errorf("pool %s: %d workers, want %d", name, len(state.Workers), len(l.pools[name].Replicas))
	}
	for _, w := range state.Workers {
		running := 0
		if one := l.replicas[w.URL]; one != nil {
			running = one.Running()
		}
		if w.Load != 0 || running != 0 {
			return fmt.Errorf("pool %s: %s has load %d in CART and %d requests running, want none", name, w.URL, w.Load, running)
		}
	}
	return nil
}
