package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// notTaken are files that Traefik refuses, or of which it turns a router off, and what the line about each mistake has to name.
// That Traefik does so, and takes those of the folder taken, is what e2e/configs sees to.
var notTaken = map[string][][]string{
	"refused/balancer.yml":         {{":15: ", "http.services.vllm.loadBalanser = a map with servers ", "did you mean http.services.vllm.loadBalancer?"}},
	"refused/bare-plugin.yml":      {{":14: ", "http.middlewares.other.cart = ", "below plugin, as in plugin: {cart: ...}"}, {":17: ", "http.middlewares.third.workers = ", "below plugin.cart"}},
	"refused/bool.yml":             {{":18: ", "http.services.vllm.loadBalancer.passHostHeader = \"on\"", "true or false"}},
	"refused/date.yml":             {{":14: ", "http.middlewares.dated.headers.customResponseHeaders.x-since = 2024-01-01T00:00:00Z ", "in quotes"}},
	"refused/domain.yml":           {{":7: ", "http.routers.llm.domains = a list of 1 ", "it belongs in http.routers.llm.tls.domains"}},
	"refused/duration.yml":         {{":18: ", "http.services.vllm.loadBalancer.healthCheck.interval = \"5 seconds\"", "10s, 1m30s or 30"}},
	"refused/empty-names.yml":      {{":13: ", "http.services = {} ", "no services at all"}, {":14: ", "tcp = a map with nothing in it ", "no tcp at all"}},
	"refused/empty-section.yml":    {{":15: ", "http.services.vllm.loadBalancer = {} ", "no loadBalancer at all"}},
	"refused/flat-service.yml":     {{":15: ", "http.services.vllm.servers = a list of 1 ", "it belongs in http.services.vllm.loadBalancer.servers"}},
	"refused/fraction.yml":         {{":6: ", "http.routers.llm.priority = \"1.5\"", "a whole number"}},
	"refused/further-out.yml":      {{":20: ", "http.services.vllm.loadBalancer.healthCheck.passHostHeader = \"false\"", "further out, beside healthCheck"}},
	"refused/kind.yml":             {{":14: ", "http.middlewares.strip.stripPrefx = ", "did you mean http.middlewares.strip.stripPrefix?"}},
	"refused/list-for-section.yml": {{":15: ", "http.services.vllm.loadBalancer = a list of 1 ", "a map with keys such as sticky, servers, strategy"}},
	"refused/map-for-value.yml":    {{":4: ", "http.routers.llm.rule = a map with PathPrefix ", "one value"}},
	"refused/maps-for-values.yml":  {{":5: ", "http.routers.llm.middlewares[0] = a map with name ", "one value"}},
	"refused/middlewares.yml":      {{":5: ", "http.routers.llm.midlewares = a list of 1 ", "did you mean http.routers.llm.middlewares?"}},
	"refused/nested-list.yml":      {{":5: ", "http.routers.llm.middlewares[0] = a list of 1 ", "want a value"}},
	"refused/nothing-in-list.yml":  {{":5: ", "http.routers.llm.middlewares[1] = nothing ", "want a value"}},
	"refused/number.yml":           {{":6: ", "http.routers.llm.priority = \"high\"", "a whole number"}},
	"refused/other-plugin.yml":     {{": Traefik does not take it: "}},
	"refused/routers.yml":          {{":2: ", "http.router = a map with llm ", "did you mean http.routers?"}},
	"refused/rule.yml":             {{":4: ", "http.routers.llm.rulle = \"PathPrefix(`/v1`)\"", "did you mean http.routers.llm.rule?"}},
	"refused/server.yml":           {{":17: ", "http.services.vllm.loadBalancer.servers[0].ulr = \"http://127.0.0.1:9\"", "servers[0].url?"}},
	"refused/service.yml":          {{":6: ", "http.routers.llm.sevice = \"noop@internal\"", "did you mean http.routers.llm.service?"}},
	"refused/tcp.yml":              {{":15: ", "tcp.routers.db.servise = \"db\"", "did you mean tcp.routers.db.service?"}},
	"refused/text-for-section.yml": {{":15: ", "http.services.vllm.loadBalancer = \"http://127.0.0.1:9\"", "a map with keys such as"}},
	"refused/tls.yml":              {{":15: ", "tls.options.default.minVersions = \"VersionTLS13\"", "did you mean tls.options.default.minVersion?"}},
	"refused/toml.toml":            {{":6: ", "http.routers.llm.entrypoint = a list of 1 ", "did you mean http.routers.llm.entryPoints?"}},
	"refused/top-middlewares.yml":  {{":7: ", "http.middleware = a map with cart ", "did you mean http.middlewares?"}},
	"refused/transport.yml":        {{":14: ", "http.serversTransports.own.insecureSkipVerfy = \"true\"", "insecureSkipVerify?"}},
	"refused/udp.yml":              {{":15: ", "udp.services.dns.loadBalancer.servers[0].adddress = ", "servers[0].address?"}},
	"off/middleware.yml":           {{":5: ", "http.routers.llm.middlewares = \"crat\"", "no such name in http.middlewares; did you mean cart?"}},
	"off/middleware-file.yml":      {{":5: ", "http.routers.llm.middlewares = \"auth\"", "all files of the directory", "auth@docker"}},
	"off/service.yml":              {{":6: ", "http.routers.llm.service = \"vlm\"", "no such name in http.services; did you mean vllm?"}},
	"off/noop.yml":                 {{":6: ", "http.routers.llm.service = \"noop\"", "did you mean noop@internal?"}},
	"off/no-service.yml":           {{":3: ", "http.routers.llm.service = nothing ", "noop@internal"}},
	"off/two-kinds.yml":            {{":8: ", "http.middlewares.cart = plugin and stripPrefix is not allowed (one kind in each middleware)"}},
	"off/two-kinds-empty.yml":      {{":8: ", "http.middlewares.cart = compress, contentType and plugin is not allowed"}},
	"off/two-kinds-service.yml":    {{":7: ", "http.services.vllm = loadBalancer and weighted is not allowed (one kind in each service)"}},
	"off/two-kinds-tcp.yml":        {{":15: ", "tcp.services.db = loadBalancer and weighted is not allowed (one kind in each service)"}},
	"off/two-plugins.yml":          {{":9: ", "http.middlewares.cart.plugin = cart and guard is not allowed (one plugin in each middleware)"}},
	"off/empty-below.yml": {
		{":13: ", "workers[0].headers = a map without values is not allowed (give it a value, or leave workers[0].headers out)"},
		{":15: ", "health.metrics = a map without values"},
		{":18: ", "proxy = a map without values"},
		{":20: ", "cache = a map without values is not allowed (give it a value, or leave cache out)"},
	},
	"off/internal.yml":            {{":5: ", "http.routers.llm.service = \"nope@internal\" is not allowed (Traefik has no such service; did you mean noop@internal?)"}},
	"off/internal-middleware.yml": {{":5: ", "http.routers.llm.middlewares = \"auth@internal\" is not allowed (Traefik has no such middleware; "}},
	"off/tcp.yml":                 {{":15: ", "tcp.routers.db.middlewares = \"lock\"", "tcp.middlewares"}, {":15: ", "tcp.routers.db.service = \"db\"", "tcp.services"}},
}

