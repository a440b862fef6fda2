package replica

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"
)

// asked are requests that leave no choice: for a tool, or for JSON.
var asked = []struct {
	path string
	tool string // body for a call of set_level, without the closing brace
	done string // the same chat with what the tool said
	json string // body for JSON
	call []any  // where the called tool's name is
	args []any  // where its arguments are
	stop []any  // where the reason to stop is
	why  string
	text []any // where plain text is
}{
	{
		path: "/v1/chat/completions",
		tool: `{"messages":[{"role":"user","content":"louder"}],"tools":[{"type":"function","function":{"name":"set_level","parameters":` + level + `}}]`,
		done: `{"messages":[{"role":"user","content":"louder"},{"role":"assistant","tool_calls":[]},{"role":"tool","content":"done","tool_call_id":"x"}],` +
			`"tools":[{"type":"function","function":{"name":"set_level"}}]`,
		json: `{"messages":[{"role":"user","content":"x"}],"response_format":{"type":"json_schema","json_schema":{"name":"n","schema":` + level + `}}`,
		call: []any{"choices", 0, "message", "tool_calls", 0, "function", "name"},
		args: []any{"choices", 0, "message", "tool_calls", 0, "function", "arguments"},
		stop: []any{"choices", 0, "finish_reason"}, why: "tool_calls",
		text: []any{"choices", 0, "message", "content"},
	},
	{
		path: "/v1/messages",
		tool: `{"messages":[{"role":"user","content":[{"type":"text","text":"louder"}]}],"tools":[{"name":"set_level","input_schema":` + level + `}]`,
		done: `{"messages":[{"role":"user","content":"louder"},{"role":"assistant","content":[{"type":"tool_use","id":"x","name":"set_level","input":{}}]},` +
			`{"role":"user","content":[{"type":"tool_result","tool_use_id":"x","content":"done"}]}],"tools":[{"name":"set_level","input_schema":` + level + `}]`,
		json: `{"messages":[{"role":"user","content":"x"}],"output_config":{"format":{"type":"json_schema","schema":` + level + `}}`,
		call: []any{"content", 0, "name"},
		args: []any{"content", 0, "input"},
		stop: []any{"stop_reason"}, why: "tool_use",
		text: []any{"content", 0, "text"},
	},
	{
		path: "/v1/responses",
		tool: `{"input":"louder","tools":[{"type":"function","name":"set_level","parameters":` + level + `}]`,
		done: `{"input":[{"role":"user","content":"louder"},{"type":"function_call","call_id":"x","name":"set_level","arguments":"{}"},` +
			`{"type":"function_call_output","call_id":"x","output":"done"}],"tools":[{"type":"function","name":"set_level"}]`,
		json: `{"input":"x","text":{"format":{"type":"json_schema","name":"n","schema":` + level + `}}`,
		call: []any{"output", 0, "name"},
		args: []any{"output", 0, "arguments"},
		stop: []any{"output", 0, "type"}, why: "function_call",
		text: []any{"output", 0, "content", 0, "text"},
	},
}

const (
	level = `{"type":"object","properties":{"level":{"type":"integer","minimum":9},"unit":{"enum":["dB"]},` +
		`"room":{"anyOf":[{"type":"null"},{"$ref":"#/$defs/Room"}]},"tags":{"type":"array","items":{"type":"boolean"},"minItems":2}},` +
		`"$defs":{"Room":{"type":"object","properties":{"size":{"const":9}}}}}`
	levelSample = `{"level":9,"room":{"size":9},"tags":[true,true],"unit":"dB"}`
)

