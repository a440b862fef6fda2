package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// cart runs the command in the folder with the test data.
func cart(t *testing.T, dir string, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	t.Chdir(dir)
	var out, errs bytes.Buffer
	status = run(args, &out, &errs)
	return status, out.String(), errs.String()
}

const (
	urlAllowed    = "http:// or https://"
	wholeFrom1    = "a whole number from 1 to 1048576"
	noConfigKinds = "want http.middlewares.NAME.plugin.cart"
)

// wrong are files with mistakes, and what the line about each has to name: where, the key, the value, what is allowed.
var wrong = []struct {
	file  string
	lines [][]string
}{
	{"unknown-key.yml", [][]string{{"unknown-key.yml:8: ", "http.middlewares.cart", "cache.treshold", `"0.500000"`, "did you mean cache.threshold?"}}},
	{"flat-key.yml", [][]string{{"flat-key.yml:7: ", "cache.threshold", `"0.500000"`, "write cache: {threshold: ...}"}}},
	{"worker-urls.yml", [][]string{
		{"worker-urls.yml:7: ", "workers[0].url", `"10.0.0.1:8000"`, urlAllowed},
		{"worker-urls.yml:9: ", "workers[1].maxLoad", `"0"`, wholeFrom1},
		{"worker-urls.yml:10: ", "workers[2].url", `"http://10.0.0.2:8000"`, "each replica once; workers[1] is the same"},
		{"worker-urls.yml:11: ", "workers[3].url", `""`, urlAllowed},
	}},
	{"number.toml", [][]string{
		{"number.toml:2: ", "cache.threshold", `"2.500000"`, "a number from 0 to 1"},
		{"number.toml:6: ", "workers[0].maxLoad", `"many"`, wholeFrom1},
	}},
	{"statuses.toml", [][]string{{"statuses.toml:2: ", "proxy.retryStatuses", `"200"`, "a whole number from 400 to 599"}}},
	{"duration.json", [][]string{{"duration.json:8: ", "health.interval", `"10 seconds"`, "10s, 1m30s or 30 (seconds)"}}},
	{"empty-map.yml", [][]string{{"empty-map.yml:6: ", "health = a map without values is not allowed (give it a value, or leave health out)"}}},
	{"kinds.yml", [][]string{
		{"kinds.yml:6: ", "cache", `"fast"`, "a map with keys such as threshold"},
		{"kinds.yml:7: ", "workers", `"http://10.0.0.1:8000"`, "a list of maps with keys such as url"},
		{"kinds.yml:8: ", "maxLoad", "a map with general", "one value"},
		{"kinds.yml:10: ", "health.headers", "a list of 1", "a map of names and values"},
		{"kinds.yml:12: ", "proxy.retryStatuses", "a list of 1", "a list of values"},
	}},
	{"manifest.yml", [][]string{{"manifest.yml:16: ", "Middleware llm/cart", "circuitBreaker.failureThreshold", `"0"`, "a whole number from 1 to 1000"}}},
	{"list.json", [][]string{{"list.json:3: ", "Middleware cart", "logLevel", `"loud"`, "one of debug, info, warn, error"}}},
	{"compose.yml", [][]string{
		{"compose.yml:8: ", "service traefik", "workers[0].maxLoad", `"-1"`, wholeFrom1},
		{"compose.yml:13: ", "service swarm", "policy", `"fast"`, "one of threshold, cost, leastLoad"},
	}},
	{"labels-index.txt", [][]string{
		{"labels-index.txt:1: ", "label traefik.http.middlewares.cart.plugin.cart.workers0].url", "want an index as in workers[0].url"},
	}},
	{"labels.txt", [][]string{{"labels.txt:3: ", "workers[0].weight", `"3"`, "no such key"}}},
	{"syntax.yml", [][]string{{"syntax.yml:5: ", "not YAML", "expected ',' or ']'"}}},
	{"syntax.toml", [][]string{{"syntax.toml:2: ", "not TOML", "but got '2' instead"}}},
	{"twice.yml", [][]string{{"twice.yml:8: ", `"policy" already defined at line 6`}}},
	{"other.yml", [][]string{{"other.yml: ", "no configuration of CART", "http.middlewares.auth (basicAuth)", "http.middlewares.guard (plugin.bouncer)", "--plugin"}}},
	{"rust.yml", [][]string{{"rust.yml:1: ", "Rust cache-aware-router", "cart migrate"}}},
	{"static.yml", [][]string{{"static.yml:1: ", "does not load the plugin", "moduleName: github.com/cart-llm/cart"}}},
	{"renamed.yml", [][]string{{"renamed.yml:7: ", "http.middlewares.cart.plugin.router", "circuitBreaker.timeout", `"0"`, "a duration above 0"}}},
	{"files.yml", [][]string{
		{"files.yml:8: ", "workers[0].apiKeyFile", `"/nonexistent/key"`, "a readable file with one key"},
		{"files.yml:10: ", "tls.caFile", `"/nonexistent/ca.pem"`, "PEM certificates"},
		{"files.yml:11: ", "tls.certFile", `"/nonexistent/cert.pem"`, "with its key in tls.keyFile"},
	}},
	{"discovery.yml", [][]string{
		{"discovery.yml:7: ", "discovery.service", `"vllm"`, "with its provider, such as vllm@docker"},
		{"discovery.yml:8: ", "discovery.dns", `"http://vllm:8000"`, "either discovery.service or discovery.dns"},
		{"discovery.yml:9: ", "discovery.interval", `"1ms"`, "a duration from 100ms"},
		{"discovery.yml:11: ", "discovery.api.address", `"127.0.0.1:8080"`, urlAllowed},
		{"discovery.yml:12: ", "discovery.api.pasword", `"..."`, "did you mean discovery.api.password?"},
	}},
	{"template.yml", [][]string{{"template.yml: ", "maxLoad", `"none"`, wholeFrom1}}},
	{"template-error.yml", [][]string{{"template-error.yml:6: ", `"nosuchfunction" not defined`}}},
	{"bare.yml", [][]string{
		{"bare.yml:1: ", "policy", `"fastest"`, "one of threshold, cost, leastLoad, roundRobin, random"},
		{"bare.yml:2: ", "endpoints.workers", `"/x"`, "differs from endpoints.health"},
		{"bare.yml:3: ", "cache.maxTreeBytes", `"12 MB"`, "KiB, MiB or GiB"},
		{"bare.yml:4: ", "proxy.jitterFactor", `"-1"`, "a number from 0 to 1"},
		{"bare.yml:4: ", "proxy.remoteMediaUrlPolicy", `"200"`, "a whole number from 400 to 599"},
		{"bare.yml:4: ", "proxy.addRoutedPeerHeader", `"yes please"`, "true or false"},
	}},
	{"toplevel.yml", [][]string{{"toplevel.yml:1: ", "a map has to be at the top"}}},
	{"ending.conf", [][]string{{"ending.conf: ", `".conf"`, "want .yml, .yaml, .toml or .json"}}},
	{"nothing.yml", [][]string{{"nothing.yml: ", "no configuration of CART", noConfigKinds}}},
	{"missing.yml", [][]string{{"missing.yml: ", "no such file"}}},
	{"levels.yml", [][]string{
		{"levels.yml:6: ", "threshold", `"0.500000"`, "it belongs in cache.threshold"},
		{"levels.yml:7: ", "interval", `"5s"`, "it belongs in discovery.interval, health.interval, health.metrics.interval or health.models.interval"},
		{"levels.yml:8: ", "addDecisionHeaders", `"true"`, "it belongs in proxy.addDecisionHeaders"},
		{"levels.yml:9: ", "endpoint = a map with explain ", "did you mean endpoints?"},
		{"levels.yml:11: ", "maxLoad", `"5"`, "the same key as maxLOAD, which is there in another spelling: keep one of them"},
		{"levels.yml:12: ", "cache.header", `"12"`, "see docs/settings.md"},
	}},
}

