package replica

import "encoding/json"

// messages is Anthropic's /v1/messages.
var messages = dialect{
	prompts:  func(q *request, _ int) ([][]byte, error) { return one(chatPrompt(q)) },
	whole:    messageWhole,
	stream:   func(c *call, out *sse) transcript { return &messageStream{c, out} },
	notFound: anthropicNotFound,
}

func messageWhole(c *call, results []result) object {
	r := results[0]
	m := message(c, []object{contentBlock(c, r)}, anthropicUsage(r.usage))
	m["stop_reason"] = stopReason(r)
	return m
}

func contentBlock(c *call, r result) object {
	if r.tool == "" {
		return object{"type": "text", "text": r.text}
	}
	input := json.RawMessage(r.text)
	if !json.Valid(input) {
		input = json.RawMessage("{}") // cut off by max_tokens
	}
	return object{"type": "tool_use", "id": "toolu_" + c.id, "name": r.tool, "input": input}
}

type messageStream struct {
	c   *call
	out *sse
}

// open reports the whole prompt as input, as vLLM does: what was cached is told at the end.
func (s *messageStream) open(_ int, u usage) {
	m := message(s.c, []object{}, object{"input_tokens": u.prompt, "output_tokens": 0})
	s.send("message_start", object{"message": m})
	first := result{}
	if s.c.plan != nil {
		first.tool = s.c.plan.tool
	}
	s.send("content_block_start", object{"index": 0, "content_block": contentBlock(s.c, first)})
	s.send("ping", object{})
}

func (s *messageStream) token(_ int, text string) {
	delta := object{"type": "text_delta", "text": text}
	if s.c.calls() {
		delta = object{"type": "input_json_delta", "partial_json": text}
	}
	s.send("content_block_delta", object{"index": 0, "delta": delta})
}

func (s *messageStream) end(r result) {
	s.send("content_block_stop", object{"index": 0})
	s.send("message_delta", object{
		"delta": object{"stop_reason": stopReason(r), "stop_sequence": nil},
		"usage": anthropicUsage(r.usage),
	})
}

func (s *messageStream) done(usage) { s.send("message_stop", object{}) }

func (s *messageStream) send(kind string, payload object) {
	payload["type"] = kind
	s.out.send(kind, payload)
}

func message(c *call, content []object, usage object) object {
	return object{
		"id": "msg_" + c.id, "type": "message", "role": "assistant", "model": c.Model, "content": content,
		"stop_reason": nil, "stop_sequence": nil, "usage": usage,
	}
}

// anthropicUsage counts as input only what was not in the cache.
func anthropicUsage(u usage) object {
	return object{
		"input_tokens": u.prompt - u.cached, "output_tokens": u.answer,
		"cache_read_input_tokens": u.cached, "cache_creation_input_tokens": 0,
	}
}

func stopReason(r result) string {
	switch {
	case r.length:
		return "max_tokens"
	case r.tool != "":
		return "tool_use"
	}
	return "end_turn"
}

func anthropicNotFound(message string) object {
	return object{"type": "error", "error": object{"type": "not_found_error", "message": message}}
}