func TestPlan(t *testing.T) {
	for _, a := range asked {
		t.Run(a.path, func(t *testing.T) {
			r := start(t, Options{})
			url := r.URL() + a.path
			call := ask(t, url, a.tool+"}")
			if got := at(t, call, a.call...); got != "set_level" {
				t.Errorf("called tool = %v, want set_level", got)
			}
			args := at(t, call, a.args...)
			if _, isText := args.(string); !isText {
				b, _ := json.Marshal(args)
				args = string(b)
			}
			if args != levelSample {
				t.Errorf("arguments = %v, want %s", args, levelSample)
			}
			if got := at(t, call, a.stop...); got != a.why {
				t.Errorf("reason to stop = %v, want %s", got, a.why)
			}
			for name, body := range map[string]string{"after the result": a.done, "unwanted": a.tool + `,"tool_choice":"none"`} {
				if got, _ := at(t, ask(t, url, body+"}"), a.text...).(string); len(got) != 64 {
					t.Errorf("answer to a tool %s = %q, want 16 words", name, got)
				}
			}
			if got := at(t, ask(t, url, a.json+"}"), a.text...); got != levelSample {
				t.Errorf("JSON answer = %v, want %s", got, levelSample)
			}
		})
	}
}

// streamed collects the text of all events under a member's name, wherever it is.
func streamed(t *testing.T, url, body, member string) string {
	t.Helper()
	var all strings.Builder
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case object:
			for name, inner := range v {
				if text, isText := inner.(string); isText && name == member {
					all.WriteString(text)
				}
				walk(inner)
			}
		case []any:
			for _, inner := range v {
				walk(inner)
			}
		}
	}
	for _, e := range stream(t, url, body) {
		if strings.HasSuffix(e.name, ".done") || e.name == "response.completed" {
			continue // repeats the whole
		}
		walk(e.data)
	}
	return all.String()
}

func TestPlan_streams(t *testing.T) {
	members := map[string]string{"/v1/chat/completions": "arguments", "/v1/messages": "partial_json", "/v1/responses": "delta"}
	for _, a := range asked {
		r := start(t, Options{})
		if got := streamed(t, r.URL()+a.path, a.tool+`,"stream":true}`, members[a.path]); got != levelSample {
			t.Errorf("%s: streamed arguments = %s, want %s", a.path, got, levelSample)
		}
	}
}

func TestPlan_limits(t *testing.T) {
	r := start(t, Options{})
	short := ask(t, r.URL()+"/v1/messages", asked[1].json+`,"max_tokens":2}`)
	if text, why := at(t, short, "content", 0, "text"), at(t, short, "stop_reason"); text != levelSample[:8] || why != "max_tokens" {
		t.Errorf("JSON in 2 tokens = %v (%v), want the first 8 bytes (max_tokens)", text, why)
	}
	for what, body := range map[string]string{
		"an unknown tool":   asked[0].tool + `,"tool_choice":{"type":"function","function":{"name":"other"}}}`,
		"tools of no form":  `{"messages":[{"role":"user","content":"x"}],"tools":[1]}`,
		"an unknown format": `{"messages":[{"role":"user","content":"x"}],"response_format":{"type":"yaml"}}`,
	} {
		if status, text := post(t, r.URL()+"/v1/chat/completions", body); status != 400 {
			t.Errorf("%s = %d %s, want 400", what, status, text)
		}
	}
	p := &plan{text: "ää€€bc"}
	if got := p.tokens(4); strings.Join(got, "|") != "ää|€€|bc" {
		t.Errorf("tokens of %q = %q", p.text, got)
	}
}

func TestEmbeddings_base64(t *testing.T) {
	r := start(t, Options{})
	got := ask(t, r.URL()+"/v1/embeddings", `{"input":["a","b"],"encoding_format":"base64"}`)
	b, err := base64.StdEncoding.DecodeString(at(t, got, "data", 1, "embedding").(string))
	if err != nil || len(b) != 4*dimensions {
		t.Errorf("embedding of %d bytes, %v, want %d", len(b), err, 4*dimensions)
	}
}

func TestCountTokens(t *testing.T) {
	r := start(t, Options{})
	body := `{"messages":[{"role":"user","content":"` + long + `"}]}`
	counted := at(t, ask(t, r.URL()+"/v1/messages/count_tokens", body), "input_tokens")
	used := at(t, ask(t, r.URL()+"/v1/messages", body), "usage", "input_tokens")
	if counted != used {
		t.Errorf("counted %v tokens, used %v", counted, used)
	}
}
