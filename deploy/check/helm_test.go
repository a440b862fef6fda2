package check

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/cart-llm/cart"
	"go.yaml.in/yaml/v3"
)

var update = flag.Bool("update", false, "rewrite values.schema.json from cart.Config")

const chart = "deploy/helm/cart"

// helm runs the real one.
func helm(t *testing.T, args ...string) (stdout, stderr []byte, err error) {
	t.Helper()
	cmd := exec.Command(program(t, "helm"), args...)
	cmd.Dir = root(t)
	// Nothing of the user's helm is read or written.
	home := t.TempDir()
	cmd.Env = append(os.Environ(), "HELM_CONFIG_HOME="+home, "HELM_CACHE_HOME="+home, "HELM_DATA_HOME="+home, "KUBECONFIG="+filepath.Join(home, "none"))
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	return out.Bytes(), errs.Bytes(), err
}

// TestHelm: for each file of values the chart passes helm's linter, and what it renders passes the schemas and CART's own validation.
func TestHelm(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		values string
		kinds  map[string]int
		has    []string
		hasNot []string
	}{
		{
			name: "a Service by DNS", values: "replicas: {service: {name: vllm}}",
			kinds: map[string]int{"Middleware": 1, "IngressRoute": 2},
			has:   []string{"dns: http://vllm.llm.svc.cluster.local:8000", "noop@internal", "PathPrefix(`/v1`)"},
		},
		{
			name: "a Service by Traefik's API", values: `
replicas: {service: {name: vllm, namespace: engines, port: 9000, scheme: https}, by: traefik}
config: {discovery: {interval: 2s, api: {address: "http://127.0.0.1:9000", user: cart, passwordFile: /secrets/api}}}`,
			kinds: map[string]int{"Middleware": 1, "IngressRoute": 2, "TraefikService": 1},
			has:   []string{"service: llm-r-cart@kubernetescrd", "namespace: engines", "interval: 2s", "passwordFile: /secrets/api"},
		},
		{
			name: "workers", values: `
config:
  workers:
    - url: http://10.0.0.1:8000
    - {url: http://10.0.0.2:8000, maxLoad: 12, headers: {Authorization: "urn:k8s:secret:engines:key"}}
internal: {enabled: false}`,
			kinds:  map[string]int{"Middleware": 1, "IngressRoute": 1},
			has:    []string{"url: http://10.0.0.1:8000"},
			hasNot: []string{"discovery", "- internal"},
		},
		{
			name: "everything", values: `
replicas: {service: {name: vllm}, clusterDomain: example.org}
pluginName: router
fullnameOverride: the-router
config:
  maxLoad: 12
  cache: {threshold: 0.5, maxTreeSize: 2000000, maxTreeBytes: 512MiB}
  proxy: {retryStatuses: [500, 502, 503], addDecisionHeaders: true}
  health: {interval: 5s}
  workers: [{url: "*", maxLoad: 16, apiKeyFile: /secrets/key}]
ingressRoute:
  entryPoints: [websecure]
  match: Host(` + "`llm.example.com`) && PathPrefix(`/v1`)" + `
  middlewares: [{name: auth, namespace: security}]
  tls: {secretName: llm-tls}
  annotations: {a: b}
metrics:
  serviceMonitor: {enabled: true, labels: {release: prometheus}}
  traefik: {namespace: traefik, port: 9081}
dashboard: {enabled: true, annotations: {folder: LLM}}`,
			kinds: map[string]int{"Middleware": 1, "IngressRoute": 2, "Service": 1, "ServiceMonitor": 1, "ConfigMap": 1},
			has: []string{"name: the-router", "dns: http://vllm.llm.svc.example.org:8000", "maxTreeSize: 2000000", "secretName: llm-tls",
				"name: auth", "release: prometheus", "port: 9081", `grafana_dashboard: "1"`, "router:"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			values := filepath.Join(t.TempDir(), "values.yaml")
			if err := os.WriteFile(values, []byte(c.values), 0o644); err != nil {
				t.Fatal(err)
			}
			if out, errs, err := helm(t, "lint", "--strict", chart, "-n", "llm", "-f", values); err != nil {
				t.Errorf("helm lint: %v\n%s%s", err, out, errs)
			}
			manifests, errs, err := helm(t, "template", "r", chart, "-n", "llm", "-f", values)
			if err != nil {
				t.Fatalf("helm template: %v\n%s", err, errs)
			}
			if faults, err := validate(manifests); err != nil || len(faults) > 0 {
				t.Errorf("%v %s\n%s", err, strings.Join(faults, "\n"), manifests)
			}
			if kinds := countKinds(t, manifests); !reflect.DeepEqual(kinds, c.kinds) {
				t.Errorf("the kinds are %v, want %v", kinds, c.kinds)
			}
			out, status := cartCheck(t, manifests)
			if status != 0 || strings.Count(out, ": good: ") != 1 {
				t.Errorf("cart check = %d\n%s%s", status, out, manifests)
			}
			for _, want := range c.has {
				if !bytes.Contains(manifests, []byte(want)) {
					t.Errorf("no %q in\n%s", want, manifests)
				}
			}
			for _, want := range c.hasNot {
				if bytes.Contains(manifests, []byte(want)) {
					t.Errorf("there is %q in\n%s", want, manifests)
				}
			}
		})
	}
}

// documents are the manifests of a text.
func documents(t *testing.T, manifests []byte) (all []object) {
	t.Helper()
	decoder := yaml.NewDecoder(bytes.NewReader(manifests))
	for {
		var one object
		if err := decoder.Decode(&one); err != nil {
			return all
		}
		if one != nil {
			all = append(all, one)
		}
	}
}

