package traefik

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/BurntSushi/toml"
	"github.com/cart-llm/cart"
	"github.com/traefik/paerser/file"
	"go.yaml.in/yaml/v3"
)

var update = flag.Bool("update", false, "rewrite what the forms come to")

// forms decode the same configuration as each of Traefik's providers hands it over.
var forms = []struct {
	file   string
	decode func(t *testing.T, text string) Raw
}{
	{"file.yml", func(t *testing.T, text string) Raw { return fromFile(t, text, ".yml") }},
	{"file.toml", func(t *testing.T, text string) Raw { return fromFile(t, text, ".toml") }},
	{"http.json", func(t *testing.T, text string) Raw { return fromFile(t, text, ".yaml") }}, // as the HTTP provider reads JSON
	{"labels.txt", func(t *testing.T, text string) Raw {
		m, err := Labels(pairsOf(t, text))
		return only(t, m, err)
	}},
	{"kv.txt", func(t *testing.T, text string) Raw {
		m, err := kvMiddlewares(pairsOf(t, text))
		return only(t, m, err)
	}},
	{"manifest.yml", func(t *testing.T, text string) Raw {
		var manifest struct {
			Spec struct{ Plugin map[string]Raw }
		}
		if err := yaml.Unmarshal([]byte(text), &manifest); err != nil {
			t.Fatal(err)
		}
		raw, err := Manifest(manifest.Spec.Plugin["cart"])
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}},
}

// TestForms: one configuration comes to the same in every form that Traefik has for it.
func TestForms(t *testing.T) {
	for dir, golden := range map[string]string{"full": "full", "dns": "dns", "plain": "plain", "spelled": "plain"} {
		for _, form := range forms {
			t.Run(dir+"/"+form.file, func(t *testing.T) {
				config, err := Config(form.decode(t, read(t, filepath.Join(dir, form.file))))
				if err != nil {
					t.Fatal(err)
				}
				got := canonical(t, config)
				name := filepath.Join(golden, "want.txt")
				if *update && dir == golden && form.file == "file.yml" {
					text := strings.Join(got, "\n") + "\n"
					if err := os.WriteFile(filepath.Join("testdata", "forms", name), []byte(text), 0o644); err != nil {
						t.Fatal(err)
					}
				}
				want := strings.Split(strings.TrimSpace(read(t, name)), "\n")
				for _, line := range got {
					if !slices.Contains(want, line) {
						t.Errorf("%s/%s: %s, want no such line", dir, form.file, line)
					}
				}
				for _, line := range want {
					if !slices.Contains(got, line) {
						t.Errorf("%s/%s lacks %s", dir, form.file, line)
					}
				}
			})
		}
	}
}

// TestForms_full: between them, the configurations called full and dns have every setting there is, none with its default.
// They are two because a configuration can have one source of replicas only.
func TestForms_full(t *testing.T) {
	set := map[string]bool{}
	for _, name := range []string{"full/file.yml", "dns/file.yml"} {
		config, err := Config(fromFile(t, read(t, name), ".yml"))
		if err != nil {
			t.Fatal(err)
		}
		addSet(t, set, "", reflect.ValueOf(*config), reflect.ValueOf(*cart.CreateConfig()))
	}
	for key, isSet := range set {
		if !isSet {
			t.Errorf("full does not set %s: every form in testdata/forms/full needs it, with a value that is not the default", key)
		}
	}
}

// addSet notes which of the plugin's settings a configuration has with another value than the default.
func addSet(t *testing.T, set map[string]bool, key string, got, byDefault reflect.Value) {
	for i := 0; i < got.NumField(); i++ {
		f := got.Type().Field(i)
		v, d := got.Field(i), byDefault.Field(i)
		switch {
		case f.Name == "Unknown":
			if v.Len() > 0 {
				t.Errorf("full has unknown keys: %s%v", key, v)
			}
		case v.Kind() == reflect.Struct:
			addSet(t, set, key+f.Name+".", v, d)
		case v.Kind() == reflect.Slice && v.Len() > 0 && v.Index(0).Kind() == reflect.Struct:
			addSet(t, set, key+f.Name+"[0].", v.Index(0), reflect.Zero(v.Type().Elem()))
		default:
			set[key+f.Name] = set[key+f.Name] || !reflect.DeepEqual(v.Interface(), d.Interface())
		}
	}
}

