package check

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/yannh/kubeconform/pkg/validator"
	"go.yaml.in/yaml/v3"
)

// schemaSources are the modules whose files hold the schemas, each with its checksum. Only their files are used, nothing of them is
// compiled.
var schemaSources = []struct {
	module, sum string
	files       []string
	read        func(dir string, text []byte) error
}{
	{"k8s.io/client-go@v0.36.3", "h1:M4JdVzXxYcZk4fGpfDdYnxSwhLKWCFoQsHW6t+z8Hfg=", []string{
		"openapi/openapitest/testdata/api__v1_openapi.json", "openapi/openapitest/testdata/apis__apps__v1_openapi.json",
	}, writeOpenAPI},
	{"github.com/traefik/traefik/v3@v3.7.13", "h1:T8wy9KuaFzCkmXCqAzDy7t73pBDR1DHrJe3pqXpNXTw=", []string{
		"docs/content/reference/dynamic-configuration/kubernetes-crd-definition-v1.yml",
	}, writeDefinitions},
	{"github.com/prometheus-operator/prometheus-operator@v0.85.0", "h1:M5xLCLEoaW2IJfnuCwFzzpL+jSVQu3KGT84Pye+fW8s=", []string{
		"example/prometheus-operator-crd/monitoring.coreos.com_servicemonitors.yaml",
	}, writeDefinitions},
}

// schemasOnce writes the JSON schema of each kind into a folder, once for all tests.
var schemasOnce = sync.OnceValues(func() (dir string, err error) {
	dir = filepath.Join(scratch, "schemas")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return "", err
	}
	for _, source := range schemaSources {
		out, err := exec.Command("go", "mod", "download", "-json", source.module).Output()
		var got struct{ Dir, Sum, Error string }
		if jsonErr := json.Unmarshal(out, &got); jsonErr != nil || got.Error != "" {
			return dir, fmt.Errorf("go mod download %s: %w %s", source.module, err, got.Error)
		}
		if got.Sum != source.sum {
			return dir, fmt.Errorf("%s has the checksum %s, want %s", source.module, got.Sum, source.sum)
		}
		for _, file := range source.files {
			text, err := os.ReadFile(filepath.Join(got.Dir, file))
			if err != nil {
				return dir, err
			}
			if err := source.read(dir, text); err != nil {
				return dir, fmt.Errorf("%s of %s: %w", file, source.module, err)
			}
		}
	}
	return dir, nil
})

// validate tells whether all manifests are what Kubernetes, Traefik and the Prometheus operator take. A key that a schema does not
// know is an error, and so is a kind without a schema.
func validate(manifests []byte) ([]string, error) {
	dir, err := schemasOnce()
	if err != nil {
		return nil, err
	}
	v, err := validator.New([]string{filepath.Join(dir, "{{.ResourceKind}}-{{.Group}}-{{.ResourceAPIVersion}}.json")}, validator.Opts{Strict: true})
	if err != nil {
		return nil, err
	}
	var faults []string
	for _, result := range v.Validate("manifests", io.NopCloser(bytes.NewReader(manifests))) {
		switch result.Status {
		case validator.Valid, validator.Empty:
		default:
			signature, _ := result.Resource.Signature()
			faults = append(faults, fmt.Sprintf("%s: %v", signature.QualifiedName(), result.Err))
			for _, one := range result.ValidationErrors {
				faults = append(faults, fmt.Sprintf("  %s: %s", one.Path, one.Msg))
			}
		}
	}
	return faults, nil
}

// writeDefinitions writes the schemas of custom resource definitions.
func writeDefinitions(dir string, text []byte) error {
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	for {
		var d struct {
			Kind string
			Spec struct {
				Group    string
				Names    struct{ Kind string }
				Versions []struct {
					Name   string
					Schema struct {
						Schema object `yaml:"openAPIV3Schema"`
					}
				}
			}
		}
		err := decoder.Decode(&d)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		for _, v := range d.Spec.Versions {
			schema := v.Schema.Schema
			schema["properties"].(object)["metadata"] = object{"type": "object"} // the API server's matter
			if err := writeSchema(dir, d.Spec.Names.Kind, d.Spec.Group, v.Name, strict(schema)); err != nil {
				return err
			}
		}
	}
}

// writeOpenAPI writes the schemas of Kubernetes' own kinds, of one group and version.
func writeOpenAPI(dir string, text []byte) error {
	var api struct {
		Components struct {
			Schemas map[string]object
		}
	}
	if err := json.Unmarshal(text, &api); err != nil {
		return err
	}
	schemas := object{}
	for name, schema := range api.Components.Schemas {
		schemas[name] = strict(schema)
	}
	for name, schema := range api.Components.Schemas {
		kinds, _ := schema["x-kubernetes-group-version-kind"].([]any)
		if len(kinds) != 1 {
			continue // lists and options, which belong to many
		}
		kind := kinds[0].(object)
		whole := object{"$ref": "#/components/schemas/" + name, "components": object{"schemas": schemas}}
		wanted := map[string]bool{"ConfigMap": true, "Service": true, "Namespace": true, "Secret": true, "Deployment": true, "StatefulSet": true}
		if !wanted[fmt.Sprint(kind["kind"])] {
			continue
		}
		if err := writeSchema(dir, fmt.Sprint(kind["kind"]), fmt.Sprint(kind["group"]), fmt.Sprint(kind["version"]), whole); err != nil {
			return err
		}
	}
	return nil
}