func TestCheck_namesEachFault(t *testing.T) {
	for _, row := range wrong {
		t.Run(row.file, func(t *testing.T) {
			args := []string{"check", row.file}
			if filepath.Ext(row.file) == ".txt" {
				args = append(args, "--labels")
			}
			status, stdout, _ := cart(t, "testdata/wrong", args...)
			want := exitFault
			if row.file == "missing.yml" {
				want = exitUsage
			}
			if status != want {
				t.Errorf("cart check %s = %d, want %d", row.file, status, want)
			}
			lines := strings.Split(strings.TrimSpace(stdout), "\n")
			if len(lines) != len(row.lines) {
				t.Fatalf("cart check %s prints %d lines, want %d:\n%s", row.file, len(lines), len(row.lines), stdout)
			}
			for i, names := range row.lines {
				if !strings.HasPrefix(lines[i], names[0]) {
					t.Errorf("line %d = %q, want %q at its beginning", i+1, lines[i], names[0])
				}
				for _, name := range names[1:] {
					if !strings.Contains(lines[i], name) {
						t.Errorf("line %d = %q, want %q in it", i+1, lines[i], name)
					}
				}
			}
		})
	}
}

// TestCheck_secrets: what may be a secret is not in a message.
func TestCheck_secrets(t *testing.T) {
	dir := t.TempDir()
	for _, content := range []string{
		"workers: [{url: http://a, headers: Bearer hunter2}]\n",
		"workers: [{url: 'http://user:hunter2@a:port'}]\n",
		"workers: [{url: http://a, headers: {Authorization: [hunter2]}}]\n",
		"health: {headers: {'X Y': hunter2}}\n",
		"health: {headers: [hunter2]}\n",
		"workers: [{url: http://a, apiKey: hunter2}]\n",
		"discovery: {service: a@docker, api: {user: a, password: hunter2, Password: hunter22}}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, "a.yml"), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		status, stdout, stderr := cart(t, dir, "check", "a.yml")
		if status != exitFault || strings.Contains(stdout+stderr, "hunter2") {
			t.Errorf("cart check of %q = %d, %q, %q, want 1 and no secret", content, status, stdout, stderr)
		}
	}
	status, _, stderr := migrateText(t, "workers: [{url: 'http://user:hunter2@a:8000'}]\n")
	if status != exitGood || !strings.Contains(stderr, "http://user:xxxxx@a:8000") || strings.Contains(stderr, "hunter2") {
		t.Errorf("cart migrate of an address with a password = %d, %q, want 0 and no password", status, stderr)
	}
}

