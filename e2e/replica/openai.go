package replica

// chat is /v1/chat/completions.
var chat = dialect{
	prompts:  func(q *request, _ int) ([][]byte, error) { return one(chatPrompt(q)) },
	whole:    chatWhole,
	stream:   func(c *call, out *sse) transcript { return &chatStream{c, out} },
	notFound: openAINotFound,
}

// completions is /v1/completions.
var completions = dialect{
	prompts:  func(q *request, perToken int) ([][]byte, error) { return completionPrompts(q.Prompt, perToken) },
	whole:    completionWhole,
	stream:   func(c *call, out *sse) transcript { return &completionStream{c, out} },
	notFound: openAINotFound,
}

func one(prompt []byte, err error) ([][]byte, error) { return [][]byte{prompt}, err }

func chatWhole(c *call, results []result) object {
	r := results[0]
	return object{
		"id": "chatcmpl-" + c.id, "object": "chat.completion", "created": c.created, "model": c.Model,
		"choices": []object{{
			"index": 0, "logprobs": nil, "finish_reason": finishReason(r),
			"message": chatMessage(c, r),
		}},
		"usage": openAIUsage(r.usage),
	}
}

func chatMessage(c *call, r result) object {
	if r.tool == "" {
		return object{"role": "assistant", "content": r.text, "tool_calls": []object{}}
	}
	return object{"role": "assistant", "content": nil, "tool_calls": []object{{
		"id": toolCallID(c), "type": "function", "function": object{"name": r.tool, "arguments": r.text},
	}}}
}

func toolCallID(c *call) string { return "chatcmpl-tool-" + c.id }

type chatStream struct {
	c   *call
	out *sse
}

func (s *chatStream) open(int, usage) {
	s.chunk(object{"role": "assistant", "content": ""}, nil)
	if s.c.calls() {
		s.toolCall(object{
			"index": 0, "id": toolCallID(s.c), "type": "function", "function": object{"name": s.c.plan.tool, "arguments": ""},
		})
	}
}

func (s *chatStream) token(_ int, text string) {
	if s.c.calls() {
		s.toolCall(object{"index": 0, "function": object{"arguments": text}})
		return
	}
	s.chunk(object{"content": text}, nil)
}

func (s *chatStream) toolCall(call object) { s.chunk(object{"tool_calls": []object{call}}, nil) }

func (s *chatStream) end(r result) { s.chunk(object{}, finishReason(r)) }

func (s *chatStream) done(total usage) {
	if s.c.wantsUsage() {
		e := s.envelope()
		e["choices"] = []object{}
		e["usage"] = openAIUsage(total)
		s.out.send("", e)
	}
	s.out.raw("data: [DONE]\n\n")
}

func (s *chatStream) chunk(delta object, finish any) {
	e := s.envelope()
	e["choices"] = []object{{"index": 0, "delta": delta, "logprobs": nil, "finish_reason": finish}}
	s.out.send("", e)
}

func (s *chatStream) envelope() object {
	return object{
		"id": "chatcmpl-" + s.c.id, "object": "chat.completion.chunk", "created": s.c.created, "model": s.c.Model,
	}
}

func completionWhole(c *call, results []result) object {
	choices := []object{}
	var total usage
	for _, r := range results {
		choices = append(choices, object{
			"index": r.index, "text": r.text, "logprobs": nil, "finish_reason": finishReason(r),
		})
		total = total.plus(r.usage)
	}
	return object{
		"id": "cmpl-" + c.id, "object": "text_completion", "created": c.created, "model": c.Model,
		"choices": choices, "usage": openAIUsage(total),
	}
}

type completionStream struct {
	c   *call
	out *sse
}

func (s *completionStream) open(int, usage) {}

func (s *completionStream) token(index int, text string) { s.chunk(index, text, nil) }

func (s *completionStream) end(r result) { s.chunk(r.index, "", finishReason(r)) }

func (s *completionStream) done(total usage) {
	if s.c.wantsUsage() {
		e := s.envelope()
		e["choices"] = []object{}
		e["usage"] = openAIUsage(total)
		s.out.send("", e)
	}
	s.out.raw("data: [DONE]\n\n")
}

func (s *completionStream) chunk(index int, text string, finish any) {
	e := s.envelope()
	e["choices"] = []object{{"index": index, "text": text, "logprobs": nil, "finish_reason": finish}}
	s.out.send("", e)
}

func (s *completionStream) envelope() object {
	return object{"id": "cmpl-" + s.c.id, "object": "text_completion", "created": s.c.created, "model": s.c.Model}
}

func openAIUsage(u usage) object {
	return object{
		"prompt_tokens": u.prompt, "completion_tokens": u.answer, "total_tokens": u.prompt + u.answer,
		"prompt_tokens_details": object{"cached_tokens": u.cached},
	}
}

func finishReason(r result) string {
	switch {
	case r.length:
		return "length"
	case r.tool != "":
		return "tool_calls"
	}
	return "stop"
}
