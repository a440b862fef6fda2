package main

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"sync/atomic"
)

// writer writes the text of a whole conversation. Lengths are those of the body so far.
type writer struct {
	text   bytes.Buffer
	random *rand.Rand
	plain  bool   // no quotes in the prose
	tail   string // what closes a body
	shift  int    // length of what comes after the prompt but counts for the body's
	ends   []int
	stamps []int
}

func (w *writer) len() int        { return w.text.Len() + w.shift }
func (w *writer) raw(s string)    { w.text.WriteString(s) }
func (w *writer) endTurn()        { w.ends = append(w.ends, w.text.Len()) }
func (w *writer) user(to int)     { w.message("user", to) }
func (w *writer) assistant(n int) { w.message("assistant", n) }

func (w *writer) message(role string, to int) {
	w.raw(`,{"role":"` + role + `","content":"`)
	if role == "user" {
		w.stamp()
	}
	w.proseTo(to - len(`"}`))
	w.raw(`"}`)
}

// stampLen is the length of what makes a conversation's text its own.
const stampLen = 8

// stamp leaves room for the conversation's number.
func (w *writer) stamp() {
	w.stamps = append(w.stamps, w.text.Len())
	w.raw("00000000 ")
}

var words = []string{"cache", "replica", "token", "prompt", "the", "of", "router", "answers", "when", "prefix", "a", "window",
	"between", "quick", "measures", "every", "stream", "is", "longest", "shared", "and", "queue", "without", "block", "to"}

// proseTo writes text, escaped as in JSON, until the body is that long, and at least one word.
func (w *writer) proseTo(length int) {
	for first := true; first || w.len() < length; first = false {
		word := words[w.random.IntN(len(words))]
		switch n := w.random.IntN(100); {
		case n < 8 && !w.plain:
			fmt.Fprintf(&w.text, `\"%s\" `, word)
		case n < 14:
			w.raw(word + `.\n`)
		case n < 16:
			fmt.Fprintf(&w.text, "%s %d, ", word, w.random.IntN(100000))
		default:
			w.raw(word + " ")
		}
	}
}

// template is a tenant's conversation: the system prompt is the tenant's, the stamps are filled in for each conversation.
type template struct {
	text   []byte
	tail   []byte
	ends   []int // where the body of each turn ends, without the tail
	stamps []int
}

// tenants is the number of distinct system prompts of a workload.
const tenants = 8

// workload is all conversations of one shape and size. Its parts are the same in every run.
type workload struct {
	shape     *shape
	size      int
	templates []*template
}

func newWorkload(s *shape, size int) *workload {
	w := &workload{shape: s, size: size}
	for tenant := uint64(0); tenant < tenants; tenant++ {
		out := &writer{random: rand.New(rand.NewPCG(uint64(size), tenant))}
		s.write(out, size)
		w.templates = append(w.templates, &template{
			text: out.text.Bytes(), tail: []byte(out.tail), ends: out.ends, stamps: out.stamps,
		})
	}
	return w
}

// streaming is the same with answers asked for as streams.
func (w *workload) streaming() *workload {
	for _, t := range w.templates {
		t.tail = bytes.Replace(t.tail, []byte(`"stream":false`), []byte(`"stream":true`), 1)
	}
	return w
}

// meanBody is the mean length of the bodies.
func (w *workload) meanBody() int {
	sum, n := 0, 0
	for _, t := range w.templates {
		for _, end := range t.ends {
			sum += end + len(t.tail)
			n++
		}
	}
	return sum / n
}

// conversations counts those begun, in all workloads of the process: no two are alike, so no round repeats another one's.
var conversations atomic.Uint32

// talk leads one conversation after another. Making a body costs little: each is a piece of the conversation's text.
type talk struct {
	work *workload
	of   *template
	text []byte
	turn int
}

func newTalk(w *workload) *talk { return &talk{work: w} }

// next returns the next body and its length. The body is valid until the conversation after its own begins.
func (t *talk) next() (body io.Reader, length int) {
	if t.of == nil || t.turn == len(t.of.ends) {
		t.begin()
	}
	prompt := t.text[:t.of.ends[t.turn]]
	t.turn++
	return io.MultiReader(bytes.NewReader(prompt), bytes.NewReader(t.of.tail)), len(prompt) + len(t.of.tail)
}

func (t *talk) begin() {
	number := conversations.Add(1)
	t.of = t.work.templates[int(number)%tenants]
	t.turn = 0
	t.text = append(t.text[:0], t.of.text...)
	stamp := fmt.Appendf(nil, "%08x", number)
	for _, at := range t.of.stamps {
		copy(t.text[at:at+stampLen], stamp)
	}
}

// forget gives up the conversation after an error: its text may still be on the way.
func (t *talk) forget() { t.of, t.text = nil, nil }
