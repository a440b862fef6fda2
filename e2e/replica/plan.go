package replica

import (
	"encoding/json"
	"errors"
	"strings"
)

// plan is an answer that the request asks for in so many words: a call of a tool, or JSON that fits a schema. Without one
// the answer is made of words that mean nothing.
type plan struct {
	tool string // name of the tool that is called, "" for none
	text string // arguments of the call, or the answer
}

// planned tells what a request asks for; nil = just words. A tool is called when there are tools and a user spoke last, not
// when what tools have said is the last there is.
func planned(q *request) (*plan, error) {
	t, err := q.calledTool()
	if err != nil {
		return nil, err
	}
	if t != nil {
		text, err := sample(t.schema())
		return &plan{tool: t.name(), text: text}, err
	}
	schema, err := q.answerSchema()
	if err != nil || schema == nil {
		return nil, err
	}
	text, err := sample(schema)
	return &plan{text: text}, err
}

// tokens cuts the text into tokens of about size bytes, between characters.
func (p *plan) tokens(size int) []string {
	var out []string
	from := 0
	for i := range p.text {
		if i-from >= size {
			out = append(out, p.text[from:i])
			from = i
		}
	}
	return append(out, p.text[from:])
}

// tool is a definition in any of the dialects.
type tool struct {
	Name        string          `json:"name"`
	Parameters  json.RawMessage `json:"parameters"`
	InputSchema json.RawMessage `json:"input_schema"`
	Function    *struct {
		Name       string          `json:"name"`
		Parameters json.RawMessage `json:"parameters"`
	} `json:"function"`
}

func (t *tool) name() string {
	if t.Function != nil {
		return t.Function.Name
	}
	return t.Name
}

func (t *tool) schema() json.RawMessage {
	schema := t.Parameters
	switch {
	case t.Function != nil:
		schema = t.Function.Parameters
	case present(t.InputSchema):
		schema = t.InputSchema
	}
	if !present(schema) {
		return json.RawMessage(`{"type":"object"}`)
	}
	return schema
}

// calledTool is the tool that tool_choice names, else the first one; nil when none is to be called.
func (q *request) calledTool() (*tool, error) {
	if !present(q.Tools) || !q.userSpokeLast() {
		return nil, nil
	}
	var tools []tool
	if err := json.Unmarshal(q.Tools, &tools); err != nil {
		return nil, errors.New("tools: a list of tools is required")
	}
	var word string
	var choice struct {
		Type string `json:"type"`
		tool
	}
	if present(q.ToolChoice) && json.Unmarshal(q.ToolChoice, &word) != nil {
		if err := json.Unmarshal(q.ToolChoice, &choice); err != nil {
			return nil, errors.New("tool_choice: a word or an object is required")
		}
	}
	if word == "none" || choice.Type == "none" {
		return nil, nil
	}
	for i := range tools {
		if wanted := choice.name(); tools[i].name() != "" && (wanted == "" || wanted == tools[i].name()) {
			return &tools[i], nil
		}
	}
	if choice.name() != "" {
		return nil, errors.New("tool_choice: there is no tool " + choice.name())
	}
	return nil, nil
}

// userSpokeLast tells whether the last turn is a user's own, not the result of a tool.
func (q *request) userSpokeLast() bool {
	raw := q.Messages
	if !present(raw) {
		raw = q.Input
	}
	var turns []turn
	if json.Unmarshal(raw, &turns) != nil || len(turns) == 0 {
		return present(raw) && raw[0] == '"' // a plain text as input
	}
	last := turns[len(turns)-1]
	var parts []struct {
		Type string `json:"type"`
	}
	_ = json.Unmarshal(last.Content, &parts) // a plain text has no parts
	for _, part := range parts {
		if part.Type == "tool_result" {
			return false
		}
	}
	return last.Role == "user"
}