func TestCheck_dynamicConfigurations(t *testing.T) {
	files, err := filepath.Glob("testdata/dynamic/*/*")
	if err != nil || len(files) < len(notTaken)+8 {
		t.Fatalf("testdata/dynamic has %d files, %v, want at least %d", len(files), err, len(notTaken)+8)
	}
	dir, err := filepath.Abs("testdata/dynamic")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		name := filepath.ToSlash(strings.TrimPrefix(file, filepath.FromSlash("testdata/dynamic/")))
		t.Run(name, func(t *testing.T) {
			want, isWrong := notTaken[name]
			status, stdout, stderr := cart(t, dir, "check", "-q", name)
			if !isWrong {
				if status != exitGood || stdout != "" || strings.HasPrefix(name, "refused") || strings.HasPrefix(name, "off") {
					t.Errorf("cart check %s = %d, %s%s, want 0", name, status, stdout, stderr)
				}
				return
			}
			lines := strings.Split(strings.TrimSpace(stdout), "\n")
			if status != exitFault || len(lines) != len(want) {
				t.Fatalf("cart check %s = %d, %q, want 1 and %d lines", name, status, lines, len(want))
			}
			for i, line := range lines {
				for _, part := range append([]string{name + want[i][0]}, want[i][1:]...) {
					if !strings.Contains(line, part) {
						t.Errorf("line %d = %q, want %q in it", i+1, line, part)
					}
				}
			}
		})
	}
}

