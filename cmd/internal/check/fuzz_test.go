package check

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cart-llm/cart/cmd/internal/layer"
	"github.com/cart-llm/cart/cmd/internal/source"
	"github.com/cart-llm/cart/cmd/internal/traefik"
)

// FuzzFiles: whatever is in a file, the check ends with an answer. The seeds are the wrong files and the right ones.
func FuzzFiles(f *testing.F) {
	for _, pattern := range []string{"../../cart/testdata/wrong/*", "../traefik/testdata/forms/*/*"} {
		names, err := filepath.Glob(pattern)
		if err != nil || len(names) == 0 {
			f.Fatalf("Glob(%s) = %v, %v, want files", pattern, names, err)
		}
		for _, name := range names {
			content, err := os.ReadFile(name)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(content, filepath.Ext(name))
		}
	}
	f.Fuzz(func(t *testing.T, content []byte, ending string) {
		switch ending {
		case ".yml", ".toml", ".json", ".txt":
		default:
			return
		}
		if bytes.Contains(content, []byte("{{")) {
			return // a template may take its time, here as in Traefik
		}
		name := filepath.Join(t.TempDir(), "a"+ending)
		if err := os.WriteFile(name, content, 0o644); err != nil {
			t.Fatal(err)
		}
		r := Files([]string{name, name}, Options{Options: source.Options{Labels: true}, NoFiles: true})
		if len(r.Faults)+len(r.Good) == 0 {
			t.Errorf("Files(%q) = no fault and nothing good", content)
		}
	})
}

// FuzzDynamicFile: what is said of a dynamic configuration is what Traefik's decoder says of it. Below plugin and of panics the
// decoder has the only say.
func FuzzDynamicFile(f *testing.F) {
	names, err := filepath.Glob("../../cart/testdata/dynamic/*/*.yml")
	if err != nil || len(names) == 0 {
		f.Fatalf("Glob() = %v, %v, want files", names, err)
	}
	for _, name := range names {
		content, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(content)
	}
	for _, text := range []string{
		"http: {services: {a: {loadBalancer: {servers: {b: {c: d}}}}}}", "http: {routers: [{rule: a}, b]}", "http: {routers: {a: text, b: [c]}}",
		"http: {routers: {a: {entryPoints: {b: {c: d}}}}}", "http: {routers: {a: {entryPoints: {b: {}}}}}", "http: {routers: {a: {entryPoints: [{}]}}}",
		"http: {routers: {a: {tls: [x]}, b: {tls: no}, c: {tls: {x: y}}}}", "http: {routers: {a: {DefaultRule: x, Metadata: {a: b}}}}",
		"http: {routers: {a: {rule: [x]}, b: {priority: [1]}, c: {priority: {}}, d: {priority: ''}}}", "tcp: {services: {a: {loadBalancer: {servers: [{}]}}}}",
		"http: {middlewares: {a: {headers: {customRequestHeaders: {b: {c: [d]}, e: [[f]]}}}}}", "http: {routers: {a: {priority: 1e3}, b: {priority: 1_000}}}",
		"http: {middlewares: {a: {ipAllowList: {rejectStatusCode: {}}}}}", "tls: {stores: {default: {defaultCertificate: {certFile: 1}}}}", "http: 5", "http: [{a: b}]",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		name := filepath.Join(t.TempDir(), "a.yml")
		if err := os.WriteFile(name, content, 0o644); err != nil {
			t.Fatal(err)
		}
		documents, _ := layer.Read(name, func([]*layer.Node) bool { return false })
		for _, n := range documents {
			written, ok := n.Plain().(map[string]any)
			if !ok {
				continue
			}
			faults, _ := dynamicFile(n)
			err := traefik.TakesFile(written)
			if err != nil && len(faults) == 0 && (bytes.Contains(bytes.ToLower(content), []byte("plugin")) || strings.Contains(err.Error(), "fails on it")) {
				continue
			}
			if (err != nil) != (len(faults) > 0) {
				t.Errorf("dynamicFile(%q) = %v, want as Traefik's decoder: %v", content, faults, err)
			}
		}
	})
}

// TestDynamicFile_saysWhatTheDecoderSays: of configurations of Traefik's own keys with all kinds of values, right and wrong.
func TestDynamicFile_saysWhatTheDecoderSays(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	refused, taken := 0, 0
	for i := 0; i < 3000; i++ {
		d := &drawer{random: random, wrong: []int{0, 3, 15}[i%3]}
		written, ok := d.value(traefik.Dynamic, 0).(map[string]any)
		if !ok {
			continue
		}
		n := layer.Build(written, "a.yml", func(string) (int, bool) { return 0, false })
		faults, _ := dynamicFile(n)
		err := traefik.TakesFile(written)
		if (err != nil) != (len(faults) > 0) {
			t.Fatalf("dynamicFile(%v) = %v, want as Traefik's decoder: %v", written, faults, err)
		}
		if err != nil {
			refused++
		} else {
			taken++
		}
	}
	if refused < 300 || taken < 300 {
		t.Errorf("%d refused, %d taken, want hundreds of each", refused, taken)
	}
}

// drawer makes configurations by chance.
type drawer struct {
	random *rand.Rand
	wrong  int // how many values in a hundred are of any kind
}

func (d *drawer) value(k *traefik.Key, depth int) any {
	if depth > 0 && d.random.IntN(100) < d.wrong {
		return d.anything(2)
	}
	switch k.Kind {
	case traefik.Section:
		out := map[string]any{}
		for n := 1 + d.random.IntN(3); n > 0 && len(k.Below) > 0; n-- {
			below := k.Below[d.random.IntN(len(k.Below))]
			if below.Name == "plugin" {
				continue
			}
			name := below.Name
			if d.random.IntN(300) < d.wrong {
				name += "s"
			}
			out[name] = d.value(below, depth+1)
		}
		if len(out) == 0 && !k.MayBeEmpty {
			return nil
		}
		return out
	case traefik.Map:
		return map[string]any{"one": d.value(k.Each, depth+1), "two": d.value(k.Each, depth+1)}
	case traefik.List:
		return []any{d.value(k.Each, depth+1)}
	case traefik.Values:
		return []any{"a", 1, "b,c"}
	}
	for _, text := range []string{"30", "true"} {
		if !k.Text() && k.Wants(text) == "" {
			return text
		}
	}
	return d.scalar()
}

func (d *drawer) scalar() any {
	return []any{"a", "", "1", 1, -1, 1.5, 1e6, true, "5s", "1,2", uint64(1 << 63)}[d.random.IntN(11)]
}

func (d *drawer) anything(depth int) any {
	switch n := d.random.IntN(8); {
	case n == 0 && depth > 0:
		return map[string]any{"a": d.anything(depth - 1), "name": d.anything(depth - 1)}
	case n == 1 && depth > 0:
		return []any{d.anything(depth - 1)}
	case n == 2:
		return nil
	case n == 3:
		return map[string]any{}
	case n == 4:
		return []any{}
	case n == 5:
		return time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)
	}
	return d.scalar()
}
