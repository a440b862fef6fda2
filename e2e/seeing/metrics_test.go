package seeing

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/cart-llm/cart/e2e/engine"
	"github.com/cart-llm/cart/e2e/prometheus"
)

func TestMetrics_promtoolAccepts(t *testing.T) {
	engine.Each(t, func(t *testing.T, kind engine.Kind) {
		r := start(t, kind, 2, small)
		check := func(when string) string {
			a := r.do(http.MethodGet, "/metrics", "")
			if a.status != http.StatusOK {
				t.Fatalf("GET /metrics %s = %d %s", when, a.status, a.body)
			}
			if out, err := prometheus.Tool(t, a.body, "check", "metrics"); err != nil || out != "" {
				t.Errorf("promtool check metrics %s: %v %s", when, err, out)
			}
			return a.body
		}
		before := check("at the start")
		r.traffic()
		after := check("after some traffic")
		if a, b := seriesOf(before), seriesOf(after); a != b {
			t.Errorf("the series changed with the traffic: from\n%s\nto\n%s", a, b)
		}
		for _, want := range []string{`reason="cache_hit"} [1-9]`, `reason="miss"} [1-9]`, `reason="retry"} 1`, `reason="body_too_large"} 1`,
			`cart_first_byte_seconds_count{.*decision="hit"} [1-9]`, `cart_first_byte_seconds_count{.*decision="other"} [1-9]`} {
			if !regexp.MustCompile(want).MatchString(after) {
				t.Errorf("/metrics has no %s:\n%s", want, after)
			}
		}
	})
}

// seriesOf returns the names and labels of all samples.
func seriesOf(text string) string {
	var out []string
	for _, line := range strings.Split(text, "\n") {
		if name, _, ok := strings.Cut(line, "} "); ok && !strings.HasPrefix(line, "#") {
			out = append(out, name)
		}
	}
	sort.Strings(out)
	return strings.Join(out, "\n")
}

// TestMetrics_aPrometheusScrapes has a real Prometheus look at a real Traefik, with the alert rules loaded, and tries every
// query of the dashboard on it.
func TestMetrics_aPrometheusScrapes(t *testing.T) {
	if !engine.Selected(engine.Traefik) {
		t.Skip("runs on the engine traefik alone")
	}
	r := start(t, engine.Traefik, 3, small)
	rules, err := os.ReadFile("../../deploy/prometheus/cart.rules.yml")
	if err != nil {
		t.Fatal(err)
	}
	file := t.TempDir() + "/cart.rules.yml"
	if err := os.WriteFile(file, rules, 0o644); err != nil {
		t.Fatal(err)
	}
	p := prometheus.Start(t, prometheus.Options{Targets: []string{r.e.URL() + "/metrics"}, Interval: 250 * time.Millisecond, Rules: file})
	sum := func(expression string) float64 {
		samples, err := p.Query(expression)
		if err != nil {
			t.Fatal(err)
		}
		n := 0.0
		for _, s := range samples {
			n += s.Value
		}
		return n
	}
	eventually(t, 20*time.Second, func() error {
		if n := sum("up"); n != 1 {
			return fmt.Errorf("up = %v", n)
		}
		return nil
	})
	r.traffic()
	want := 0
	for _, n := range r.state().Reasons {
		want += n
	}
	eventually(t, 20*time.Second, func() error {
		if n := sum("cart_requests_total"); n != float64(want) {
			return fmt.Errorf("cart_requests_total = %v, want %d as in /workers", n, want)
		}
		return nil
	})
	checkDashboard(t, p)
	// The series of a policy that only watches are there while it does.
	r.with(engine.Config{"shadow": true})
	r.traffic()
	eventually(t, 20*time.Second, func() error {
		if n := sum("cart_shadow_decisions_total"); n == 0 {
			return errors.New("cart_shadow_decisions_total = 0 with shadow")
		}
		return nil
	})
	checkDocumented(t, p)

	gone := r.replicas[2].URL()
	r.with(engine.Config{"workers": []any{engine.Config{"url": r.replicas[0].URL()}, engine.Config{"url": r.replicas[1].URL()}}})
	eventually(t, 20*time.Second, func() error {
		left, err := p.Query(`{__name__=~"cart_.*",replica="` + gone + `"}`)
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("%d series of the replica that was removed", len(left))
		}
		return err
	})
	if n := sum("cart_usable_replicas"); n != 2 {
		t.Errorf("cart_usable_replicas = %v, want 2", n)
	}
}

// checkDocumented wants the table of metrics in docs/operations.md to have just those that there are.
func checkDocumented(t *testing.T, p *prometheus.Server) {
	t.Helper()
	names, err := p.Names("cart_")
	if err != nil {
		t.Fatal(err)
	}
	there := map[string]bool{}
	for _, name := range names {
		there[strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(name, "_bucket"), "_sum"), "_count")] = true
	}
	text, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `(cart_[a-z_]+)").FindAllStringSubmatch(string(text), -1) {
		listed[m[1]] = true
		if !there[m[1]] {
			t.Errorf("docs/operations.md lists %s, which /metrics has not", m[1])
		}
	}
	for name := range there {
		if !listed[name] {
			t.Errorf("docs/operations.md does not list %s", name)
		}
	}
}
