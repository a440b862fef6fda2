package chats

import (
	"context"
	"errors"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/cart-llm/cart/e2e/replica"
)

func TestConversations(t *testing.T) {
	for _, w := range []Workload{Even, Skewed, Even.For(8), Skewed.For(8)} {
		talks := w.Conversations(1)
		if len(talks) != w.Talks {
			t.Errorf("%s: %d conversations, want %d", w.Name, len(talks), w.Talks)
		}
		systems, questions, of := map[string]int{}, map[string]bool{}, map[int]int{}
		for _, talk := range talks {
			words := len(strings.Fields(talk.System))
			if words < w.FewestWords || words > w.MostWords || len(talk.Questions) != w.Turns {
				t.Errorf("%s: a system prompt of %d words, %d questions", w.Name, words, len(talk.Questions))
			}
			systems[talk.System]++
			of[talk.Tenant]++
			for _, q := range talk.Questions {
				questions[q] = true
			}
		}
		if len(questions) != w.Talks*w.Turns || len(systems) != len(of) {
			t.Errorf("%s: %d questions, %d system prompts of %d tenants", w.Name, len(questions), len(systems), len(of))
		}
		if least, most := w.Talks/w.Tenants, (w.Talks+w.Tenants-1)/w.Tenants; !w.Ranked {
			for tenant, n := range of {
				if n < least || n > most {
					t.Errorf("%s: tenant %d has %d conversations, want %d or %d", w.Name, tenant, n, least, most)
				}
			}
		}
		for _, other := range w.Conversations(2) {
			if systems[other.System] > 0 || questions[other.Questions[0]] {
				t.Fatalf("%s: two seeds share a text", w.Name)
			}
		}
		if again := w.Conversations(1); again[0].System != talks[0].System {
			t.Errorf("%s: a seed gives other conversations the second time", w.Name)
		}
	}
}

func TestConversations_popularityByRank(t *testing.T) {
	w := Skewed
	w.Talks = 10000
	count := make([]float64, w.Tenants)
	for _, talk := range w.Conversations(3) {
		count[talk.Tenant]++
	}
	for _, rank := range []int{2, 4, 8} {
		if got := count[0] / count[rank-1]; math.Abs(got/float64(rank)-1) > 0.25 {
			t.Errorf("the first tenant has %.2f times the conversations of tenant %d", got, rank)
		}
	}
}

func TestFor(t *testing.T) {
	if w := Even.For(8); w.Tenants != 24 || w.Talks != 160 || w.AtOnce != 16 || w.Turns != 4 || w.MostWords != 1800 {
		t.Errorf("For(8) = %+v", w)
	}
	if w := Skewed.For(3); w != Skewed {
		t.Errorf("For(3) = %+v, want the same", w)
	}
}

func TestDrive(t *testing.T) {
	r, err := replica.Start(replica.Options{PrefillRate: 20000, DecodeRate: 1000})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	w := Workload{Name: "one", Tenants: 1, FewestWords: 800, MostWords: 800, Talks: 3, AtOnce: 1, Turns: 3}
	tally := &Tally{}
	tally.Add(Drive(context.Background(), Target{URL: r.URL()}, w.Conversations(1), w.AtOnce))
	stats := r.Stats()
	if tally.Errors != 0 || len(tally.First) != 9 {
		t.Fatalf("%d answers, %d errors: %v", len(tally.First), tally.Errors, tally.FirstErr)
	}
	if int64(tally.Prompt) != stats.PromptTokens || int64(tally.Cached) != stats.CachedTokens || stats.GeneratedTokens != 9*AnswerTokens {
		t.Errorf("tokens %d, %d by the answers, %+v by the replica", tally.Prompt, tally.Cached, stats)
	}
	// All but the first prompt is known but for its end.
	if share := tally.Share(); share < 75 || share > 95 {
		t.Errorf("%.1f %% cached", share)
	}
	if first := tally.Quantile(1); first < 0.04 { // 1,000 tokens take 50 ms
		t.Errorf("the slowest first event came after %.3f s", first)
	}
	if tally.Mean() >= tally.Quantile(1) || tally.Quantile(0.5) >= tally.Quantile(1) {
		t.Errorf("mean %.3f, p50 %.3f, most %.3f s", tally.Mean(), tally.Quantile(0.5), tally.Quantile(1))
	}
}

