//go:build gc
// +build gc

package cart

import (
	"strconv"
	"strings"
)

// fuzzChat is a conversation with one of the routed endpoints, made of a fuzzer's choices: shapes that clients send, texts
// that look like the JSON around them.
type fuzzChat struct {
	endpoint  endpoint
	main      string // member that grows
	turns     []interface{}
	texts     []string // of /v1/completions: the prompt grows by these
	head      []string // members before the main one, by name
	tail      []string // and after it
	tools     jsonList
	preamble  interface{}
	alphabet  bool // members sorted by name, as Go and others write maps
	billing   int  // index among the blocks of the system prompt, -1 = none
	blocks    bool // texts of messages are lists of blocks
	model     string
	salt      string
	salted    bool
	variation int // of sampling parameters from turn to turn
}

// chatForm is how a body of a chat is written.
type chatForm struct {
	style   jsonStyle
	marked  int    // turns from this one on have their last block marked by cache_control; -1 = none
	cch     string // hash in the billing header
	model   string
	salt    string
	another bool // the first turn is another one
}

func newFuzzChat(in *fuzzInput) *fuzzChat {
	c := &fuzzChat{
		endpoint: endpointChat + endpoint(in.below(4)), blocks: in.yes(2), alphabet: in.yes(4), billing: -1, variation: in.below(3),
		model: "model-" + strconv.Itoa(in.below(10)), salt: "salt", salted: in.yes(3),
	}
	c.main = map[endpoint]string{
		endpointChat: "messages", endpointCompletion: "prompt", endpointMessages: "messages", endpointResponses: "input",
	}[c.endpoint]
	if c.endpoint != endpointCompletion && in.yes(2) {
		for n := in.below(4); n > 0; n-- {
			c.tools = append(c.tools, c.tool(in))
		}
	}
	switch c.endpoint {
	case endpointMessages:
		c.preamble = c.system(in)
	case endpointResponses:
		if in.yes(2) {
			c.preamble = fuzzText(in)
		}
	}
	c.order(in)
	for n := 2 + in.below(4); n > 0; n-- {
		if c.endpoint == endpointCompletion {
			c.texts = append(c.texts, fuzzText(in))
		} else {
			c.turns = append(c.turns, c.turn(in, len(c.turns)))
		}
	}
	return c
}

// order deals the members out to before and after the main one.
func (c *fuzzChat) order(in *fuzzInput) {
	members := []string{"model", "stream", "max_tokens", "stop", "metadata", "stream_options", "tool_choice", "response_format", "user"}
	if c.salted {
		members = append(members, "cache_salt")
	}
	if c.tools != nil {
		members = append(members, "tools")
	}
	if c.preamble != nil {
		members = append(members, c.preambleName())
	}
	for _, name := range members {
		switch in.below(4) {
		case 0:
			c.head = append(c.head, name)
		case 1:
			c.tail = append(c.tail, name)
		case 2:
			c.tail = append([]string{name}, c.tail...)
		default: // left out, if it may be
			if name == "model" || name == "tools" || name == "cache_salt" || name == c.preambleName() {
				c.head = append(c.head, name)
			}
		}
	}
}

func (c *fuzzChat) preambleName() string {
	if c.endpoint == endpointResponses {
		return "instructions"
	}
	return "system"
}

// fuzzText is a text of pieces that are trouble for whoever searches raw bytes.
func fuzzText(in *fuzzInput) string {
	pieces := []string{
		"hello", "a b", "é", "日本", "\n", `\`, `"`, `[`, `]`, `{`, `}`, `,`, `, `, `: `, `":`, `","`, `"}`, `}],"`, `]}`, `}]}`,
		`"role":"user"`, `"messages":[`, `{"role": "user", "content": "x"}`, `"tools": [{"a": 1}]`, `"system":"x"`, `"model":"other"`,
		`"cache_control":{"type":"ephemeral"}`, `x-anthropic-billing-header: x`, `C:\dir\`, "\x00", "<&>", `"prompt": ["`, `"input": [`,
	}
	text := ""
	for n := in.below(5); n > 0; n-- {
		i := in.below(len(pieces) + 1)
		if i == len(pieces) {
			text += strings.Repeat("0123456789abcdef", in.number()%600) // up to twice the window in which the last turn is looked for
			continue
		}
		text += pieces[i]
	}
	return text
}

// fuzzNames are names that the searches look for, beside others.
var fuzzNames = []string{
	"path", "type", "messages", "tools", "system", "input", "prompt", "model", "instructions", "cache_salt", "required", "role", "content",
}

