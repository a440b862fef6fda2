package compare

import (
	"context"
	"flag"
	"io"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/cart-llm/cart/e2e/chats"
	"github.com/cart-llm/cart/e2e/replica"
	"github.com/cart-llm/cart/e2e/report"
)

func options(t *testing.T, args ...string) (*Options, error) {
	t.Helper()
	f := flag.NewFlagSet("test", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	parsed := Flags(f, []string{"wrr"}, 2)
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	return parsed()
}

func TestFlags(t *testing.T) {
	o, err := options(t, "-workloads", "skewed", "-targets", "cart-cost, p2c")
	if err != nil || len(o.Workloads) != 1 || o.Workloads[0] != chats.Skewed || strings.Join(o.Targets, " ") != "cart-cost p2c" || o.Seeds != 2 {
		t.Errorf("options = %+v, %v", o, err)
	}
	for _, args := range [][]string{{"-workloads", "x"}, {"-targets", "x"}, {"-targets", ""}, {"-seeds", "0"}, {"-talks", "-1"}, {"-seeds", "x"}} {
		if o, err := options(t, args...); err == nil {
			t.Errorf("%q gives %+v, want an error", args, o)
		}
	}
}

// TestRun has one workload led through Traefik's balancer and through CART in Traefik, and reads the report.
func TestRun(t *testing.T) {
	r := &Run{Options: &Options{Targets: []string{"wrr", "cart-threshold"}, Seeds: 2}, Progress: io.Discard}
	r.Workloads = []chats.Workload{{Name: "small", Tenants: 2, FewestWords: 300, MostWords: 400, Talks: 6, AtOnce: 2, Turns: 2}}
	for range 2 {
		one, err := replica.Start(replica.Options{Overhead: 5 * time.Millisecond, BlockTokens: 64})
		if err != nil {
			t.Fatal(err)
		}
		defer one.Close()
		r.Replicas = append(r.Replicas, one.URL())
	}
	if err := r.Do(context.Background()); err != nil {
		t.Fatal(err)
	}
	for _, name := range r.Targets {
		s := r.Of("small", name)
		if s.Errors != 0 || len(s.First) != 24 || len(s.Means) != 2 {
			t.Errorf("%s: %d errors (%v), %d answers in %d runs, want 0, 24, 2", name, s.Errors, s.FirstErr, len(s.First), len(s.Means))
		}
		if n := s.Replicas[0].Requests + s.Replicas[1].Requests; n != 24 {
			t.Errorf("%s: the replicas count %.0f requests, want 24", name, n)
		}
		if s.Share() < 30 || math.Abs(s.Replicas[0].Cached+s.Replicas[1].Cached-float64(s.Cached)) > 0 {
			t.Errorf("%s: %.1f %% cached, %d tokens by the answers and %+v by the replicas", name, s.Share(), s.Cached, s.Replicas)
		}
	}
	if told := r.Of("small", "cart-threshold").Cart["cart_prompt_characters_total"]; told < 24*300*4 {
		t.Errorf("CART tells of %.0f characters", told)
	}
	var out strings.Builder
	r.Report(&out, "A run", "Two replicas.", Column{"twice", func(s *Result) string { return "2x" }})
	report.Limits(&out, []report.Limit{r.Errors("cart-threshold"), r.AtMost("small", "mean", "wrr", "cart-threshold", 1e9, Mean),
		r.Cached("small", "cart-threshold", "absent", 0)})
	for _, want := range []string{
		"# A run\n", "## small\n", "2 tenants, all alike, system prompts of 300 to 400 words; 6 conversations of 2 turns, 2 at a time",
		"| wrr | ", " | twice | requests by replica |", " 2x | 12 12 |", "cart-threshold expected ", "- met: errors of cart-threshold: 0.00 (of 24 requests)",
		"- not measured: small: cached share of cart-threshold - absent", "2 of 2 limits measured are met",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}

func TestPredictedOverActual(t *testing.T) {
	s := &Result{Cart: chats.Samples{"cart_predicted_cached_tokens_total": 90, "cart_actual_cached_tokens_total": 100, "cart_tree_nodes": 7}}
	if got := s.PredictedOverActual(); got != 0.9 {
		t.Errorf("PredictedOverActual() = %v, want 0.9", got)
	}
	if got := (&Result{}).PredictedOverActual(); !math.IsNaN(got) {
		t.Errorf("PredictedOverActual() of nothing = %v, want NaN", got)
	}
}

func TestStandstills(t *testing.T) {
	watch := watchStandstills()
	time.Sleep(200 * time.Millisecond)
	if got := watch(); got < 0 || got > 30*time.Second {
		t.Errorf("the longest pause in 200 ms is %v", got)
	}
}
