// Package catalog repeats what the analyser of Traefik's plugin catalogue does with a release before it lists it.
package catalog

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cart-llm/cart/e2e/traefik"
	"github.com/go-viper/mapstructure/v2"
	"github.com/pelletier/go-toml"
	"github.com/traefik/paerser/file"
	"github.com/traefik/yaegi/interp"
	"github.com/traefik/yaegi/stdlib"
	"gopkg.in/yaml.v3"
)

// manifest is .traefik.yml as far as Traefik and the analyser read it.
type manifest struct {
	DisplayName string    `yaml:"displayName"`
	Type        string    `yaml:"type"`
	Runtime     string    `yaml:"runtime"`
	Import      string    `yaml:"import"`
	BasePkg     string    `yaml:"basePkg"`
	Summary     string    `yaml:"summary"`
	UseUnsafe   bool      `yaml:"useUnsafe"`
	TestData    yaml.Node `yaml:"testData"`
	IconPath    string    `yaml:"iconPath"`
	BannerPath  string    `yaml:"bannerPath"`
}

// loadLimit bounds import and New together, in processor time, so that a busy machine does not count. The analyser gives
// ten seconds of its own.
const loadLimit = 2 * time.Second

func TestManifest(t *testing.T) {
	m := readManifest(t)
	required := map[string]string{"displayName": m.DisplayName, "import": m.Import, "summary": m.Summary}
	for key, value := range required {
		if value == "" {
			t.Errorf(".traefik.yml: no %s", key)
		}
	}
	if m.Type != "middleware" {
		t.Errorf(".traefik.yml: type = %q, want middleware", m.Type)
	}
	if m.Runtime != "yaegi" {
		t.Errorf(".traefik.yml: runtime = %q, want yaegi: Traefik's log lines end in it", m.Runtime)
	}
	if m.UseUnsafe {
		t.Error(".traefik.yml: useUnsafe = true: the catalogue would not check the plugin")
	}
	if m.TestData.Kind != yaml.MappingNode || len(m.TestData.Content) == 0 {
		t.Error(".traefik.yml: no testData: the catalogue shows it as the example")
	}
	release := releaseFiles(t)
	for what, picture := range map[string]string{"iconPath": m.IconPath, "bannerPath": m.BannerPath} {
		if picture != "" && release[path.Clean(picture)] == nil {
			t.Errorf(".traefik.yml: %s = %s, which is not in the repository", what, picture)
		}
	}
	if len(release["README.md"]) == 0 {
		t.Error("no README.md: the catalogue shows it")
	}
}

func TestModule(t *testing.T) {
	m := readManifest(t)
	edit := exec.Command("go", "mod", "edit", "-json")
	edit.Dir = root(t)
	out, err := edit.Output()
	if err != nil {
		t.Fatal(err)
	}
	var module struct {
		Module  struct{ Path string }
		Require []struct{ Path string }
		Tool    []struct{ Path string }
	}
	if err := json.Unmarshal(out, &module); err != nil {
		t.Fatal(err)
	}

	// The catalogue finds <owner>/<repository> in both.
	if got := strings.Count(module.Module.Path, "/"); got < 2 || !strings.HasPrefix(module.Module.Path, "github.com/") {
		t.Errorf("go.mod: module = %s, want github.com/<owner>/<repository>", module.Module.Path)
	}
	if m.Import != module.Module.Path && !strings.HasPrefix(m.Import, module.Module.Path+"/") {
		t.Errorf(".traefik.yml: import = %s, want the module %s or a package below it", m.Import, module.Module.Path)
	}
	for _, required := range append(module.Require, module.Tool...) {
		for _, refused := range []string{"github.com/traefik/yaegi", "github.com/traefik/traefik", "github.com/traefik/mesh"} {
			if strings.Contains(required.Path, refused) {
				t.Errorf("go.mod requires %s, which the catalogue refuses", required.Path)
			}
		}
	}
}

// TestAnalyser loads the plugin and builds it from testData: as the analyser does, whose decoder is that of Traefik's file provider
// and makes text of all scalars, and as a provider of typed values does.
func TestAnalyser(t *testing.T) {
	m := readManifest(t)
	var typed any
	if err := m.TestData.Decode(&typed); err != nil {
		t.Fatal(err)
	}
	for name, testData := range map[string]any{"text": textData(t), "typed": typed} {
		t.Run(name, func(t *testing.T) { analyse(t, m, testData) })
	}
}

// TestSnippets: the catalogue shows testData as YAML, TOML and Kubernetes manifest, and lists no plugin of which it cannot make these.
func TestSnippets(t *testing.T) {
	config := map[string]any{"plugin": map[string]any{"cart": textData(t)}}
	middlewares := map[string]any{"my-cart": config}
	for form, marshal := range map[string]func() ([]byte, error){
		"YAML": func() ([]byte, error) {
			return yaml.Marshal(map[string]any{"http": map[string]any{"middlewares": middlewares}})
		},
		"TOML": func() ([]byte, error) {
			return toml.Marshal(map[string]any{"http": map[string]any{"middlewares": middlewares}})
		},
		"Kubernetes": func() ([]byte, error) {
			return yaml.Marshal(map[string]any{
				"apiVersion": "traefik.io/v1alpha1", "kind": "Middleware",
				"metadata": map[string]any{"name": "my-cart", "namespace": "my-namespace"}, "spec": config,
			})
		},
	} {
		text, err := marshal()
		if err != nil {
			t.Errorf("%s: %v", form, err)
		}
		for _, want := range []string{"threshold", "http://vllm-0.internal:8000"} {
			if !strings.Contains(string(text), want) {
				t.Errorf("the snippet in %s has no %s:\n%s", form, want, text)
			}
		}
	}
}