func TestDrive_errors(t *testing.T) {
	const usage = `data: {"choices":[],"usage":{"prompt_tokens":3,"prompt_tokens_details":{"cached_tokens":1}}}` + "\n\n"
	for _, row := range []struct {
		answer, wrong string
		status        int
	}{
		{"no", "answer 503 Service Unavailable no", 503},
		{"data: {\"error\":{\"message\":\"engine died\"}}\n\ndata: [DONE]\n\n", "engine died", 200},
		{"data: {\"choices\":[]}\n\ndata: [DONE]\n\n", "without usage", 200},
		{usage, "without its last event", 200},
		{"data: {\n\n", "event", 200},
		{usage + "data: [DONE]\n\n", "", 200},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
			rw.WriteHeader(row.status)
			_, _ = rw.Write([]byte(row.answer))
		}))
		turns := Drive(context.Background(), Target{URL: server.URL}, []Talk{{System: "a", Questions: []string{"b"}}}, 1)
		server.Close()
		switch {
		case len(turns) != 1:
			t.Errorf("%q: %d turns, want 1", row.answer, len(turns))
		case row.wrong == "" && (turns[0].Err != nil || turns[0].Prompt != 3 || turns[0].Cached != 1):
			t.Errorf("%q: %+v", row.answer, turns[0])
		case row.wrong != "" && (turns[0].Err == nil || !strings.Contains(turns[0].Err.Error(), row.wrong)):
			t.Errorf("%q: %v, want %q", row.answer, turns[0].Err, row.wrong)
		}
	}
}

func TestDrive_endsWithItsContext(t *testing.T) {
	r, err := replica.Start(replica.Options{DecodeRate: 0.001})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Kill()
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	if turns := Drive(ctx, Target{URL: r.URL()}, Even.Conversations(1), 3); len(turns) != 0 {
		t.Errorf("%d turns, first %+v; want none: what was cut off says nothing", len(turns), turns[0])
	}
}

func TestTally_rows(t *testing.T) {
	a, b := &Tally{}, &Tally{}
	a.Add([]Turn{{First: time.Second, Prompt: 10, Cached: 5}, {First: 3 * time.Second, Prompt: 10}, {Err: errors.New("x")}})
	b.Add([]Turn{{First: time.Second, Prompt: 10}})
	if got, want := a.Row("a", b, "more"), "| a | 2.000 | 1.000 | 1.000 | 25.0 % | 1 | 2.000 | 2.00 | 1.00 | more |\n"; got != want {
		t.Errorf("Row() = %q, want %q", got, want)
	}
	if got := b.Row("b", nil); !strings.HasSuffix(got, "| - | - |\n") {
		t.Errorf("Row() beside nothing = %q", got)
	}
	if head := TableHead("more"); strings.Count(strings.SplitN(head, "\n", 2)[0], "|") != strings.Count(a.Row("a", b, "x"), "|") {
		t.Errorf("the head %q has other columns than a row", head)
	}
}

func TestScrape(t *testing.T) {
	r, err := replica.Start(replica.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	Drive(context.Background(), Target{URL: r.URL()}, []Talk{{System: "a", Questions: []string{"b"}}}, 1)
	work, err := WorkOf(context.Background(), []string{r.URL()})
	if err != nil || len(work) != 1 || work[0].Requests != 1 || work[0].Prompt < 1 {
		t.Errorf("WorkOf() = %+v, %v", work, err)
	}
}
