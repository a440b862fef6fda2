package main

import (
	"encoding/json"
	"fmt"
	"math/rand"
	"strings"
	"time"
)

// The load: every tenant has a long system prompt of its own, as applications do, and several conversations that grow turn
// by turn. The seed makes it the same on every run and for both policies.
const (
	seed          = 1
	tenants       = 16
	conversations = 4    // of each tenant
	turns         = 6    // of each conversation
	clients       = 12   // conversations going on at once
	systemChars   = 9600 // about 2,400 tokens
	userChars     = 800
	answerTokens  = 16
	pause         = 150 * time.Millisecond // mean time a user takes before the next turn
	model         = "demo"
)

// workload is the list of conversations in the order they begin.
type workload struct {
	list []*conversation
}

// conversation is what one user says, and how long he thinks before each turn.
type conversation struct {
	system string
	says   []string
	thinks []time.Duration
}

func newWorkload() *workload {
	rnd := rand.New(rand.NewSource(seed))
	w := &workload{}
	for t := 0; t < tenants; t++ {
		name := "tenant " + word(rnd)
		system := fmt.Sprintf("You work for %s. %s", name, prose(rnd, systemChars))
		for c := 0; c < conversations; c++ {
			talk := &conversation{system: system}
			for n := 0; n < turns; n++ {
				talk.says = append(talk.says, prose(rnd, userChars/2+rnd.Intn(userChars)))
				talk.thinks = append(talk.thinks, time.Duration(rnd.Int63n(2*int64(pause))))
			}
			w.list = append(w.list, talk)
		}
	}
	rnd.Shuffle(len(w.list), func(i, j int) { w.list[i], w.list[j] = w.list[j], w.list[i] })
	return w
}

// requests is the number of turns in all.
func (w *workload) requests() int { return len(w.list) * turns }

type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// body is the chat request for the turn that follows the messages so far.
func body(messages []message) []byte {
	b, err := json.Marshal(map[string]any{
		"model": model, "messages": messages, "max_tokens": answerTokens,
		"stream": true, "stream_options": map[string]bool{"include_usage": true},
	})
	if err != nil {
		panic(err) // strings and numbers always encode
	}
	return b
}

// prose is n characters of made-up sentences.
func prose(rnd *rand.Rand, n int) string {
	var b strings.Builder
	for b.Len() < n {
		first := word(rnd)
		b.WriteString(strings.ToUpper(first[:1]) + first[1:])
		for k := 4 + rnd.Intn(9); k > 0; k-- {
			b.WriteString(" " + word(rnd))
		}
		b.WriteString(". ")
	}
	return b.String()[:n]
}

func word(rnd *rand.Rand) string {
	const consonants, vowels = "bdfgklmnprstvz", "aeiou"
	var b strings.Builder
	for k := 1 + rnd.Intn(3); k > 0; k-- {
		b.WriteByte(consonants[rnd.Intn(len(consonants))])
		b.WriteByte(vowels[rnd.Intn(len(vowels))])
	}
	return b.String()
}