func countKinds(t *testing.T, manifests []byte) map[string]int {
	t.Helper()
	kinds := map[string]int{}
	for _, one := range documents(t, manifests) {
		kinds[fmt.Sprint(one["kind"])]++
	}
	return kinds
}

// TestHelm_asDocumented: the commands that the documents show would install something good.
func TestHelm_asDocumented(t *testing.T) {
	t.Parallel()
	for _, document := range []string{"docs/deployment.md", chart + "/README.md"} {
		line := documented(t, document, "helm install cart ")[0]
		args := strings.Fields(strings.Replace(line, " --create-namespace", "", 1))[1:]
		args[0] = "template"
		manifests, errs, err := helm(t, args...)
		if err != nil {
			t.Errorf("%s: %v\n%s", line, err, errs)
			continue
		}
		if out, status := cartCheck(t, manifests); status != 0 || !strings.Contains(out, "Middleware llm/cart: good: replicas by DNS") {
			t.Errorf("%s: cart check = %d\n%s", line, status, out)
		}
	}
}

// TestHelm_refuses: values that come to nothing good are told before anything is installed.
func TestHelm_refuses(t *testing.T) {
	t.Parallel()
	vllm := "replicas.service.name=vllm"
	for _, c := range []struct {
		set  []string
		want string
	}{
		{nil, "no replicas"},
		{[]string{vllm, "config.discovery.dns=http://vllm:8000"}, "two sources"},
		{[]string{vllm, "config.cache.treshold=0.5"}, "treshold"},
		{[]string{vllm, "replica.service.name=vllm"}, "replica"},
		{[]string{vllm, "replicas.by=guess"}, "by"},
		{[]string{vllm, "config.policy=fastest"}, "policy"},
		{[]string{vllm, "config.health=5s"}, "health"},
		{[]string{vllm, "metrics.serviceMonitor.enabled=true", "internal.enabled=false"}, "needs internal.enabled"},
	} {
		args := []string{"template", "r", chart, "-n", "llm"}
		for _, one := range c.set {
			args = append(args, "--set", one)
		}
		if _, errs, err := helm(t, args...); err == nil || !bytes.Contains(errs, []byte(c.want)) {
			t.Errorf("helm template with %v: %v, %s, want a refusal that says %q", c.set, err, errs, c.want)
		}
	}
}

// TestHelm_package: a packed chart has the dashboard itself, not a link to it.
func TestHelm_package(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if out, errs, err := helm(t, "package", chart, "-d", dir); err != nil {
		t.Fatalf("helm package: %v\n%s%s", err, out, errs)
	}
	packed, err := filepath.Glob(filepath.Join(dir, "cart-*.tgz"))
	if err != nil || len(packed) != 1 {
		t.Fatalf("helm package made %v, %v", packed, err)
	}
	manifests, errs, err := helm(t, "template", "r", packed[0], "-n", "llm", "--set", "config.discovery.dns=http://vllm:8000", "--set", "dashboard.enabled=true")
	if err != nil {
		t.Fatalf("helm template: %v\n%s", err, errs)
	}
	want, err := os.ReadFile(filepath.Join(root(t), "deploy", "grafana", "cart.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range documents(t, manifests) {
		if one["kind"] == "ConfigMap" {
			got := one["data"].(object)["cart.json"].(string)
			var there, here any
			if json.Unmarshal([]byte(got), &there) != nil || json.Unmarshal(want, &here) != nil || !reflect.DeepEqual(there, here) {
				t.Errorf("the ConfigMap does not hold deploy/grafana/cart.json: %.200s", got)
			}
			return
		}
	}
	t.Error("no ConfigMap")
}

// TestHelm_schema: the schema of config has the keys of cart.Config and no others. go test -run TestHelm_schema -update writes it.
func TestHelm_schema(t *testing.T) {
	name := filepath.Join(root(t), chart, "values.schema.json")
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var schema object
	if err := json.Unmarshal(text, &schema); err != nil {
		t.Fatal(err)
	}
	config := schemaOf(reflect.TypeFor[cart.Config]())
	config["properties"].(object)["policy"] = object{"enum": []any{"threshold", "cost", "leastLoad", "roundRobin", "random"}}
	schema["properties"].(object)["config"] = config
	want, err := json.MarshalIndent(schema, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	want = append(want, '\n')
	if *update {
		if err := os.WriteFile(name, want, 0o644); err != nil {
			t.Fatal(err)
		}
	} else if !bytes.Equal(text, want) {
		t.Error("values.schema.json is not what cart.Config asks for: go test -run TestHelm_schema -update writes it")
	}
}

// schemaOf is the JSON schema of a type of CART's configuration. Its scalars are texts that may be written as numbers and the like.
func schemaOf(of reflect.Type) object {
	switch of.Kind() {
	case reflect.Struct:
		properties := object{}
		for i := range of.NumField() {
			if name, _, _ := strings.Cut(of.Field(i).Tag.Get("json"), ","); name != "-" {
				properties[name] = schemaOf(of.Field(i).Type)
			}
		}
		return object{"type": "object", "additionalProperties": false, "properties": properties}
	case reflect.Slice:
		return object{"type": "array", "items": schemaOf(of.Elem())}
	case reflect.Map:
		return object{"type": "object", "additionalProperties": schemaOf(of.Elem())}
	}
	return object{"type": []any{"string", "number", "boolean"}}
}