// TestCheck_twoKinds: nothing good is said of what is spoiled by a middleware around it.
func TestCheck_twoKinds(t *testing.T) {
	status, stdout, _ := cart(t, "testdata/dynamic/off", "check", "two-kinds.yml")
	if status != exitFault || strings.Contains(stdout, "good") {
		t.Errorf("cart check two-kinds.yml = %d, %q, want 1 and nothing good", status, stdout)
	}
}

// TestCheck_discovery: the service that CART is to follow has to be there as a router's has, if it can be.
func TestCheck_discovery(t *testing.T) {
	const discovery = "http: {middlewares: {cart: {plugin: {cart: {discovery: {service: '%s'%s}}}}}}\n"
	const services = "http: {services: {vllm: {loadBalancer: {servers: [{url: 'http://a'}]}}}}\n"
	const router = "http: {routers: {llm: {rule: Path(`/`), middlewares: [cart], service: noop@internal}}}\n"
	const static = "entryPoints: {web: {address: ':80'}}\nproviders: {file: {directory: .}}\nexperimental: {plugins: {cart: {moduleName: github.com/cart-llm/cart}}}\n"
	const needsAPI = "note: a.yml:1: http.middlewares.cart: discovery.service needs Traefik's API: api is not enabled in the static configuration\n"
	const mistyped = "a.yml:1: http.middlewares.cart: discovery.service = \"vlm@file\" is not allowed (no such name in http.services; did you mean vllm@file?)\n"
	for _, row := range []struct {
		service, api, beside string
		want, note           string // want = "" is good
	}{
		{"vllm@file", "", services, "", ""},
		{"vlm@file", "", services, mistyped, ""},
		{" vlm@file ", "", services, mistyped, ""},
		{"vlm@docker", "", services, "", ""},
		{"other@file", "", services, "no such name in http.services; check all files of the directory together)", ""},
		{"other@file", "", router, "", "note: a.yml:1: http.middlewares.cart: discovery.service = \"other@file\": none of these files has http.services: " +
			"check all files of the directory together\n"},
		{"vlm@file", "", "http: {}\n", "want a map", ""},
		{"vlm@file", "", "tls: {options: {x: {minVersion: VersionTLS12}}}\n", "", ""},
		{"vllm@docker", "", static, "", needsAPI},
		{"vllm@docker", ", api: {address: 'http://localhost:9000'}", static, "", needsAPI},
		{"vllm@docker", ", api: {address: 'http://edge:9000'}", static, "", ""},
		{"vllm@docker", "", static + "api: {}\n", "", ""},
		{"vllm@docker", "", "experimental: {plugins: {cart: {moduleName: github.com/cart-llm/cart}}}\n", "", ""},
	} {
		status, stdout, stderr := checkText(t, "a.yml", fmt.Sprintf(discovery, row.service, row.api), "b.yml", row.beside)
		good := status == exitGood && strings.Contains(stdout, "good: ") && row.want == ""
		bad := status == exitFault && strings.Contains(stdout, row.want) && (!strings.Contains(stdout, "good: ") || row.beside == "http: {}\n") && row.want != ""
		if (!good && !bad) || stderr != row.note {
			t.Errorf("cart check of discovery.service %s beside %s = %d, %s%s, want %q and %q", row.service, row.beside, status, stdout, stderr, row.want, row.note)
		}
	}
}