func analyse(t *testing.T, m manifest, testData any) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	goPath := t.TempDir()
	installPlugin(t, goPath)
	hideEnvironment(t)

	started := processorTime(t)
	i := interp.New(interp.Options{GoPath: goPath})
	if err := i.Use(stdlib.Symbols); err != nil {
		t.Fatal(err)
	}
	eval := func(source string) reflect.Value {
		t.Helper()
		v, err := i.EvalWithContext(ctx, source)
		if err != nil {
			t.Fatalf("%s: %v", source, err)
		}
		return v
	}
	eval(`import "` + m.Import + `"`)
	config := eval(basePkg(m) + ".CreateConfig()")
	decode(t, testData, config)
	build := eval(basePkg(m) + ".New")
	checkSignature(t, build.Type(), config.Type())

	next := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	results := call(ctx, t, build, []reflect.Value{
		reflect.ValueOf(ctx), reflect.ValueOf(next), config, reflect.ValueOf("test"),
	})
	took := processorTime(t) - started
	if err, _ := results[1].Interface().(error); err != nil {
		t.Fatalf("New = %v", err)
	}
	if _, ok := results[0].Interface().(http.Handler); !ok {
		t.Fatalf("New returned a %T, want an http.Handler", results[0].Interface())
	}
	if took > loadLimit {
		t.Errorf("import and New took %v of processor time, want at most %v", took, loadLimit)
	}
}

// call calls New, with an eye on the time: New must not wait for replicas or anything else.
func call(ctx context.Context, t *testing.T, build reflect.Value, args []reflect.Value) []reflect.Value {
	t.Helper()
	results, panicked := make(chan []reflect.Value, 1), make(chan any, 1)
	go func() {
		defer func() {
			if p := recover(); p != nil {
				panicked <- p
			}
		}()
		results <- build.Call(args)
	}()
	select {
	case r := <-results:
		return r
	case p := <-panicked:
		t.Fatalf("New panics: %v", p)
	case <-ctx.Done():
		t.Fatalf("New: %v", ctx.Err())
	}
	return nil
}

// hideEnvironment takes away what the analyser hides from plugins.
func hideEnvironment(t *testing.T) {
	t.Helper()
	for _, pair := range os.Environ() {
		name, _, _ := strings.Cut(pair, "=")
		for _, secret := range []string{"token", "password", "username", "_url", "_host", "_port"} {
			if strings.Contains(strings.ToLower(name), secret) {
				t.Setenv(name, "")
				os.Unsetenv(name)
			}
		}
	}
}

// processorTime is what this process has used so far.
func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		t.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func checkSignature(t *testing.T, build, config reflect.Type) {
	t.Helper()
	if build.Kind() != reflect.Func || build.NumIn() != 4 || build.NumOut() != 2 {
		t.Fatalf("New is %v, want a function of 4 arguments and 2 results", build)
	}
	handler := reflect.TypeFor[http.Handler]()
	for what, ok := range map[string]bool{
		"1st argument a context.Context":           build.In(0) == reflect.TypeFor[context.Context](),
		"2nd argument an http.Handler":             build.In(1) == handler,
		"3rd argument what CreateConfig returns":   config.AssignableTo(build.In(2)),
		"4th argument a string":                    build.In(3).Kind() == reflect.String,
		"1st result an http.Handler":               build.Out(0).Implements(handler),
		"2nd result an error":                      build.Out(1).Implements(reflect.TypeFor[error]()),
		"configuration a pointer, to be filled in": config.Kind() == reflect.Pointer,
	} {
		if !ok {
			t.Errorf("New is %v, want its %s", build, what)
		}
	}
}

func decode(t *testing.T, testData any, into reflect.Value) {
	t.Helper()
	decoder, err := mapstructure.NewDecoder(&mapstructure.DecoderConfig{
		DecodeHook:       mapstructure.StringToSliceHookFunc(","),
		WeaklyTypedInput: true,
		Result:           into.Interface(),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := decoder.Decode(testData); err != nil {
		t.Fatalf("testData does not fit the configuration: %v", err)
	}
}

// textData is testData as Traefik's decoder of files gives it.
func textData(t *testing.T) map[string]any {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(root(t), ".traefik.yml"))
	if err != nil {
		t.Fatal(err)
	}
	var m struct {
		TestData map[string]any
	}
	if err := file.DecodeContent(string(content), ".yaml", &m); err != nil {
		t.Fatal(err)
	}
	if len(m.TestData) == 0 {
		t.Fatal(".traefik.yml: no testData")
	}
	return m.TestData
}

func basePkg(m manifest) string {
	if m.BasePkg != "" {
		return m.BasePkg
	}
	return strings.ReplaceAll(path.Base(m.Import), "-", "_")
}

func readManifest(t *testing.T) manifest {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(root(t), ".traefik.yml"))
	if err != nil {
		t.Fatal(err)
	}
	var m manifest
	if err := yaml.Unmarshal(content, &m); err != nil {
		t.Fatalf(".traefik.yml: %v", err)
	}
	return m
}

func root(t *testing.T) string {
	t.Helper()
	dir, err := traefik.Root()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}
