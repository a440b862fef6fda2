package seeing

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/cart-llm/cart/e2e/engine"
)

type explanation struct {
	Replica  string `json:"replica"`
	Reason   string `json:"reason"`
	Refusal  string `json:"refusal"`
	Because  string `json:"because"`
	Known    int    `json:"known"`
	Replicas []struct {
		URL     string  `json:"url"`
		Matched int     `json:"matched"`
		Ratio   float64 `json:"ratio"`
	} `json:"replicas"`
}

func TestExplain(t *testing.T) {
	engine.Each(t, func(t *testing.T, kind engine.Kind) {
		// What CART asks replicas of its own accord changes the metrics too.
		r := start(t, kind, 3, engine.Config{
			"endpoints": engine.Config{"explain": true},
			"health":    engine.Config{"metrics": engine.Config{"interval": 0}, "models": engine.Config{"interval": 0}},
		})
		prompt := strings.Repeat("a long story. ", 200)
		peer := r.chat(prompt).header.Get("x-routed-peer")
		seen := func() (n int) {
			for _, one := range r.replicas {
				for _, x := range one.Requests() {
					if strings.HasPrefix(x.Target, "/v1/") {
						n++
					}
				}
			}
			return n
		}
		// The tokens that the answer told are read a moment later.
		claims := ""
		eventually(t, 20*time.Second, func() error {
			claims = r.do(http.MethodGet, "/metrics", "").body
			time.Sleep(300 * time.Millisecond)
			if claims != r.do(http.MethodGet, "/metrics", "").body {
				return errors.New("the metrics are still changing")
			}
			return nil
		})
		before := seen()
		explain := func(path, body string) explanation {
			var e explanation
			a := r.do(http.MethodPost, "/workers?explain="+path, body)
			if err := json.Unmarshal([]byte(a.body), &e); err != nil || a.status != http.StatusOK {
				t.Fatalf("POST /workers?explain=%s = %d %s, %v", path, a.status, a.body, err)
			}
			return e
		}
		for _, row := range []struct{ path, body, reason, replica string }{
			{"/v1/chat/completions", chatOf(prompt+"and more", false), "cache_hit", peer},
			{"1", chatOf(prompt+"and more", false), "cache_hit", peer},
			{"/v1/completions", `{"model":"m","prompt":"` + prompt + `"}`, "miss", ""},
			{"/v1/embeddings", `{}`, "passthrough", ""},
		} {
			e := explain(row.path, row.body)
			if e.Reason != row.reason || (row.replica != "" && e.Replica != row.replica) || e.Replica == "" || e.Because == "" || len(e.Replicas) != 3 {
				t.Errorf("explain=%s: %+v, want %s to %s", row.path, e, row.reason, row.replica)
			}
			for _, one := range e.Replicas {
				if known := one.Matched > 2000 && one.Ratio > 0.9; known != (row.replica != "" && one.URL == row.replica) {
					t.Errorf("explain=%s: %+v, want the match on %s alone", row.path, one, row.replica)
				}
			}
		}
		if n := seen(); n != before {
			t.Errorf("%d requests reached the replicas while decisions were explained, want none", n-before)
		}
		if after := r.do(http.MethodGet, "/metrics", "").body; after != claims {
			t.Errorf("the metrics changed while decisions were explained:\n%s\n%s", claims, after)
		}
		if a := r.chat(prompt + "and more"); a.header.Get("x-routed-peer") != peer || a.header.Get("x-cart-reason") != "cache_hit" {
			t.Errorf("the request itself went to %s for %s, want %s as explained", a.header.Get("x-routed-peer"), a.header.Get("x-cart-reason"), peer)
		}
		r.with(engine.Config{"endpoints": engine.Config{"explain": false}})
		if a := r.do(http.MethodPost, "/workers?explain=1", "{}"); a.status != http.StatusForbidden || !strings.Contains(a.body, "endpoints.explain") {
			t.Errorf("explain when it is off = %d %s, want 403 and how to turn it on", a.status, a.body)
		}
	})
}