// format asks for JSON, in any of the dialects.
type format struct {
	Type       string          `json:"type"`
	Schema     json.RawMessage `json:"schema"`
	JSONSchema struct {
		Schema json.RawMessage `json:"schema"`
	} `json:"json_schema"`
}

// formats are what the dialects call it. A member that is something else in another dialect does not count.
func (q *request) formats() []format {
	var chat format
	_ = json.Unmarshal(q.ResponseFormat, &chat)
	out := []format{chat}
	for _, raw := range []json.RawMessage{q.Text, q.OutputConfig} {
		var nested struct {
			Format format `json:"format"`
		}
		_ = json.Unmarshal(raw, &nested)
		out = append(out, nested.Format)
	}
	return out
}

// answerSchema is the schema of the answer; nil when it may be any text.
func (q *request) answerSchema() (json.RawMessage, error) {
	for _, f := range q.formats() {
		switch {
		case f.Type == "" || f.Type == "text":
		case f.Type == "json_object":
			return json.RawMessage(`{"type":"object","properties":{"answer":{"type":"string"}}}`), nil
		case f.Type != "json_schema":
			return nil, errors.New("response_format: unknown type " + f.Type)
		case present(f.JSONSchema.Schema):
			return f.JSONSchema.Schema, nil
		case present(f.Schema):
			return f.Schema, nil
		default:
			return nil, errors.New("response_format: a schema is required")
		}
	}
	return nil, nil
}

// schema is the part of a JSON schema that tells what a value may look like.
type schema struct {
	Ref        string             `json:"$ref"`
	Defs       map[string]*schema `json:"$defs"`
	Type       any                `json:"type"` // a name or a list of them
	Const      any                `json:"const"`
	Enum       []any              `json:"enum"`
	AnyOf      []*schema          `json:"anyOf"`
	OneOf      []*schema          `json:"oneOf"`
	AllOf      []*schema          `json:"allOf"`
	Properties map[string]*schema `json:"properties"`
	Items      *schema            `json:"items"`
	MinItems   int                `json:"minItems"`
	Minimum    *float64           `json:"minimum"`
}

// sample returns a JSON text that fits a schema.
func sample(raw json.RawMessage) (string, error) {
	var root schema
	if err := json.Unmarshal(raw, &root); err != nil {
		return "", errors.New("schema: " + err.Error())
	}
	b, err := json.Marshal(root.value(&root, 0))
	return string(b), err
}

const maxDepth = 32 // of a schema that refers to itself

func (s *schema) value(root *schema, depth int) any {
	if s == nil || depth > maxDepth {
		return nil
	}
	if name, ok := strings.CutPrefix(s.Ref, "#/$defs/"); ok {
		return root.Defs[name].value(root, depth+1)
	}
	switch {
	case s.Const != nil:
		return s.Const
	case len(s.Enum) > 0:
		return s.Enum[0]
	}
	for _, choices := range [][]*schema{s.AnyOf, s.OneOf, s.AllOf} {
		for _, one := range choices {
			if one != nil && one.Type != "null" {
				return one.value(root, depth+1)
			}
		}
	}
	return s.plainValue(root, depth)
}

func (s *schema) plainValue(root *schema, depth int) any {
	kind, _ := s.Type.(string)
	if list, ok := s.Type.([]any); ok && len(list) > 0 {
		kind, _ = list[0].(string)
	}
	switch {
	case kind == "object" || s.Properties != nil:
		out := object{}
		for name, property := range s.Properties {
			out[name] = property.value(root, depth+1)
		}
		return out
	case kind == "array":
		out := []any{}
		for i := 0; i < max(s.MinItems, 1); i++ {
			out = append(out, s.Items.value(root, depth+1))
		}
		return out
	case kind == "integer" || kind == "number":
		if s.Minimum != nil {
			return max(*s.Minimum, 7)
		}
		return 7
	case kind == "boolean":
		return true
	case kind == "null":
		return nil
	}
	return strings.TrimSpace(word(seedOf([]byte(kind)), 0, 8))
}
