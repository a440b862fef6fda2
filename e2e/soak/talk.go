package main

import (
	"encoding/json"
	"fmt"
	"math/rand"
	"strings"
)

// The load: tenants with a system prompt each, as applications have, and conversations that grow turn by turn. All of it
// follows from the numbers below and is the same each time.
const (
	tenants      = 24
	turns        = 6
	systemChars  = 8000
	userChars    = 400 // half as much again, or half of it
	answerTokens = 16
	model        = "soak"
)

// dialect is one of the four endpoints.
type dialect struct {
	path string
	body func(t *talk, turn int, stream bool) object
	end  string // what a whole stream has in its last event
}

var dialects = []dialect{
	{"/v1/chat/completions", chatBody, "[DONE]"},
	{"/v1/completions", completionBody, "[DONE]"},
	{"/v1/messages", messagesBody, `"message_stop"`},
	{"/v1/responses", responsesBody, `"response.completed"`},
}

// talk is one conversation.
type talk struct {
	dialect *dialect
	system  string
	says    []string // by the user
	answers []string // by the assistant; made up, so that a turn's prompt does not depend on what came of the one before
}

// newTalk returns the nth conversation of a client.
func newTalk(client, n int) *talk {
	tenant := (client*7 + n) % tenants
	rnd := rand.New(rand.NewSource(int64(client)<<20 + int64(n)))
	t := &talk{dialect: &dialects[(client+n)%len(dialects)], system: systems[tenant]}
	for range turns {
		t.says = append(t.says, prose(rnd, userChars/2+rnd.Intn(userChars)))
		t.answers = append(t.answers, prose(rnd, answerTokens*4))
	}
	return t
}

var systems = func() (all []string) {
	for n := range tenants {
		rnd := rand.New(rand.NewSource(int64(n)))
		all = append(all, fmt.Sprintf("You work for tenant %d. %s", n, prose(rnd, systemChars)))
	}
	return all
}()

// request is the body for a turn, which answers what the user says in it.
func (t *talk) request(turn int, stream bool) []byte {
	b, err := json.Marshal(t.dialect.body(t, turn, stream))
	if err != nil {
		panic(err) // strings and numbers always encode
	}
	return b
}

func (t *talk) messages(turn int) []object {
	var list []object
	for i := range turn {
		list = append(list, object{"role": "user", "content": t.says[i]}, object{"role": "assistant", "content": t.answers[i]})
	}
	return append(list, object{"role": "user", "content": t.says[turn]})
}

func chatBody(t *talk, turn int, stream bool) object {
	messages := append([]object{{"role": "system", "content": t.system}}, t.messages(turn)...)
	o := object{"model": model, "messages": messages, "max_tokens": answerTokens, "stream": stream}
	if stream {
		o["stream_options"] = object{"include_usage": true}
	}
	return o
}

func completionBody(t *talk, turn int, stream bool) object {
	var prompt strings.Builder
	prompt.WriteString(t.system)
	for i := range turn {
		prompt.WriteString("\n\nUser: " + t.says[i] + "\nAssistant: " + t.answers[i])
	}
	prompt.WriteString("\n\nUser: " + t.says[turn] + "\nAssistant:")
	o := object{"model": model, "prompt": prompt.String(), "max_tokens": answerTokens, "stream": stream}
	if stream {
		o["stream_options"] = object{"include_usage": true}
	}
	return o
}

func messagesBody(t *talk, turn int, stream bool) object {
	return object{"model": model, "system": t.system, "messages": t.messages(turn), "max_tokens": answerTokens, "stream": stream}
}

func responsesBody(t *talk, turn int, stream bool) object {
	return object{"model": model, "instructions": t.system, "input": t.messages(turn), "max_output_tokens": answerTokens, "stream": stream}
}

// malformed are bodies that a replica answers with 400, made of a good one.
var malformed = []func(body []byte) []byte{
	func(body []byte) []byte { return body[:len(body)/2] },
	func(body []byte) []byte { return append([]byte("}"), body...) },
	func([]byte) []byte { return []byte("null and void") },
	func([]byte) []byte { return nil },
	func([]byte) []byte { return []byte(`{"model":"` + model + `","max_tokens":0}`) },
	func(body []byte) []byte { return []byte(strings.ReplaceAll(string(body), `"`, `'`)) },
}

// prose is n characters of made-up words.
func prose(rnd *rand.Rand, n int) string {
	const consonants, vowels = "bdfgklmnprstvz", "aeiou"
	var b strings.Builder
	for b.Len() < n {
		for k := 1 + rnd.Intn(3); k > 0; k-- {
			b.WriteByte(consonants[rnd.Intn(len(consonants))])
			b.WriteByte(vowels[rnd.Intn(len(vowels))])
		}
		b.WriteByte(' ')
	}
	return b.String()[:n]
}
