package replica

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

// long fills 8 blocks, so that a second turn has something to find.
var long = strings.Repeat("You are a helpful assistant. ", 20)

var dialects = []struct {
	path        string
	first       string // body without the closing brace
	second      string // the same chat one turn on
	text        []any  // where the answer is
	cached      []any  // where the cached tokens are
	prompt      []any  // where the prompt tokens are
	minusCached bool   // the prompt tokens do not include the cached ones
}{
	{
		path:   "/v1/chat/completions",
		first:  `{"messages":[{"role":"system","content":"` + long + `"},{"role":"user","content":"hi"}]`,
		second: `{"messages":[{"role":"system","content":[{"type":"text","text":"` + long + `"}]},{"role":"user","content":"hi"},{"role":"user","content":"go on"}]`,
		text:   []any{"choices", 0, "message", "content"},
		cached: []any{"usage", "prompt_tokens_details", "cached_tokens"}, prompt: []any{"usage", "prompt_tokens"},
	},
	{
		path:  "/v1/completions",
		first: `{"prompt":"` + long + `"`, second: `{"prompt":["` + long + ` more"]`,
		text:   []any{"choices", 0, "text"},
		cached: []any{"usage", "prompt_tokens_details", "cached_tokens"}, prompt: []any{"usage", "prompt_tokens"},
	},
	{
		path: "/v1/messages",
		first: `{"system":[{"type":"text","text":"x-anthropic-billing-header: one"},{"type":"text","text":"` + long +
			`"}],"messages":[{"role":"user","content":[{"type":"text","text":"hi","cache_control":{"type":"ephemeral"}}]}]`,
		second: `{"system":[{"type":"text","text":"x-anthropic-billing-header: two"},{"type":"text","text":"` + long +
			`"}],"messages":[{"role":"user","content":"hi"},{"role":"user","content":"go on"}]`,
		text:   []any{"content", 0, "text"},
		cached: []any{"usage", "cache_read_input_tokens"}, prompt: []any{"usage", "input_tokens"}, minusCached: true,
	},
	{
		path:   "/v1/responses",
		first:  `{"instructions":"` + long + `","input":"hi"`,
		second: `{"instructions":"` + long + `","input":[{"role":"user","content":[{"type":"input_text","text":"hi"}]},{"role":"user","content":"go on"}]`,
		text:   []any{"output", 0, "content", 0, "text"},
		cached: []any{"usage", "input_tokens_details", "cached_tokens"}, prompt: []any{"usage", "input_tokens"},
	},
}

func TestDialects_wholeAnswer(t *testing.T) {
	for _, d := range dialects {
		t.Run(d.path, func(t *testing.T) {
			r := start(t, Options{OutputTokens: 5})
			first := ask(t, r.URL()+d.path, d.first+"}")
			if got := at(t, first, d.cached...); got != 0.0 {
				t.Errorf("first turn: cached = %v, want 0", got)
			}
			if got := at(t, first, d.text...).(string); len(got) != 20 {
				t.Errorf("answer = %q, want 5 tokens of 4 bytes", got)
			}
			second := ask(t, r.URL()+d.path, d.second+"}")
			cached := at(t, second, d.cached...).(float64)
			if cached != 144 { // 580 bytes of text: 9 blocks of 64
				t.Errorf("second turn: cached = %v, want 144", cached)
			}
			prompt := at(t, second, d.prompt...).(float64)
			if d.minusCached {
				prompt += cached
			}
			if total := r.Stats().PromptTokens; int(prompt) <= 145 || int64(prompt) >= total {
				t.Errorf("second turn: prompt tokens = %v of %d in both turns", prompt, total)
			}
		})
	}
}

func TestDialects_streamEqualsWhole(t *testing.T) {
	for _, d := range dialects {
		t.Run(d.path, func(t *testing.T) {
			r := start(t, Options{})
			whole := at(t, ask(t, r.URL()+d.path, d.first+`,"max_tokens":7}`), d.text...)
			before := time.Now().UnixNano()
			var text strings.Builder
			done := false
			for _, e := range stream(t, r.URL()+d.path, d.first+`,"max_tokens":7,"stream":true}`) {
				if e.data == nil {
					done = true
					continue
				}
				if sent := int64(e.data[SentField].(float64)); sent < before-1000 || sent > time.Now().UnixNano() {
					t.Errorf("%s = %d is not the time of sending", SentField, sent)
				}
				if e.name != "" && e.data["type"] != e.name {
					t.Errorf("event %q has the type %v", e.name, e.data["type"])
				}
				text.WriteString(delta(t, e.data))
			}
			if text.String() != whole {
				t.Errorf("streamed %q, whole answer %q", text.String(), whole)
			}
			if openAI := d.path == "/v1/chat/completions" || d.path == "/v1/completions"; done != openAI {
				t.Errorf("[DONE] seen: %v, want %v", done, openAI)
			}
		})
	}
}

// delta returns the text an event of any dialect adds.
func delta(t *testing.T, e object) string {
	t.Helper()
	var text any
	switch {
	case e["type"] == "content_block_delta":
		text = at(t, e, "delta", "text")
	case e["type"] == "response.output_text.delta":
		text = e["delta"]
	case e["object"] == "chat.completion.chunk":
		text = at(t, e, "choices", 0, "delta", "content")
	case e["object"] == "text_completion":
		text = at(t, e, "choices", 0, "text")
	}
	s, _ := text.(string)
	return s
}