// fuzzValue is any JSON, as models hand it to tools.
func fuzzValue(in *fuzzInput, depth int) interface{} {
	switch n := in.below(8); {
	case n == 1 && depth > 0:
		list := jsonList{}
		for k := in.below(3); k > 0; k-- {
			list = append(list, fuzzValue(in, depth-1))
		}
		return list
	case n == 2:
		return in.below(100)
	case n == 3:
		return in.yes(2)
	case n == 4:
		return nil
	case n > 4 && depth > 0:
		o := jsonObject{}
		for k := in.below(4); k > 0; k-- {
			o = append(o, jsonMember{fuzzNames[in.below(len(fuzzNames))], fuzzValue(in, depth-1)})
		}
		return o
	}
	return fuzzText(in)
}

// fuzzSchema is a JSON schema. It has no default or example that holds members of its own: keyOf may take one named
// "messages" for the request's, which costs hits and is accepted.
func fuzzSchema(in *fuzzInput, depth int) jsonObject {
	o := jsonObject{{"type", []string{"string", "number", "array", "object"}[in.below(4)]}}
	if in.yes(3) {
		o = o.with("description", fuzzText(in))
	}
	if in.yes(4) {
		o = o.with("enum", jsonList{in.below(10), fuzzText(in), nil, in.yes(2)})
	}
	if depth == 0 {
		return o
	}
	switch in.below(4) {
	case 1:
		properties, required := jsonObject{}, jsonList{}
		for k := in.below(4); k > 0; k-- {
			name := fuzzNames[in.below(len(fuzzNames))]
			properties = properties.with(name, fuzzSchema(in, depth-1))
			required = append(required, name)
		}
		o = o.with("properties", properties).with("required", required)
	case 2:
		o = o.with("items", fuzzSchema(in, depth-1)).with("minItems", in.below(3))
	case 3:
		o = o.with("anyOf", jsonList{fuzzSchema(in, depth-1), jsonObject{{"type", "null"}}})
		if in.yes(2) {
			o = o.with("default", nil)
		}
	}
	return o
}

func (c *fuzzChat) tool(in *fuzzInput) jsonObject {
	name, about := "tool_"+strconv.Itoa(in.below(50)), fuzzText(in)
	schema := fuzzSchema(in, 3)
	if c.endpoint == endpointMessages {
		return jsonObject{{"name", name}, {"description", about}, {"input_schema", schema}}
	}
	function := jsonObject{{"name", name}, {"description", about}, {"parameters", schema}}
	if c.endpoint == endpointResponses {
		return append(jsonObject{{"type", "function"}}, function...)
	}
	return jsonObject{{"type", "function"}, {"function", function}}
}

// billingPlace stands for the block that Claude Code changes with each request.
type billingPlace struct{}

func (c *fuzzChat) system(in *fuzzInput) interface{} {
	switch in.below(3) {
	case 0:
		return nil
	case 1:
		return fuzzText(in)
	}
	list := jsonList{}
	for n := 1 + in.below(3); n > 0; n-- {
		list = append(list, jsonObject{{"type", "text"}, {"text", "s" + fuzzText(in)}})
	}
	if in.yes(2) {
		c.billing = in.below(len(list) + 1)
		list = append(list[:c.billing:c.billing], append(jsonList{billingPlace{}}, list[c.billing:]...)...)
	}
	return list
}

// turn is one message or item. The first is a user's, so that there is something to tell chats apart by.
func (c *fuzzChat) turn(in *fuzzInput, n int) interface{} {
	text := strconv.Itoa(n) + fuzzText(in)
	if n == 0 {
		return c.message("user", text)
	}
	switch kind := in.below(6); {
	case kind == 1:
		return c.message("assistant", text)
	case kind == 2 && c.endpoint == endpointChat:
		function := jsonObject{{"name", "tool_1"}, {"arguments", string(pythonJSON.encode(fuzzValue(in, 2)))}}
		return jsonObject{{"role", "assistant"}, {"content", nil},
			{"tool_calls", jsonList{jsonObject{{"id", "call_1"}, {"type", "function"}, {"function", function}}}}}
	case kind == 3 && c.endpoint == endpointChat:
		return jsonObject{{"role", "tool"}, {"tool_call_id", "call_1"}, {"content", text}}
	case kind == 2 && c.endpoint == endpointMessages:
		input := jsonObject{{"a", fuzzValue(in, 2)}}
		return jsonObject{{"role", "assistant"}, {"content", jsonList{jsonObject{{"type", "text"}, {"text", text}},
			jsonObject{{"type", "tool_use"}, {"id", "toolu_1"}, {"name", "tool_1"}, {"input", input}}}}}
	case kind == 3 && c.endpoint == endpointMessages:
		return jsonObject{{"role", "user"}, {"content", jsonList{jsonObject{{"type", "tool_result"}, {"tool_use_id", "toolu_1"},
			{"content", jsonList{jsonObject{{"type", "text"}, {"text", text}}}}}}}}
	case kind == 2 && c.endpoint == endpointResponses:
		return jsonObject{{"type", "function_call"}, {"call_id", "call_1"}, {"name", "tool_1"},
			{"arguments", string(compactJSON.encode(fuzzValue(in, 2)))}}
	case kind == 3 && c.endpoint == endpointResponses:
		return jsonObject{{"type", "function_call_output"}, {"call_id", "call_1"}, {"output", text}}
	case kind == 4 && c.endpoint == endpointResponses:
		return jsonObject{{"type", "reasoning"}, {"summary", jsonList{}}, {"encrypted_content", text}}
	}
	return c.message("user", text)
}

