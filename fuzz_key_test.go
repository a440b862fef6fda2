//go:build gc
// +build gc

package cart

import (
	"strings"
	"testing"
)

// FuzzKey looks for bytes that keyOf does not bear, and for chats whose key breaks the law of growth or one of the
// normalisations.
func FuzzKey(f *testing.F) {
	for _, body := range []string{
		`{"model":"m","messages":[{"role":"user","content":"q"}],"stream":true}`,
		`{"model": "m", "prompt": ["a", "b"], "cache_salt": "s"}`,
		`{"system":[{"type":"text","text":"x-anthropic-billing-header: a"},{"type":"text","text":"s","cache_control":{"type":"ephemeral"}}],` +
			`"messages":[{"role":"user","content":"q"}],"tools":[{"name":"t","input_schema":{"anyOf":[{"type":"null"}],"a":1}}]}`,
		`{"input":[{"role":"user","content":[{"type":"input_text","text":"q"}]}],"instructions":"i"}`,
		`{"messages":[`, `"cache_control":`, `"prompt":"\\","`, "",
	} {
		f.Add(body, []byte{0})
	}
	for e := byte(0); e < 4; e++ {
		f.Add("", []byte{e})
		f.Add("", []byte(string([]byte{e})+"\x01\x00\x01\x03\x02\x01\x03\x01\x02\x03\x04\x05\x06\x07\x08\x01\x02\x01\x02\x00\x01\x02\x03\x04"))
		f.Add("", []byte(string([]byte{e})+strings.Repeat("\x03\x02\x01\x05\x04\x0b\x11\x1a", 20)))
	}
	f.Fuzz(func(t *testing.T, body string, shape []byte) {
		for e := endpointOther; e <= endpointResponses; e++ {
			checkKeyOf(t, e, body)
		}
		c := newFuzzChat(&fuzzInput{shape})
		checkGrowth(t, c)
		checkForms(t, c)
	})
}

// checkKeyOf wants the same key each time, and none longer than the body.
func checkKeyOf(t *testing.T, e endpoint, body string) (space, key string) {
	t.Helper()
	space, key = cutKey(t, e, body)
	if again, key2 := cutKey(t, e, body); again != space || key2 != key {
		t.Errorf("keyOf(%d, %q) = %q, %q, then %q, %q", e, body, space, key, again, key2)
	}
	if len(key) > len(body)+2 || len(space) > len(body)+2 {
		t.Errorf("keyOf(%d, %q) = %q, %q, longer than the body", e, body, space, key)
	}
	return space, key
}

// cutKey is keyOf, but for a panic: that ends the test, where keyOf has no key.
func cutKey(t *testing.T, e endpoint, body string) (space, key string) {
	t.Helper()
	startDeciders()
	ex := &exchange{endpoint: e, body: body, done: make(chan int, 1), keyOnly: true}
	keyJobs <- ex
	<-ex.done
	if ex.refusal != "" {
		t.Fatalf("keyOf(%d, %q) panicked", e, body)
	}
	return ex.space, ex.key
}

func (c *fuzzChat) form() chatForm {
	return chatForm{style: compactJSON, marked: -1, cch: "00000", model: c.model, salt: c.salt}
}

// checkGrowth wants each turn to extend the key of the turn before, in both styles, while the markers move along.
func checkGrowth(t *testing.T, c *fuzzChat) {
	t.Helper()
	turns := len(c.turns) + len(c.texts)
	for _, style := range []jsonStyle{compactJSON, pythonJSON} {
		form := c.form()
		form.style = style
		last := ""
		lastSpace, lastKey := "", ""
		for n := 1; n <= turns; n++ {
			if c.endpoint == endpointMessages {
				form.marked = n - 1
			}
			body := c.body(n, form)
			space, key := checkKeyOf(t, c.endpoint, body)
			if key == "" {
				t.Errorf("keyOf(%d, %s) found no key", c.endpoint, body)
			}
			if n > 1 && (space != lastSpace || !strings.HasPrefix(key, lastKey)) {
				t.Errorf("keyOf(%d, %s) =\n%q, %q, want it to extend that of\n%s =\n%q, %q", c.endpoint, body, space, key, last, lastSpace, lastKey)
			}
			last, lastSpace, lastKey = body, space, key
		}
		form.another = true
		other := c.body(turns, form)
		if _, key := cutKey(t, c.endpoint, other); strings.HasPrefix(key, lastKey) || strings.HasPrefix(lastKey, key) {
			t.Errorf("keyOf(%d, %s) = %q, want it to part from that of %s, %q", c.endpoint, other, key, last, lastKey)
		}
	}
}

// checkForms wants one key whatever form the same chat takes, and other spaces for other models and salts.
func checkForms(t *testing.T, c *fuzzChat) {
	t.Helper()
	turns := len(c.turns) + len(c.texts)
	plain := c.body(turns, c.form())
	space, key := cutKey(t, c.endpoint, plain)
	same := func(story string, form chatForm) {
		t.Helper()
		body := c.body(turns, form)
		if space2, key2 := cutKey(t, c.endpoint, body); space2 != space || key2 != key {
			t.Errorf("%s: keyOf(%d, %s) =\n%q, %q, want that of\n%s =\n%q, %q", story, c.endpoint, body, space2, key2, plain, space, key)
		}
	}
	form := c.form()
	form.style = pythonJSON
	same("spaces", form)
	if c.endpoint == endpointMessages {
		form = c.form()
		form.marked = turns / 2
		same("markers", form)
		form.style = pythonJSON
		same("spaces and markers", form)
	}
	form = c.form()
	form.cch = "a1b2c"
	same("billing header", form)

	form = c.form()
	form.model = "another"
	if body := c.body(turns, form); c.endpoint != endpointOther {
		if other, key2 := cutKey(t, c.endpoint, body); other == space || key2 != key {
			t.Errorf("another model: keyOf(%d, %s) = %q, %q, want another space than %q and key %q", c.endpoint, body, other, key2, space, key)
		}
	}
	form = c.form()
	form.salt = "another"
	if body := c.body(turns, form); c.salted {
		if other, key2 := cutKey(t, c.endpoint, body); other == space || key2 != key {
			t.Errorf("another salt: keyOf(%d, %s) = %q, %q, want another space than %q and key %q", c.endpoint, body, other, key2, space, key)
		}
	}
}
