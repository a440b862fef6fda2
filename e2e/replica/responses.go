package replica

// responses is /v1/responses.
var responses = dialect{
	prompts:  func(q *request, _ int) ([][]byte, error) { return one(responsesPrompt(q)) },
	whole:    func(c *call, results []result) object { return response(c, "completed", &results[0]) },
	stream:   func(c *call, out *sse) transcript { return &responseStream{c: c, out: out} },
	notFound: openAINotFound,
}

type responseStream struct {
	c    *call
	out  *sse
	n    int    // events sent
	last result // for the closing event
}

func (s *responseStream) open(int, usage) {
	s.send("response.created", object{"response": response(s.c, "in_progress", nil)})
	s.send("response.in_progress", object{"response": response(s.c, "in_progress", nil)})
	s.send("response.output_item.added", object{"item": outputItem(s.c, "in_progress", nil)})
	if !s.c.calls() {
		s.send("response.content_part.added", object{"content_index": 0, "part": outputPart("")})
	}
}

func (s *responseStream) token(_ int, text string) {
	if s.c.calls() {
		s.send("response.function_call_arguments.delta", object{"delta": text})
		return
	}
	s.send("response.output_text.delta", object{"content_index": 0, "delta": text, "logprobs": []object{}})
}

func (s *responseStream) end(r result) {
	s.last = r
	if r.tool != "" {
		s.send("response.function_call_arguments.done", object{"name": r.tool, "arguments": r.text})
		s.send("response.output_item.done", object{"item": outputItem(s.c, "completed", &r)})
		return
	}
	s.send("response.output_text.done", object{"content_index": 0, "text": r.text, "logprobs": []object{}})
	s.send("response.content_part.done", object{"content_index": 0, "part": outputPart(r.text)})
	s.send("response.output_item.done", object{"item": outputItem(s.c, "completed", &r)})
}

func (s *responseStream) done(usage) {
	s.send("response.completed", object{"response": response(s.c, "completed", &s.last)})
}

func (s *responseStream) send(kind string, payload object) {
	payload["type"] = kind
	payload["sequence_number"] = s.n
	if payload["response"] == nil {
		payload["output_index"] = 0
		payload["item_id"] = itemID(s.c)
	}
	s.n++
	s.out.send(kind, payload)
}

// response is the object of the API; r is nil while the answer is being made.
func response(c *call, status string, r *result) object {
	o := object{
		"id": "resp_" + c.id, "object": "response", "created_at": c.created, "status": status, "model": c.Model,
		"error": nil, "incomplete_details": nil, "instructions": nil, "metadata": nil, "parallel_tool_calls": true,
		"tool_choice": "auto", "tools": []object{}, "temperature": 1.0, "top_p": 1.0, "output": []object{}, "usage": nil,
	}
	if r != nil {
		o["output"] = []object{outputItem(c, status, r)}
		o["usage"] = object{
			"input_tokens": r.usage.prompt, "output_tokens": r.usage.answer,
			"total_tokens":          r.usage.prompt + r.usage.answer,
			"input_tokens_details":  object{"cached_tokens": r.usage.cached},
			"output_tokens_details": object{"reasoning_tokens": 0},
		}
	}
	return o
}

func itemID(c *call) string {
	if c.calls() {
		return "fc_" + c.id
	}
	return "msg_" + c.id
}

// outputItem is a message, or the call of a tool; r is nil at its beginning.
func outputItem(c *call, status string, r *result) object {
	if c.calls() {
		arguments := ""
		if r != nil {
			arguments = r.text
		}
		return object{
			"id": itemID(c), "type": "function_call", "call_id": "call_" + c.id, "name": c.plan.tool, "arguments": arguments,
			"status": status,
		}
	}
	content := []object{}
	if r != nil {
		content = append(content, outputPart(r.text))
	}
	return object{"id": itemID(c), "type": "message", "role": "assistant", "status": status, "content": content}
}

func outputPart(text string) object {
	return object{"type": "output_text", "text": text, "annotations": []object{}, "logprobs": []object{}}
}