func writeSchema(dir, kind, group, version string, schema any) error {
	text, err := json.Marshal(schema)
	if err != nil {
		return err
	}
	if group == "" {
		group = version // as kubeconform has it
	}
	return os.WriteFile(filepath.Join(dir, strings.ToLower(kind)+"-"+group+"-"+version+".json"), text, 0o644)
}

// strict returns a schema whose objects take no keys but those they name, unless it says that they do.
func strict(v any) any {
	switch v := v.(type) {
	case []any:
		out := []any{}
		for _, one := range v {
			out = append(out, strict(one))
		}
		return out
	case object:
		out := object{}
		for key, value := range v {
			out[key] = strict(value)
		}
		_, named := v["properties"].(object)
		_, said := v["additionalProperties"]
		if named && !said && v["x-kubernetes-preserve-unknown-fields"] != true && v["type"] == "object" {
			out["additionalProperties"] = false
		}
		return out
	}
	return v
}

// TestValidate_finds: a check that finds nothing wrong has to find what is.
func TestValidate_finds(t *testing.T) {
	t.Parallel()
	good := `{apiVersion: v1, kind: Service, metadata: {name: a}, spec: {clusterIP: None, ports: [{port: 8000, targetPort: http}]}}`
	for _, c := range []struct{ manifest, want string }{
		{good, ""},
		{strings.Replace(good, "clusterIP", "clusterIp", 1), "clusterIp"},
		{strings.Replace(good, "8000", "many", 1), "want integer"},
		{strings.Replace(good, "kind: Service", "kind: Servise", 1), "could not find schema"},
		{`{apiVersion: traefik.io/v1alpha1, kind: Middleware, metadata: {name: a}, spec: {plugin: {cart: {any: thing}}}}`, ""},
		{`{apiVersion: traefik.io/v1alpha1, kind: Middleware, metadata: {name: a}, spec: {plugins: {cart: {any: thing}}}}`, "plugins"},
		{`{apiVersion: traefik.io/v1alpha1, kind: IngressRoute, metadata: {name: a}, spec: {routes: [{kind: Rule}]}}`, "match"},
	} {
		faults, err := validate([]byte(c.manifest))
		if err != nil {
			t.Fatal(err)
		}
		all := strings.Join(faults, "\n")
		if (c.want == "") != (all == "") || !strings.Contains(all, c.want) {
			t.Errorf("%s: %q, want %q", c.manifest, all, c.want)
		}
	}
}

// cartCheck runs the command `cart check` on manifests.
func cartCheck(t *testing.T, manifests []byte) (out string, status int) {
	t.Helper()
	binary, err := cartOnce()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(binary, "check", "--no-files", "-")
	cmd.Stdin = bytes.NewReader(manifests)
	text, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return string(text), cmd.ProcessState.ExitCode()
}

var cartOnce = sync.OnceValues(func() (string, error) {
	binary, err := filepath.Abs("../../.cache/bin/cart")
	if err != nil {
		return "", err
	}
	if out, err := exec.Command("go", "-C", "../../cmd", "build", "-o", binary, "./cart").CombinedOutput(); err != nil {
		return "", fmt.Errorf("building cart: %w\n%s", err, out)
	}
	return binary, nil
})

// TestExample_kubernetes: the schemas and CART take the manifests.
func TestExample_kubernetes(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join(root(t), "examples", "kubernetes", "*.yml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("manifests: %v, %v", files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		faults, err := validate(text)
		if err != nil || len(faults) > 0 {
			t.Errorf("%s: %v %s", file, err, strings.Join(faults, "\n"))
		}
		if out, status := cartCheck(t, text); status != 0 || !strings.Contains(out, "Middleware llm/cart: good") {
			t.Errorf("%s: cart check = %d\n%s", file, status, out)
		}
	}
}

// TestExamples_cartCheck: the command finds nothing wrong with any of the examples.
func TestExamples_cartCheck(t *testing.T) {
	t.Parallel()
	binary, err := cartOnce()
	if err != nil {
		t.Fatal(err)
	}
	for _, files := range [][]string{
		{"examples/file/traefik.yml"}, {"examples/directory/dynamic/workers.yml", "examples/directory/dynamic/cart.yml"},
		{"examples/docker/compose.yml"}, {"examples/pools/dynamic.yml"}, {"examples/internal/dynamic.yml"}, {"examples/api-key/dynamic.yml"},
		{"examples/tls/dynamic.yml"}, {"deploy/docker/compose.vllm.yml"}, {"deploy/docker/traefik/dynamic/cart.yml"},
	} {
		cmd := exec.Command(binary, append([]string{"check", "--no-files"}, files...)...)
		cmd.Dir = root(t)
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), ": good: ") {
			t.Errorf("cart check %v: %v\n%s", files, err, out)
		}
	}
}
