// Package chats leads multi-turn, streamed conversations with replicas, through whatever stands before them, and measures
// when their answers begin and how much of their prompts was cached. It knows two workloads.
package chats

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// Workload describes conversations. Those of one tenant begin with the same system prompt.
type Workload struct {
	Name    string
	Tenants int
	// Ranked gives the tenant of rank n a share of the conversations that goes with 1/n; otherwise all have the same.
	Ranked bool
	// A system prompt has this many words, each number as likely as the other.
	FewestWords, MostWords int
	// Talks is the number of conversations, AtOnce how many are led at a time, each of Turns questions without a pause.
	Talks, AtOnce, Turns int
}

const (
	// QuestionWords is the length of a question.
	QuestionWords = 30
	// AnswerTokens is the length of an answer.
	AnswerTokens = 16
)

// The workloads, for three replicas.
var (
	Even   = Workload{Name: "even", Tenants: 9, FewestWords: 1800, MostWords: 1800, Talks: 60, AtOnce: 6, Turns: 4}
	Skewed = Workload{
		Name: "skewed", Tenants: 24, Ranked: true, FewestWords: 450, MostWords: 2550, Talks: 90, AtOnce: 9, Turns: 4,
	}
)

// For scales a workload for three replicas to another number of them.
func (w Workload) For(replicas int) Workload {
	for _, n := range []*int{&w.Tenants, &w.Talks, &w.AtOnce} {
		*n = (*n*replicas + 1) / 3
	}
	return w
}

// About describes it.
func (w Workload) About() string {
	words := fmt.Sprintf("%d words", w.FewestWords)
	if w.MostWords > w.FewestWords {
		words = fmt.Sprintf("%d to %d words", w.FewestWords, w.MostWords)
	}
	popularity := "all alike"
	if w.Ranked {
		popularity = "popularity 1/rank"
	}
	return fmt.Sprintf("%d tenants, %s, system prompts of %s; %d conversations of %d turns, %d at a time, no pauses",
		w.Tenants, popularity, words, w.Talks, w.Turns, w.AtOnce)
}

// Talk is a conversation to be led.
type Talk struct {
	Tenant    int
	System    string
	Questions []string
}

// Conversations returns those of a seed. Two seeds have no text in common.
func (w Workload) Conversations(seed uint64) []Talk {
	random := rand.New(rand.NewPCG(seed, uint64(w.Talks)))
	systems := make([]string, w.Tenants)
	for i := range systems {
		systems[i] = prose(random, w.FewestWords+random.IntN(w.MostWords-w.FewestWords+1))
	}
	talks := make([]Talk, w.Talks)
	for i := range talks {
		t := &talks[i]
		t.Tenant = i % w.Tenants
		if w.Ranked {
			t.Tenant = byRank(random, w.Tenants)
		}
		t.System = systems[t.Tenant]
		for range w.Turns {
			t.Questions = append(t.Questions, prose(random, QuestionWords))
		}
	}
	random.Shuffle(len(talks), func(i, j int) { talks[i], talks[j] = talks[j], talks[i] })
	return talks
}

// byRank draws a number below n, of which number i has a share that goes with 1/(i+1).
func byRank(random *rand.Rand, n int) int {
	sum := 0.0
	for i := range n {
		sum += 1 / float64(i+1)
	}
	draw := random.Float64() * sum
	for i := range n {
		if draw -= 1 / float64(i+1); draw < 0 {
			return i
		}
	}
	return n - 1
}

func prose(random *rand.Rand, words int) string {
	var text strings.Builder
	for i := range words {
		if i > 0 {
			text.WriteByte(' ')
		}
		list := particles
		if random.IntN(2) == 0 {
			list = terms
		}
		text.WriteString(list[random.IntN(len(list))])
	}
	return text.String()
}
