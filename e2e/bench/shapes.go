package main

import "fmt"

// shape is a kind of request. Its bodies are those of conversations: each turn's body is the one before with an answer and
// a further question in it, as a client sends it, so that a tree of prompts matches and grows as in use.
type shape struct {
	name, path string
	about      string
	write      func(w *writer, size int)
}

var allShapes = []*shape{
	{"chat", "/v1/chat/completions", "many turns, with escaped quotes and newlines", writeChat},
	{"string", "/v1/completions", "one long string: documents, then questions and answers", writeString},
	{"tools", "/v1/chat/completions", "20 tools before the messages", writeToolsFirst},
	{"tools-last", "/v1/chat/completions", "20 tools after the messages, openai-python's order", writeToolsLast},
	{"messages", "/v1/messages", "Anthropic: system blocks, cache_control that moves on with the last turn", writeMessages},
}

const (
	tools = 20
	turns = 6 // bodies of one conversation

	// The first body has this share of the nominal size, the last as much more as the first has less: the mean is right.
	firstShare = 0.8
)

// turnEnd is how long the body of a turn, counted from 0, is to be.
func turnEnd(size, turn int) int {
	return int(float64(size) * (firstShare + 2*(1-firstShare)*float64(turn)/(turns-1)))
}

func writeChat(w *writer, size int) {
	w.tail = `],"max_tokens":16,"stream":false}`
	w.raw(`{"model":"m1","messages":[`)
	writeTurns(w, size, size/5)
}

// writeTurns writes a system prompt that ends at the given length, some history, and the turns.
func writeTurns(w *writer, size, system int) {
	w.raw(`{"role":"system","content":"`)
	w.proseTo(system)
	w.raw(`"}`)
	history := 7 // odd: it ends with a question
	if size <= 4<<10 {
		history = 1
	}
	from, to := w.len(), turnEnd(size, 0)
	for i := 1; i <= history; i++ {
		if i%2 == 1 {
			w.user(from + (to-from)*i/history)
		} else {
			w.assistant(from + (to-from)*i/history)
		}
	}
	w.endTurn()
	for turn := 1; turn < turns; turn++ {
		to := turnEnd(size, turn)
		w.assistant((w.len() + to) / 2)
		w.user(to)
		w.endTurn()
	}
}

func writeString(w *writer, size int) {
	w.tail = `","max_tokens":16,"stream":false}`
	w.plain = true
	w.raw(`{"model":"m1","prompt":"`)
	w.proseTo(size / 10)
	for turn := 0; turn < turns; turn++ {
		w.stamp()
		w.proseTo(turnEnd(size, turn))
		w.endTurn()
	}
}

func writeToolsFirst(w *writer, size int) {
	w.tail = `],"max_tokens":16,"stream":false}`
	w.raw(`{"model":"m1","tools":[`)
	writeTools(w, size/2)
	w.raw(`],"messages":[`)
	writeTurns(w, size, size*6/10)
}

func writeToolsLast(w *writer, size int) {
	definitions := &writer{random: w.random}
	writeTools(definitions, size/2)
	w.tail = `],"model":"m1","max_tokens":16,"stream":false,"tool_choice":"auto","tools":[` + definitions.text.String() + `]}`
	w.shift = len(w.tail)
	w.raw(`{"messages":[`)
	writeTurns(w, size, size*6/10)
}

// writeTools writes 20 definitions up to the given length. In a short body they are names and little else, and longer than asked for.
func writeTools(w *writer, to int) {
	from := w.len()
	for i := 0; i < tools; i++ {
		if i > 0 {
			w.raw(",")
		}
		w.raw(fmt.Sprintf(`{"type":"function","function":{"name":"tool_%02d"`, i))
		end := from + (to-from)*(i+1)/tools
		if end-w.len() < 200 {
			w.raw(`,"parameters":{}}}`)
			continue
		}
		w.raw(`,"description":"`)
		w.proseTo(end - 130)
		w.raw(`","parameters":{"type":"object","properties":{"path":{"type":"string"},"limit":{"type":"integer"}},"required":["path"]}}}`)
	}
}

func writeMessages(w *writer, size int) {
	// Where a body ends, its last block is still open: the mark that the client puts on the last block is not there any
	// more when the next turn follows.
	w.tail = `","cache_control":{"type":"ephemeral"}}]}],"stream":false}`
	block := func(role string, to int) {
		w.raw(`{"role":"` + role + `","content":[{"type":"text","text":"`)
		if role == "user" {
			w.stamp()
		}
		w.proseTo(to)
	}
	w.raw(`{"model":"m1","max_tokens":16,"system":[{"type":"text","text":"`)
	w.proseTo(size / 10)
	w.raw(`"},{"type":"text","text":"`)
	w.proseTo(size * 3 / 10)
	w.raw(`","cache_control":{"type":"ephemeral"}}],"messages":[`)
	block("user", turnEnd(size, 0))
	w.endTurn()
	for turn := 1; turn < turns; turn++ {
		to := turnEnd(size, turn)
		w.raw(`"}]},`)
		block("assistant", (w.len()+to)/2)
		w.raw(`"}]},`)
		block("user", to)
		w.endTurn()
	}
}