// TestFile_emptyMap: what `cart check` warns of.
func TestFile_emptyMap(t *testing.T) {
	raw, err := File(Raw{"health": map[string]any{}})
	if err != nil || !reflect.DeepEqual(raw, Raw{"health": ""}) {
		t.Fatalf("File(an empty map) = %v, %v, want an empty text", raw, err)
	}
	if _, err := Config(raw); err == nil {
		t.Error("Config(a text for a map) = nil error, want one")
	}
}

func fromFile(t *testing.T, text, ending string) Raw {
	t.Helper()
	var c configuration
	if err := file.DecodeContent(text, ending, &c); err != nil {
		t.Fatal(err)
	}
	return only(t, c.middlewares(), nil)
}

// TestFile: the plugin's part by itself decodes as it does in its file.
func TestFile(t *testing.T) {
	for _, name := range []string{"full/file.yml", "plain/file.toml", "spelled/file.yml", "spelled/file.toml"} {
		var written struct {
			HTTP struct {
				Middlewares map[string]struct{ Plugin map[string]map[string]any }
			}
		}
		text := read(t, name)
		var err error
		if filepath.Ext(name) == ".toml" {
			_, err = toml.Decode(text, &written)
		} else {
			err = yaml.Unmarshal([]byte(text), &written)
		}
		if err != nil {
			t.Fatal(err)
		}
		got, err := File(written.HTTP.Middlewares["cart"].Plugin["cart"])
		if want := fromFile(t, text, filepath.Ext(name)); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("File(the plugin's part of %s) = %v, %v, want %v", name, got, err, want)
		}
	}
}

func only(t *testing.T, m Middlewares, err error) Raw {
	t.Helper()
	if err != nil || len(m["cart"]["cart"]) == 0 {
		t.Fatalf("decoded: %v, %v, want a middleware cart", m, err)
	}
	return m["cart"]["cart"]
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "forms", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func pairsOf(t *testing.T, text string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, line := range strings.Split(strings.TrimSpace(text), "\n") {
		name, value, ok := strings.Cut(line, "=")
		if !ok {
			t.Fatalf("%q is not NAME=VALUE", line)
		}
		out[name] = value
	}
	return out
}

// canonical returns the settings that are not the default, one a line, in which values that are equal look equal: Traefik
// writes 0.5 with six decimals when it comes from a file, and leaves it as it is when it comes from a label.
func canonical(t *testing.T, c *cart.Config) []string {
	t.Helper()
	defaults := map[string]bool{}
	for _, line := range flat(t, cart.CreateConfig()) {
		defaults[line] = true
	}
	return slices.DeleteFunc(flat(t, c), func(line string) bool { return defaults[line] })
}

func flat(t *testing.T, c *cart.Config) []string {
	t.Helper()
	text, err := json.Marshal(c)
	var plain any
	if err == nil {
		err = json.Unmarshal(text, &plain)
	}
	if err != nil {
		t.Fatal(err)
	}
	lines := flatten("", plain)
	slices.Sort(lines)
	return lines
}

func flatten(key string, value any) []string {
	var out []string
	switch v := value.(type) {
	case map[string]any:
		for name, element := range v {
			out = append(out, flatten(strings.TrimPrefix(key+"."+name, "."), element)...)
		}
	case []any:
		for i, element := range v {
			out = append(out, flatten(key+"["+strconv.Itoa(i)+"]", element)...)
		}
	case string:
		out = append(out, key+" = "+normal(v))
	}
	return out
}

// normal makes one text of those that mean the same: numbers, durations in seconds, and truth values, of which the decoder
// makes 1 and 0 when they come from a manifest.
func normal(text string) string {
	switch text {
	case "true":
		return "1"
	case "false":
		return "0"
	}
	if f, err := strconv.ParseFloat(text, 64); err == nil {
		return strconv.FormatFloat(f, 'g', -1, 64)
	}
	if d, err := time.ParseDuration(text); err == nil {
		return strconv.FormatFloat(d.Seconds(), 'g', -1, 64)
	}
	return text
}