func TestChat_usageChunkOnRequest(t *testing.T) {
	r := start(t, Options{})
	body := dialects[0].first + `,"max_completion_tokens":2,"stream":true`
	plain := stream(t, r.URL()+"/v1/chat/completions", body+"}")
	if len(plain) != 5 { // role, 2 tokens, finish, [DONE]
		t.Errorf("%d events, want 5", len(plain))
	}
	events := stream(t, r.URL()+"/v1/chat/completions", body+`,"stream_options":{"include_usage":true}}`)
	u := at(t, events[len(events)-2].data, "usage")
	if at(t, u, "completion_tokens") != 2.0 || at(t, u, "prompt_tokens_details", "cached_tokens") != 144.0 {
		t.Errorf("usage = %v", u)
	}
	if finish := at(t, events[3].data, "choices", 0, "finish_reason"); finish != "length" {
		t.Errorf("finish_reason = %v, want length", finish)
	}
}

func TestMessages_eventsInOrder(t *testing.T) {
	r := start(t, Options{})
	url := r.URL() + "/v1/messages"
	ask(t, url, dialects[2].first+`}`)
	events := stream(t, url, dialects[2].first+`,"max_tokens":1,"stream":true}`)
	var names []string
	for _, e := range events {
		names = append(names, e.name)
	}
	want := "message_start content_block_start ping content_block_delta content_block_stop message_delta message_stop"
	if got := strings.Join(names, " "); got != want {
		t.Errorf("events = %s, want %s", got, want)
	}
	full := at(t, events[0].data, "message", "usage", "input_tokens").(float64)
	u := at(t, events[5].data, "usage")
	if at(t, u, "cache_read_input_tokens") != 144.0 || at(t, u, "input_tokens") != full-144 {
		t.Errorf("usage = %v after a message_start with %v input tokens", u, full)
	}
}

func TestDialects_errors(t *testing.T) {
	r := start(t, Options{Models: []string{"known"}, CacheTokens: 1600})
	for _, d := range dialects {
		if status, text := post(t, r.URL()+d.path, d.first); status != 400 || at(t, decode(t, text), "error", "code") != 400.0 {
			t.Errorf("%s, malformed: %d %s", d.path, status, text)
		}
		if status, text := post(t, r.URL()+d.path, `{}`); status != 400 {
			t.Errorf("%s, no prompt: %d %s", d.path, status, text)
		}
		if status, text := post(t, r.URL()+d.path, d.first+`,"max_tokens":2000}`); status != 400 {
			t.Errorf("%s, too long: %d %s", d.path, status, text)
		}
		status, text := post(t, r.URL()+d.path, d.first+`,"model":"other"}`)
		anthropic := decode(t, text)["type"] == "error"
		if status != 404 || anthropic != (d.path == "/v1/messages") {
			t.Errorf("%s, unknown model: %d %s", d.path, status, text)
		}
		for _, model := range []string{``, `,"model":"known"`} {
			ask(t, r.URL()+d.path, d.first+model+"}")
		}
	}
}

func TestPrompt_markersAndSpacingChangeNothing(t *testing.T) {
	r := start(t, Options{})
	url := r.URL() + "/v1/chat/completions"
	tools := `"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object","n":1.50}}}]`
	ask(t, url, `{"messages":[{"role":"user","content":"`+long+`"}],`+tools+`}`)
	loose := strings.NewReplacer(`":`, `" : `, `,"`, ` , "cache_control": {"type": "ephemeral"} ,  "`).Replace(tools)
	got := ask(t, url, `{`+loose+`,"messages":[{"role":"user","content":"`+long+`"}]}`)
	if cached := at(t, got, "usage", "prompt_tokens_details", "cached_tokens"); cached != 176.0 {
		t.Errorf("cached = %v, want 176: all 11 whole blocks", cached)
	}
}

func TestCompletions_tokenIDs(t *testing.T) {
	r := start(t, Options{})
	ids := strings.TrimSuffix(strings.Repeat("17,", 33), ",")
	for i, want := range []float64{0, 32} {
		got := ask(t, r.URL()+"/v1/completions", `{"prompt":[`+ids+`]}`)
		if at(t, got, "usage", "prompt_tokens") != 33.0 {
			t.Errorf("prompt tokens = %v, want 33", at(t, got, "usage", "prompt_tokens"))
		}
		if cached := at(t, got, "usage", "prompt_tokens_details", "cached_tokens"); cached != want {
			t.Errorf("request %d: cached = %v, want %v", i, cached, want)
		}
	}
	got := ask(t, r.URL()+"/v1/completions", `{"prompt":[[1,2],[3]]}`)
	if at(t, got, "choices", 1, "index") != 1.0 {
		t.Errorf("two prompts: %v", got)
	}
}

func TestOtherEndpoints(t *testing.T) {
	r := start(t, Options{Models: []string{"m1", "m2"}})
	if status, _ := get(t, r.URL()+"/health"); status != 200 {
		t.Errorf("GET /health = %d", status)
	}
	_, models := get(t, r.URL()+"/v1/models")
	if at(t, decode(t, models), "data", 1, "id") != "m2" {
		t.Errorf("models = %s", models)
	}
	e := ask(t, r.URL()+"/v1/embeddings", `{"input":["one","three"]}`)
	if v := at(t, e, "data", 1, "embedding").([]any); len(v) != dimensions {
		t.Errorf("embedding has %d numbers, want %d", len(v), dimensions)
	}
	if n := at(t, ask(t, r.URL()+"/tokenize", `{"prompt":"123456789"}`), "count"); n != 3.0 {
		t.Errorf("tokenize: count = %v, want 3", n)
	}
	if status, _ := get(t, r.URL()+"/nothing"); status != http.StatusNotFound {
		t.Errorf("GET /nothing = %d", status)
	}
	if status, _ := get(t, r.URL()+"/v1/chat/completions"); status != http.StatusMethodNotAllowed {
		t.Errorf("GET /v1/chat/completions = %d", status)
	}
}