// TestCheck_allWrongFiles: no file in the folder is left out of the table.
func TestCheck_allWrongFiles(t *testing.T) {
	files, err := os.ReadDir("testdata/wrong")
	if err != nil || len(files) < 20 {
		t.Fatalf("testdata/wrong has %d files, %v, want at least 20", len(files), err)
	}
	rows := map[string]bool{}
	for _, row := range wrong {
		rows[row.file] = true
	}
	for _, f := range files {
		if !rows[f.Name()] {
			t.Errorf("testdata/wrong/%s is not in the table", f.Name())
		}
	}
}

// layers are files that are laid over each other: the good ones come to the summary, the others have the fault.
var layers = []struct {
	what  string
	files map[string]string
	order string
	want  string
}{
	{"the later value counts", map[string]string{"a.yml": "maxLoad: 0\npolicy: random\n", "b.yml": "maxLoad: 5\n"}, "a.yml b.yml", "b.yml:1: configuration: good: 0 workers, policy random"},
	{"in the order given", map[string]string{"a.yml": "maxLoad: 0\n", "b.yml": "maxLoad: 5\n"}, "b.yml a.yml", "a.yml:1: configuration: maxLoad"},
	{"maps are merged", map[string]string{"a.yml": "cache: {threshold: 7, maxTreeSize: 1000}\n", "b.yml": "\ncache: {maxTreeSize: 2000}\n"}, "a.yml b.yml", "a.yml:1: configuration: cache.threshold"},
	{"at every depth", map[string]string{"a.yml": "proxy: {maxRetries: 1}\n", "b.yml": "proxy: {maxRetries: -1}\n"}, "a.yml b.yml", "b.yml:1: configuration: proxy.maxRetries"},
	{"lists are replaced", map[string]string{"a.yml": "workers: [{url: http://a}, {url: http://b, maxLoad: 0}]\n", "b.yml": "workers: [{url: http://c}]\n"}, "a.yml b.yml", "good: 1 worker,"},
	{"a value replaces a list", map[string]string{"a.yml": "proxy: {retryStatuses: [1, 2]}\n", "b.yml": "proxy: {retryStatuses: 503}\n"}, "a.yml b.yml", "good: 0 workers"},
	{"an empty file changes nothing", map[string]string{"a.yml": "policy: random\n", "b.yml": "", "c.yml": "# nothing yet\n", "d.toml": "# nothing\n", "e.yml": "---\n"}, "a.yml b.yml c.yml d.toml e.yml", "policy random"},
	{"null changes nothing", map[string]string{"a.yml": "policy: random\ncache: {threshold: 0.1}\n", "b.yml": "policy:\ncache: null\n"}, "a.yml b.yml", "policy random"},
	{"TOML over YAML", map[string]string{"a.yml": "workers: [{url: http://a}]\n", "b.toml": "policy = \"roundRobin\"\n"}, "a.yml b.toml", "good: 1 worker, policy roundRobin"},
	{"the middleware in two files", map[string]string{
		"a.yml": "http: {middlewares: {cart: {plugin: {cart: {policy: random, maxLoad: 3}}}}}\n",
		"b.yml": "http: {middlewares: {cart: {plugin: {cart: {maxLoad: no}}}}}\n"}, "a.yml b.yml", `b.yml:1: http.middlewares.cart: maxLoad = "no"`},
	{"three files", map[string]string{"a.yml": "policy: random\n", "b.yml": "policy: leastLoad\n", "c.yml": "policy: roundRobin\n"}, "a.yml b.yml c.yml", "policy roundRobin"},
}

