package main

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cart-llm/cart/cmd/internal/layer"
)

var update = flag.Bool("update", false, "rewrite what full.yaml migrates to")

var migrated = []string{"traefik.yml", "dynamic/cart.yml", "dynamic/workers.yml"}

// TestMigrate_full: a configuration with every key there is migrates without a rest, and what comes out is good.
func TestMigrate_full(t *testing.T) {
	to := t.TempDir()
	status, _, account := cart(t, "testdata/rust", "migrate", "full.yaml", "-o", to)
	if status != exitGood {
		t.Errorf("cart migrate full.yaml = %d, want 0:\n%s", status, account)
	}
	for _, name := range migrated {
		got, err := os.ReadFile(filepath.Join(to, name))
		if err != nil {
			t.Fatal(err)
		}
		golden := filepath.Join("full", name)
		if *update {
			if err := os.WriteFile(golden, got, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if want, err := os.ReadFile(golden); err != nil || string(got) != string(want) {
			t.Errorf("%s = %s, %v, want %s", name, got, err, want)
		}
	}
	status, stdout, _ := cart(t, to, append([]string{"check"}, migrated...)...)
	if status != exitGood || !strings.Contains(stdout, "dynamic/cart.yml:") {
		t.Errorf("cart check of what came out = %d, %q, want 0", status, stdout)
	}
}

// TestMigrate_accountsForEveryKey: each key of the source has a line that says what became of it.
func TestMigrate_accountsForEveryKey(t *testing.T) {
	_, _, account := cart(t, "testdata/rust", "migrate", "full.yaml")
	documents, mistakes := layer.Read("full.yaml", func([]*layer.Node) bool { return false })
	if len(documents) != 1 || len(mistakes) > 0 {
		t.Fatalf("Read(full.yaml) = %d documents, %v, want one", len(documents), mistakes)
	}
	keys := 0
	var check func(n *layer.Node)
	check = func(n *layer.Node) {
		list, isList := n.List()
		for _, element := range list {
			check(element)
		}
		for _, key := range n.Keys() {
			check(n.Get(key))
		}
		if _, isMap := n.Map(); isMap || isList {
			return
		}
		keys++
		if strings.Count(account, n.At.String()+": ") != 1 {
			t.Errorf("the account has %d lines for %s, want 1:\n%s", strings.Count(account, n.At.String()+": "), n.At, account)
		}
	}
	check(documents[0])
	if keys != 35 {
		t.Errorf("full.yaml has %d keys, want 35", keys)
	}
}

// conversions are keys of the Rust router, what is to be in the result, and what in the account.
var conversions = []struct{ what, source, result, account string }{
	{"seconds", "health: {interval_secs: 7}", "interval: 7s", "config.yaml:2: health.interval_secs = 7: health.interval = 7s"},
	{"milliseconds", "health: {timeout_ms: 1500}", "timeout: 1500ms", "health.timeout = 1500ms"},
	{"minutes", "circuit_breaker: {timeout_mins: 2}", "timeout: 2m", "circuitBreaker.timeout = 2m"},
	{"a duration as a text", "health: {interval: 1m30s}", "interval: 1m30s", "health.interval = 1m30s: health.interval"},
	{"a text with a unit behind a key with one", "health: {interval_secs: 500ms}", "interval: 500ms", "health.interval_secs = 500ms: health.interval"},
	{"a number without a unit is of seconds", "health: {interval: 7}", "interval: 7s", "health.interval = 7s"},
	{"0 turned the absolute threshold off", "cache: {match_abs_threshold: 0}", "matchAbsThreshold: 1073741824", "0 turned it off"},
	{"0 turned eviction off", "cache: {eviction_interval_secs: 0}", "evictionInterval: 0s", "grow without bound"},
	{"any hour below 0 is none", "cache: {daily_cleanup_hour_utc: -7}", "dailyCleanupHourUtc: -1", "cache.dailyCleanupHourUtc = -1"},
	{"200 allows remote media", "proxy: {remote_media_url_policy: 200}", "", "left out of dynamic/cart.yml: 200 allows remote media"},
	{"the header stays off", "proxy: {max_retries: 1}", "addRoutedPeerHeader: false", "proxy.add_routed_peer_header: not set"},
	{"a list", "proxy: {retry_statuses: [429, 503]}", "retryStatuses: [429, 503]", "[429, 503]: proxy.retryStatuses"},
	{"a section within one", "proxy: {circuit_breaker: {failure_threshold: 3}}", "failureThreshold: 3", "circuitBreaker.failureThreshold"},
	{"what the Rust router does not have", "cache: {max_tree_bytes: 1MiB}\npolicy: random", "maxTreeBytes: 1MiB", "policy = random: policy"},
	{"level trace", "logging: {level: trace}", "logLevel: debug", "logLevel = debug"},
	{"a filter", "logging: {level: 'warn,cache_aware_router=error'}", "logLevel: error", "no filters by module"},
	{"the format", "logging: {format: JSON}", "logFormat: json", "logging.format = JSON: logFormat"},
	{"the format as a text", "log: {format: text}", "logFormat: text", "log.format = text: logFormat"},
	{"an empty section", "health:", "", "health: empty, changes nothing"},
	{"the port", "server: {port: 8080}", "address: 127.0.0.1:8081", "server.port = 8080: entryPoints.llm.address"},
	{"the API does not tell others", "policy: random", "address: 127.0.0.1:8080", "server: not set"},
	{"no server", "policy: random", "address: 0.0.0.0:6700", "server: not set: the port stays 6700"},
	{"IPv6", "server: {host: '::'}", "address: '[::]:6700'", "server.host"},
}

func TestMigrate_converts(t *testing.T) {
	for _, row := range conversions {
		t.Run(row.what, func(t *testing.T) {
			status, stdout, stderr := migrateText(t, "workers: [{url: http://127.0.0.1:8001}]\n"+row.source+"\n")
			if status != exitGood || !strings.Contains(stdout, row.result) || !strings.Contains(stderr, row.account) {
				t.Errorf("cart migrate %q = %d\n%s\n%s\nwant 0, %q in the first and %q in the second", row.source, status, stdout, stderr, row.result, row.account)
			}
		})
	}
}

// losses are what cannot be carried over, and what the account says then. The rest is written all the same.
var losses = []struct{ what, source, account string }{
	{"an unknown section", "metrics: {port: 1}", "config.yaml:2: metrics.port = 1: NOT CARRIED OVER: neither"},
	{"an unknown key", "cache: {treshold: 0.5}", "config.yaml:2: cache.treshold = 0.5: NOT CARRIED OVER: neither"},
	{"an unknown key at the top", "sticky: yes", "config.yaml:2: sticky = yes: NOT CARRIED OVER: neither"},
	{"an unknown key of the server", "server: {tls: on}", "config.yaml:2: server.tls = on: NOT CARRIED OVER"},
	{"an unknown unit", "health: {interval_days: 1}", "health.interval_days = 1: NOT CARRIED OVER"},
	{"a port that is none", "server: {port: http}", "server.port = http: NOT CARRIED OVER: want a port"},
	{"a section that is none", "cache: fast", "cache = fast: NOT CARRIED OVER"},
	{"a level that is none", "logging: {level: loud}", "logging.level = loud: NOT CARRIED OVER: want trace, debug"},
	{"a format that is none", "logging: {format: pretty}", "logging.format = pretty: NOT CARRIED OVER: want json or text"},
	{"a secret", "api_key: sk-hunter2", "config.yaml:2: api_key = ...: NOT CARRIED OVER: neither the Rust router nor CART has such a key; CART has workers[].apiKeyFile"},
	{"secrets in a list", "auth: {api_keys: [sk-hunter2, sk-hunter2]}", "auth.api_keys = [..., ...]: NOT CARRIED OVER"},
	{"a secret of the server", "server: {auth_token: sk-hunter2}", "server.auth_token = ...: NOT CARRIED OVER"},
	{"what CART calls otherwise", "timeout: 5", "timeout = 5: NOT CARRIED OVER: neither the Rust router nor CART has such a key; CART has proxy.requestTimeout and health.timeout"},
	{"a value that CART refuses", "cache: {threshold: 2}", `dynamic/cart.yml: cache.threshold = "2" is not allowed (want a number from 0 to 1)`},
}

func TestMigrate_namesWhatIsLost(t *testing.T) {
	for _, row := range losses {
		t.Run(row.what, func(t *testing.T) {
			status, stdout, stderr := migrateText(t, "workers: [{url: http://127.0.0.1:8001, max_load: 3}]\n"+row.source+"\n")
			if status != exitFault || !strings.Contains(stdout, "maxLoad: 3") || !strings.Contains(stderr, row.account) || strings.Contains(stdout+stderr, "hunter2") {
				t.Errorf("cart migrate %q = %d\n%s\n%s\nwant 1 and %q", row.source, status, stdout, stderr, row.account)
			}
		})
	}
	for source, want := range map[string]string{
		"workers: [{url: http://a, weight: 3}]":  "workers[0].weight = 3: NOT CARRIED OVER: a worker has no such setting; CART has workers[].loadPenalty",
		"workers: [{url: http://a, api_key: k}]": "workers[0].api_key = ...: NOT CARRIED OVER: a worker has no such setting; CART has workers[].apiKeyFile",
		"workers: [{max_load: 3}]":               "NOT CARRIED OVER: it has no url",
		"workers: http://a":                      "workers = http://a: NOT CARRIED OVER: want a list",
		"cache: {threshold: 0.5}":                "workers: not set",
	} {
		if status, _, stderr := migrateText(t, source+"\n"); status != exitFault || !strings.Contains(stderr, want) {
			t.Errorf("cart migrate %q = %d, %q, want 1 and %q", source, status, stderr, want)
		}
	}
}

// TestMigrate_refuses: what is no configuration of the Rust router, or would write over files.
func TestMigrate_refuses(t *testing.T) {
	source, err := filepath.Abs("testdata/rust/full.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for content, want := range map[string]string{
		"http: {routers: {}}":         "not one of the Rust router",
		"entryPoints: {}":             "not one of the Rust router",
		"# nothing":                   "there is no configuration in it",
		"workers: [":                  "config.yaml:1: not YAML",
		"workers: []\nworkers: []":    "already defined",
		"- url: http://127.0.0.1:800": "a map has to be at the top",
	} {
		if status, stdout, stderr := migrateText(t, content+"\n"); status != exitUsage || stdout != "" || !strings.Contains(stderr, want) {
			t.Errorf("cart migrate %q = %d, %q, %q, want 2 and %q", content, status, stdout, stderr, want)
		}
	}
	to := t.TempDir()
	if err := os.WriteFile(filepath.Join(to, "traefik.yml"), []byte("mine"), 0o644); err != nil {
		t.Fatal(err)
	}
	status, _, stderr := cart(t, to, "migrate", source, "-o", ".")
	if content, err := os.ReadFile("traefik.yml"); status != exitUsage || !strings.Contains(stderr, "is there already") || err != nil || string(content) != "mine" {
		t.Errorf("cart migrate over a file = %d, %q, and the file is %q, %v; want 2 and the file as it was", status, stderr, content, err)
	}
	if _, err := os.Stat("dynamic"); err == nil {
		t.Error("cart migrate wrote some of the files though another was there")
	}
	if status, _, stderr := cart(t, to, "migrate", source, "-o", ".", "--force"); status != exitGood {
		t.Errorf("cart migrate --force = %d, %q, want 0", status, stderr)
	}
}

// TestMigrate_layers: several files are laid over each other as the Rust router does it.
func TestMigrate_layers(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{
		"base.yaml":    "cache: {threshold: 0.4, max_tree_size: 1000}\nworkers: [{url: http://a}]\n",
		"empty.yaml":   "# nothing yet\n",
		"workers.yaml": "workers: [{url: http://b}, {url: http://c}]\ncache: {threshold: 0.6}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	status, stdout, stderr := cart(t, dir, "migrate", "base.yaml", "empty.yaml", "workers.yaml")
	for _, want := range []string{"threshold: 0.6", "maxTreeSize: 1000", "url: http://b", "url: http://c"} {
		if status != exitGood || !strings.Contains(stdout, want) || strings.Contains(stdout, "http://a") {
			t.Errorf("cart migrate of three files = %d\n%s\n%s\nwant 0, %q and nothing of http://a", status, stdout, stderr, want)
		}
	}
}

// TestMigrate_inline: the workers may be in the middleware, where no API is needed.
func TestMigrate_inline(t *testing.T) {
	to := t.TempDir()
	status, _, account := cart(t, "testdata/rust", "migrate", "full.yaml", "--inline", "-o", to)
	if status != exitGood {
		t.Errorf("cart migrate --inline = %d, want 0:\n%s", status, account)
	}
	if _, err := os.Stat(filepath.Join(to, "dynamic/workers.yml")); err == nil {
		t.Error("cart migrate --inline wrote dynamic/workers.yml, want no such file")
	}
	static, err := os.ReadFile(filepath.Join(to, "traefik.yml"))
	if err != nil || strings.Contains(string(static), "api") {
		t.Errorf("traefik.yml = %s, %v, want no API in it", static, err)
	}
	status, stdout, _ := cart(t, to, "check", "dynamic/cart.yml")
	if status != exitGood || !strings.Contains(stdout, "3 workers") {
		t.Errorf("cart check of it = %d, %q, want 0 and 3 workers", status, stdout)
	}
}

func migrateText(t *testing.T, content string) (status int, stdout, stderr string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "config.yaml"), []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	return cart(t, dir, "migrate", "config.yaml")
}