// TestCheck_entryPoints: those of the static configuration, should it be among the files.
func TestCheck_entryPoints(t *testing.T) {
	static := "entryPoints: {web: {address: ':80'}, Own: {address: ':81'}}\nexperimental: {plugins: {cart: {moduleName: github.com/cart-llm/cart}}}\n"
	for _, row := range []struct {
		static, router string
		want, note     string // want = "" is good
	}{
		{static, "entryPoints: [web], ", "", ""},
		{static, "entryPoints: 'web,Own', ", "", ""},
		{static, "entryPoints: traefik, ", "", ""},
		{static, "", "", ""},
		{static, "entryPoints: [wbe], ", "a.yml:1: http.routers.llm.entryPoints = \"wbe\" is not allowed (no such name in entryPoints of the static configuration; did you mean web?)\n", ""},
		{static, "entryPoints: [own], ", "did you mean Own?", ""},
		{static, "entryPoints: [internal], ", "it has Own, web)", ""},
		{static, "entryPoints: [web, wbe], ", "", "note: a.yml:1: http.routers.llm.entryPoints = \"wbe\" is not allowed (no such name "},
		{"providers: {}\nexperimental: {plugins: {cart: {moduleName: github.com/cart-llm/cart}}}\n", "entryPoints: [wbe], ", "", ""},
	} {
		router := "http: {routers: {llm: {" + row.router + "rule: Path(`/`), middlewares: [cart], service: noop@internal}}}\n"
		status, stdout, stderr := checkText(t, "a.yml", router, "b.yml", ours, "traefik.yml", row.static)
		if (status == exitGood) != (row.want == "") || !strings.Contains(stdout, row.want) || !strings.HasPrefix(stderr, row.note) || (row.note == "") != (stderr == "") {
			t.Errorf("cart check of a router with %s = %d, %s%s, want %q and %q", row.router, status, stdout, stderr, row.want, row.note)
		}
	}
}

// checkText checks texts that are put into files of these names, in the order of the arguments: name, text, name, text.
func checkText(t *testing.T, namesAndTexts ...string) (status int, stdout, stderr string) {
	t.Helper()
	dir := t.TempDir()
	args := []string{"check"}
	for i := 0; i < len(namesAndTexts); i += 2 {
		if err := os.WriteFile(filepath.Join(dir, namesAndTexts[i]), []byte(namesAndTexts[i+1]), 0o644); err != nil {
			t.Fatal(err)
		}
		args = append(args, namesAndTexts[i])
	}
	return cart(t, dir, args...)
}

const (
	aRouter = "http: {routers: {llm: {rule: Path(`/`), middlewares: [%s], service: %s}}}\n"
	ours    = "http: {middlewares: {cart: {plugin: {cart: {workers: [{url: 'http://a'}]}}}}}\n"
)

// TestCheck_namesOfOtherFiles: a name may be in another of the files, or another provider's.
func TestCheck_namesOfOtherFiles(t *testing.T) {
	for _, row := range []struct {
		middlewares, service string
		want                 string // "" = it is good
	}{
		{"cart", "noop@internal", ""},
		{"cart@file", "vllm@docker", ""},
		{"'auth@docker', cart", "api@internal", ""},
		{"cart, auth", "noop@internal", `http.routers.llm.middlewares = "auth"`},
		{"Cart", "noop@internal", `http.routers.llm.middlewares = "Cart"`},
		{"cart", "vllm", `http.routers.llm.service = "vllm"`},
		{"cart", "vllm@file", `http.routers.llm.service = "vllm"`},
	} {
		text := strings.Replace(strings.Replace(aRouter, "%s", row.middlewares, 1), "%s", row.service, 1)
		status, stdout, stderr := checkText(t, "a.yml", text, "b.yml", ours)
		if (status == exitGood) != (row.want == "") || !strings.Contains(stdout, row.want) {
			t.Errorf("cart check of middlewares [%s], service %s = %d, %s%s, want %q", row.middlewares, row.service, status, stdout, stderr, row.want)
		}
	}
}

