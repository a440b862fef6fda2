package replica

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// template writes a prompt the way a chat template does: tools first, then one turn after another, so that a chat that
// grows by a turn extends its own prompt.
type template struct {
	bytes.Buffer
}

const (
	endOfTurn     = "<|end|>"
	billingHeader = "x-anthropic-billing-header" // changes with each request; vLLM leaves such a block out
)

// chatPrompt serves /v1/chat/completions and, with its system prompt, /v1/messages.
func chatPrompt(q *request) ([]byte, error) {
	var t template
	if err := t.tools(q.Tools); err != nil {
		return nil, err
	}
	if present(q.System) {
		t.role("system")
		if err := t.content(q.System); err != nil {
			return nil, err
		}
		t.WriteString(endOfTurn)
	}
	var turns []turn
	if err := json.Unmarshal(q.Messages, &turns); err != nil || turns == nil {
		return nil, errors.New("messages: a list of messages is required")
	}
	return t.turns(turns)
}

func responsesPrompt(q *request) ([]byte, error) {
	var t template
	if err := t.tools(q.Tools); err != nil {
		return nil, err
	}
	if present(q.Instructions) {
		t.role("system")
		if err := t.content(q.Instructions); err != nil {
			return nil, err
		}
		t.WriteString(endOfTurn)
	}
	if !present(q.Input) {
		return nil, errors.New("input: a text or a list of items is required")
	}
	if q.Input[0] == '"' {
		return t.turns([]turn{{Role: "user", Content: q.Input}})
	}
	var turns []turn
	if err := json.Unmarshal(q.Input, &turns); err != nil {
		return nil, fmt.Errorf("input: %w", err)
	}
	return t.turns(turns)
}

// turn is a message, or an item of /v1/responses that has no role, such as a function call.
type turn struct {
	Role       string          `json:"role"`
	Name       string          `json:"name"`
	Content    json.RawMessage `json:"content"`
	ToolCalls  json.RawMessage `json:"tool_calls"`
	ToolCallID string          `json:"tool_call_id"`

	raw json.RawMessage
}

func (u *turn) UnmarshalJSON(raw []byte) error {
	type plain turn
	if err := json.Unmarshal(raw, (*plain)(u)); err != nil {
		return err
	}
	u.raw = append(u.raw, raw...)
	return nil
}

func (t *template) turns(turns []turn) ([]byte, error) {
	for _, u := range turns {
		if err := t.turn(u); err != nil {
			return nil, err
		}
	}
	t.role("assistant") // the answer follows
	return t.Bytes(), nil
}

func (t *template) turn(u turn) error {
	if u.Role == "" {
		t.role("item")
		defer t.WriteString(endOfTurn)
		return t.canonical(u.raw)
	}
	t.role(u.Role)
	t.WriteString(u.Name)
	t.WriteString(u.ToolCallID)
	if err := t.content(u.Content); err != nil {
		return err
	}
	if present(u.ToolCalls) {
		if err := t.canonical(u.ToolCalls); err != nil {
			return err
		}
	}
	t.WriteString(endOfTurn)
	return nil
}

func (t *template) role(name string) { t.WriteString("<|" + name + "|>") }

func (t *template) tools(raw json.RawMessage) error {
	if !present(raw) {
		return nil
	}
	t.role("tools")
	defer t.WriteString(endOfTurn)
	return t.canonical(raw)
}

// content writes a text or the parts of a list: texts as they are, anything else as compact JSON.
func (t *template) content(raw json.RawMessage) error {
	if !present(raw) {
		return nil
	}
	var text string
	if json.Unmarshal(raw, &text) == nil {
		t.WriteString(text)
		return nil
	}
	var parts []json.RawMessage
	if err := json.Unmarshal(raw, &parts); err != nil {
		return errors.New("content: a text or a list of parts is required")
	}
	for _, part := range parts {
		var p struct {
			Text *string `json:"text"`
		}
		if json.Unmarshal(part, &p) == nil && p.Text != nil {
			if !strings.HasPrefix(*p.Text, billingHeader) {
				t.WriteString(*p.Text)
			}
			continue
		}
		if err := t.canonical(part); err != nil {
			return err
		}
	}
	return nil
}

// canonical writes a JSON value without its spacing and its cache_control members, which mean nothing to the model.
// The order of members stays, since templates keep it.
func (t *template) canonical(raw json.RawMessage) error {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	return t.value(dec)
}

func (t *template) value(dec *json.Decoder) error {
	tok, err := dec.Token()
	if err != nil {
		return err
	}
	open, nested := tok.(json.Delim)
	if !nested {
		b, err := json.Marshal(tok)
		t.Write(b)
		return err
	}
	t.WriteString(open.String())
	for first := true; dec.More(); {
		if open == '{' {
			key, err := dec.Token()
			if err != nil {
				return err
			}
			if key == "cache_control" {
				var dropped json.RawMessage
				if err := dec.Decode(&dropped); err != nil {
					return err
				}
				continue
			}
			t.member(&first, key)
		} else {
			t.member(&first, nil)
		}
		if err := t.value(dec); err != nil {
			return err
		}
	}
	end, err := dec.Token()
	fmt.Fprint(t, end)
	return err
}

// member separates a member or an element from the one before it, and names it.
func (t *template) member(first *bool, key json.Token) {
	if !*first {
		t.WriteByte(',')
	}
	*first = false
	if key != nil {
		b, _ := json.Marshal(key) // a string always has a JSON form
		t.Write(b)
		t.WriteByte(':')
	}
}

// completionPrompts returns the prompts of /v1/completions: a text, token ids, or a list of either.
func completionPrompts(raw json.RawMessage, perToken int) ([][]byte, error) {
	var text string
	var texts []string
	var ids []uint64
	var lists [][]uint64
	switch {
	case !present(raw):
		return nil, errors.New("prompt: a prompt is required")
	case json.Unmarshal(raw, &text) == nil:
		return [][]byte{[]byte(text)}, nil
	case json.Unmarshal(raw, &texts) == nil:
		var out [][]byte
		for _, s := range texts {
			out = append(out, []byte(s))
		}
		return out, nil
	case json.Unmarshal(raw, &ids) == nil:
		return [][]byte{tokenText(ids, perToken)}, nil
	case json.Unmarshal(raw, &lists) == nil:
		var out [][]byte
		for _, l := range lists {
			out = append(out, tokenText(l, perToken))
		}
		return out, nil
	}
	return nil, errors.New("prompt: a text, token ids, or a list of either is required")
}

// tokenText stands for a list of token ids in the cache: perToken bytes for each.
func tokenText(ids []uint64, perToken int) []byte {
	out := make([]byte, 0, len(ids)*perToken)
	for _, id := range ids {
		var b [8]byte
		binary.LittleEndian.PutUint64(b[:], id)
		for k := 0; k < perToken; k++ {
			out = append(out, b[k%8])
		}
	}
	return out
}

func present(raw json.RawMessage) bool { return len(raw) > 0 && string(raw) != "null" }