func TestCheck_laysFilesOverEachOther(t *testing.T) {
	for _, row := range layers {
		t.Run(row.what, func(t *testing.T) {
			dir := t.TempDir()
			for name, content := range row.files {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want := exitGood
			if !strings.Contains(row.want, "good:") && !strings.HasPrefix(row.want, "policy") {
				want = exitFault
			}
			status, stdout, _ := cart(t, dir, append([]string{"check"}, strings.Fields(row.order)...)...)
			if status != want || !strings.Contains(stdout, row.want) || strings.Count(stdout, "\n") != 1 {
				t.Errorf("cart check %s = %d, %q, want %d and one line with %q", row.order, status, stdout, want, row.want)
			}
		})
	}
}

// TestCheck_good: what is right is said to be, with what it comes to.
func TestCheck_good(t *testing.T) {
	forms := "../../internal/traefik/testdata/forms/plain"
	for _, row := range []struct {
		args []string
		want string
	}{
		{[]string{"file.yml"}, "file.yml:5: http.middlewares.cart: good: 2 workers, policy threshold\n"},
		{[]string{"file.toml"}, "file.toml:1: http.middlewares.cart: good: 2 workers, policy threshold\n"},
		{[]string{"http.json"}, "http.json:6: http.middlewares.cart: good: 2 workers, policy threshold\n"},
		{[]string{"manifest.yml"}, "manifest.yml:7: Middleware cart: good: 2 workers, policy threshold\n"},
		{[]string{"labels.txt", "--labels"}, "labels.txt:1: labels: http.middlewares.cart: good: 2 workers, policy threshold\n"},
		{[]string{"file.yml", "-q"}, ""},
		{[]string{"--no-files", "../full/file.toml"}, "../full/file.toml:1: http.middlewares.cart: good: replicas of the service vllm@docker, policy leastLoad\n"},
		{[]string{"../dns/labels.txt", "--labels"}, "../dns/labels.txt:1: labels: http.middlewares.cart: good: replicas by DNS, policy threshold\n"},
	} {
		t.Run(strings.Join(row.args, " "), func(t *testing.T) {
			status, stdout, stderr := cart(t, filepath.Join("testdata", forms), append([]string{"check"}, row.args...)...)
			if strings.Contains(row.want, "policy leastLoad") { // which has settings of all policies
				stderr = strings.TrimPrefix(stderr, "note: ../full/file.toml:38: ")
				stderr = stderr[strings.LastIndex(stderr, "does not use it"):]
				stderr = strings.TrimPrefix(stderr, "does not use it, only threshold does\n")
			}
			if status != exitGood || stdout != row.want || stderr != "" {
				t.Errorf("cart check %v = %d, %q, %q, want 0 and %q", row.args, status, stdout, stderr, row.want)
			}
		})
	}
}

// TestCheck_oneFile: a file that holds both of Traefik's configurations is checked for the dynamic one, under the name that the
// static one gives the plugin.
func TestCheck_oneFile(t *testing.T) {
	dir := t.TempDir()
	config := `entryPoints: {web: {address: ":80"}}
experimental: {localPlugins: {router: {moduleName: github.com/cart-llm/cart}}}
providers: {file: {filename: traefik.yml}}
http: {middlewares: {a: {plugin: {router: {workers: [{url: "http://a"}], cache: {threshold: 2}}}}}}
`
	if err := os.WriteFile(filepath.Join(dir, "traefik.yml"), []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	status, stdout, _ := cart(t, dir, "check", "traefik.yml")
	if want := "traefik.yml:4: http.middlewares.a.plugin.router: cache.threshold"; status != exitFault || !strings.HasPrefix(stdout, want) {
		t.Errorf("cart check = %d, %q, want 1 and %q", status, stdout, want)
	}
}

// TestCheck_noFiles: a password that stands in a file is one, also where the file is not.
func TestCheck_noFiles(t *testing.T) {
	dir := t.TempDir()
	config := "discovery: {service: vllm@docker, api: {user: cart, passwordFile: /run/secrets/api}}\n"
	if err := os.WriteFile(filepath.Join(dir, "cart.yml"), []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	if status, stdout, _ := cart(t, dir, "check", "--no-files", "cart.yml"); status != exitGood || !strings.Contains(stdout, "good: replicas of the service vllm@docker") {
		t.Errorf("cart check --no-files = %d, %q, want 0", status, stdout)
	}
	if status, stdout, _ := cart(t, dir, "check", "cart.yml"); status != exitFault || !strings.Contains(stdout, "passwordFile") {
		t.Errorf("cart check = %d, %q, want 1 for the file that is not there", status, stdout)
	}
}

// TestCheck_pluginName: the plugin is known by the name that --plugin or a static configuration gives it.
func TestCheck_pluginName(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{
		"dynamic.yml": "http: {middlewares: {m: {plugin: {kv: {logLevel: loud}}}, n: {plugin: {cart: {logLevel: shrill}}}}}\n",
		"static.yml":  "experimental: {plugins: {kv: {moduleName: github.com/cart-llm/cart, version: v1.0.0}}}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for args, want := range map[string]string{
		"dynamic.yml":             "shrill",
		"dynamic.yml --plugin kv": "loud",
		"static.yml dynamic.yml":  "loud",
		"dynamic.yml static.yml":  "loud",
		"dynamic.yml --plugin x":  `no configuration of a plugin called "x"`,
	} {
		status, stdout, _ := cart(t, dir, append([]string{"check"}, strings.Fields(args)...)...)
		if status != exitFault || !strings.Contains(stdout, want) || strings.Count(stdout, "\n") != 1 {
			t.Errorf("cart check %s = %d, %q, want 1 and one line with %q", args, status, stdout, want)
		}
	}
}

// TestCheck_notes: Traefik does not merge a middleware out of two files, which a check of both has to tell.
func TestCheck_notes(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{
		"a.yml": "http: {middlewares: {cart: {plugin: {cart: {policy: random}}}}}\n",
		"b.yml": "http: {middlewares: {cart: {plugin: {cart: {maxLoad: 3}}}}}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	status, _, stderr := cart(t, dir, "check", "a.yml", "b.yml")
	if status != exitGood || !strings.Contains(stderr, "note: http.middlewares.cart is in a.yml and b.yml") {
		t.Errorf("cart check a.yml b.yml = %d, %q, want 0 and a note", status, stderr)
	}
}

// TestUsage: a command line that makes no sense is told apart from a fault by its status.
func TestUsage(t *testing.T) {
	for args, want := range map[string]string{
		"":                       "a command is missing",
		"frobnicate":             `unknown command "frobnicate"`,
		"check":                  "no file to check",
		"check -x a.yml":         "unknown shorthand flag",
		"check --plugin":         "flag needs an argument",
		"migrate":                "no file to migrate",
		"migrate --api x y.yaml": "want HOST:PORT",
		"migrate nowhere":        "no such file",
	} {
		status, stdout, stderr := cart(t, t.TempDir(), strings.Fields(args)...)
		if status != exitUsage || stdout != "" || !strings.Contains(stderr, want) {
			t.Errorf("cart %s = %d, %q, %q, want 2 and %q", args, status, stdout, stderr, want)
		}
	}
	for _, args := range []string{"--help", "check --help", "migrate --help", "help check", "--version"} {
		if status, stdout, _ := cart(t, t.TempDir(), strings.Fields(args)...); status != exitGood || stdout == "" {
			t.Errorf("cart %s = %d, %q, want 0 and a text", args, status, stdout)
		}
	}
}

// TestCheck_readsStandardInput: what kubectl prints goes into cart check by a pipe.
func TestCheck_readsStandardInput(t *testing.T) {
	list := `apiVersion: v1
kind: List
items:
  - apiVersion: traefik.io/v1alpha1
    kind: Middleware
    metadata: {name: cart, namespace: llm}
    spec: {plugin: {cart: {workers: [{url: "http://a:8000"}], maxLoad: %s}}}
  - apiVersion: traefik.io/v1alpha1
    kind: Middleware
    metadata: {name: strip, namespace: llm}
    spec: {stripPrefix: {prefixes: [/v1]}}
`
	for _, row := range []struct {
		maxLoad string
		status  int
		want    string
	}{
		{"12", exitGood, "good: 1 worker, policy threshold"},
		{"none", exitFault, `maxLoad`},
	} {
		pipe, in, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(in, list, row.maxLoad)
		in.Close()
		before := os.Stdin
		os.Stdin = pipe
		var out, errs bytes.Buffer
		status := run([]string{"check", "-"}, &out, &errs)
		os.Stdin = before
		pipe.Close()
		if status != row.status || !strings.Contains(out.String()+errs.String(), row.want) {
			t.Errorf("check - of a list with maxLoad %s = %d, %s%s, want %d and %q", row.maxLoad, status, &out, &errs, row.status, row.want)
		}
	}
}