// TestCheck_hints: what is allowed but hardly meant is a note, and leaves the status alone.
func TestCheck_hints(t *testing.T) {
	router := strings.Replace(strings.Replace(aRouter, "%s", "", 1), "%s", "noop@internal", 1)
	inChain := "http: {middlewares: {all: {chain: {middlewares: [cart]}}}}\n"
	for _, row := range []struct {
		story string
		files []string
		want  string // "" = no note
	}{
		{"no router uses it", []string{"a.yml", router, "b.yml", ours}, "note: b.yml:1: http.middlewares.cart: no router in these files uses it"},
		{"a chain uses it", []string{"a.yml", router, "b.yml", ours, "c.yml", inChain}, ""},
		{"there are no routers", []string{"b.yml", ours}, ""},
		{"a misspelt key that Traefik passes over", []string{"b.yml", ours + "tlss: {options: {}}\n"}, "note: b.yml:2: tlss = a map with options: Traefik passes over it (no such key; did you mean tls?)"},
		{"servers that are no maps", []string{"b.yml", ours + "tcp: {services: {a: {loadBalancer: {servers: ['a:1']}}}}\n"},
			`note: b.yml:2: tcp.services.a.loadBalancer.servers[0] = "a:1": Traefik passes over it (want a list of maps with keys such as address`},
		{"an address that ends in /v1", []string{"a.yml", "workers:\n  - url: http://a\n  - url: http://b/v1\n"},
			`note: a.yml:3: configuration: workers[1].url = "http://b/v1": the path of each request is appended, so that a chat goes to /v1/v1/chat/completions`},
		{"a setting of another policy", []string{"a.yml", "policy: cost\ncache:\n  maxTreeSize: 1000\n  balanceabsthreshold: 3\nworkers: [{url: http://a}]\n"},
			`note: a.yml:4: configuration: cache.balanceAbsThreshold = "3": the policy cost does not use it, only threshold does`},
		{"an empty configuration", []string{"a.yml", "http: {middlewares: {cart: {plugin: {cart: {}}}}}\n"}, "note: a.yml:1: http.middlewares.cart: no workers are configured: every request gets 503"},
		{"an empty list of workers", []string{"a.yml", "policy: cost\nworkers: []\n"}, "note: a.yml:2: configuration: no workers are configured: every request gets 503"},
		{"discovery without a list", []string{"a.yml", "discovery: {dns: http://a}\n"}, ""},
		{"the same of its own policy", []string{"a.yml", "policy: Threshold\ncache: {threshold: 0.5, matchAbsThreshold: 3}\nworkers: [{url: http://a}]\n"}, ""},
		{"settings of all policies", []string{"a.yml", "policy: leastLoad\ncost: {instances: 2}\nworkers: [{url: http://a, cacheTokens: 5, loadPenalty: 1}]\ncache: {maxTreeSize: 100}\n"}, ""},
	} {
		status, stdout, stderr := checkText(t, row.files...)
		if status != exitGood || !strings.HasPrefix(stderr, row.want) || strings.Count(stderr, "\n") != min(1, len(row.want)) {
			t.Errorf("%s: cart check = %d, %s, %q, want 0 and the note %q", row.story, status, stdout, stderr, row.want)
		}
	}
}

// TestCheck_topOfAFile: a file whose only key is nearly http is no configuration of the plugin.
func TestCheck_topOfAFile(t *testing.T) {
	status, stdout, _ := checkText(t, "a.yml", "htpp: {middlewares: {}}\n")
	if want := "a.yml:1: htpp is not allowed (no such key; did you mean http?)\n"; status != exitFault || stdout != want {
		t.Errorf("cart check = %d, %q, want 1 and %q", status, stdout, want)
	}
}

// TestExitStatus: both commands tell of it in the same words, which are true.
func TestExitStatus(t *testing.T) {
	for _, command := range []string{"check", "migrate"} {
		if _, stdout, _ := cart(t, t.TempDir(), command, "--help"); !strings.Contains(stdout, exitHelp) {
			t.Errorf("cart %s --help does not have %q", command, exitHelp)
		}
		if status, _, _ := cart(t, t.TempDir(), command, "nowhere.yml"); status != exitUsage {
			t.Errorf("cart %s of a file that is not there = %d, want 2", command, status)
		}
	}
	if status, _, _ := cart(t, t.TempDir(), "check", "--labels", "nowhere"); status != exitUsage {
		t.Errorf("cart check --labels of a file that is not there = %d, want 2", status)
	}
}
