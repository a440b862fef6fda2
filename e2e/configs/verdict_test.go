package configs

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cart-llm/cart/e2e/traefik"
)

// TestVerdicts: the official Traefik takes, refuses or turns off what `cart check` is tested to say that of. The module cmd
// has the other half of this test.
func TestVerdicts(t *testing.T) {
	tr, err := traefik.Start(t.Context(), traefik.Options{LogLevel: "ERROR"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tr.Stop() }()
	files, err := filepath.Glob("../../cmd/cart/testdata/dynamic/*/*")
	if err != nil || len(files) < 40 {
		t.Fatalf("there are %d files, %v, want at least 40", len(files), err)
	}
	for i, name := range files {
		want := filepath.Base(filepath.Dir(name))
		t.Run(want+"/"+filepath.Base(name), func(t *testing.T) {
			content, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			got, why := verdict(t, tr, fmt.Sprintf("case-%d%s", i, filepath.Ext(name)), content)
			if got != want {
				t.Errorf("Traefik: %s, want %s\n%s", got, want, why)
			}
		})
	}
}

// verdict puts a file into the folder of a running Traefik: it is refused, or taken with all its routers on or one of them off.
func verdict(t *testing.T, tr *traefik.Traefik, name string, content []byte) (verdict, why string) {
	t.Helper()
	if err := tr.Write(name, content); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := tr.Remove(name); err != nil {
			t.Error(err)
		}
	}()
	// Another file tells when the folder has been read.
	mark := map[string]any{"loadBalancer": map[string]any{"servers": []any{map[string]any{"url": "http://127.0.0.1:9"}}}}
	services := map[string]any{"mark-" + name: mark}
	if err := tr.Write("mark.yml", map[string]any{"http": map[string]any{"services": services}}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		if log := tr.Log(); strings.Contains(log, name+":") {
			verdict = "refused"
			why = log
			return nil
		}
		return tr.API(t.Context(), "/api/http/services/mark-"+name+"@file", &struct{}{})
	})
	if verdict != "" {
		return verdict, why
	}
	for _, protocol := range []string{"http", "tcp"} {
		var routers []traefik.Item
		if err := tr.API(t.Context(), "/api/"+protocol+"/routers?per_page=1000", &routers); err != nil {
			t.Fatal(err)
		}
		for _, one := range routers {
			if one.Status == "disabled" {
				return "off", fmt.Sprint(one.Name, one.Errors)
			}
		}
	}
	return "taken", ""
}
