package seeing

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/cart-llm/cart/e2e/engine"
	"github.com/cart-llm/cart/e2e/prometheus"
	"gopkg.in/yaml.v3"
)

// dashboard is the part of a Grafana dashboard that has queries.
type dashboard struct {
	UID        string `json:"uid"`
	Title      string `json:"title"`
	Templating struct {
		List []struct {
			Name  string          `json:"name"`
			Type  string          `json:"type"`
			Query json.RawMessage `json:"query"`
		} `json:"list"`
	} `json:"templating"`
	Panels []panel `json:"panels"`
}

type panel struct {
	ID          int    `json:"id"`
	Type        string `json:"type"`
	Title       string `json:"title"`
	Description string `json:"description"`
	GridPos     struct {
		H, W, X, Y int
	} `json:"gridPos"`
	Datasource struct {
		UID string `json:"uid"`
	} `json:"datasource"`
	Targets []struct {
		Expr string `json:"expr"`
	} `json:"targets"`
}

func readDashboard(t *testing.T) dashboard {
	t.Helper()
	text, err := os.ReadFile("../../deploy/grafana/cart.json")
	if err != nil {
		t.Fatal(err)
	}
	var d dashboard
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	return d
}

// checkDashboard tries every query of the dashboard, with its variables set to everything.
func checkDashboard(t *testing.T, p *prometheus.Server) {
	t.Helper()
	d := readDashboard(t)
	variables := strings.NewReplacer("$__rate_interval", "1m", "$__range", "1m", "$pool", ".*", "$replica", ".*")
	queries := 0
	for _, panel := range d.Panels {
		for _, target := range panel.Targets {
			queries++
			expression := variables.Replace(target.Expr)
			if strings.Contains(expression, "$") {
				t.Errorf("panel %q: %s has a variable that the test does not know", panel.Title, target.Expr)
				continue
			}
			eventually(t, 20*time.Second, func() error {
				samples, err := p.Query(expression)
				if err == nil && len(samples) == 0 {
					err = fmt.Errorf("no data for %s", expression)
				}
				if err != nil {
					return fmt.Errorf("panel %q: %w", panel.Title, err)
				}
				return nil
			})
		}
	}
	if queries < 20 {
		t.Errorf("the dashboard has %d queries, want those of all rows", queries)
	}
	for _, v := range d.Templating.List {
		if m := regexp.MustCompile(`label_values\((\w+)(?:\{[^}]*\})?, ?(\w+)\)`).FindStringSubmatch(string(v.Query)); m != nil {
			if samples, err := p.Query("count by (" + m[2] + ") (" + m[1] + ")"); err != nil || len(samples) == 0 || samples[0].Labels[m[2]] == "" {
				t.Errorf("variable %s: %s has no values, %v", v.Name, m[0], err)
			}
		}
	}
}

func TestDashboard_isLaidOutWell(t *testing.T) {
	if !engine.Selected(engine.Compiled) {
		t.Skip("needs no engine: runs once, with compiled")
	}
	d := readDashboard(t)
	if d.UID == "" || d.Title == "" {
		t.Error("the dashboard has no uid or title")
	}
	rows, ids := "", map[int]bool{}
	taken := map[[2]int]string{}
	for _, panel := range d.Panels {
		if ids[panel.ID] {
			t.Errorf("panel %q: id %d is taken", panel.Title, panel.ID)
		}
		ids[panel.ID] = true
		if panel.Type == "row" {
			rows += panel.Title + "\n"
		} else if len(panel.Targets) == 0 || panel.Description == "" || panel.Datasource.UID != "${datasource}" {
			t.Errorf("panel %q has no query, no description, or a datasource of its own", panel.Title)
		}
		g := panel.GridPos
		if g.W <= 0 || g.H <= 0 || g.X+g.W > 24 {
			t.Errorf("panel %q does not fit into the grid: %+v", panel.Title, g)
		}
		for x := g.X; x < g.X+g.W; x++ {
			for y := g.Y; y < g.Y+g.H; y++ {
				if other := taken[[2]int{x, y}]; other != "" {
					t.Errorf("panels %q and %q overlap", panel.Title, other)
				}
				taken[[2]int{x, y}] = panel.Title
			}
		}
	}
	for _, question := range []string{"affinity", "hot", "refused", "router cost"} {
		if !strings.Contains(strings.ToLower(rows), question) {
			t.Errorf("no row asks about %q:\n%s", question, rows)
		}
	}
}

func TestRules_promtoolAccepts(t *testing.T) {
	if !engine.Selected(engine.Compiled) {
		t.Skip("needs no engine: runs once, with compiled")
	}
	for _, arguments := range [][]string{
		{"check", "rules", "../../deploy/prometheus/cart.rules.yml"},
		{"test", "rules", "../../deploy/prometheus/cart.test.yml"},
	} {
		out, err := prometheus.Tool(t, "", arguments...)
		if err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(arguments, " "), err, out)
		}
	}
}

// TestRules_eachAlertIsTested wants every alert to fire once in the rules' own test, and a word on what to do.
func TestRules_eachAlertIsTested(t *testing.T) {
	if !engine.Selected(engine.Compiled) {
		t.Skip("needs no engine: runs once, with compiled")
	}
	rules, err := os.ReadFile("../../deploy/prometheus/cart.rules.yml")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("../../deploy/prometheus/cart.test.yml")
	if err != nil {
		t.Fatal(err)
	}
	var tests struct {
		Tests []struct {
			Rules []struct {
				Alert  string `yaml:"alertname"`
				Expect []any  `yaml:"exp_alerts"`
			} `yaml:"alert_rule_test"`
		} `yaml:"tests"`
	}
	if err := yaml.Unmarshal(text, &tests); err != nil {
		t.Fatal(err)
	}
	fires, keepsQuiet := map[string]bool{}, map[string]bool{}
	for _, one := range tests.Tests {
		for _, rule := range one.Rules {
			fires[rule.Alert] = fires[rule.Alert] || len(rule.Expect) > 0
			keepsQuiet[rule.Alert] = keepsQuiet[rule.Alert] || len(rule.Expect) == 0
		}
	}
	docs, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	alerts := regexp.MustCompile(`(?m)alert: (\w+)$`).FindAllStringSubmatch(string(rules), -1)
	if len(alerts) < 5 {
		t.Errorf("%d alerts, want those for no replica, lost affinity, a hot replica, refusals and a slow router", len(alerts))
	}
	for _, m := range alerts {
		if !fires[m[1]] || !keepsQuiet[m[1]] {
			t.Errorf("%s is not seen both to fire and to keep quiet in cart.test.yml", m[1])
		}
		if !strings.Contains(string(docs), "`"+m[1]+"`") {
			t.Errorf("docs/operations.md does not tell what to do about %s", m[1])
		}
	}
}