func (c *fuzzChat) message(role, text string) jsonObject {
	var content interface{} = text
	if c.blocks {
		kind := "text"
		if c.endpoint == endpointResponses {
			kind = map[string]string{"user": "input_text", "assistant": "output_text"}[role]
		}
		content = jsonList{jsonObject{{"type", kind}, {"text", text}}}
	}
	if c.alphabet {
		return jsonObject{{"content", content}, {"role", role}}
	}
	return jsonObject{{"role", role}, {"content", content}}
}

// body writes the request of the first n turns.
func (c *fuzzChat) body(n int, form chatForm) string {
	var all jsonObject
	for _, name := range c.head {
		all = append(all, jsonMember{name, c.member(name, n, form)})
	}
	all = append(all, jsonMember{c.main, c.growing(n, form)})
	for _, name := range c.tail {
		all = append(all, jsonMember{name, c.member(name, n, form)})
	}
	return string(form.style.encode(all))
}

func (c *fuzzChat) growing(n int, form chatForm) interface{} {
	other := ""
	if form.another {
		other = "other "
	}
	if c.endpoint == endpointCompletion {
		return other + "p" + strings.Join(c.texts[:n], "")
	}
	var turns jsonList
	for i, turn := range c.turns[:n] {
		if i == 0 && form.another {
			turn = c.message("user", "other")
		}
		if form.marked >= 0 && i >= form.marked {
			turn = marked(turn)
		}
		turns = append(turns, turn)
	}
	return turns
}

// marked puts a cache_control marker on the last block of a message that has blocks.
func marked(turn interface{}) interface{} {
	o := append(jsonObject(nil), turn.(jsonObject)...)
	for i, m := range o {
		if list, ok := m.value.(jsonList); ok && m.name == "content" {
			list = append(jsonList(nil), list...)
			last := len(list) - 1
			list[last] = list[last].(jsonObject).with("cache_control", jsonObject{{"type", "ephemeral"}})
			o[i].value = list
		}
	}
	return o
}

// member is the value of a member in the request of turn n. Sampling parameters may change from turn to turn.
func (c *fuzzChat) member(name string, n int, form chatForm) interface{} {
	switch name {
	case "model":
		return form.model
	case "cache_salt":
		return form.salt
	case "stream":
		return n*c.variation%2 == 0
	case "max_tokens":
		return 100 + n*c.variation
	case "stop":
		return jsonList{"x", "y"}
	case "user":
		return "u" + strconv.Itoa(n*c.variation)
	case "metadata":
		return jsonObject{{"user_id", "u" + strconv.Itoa(n*c.variation)}}
	case "stream_options":
		return jsonObject{{"include_usage", true}}
	case "tool_choice":
		return jsonObject{{"type", "function"}, {"function", jsonObject{{"name", "tool_1"}}}}
	case "response_format":
		return jsonObject{{"type", "json_schema"}, {"json_schema", jsonObject{{"name", "n"}, {"schema",
			jsonObject{{"anyOf", jsonList{jsonObject{{"type", "string"}}}}, {"title", "t" + strconv.Itoa(n*c.variation)}}}}}}
	case "tools":
		return c.tools
	}
	list, ok := c.preamble.(jsonList)
	if !ok {
		return c.preamble
	}
	list = append(jsonList(nil), list...)
	for i := range list {
		if list[i] == (billingPlace{}) {
			list[i] = jsonObject{{"type", "text"}, {"text", "x-anthropic-billing-header: cc_version=2; cch=" + form.cch + ";"}}
		}
	}
	return list
}
