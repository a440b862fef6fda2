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
	s.send("response.content_part.added", object{"content_index": 0, "part": outputPart("")})
}

func (s *responseStream) token(_ int, text string) {
	s.send("response.output_text.delta", object{"content_index": 0, "delta": text, "logprobs": []object{}})
}

func (s *responseStream) end(r result) {
	s.last = r
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
		payload["item_id"] = "msg_" + s.c.id
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

func outputItem(c *call, status string, r *result) object {
	content := []object{}
	if r != nil {
		content = append(content, outputPart(r.text))
	}
	return object{"id": "msg_" + c.id, "type": "message", "role": "assistant", "status": status, "content": content}
}

func outputPart(text string) object {
	return object{"type": "output_text", "text": text, "annotations": []object{}, "logprobs": []object{}}
}
