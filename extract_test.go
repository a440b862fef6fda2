package cart

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// spaced renders compact JSON as Python's json module does: a space after each colon and comma outside of strings.
func spaced(body string) string {
	var out strings.Builder
	inString := false
	for i := 0; i < len(body); i++ {
		c := body[i]
		out.WriteByte(c)
		switch {
		case inString && c == '\\':
			i++
			out.WriteByte(body[i])
		case c == '"':
			inString = !inString
		case !inString && (c == ':' || c == ','):
			out.WriteByte(' ')
		}
	}
	return out.String()
}

// pretty renders JSON with a line for each member.
func pretty(t *testing.T, body string) string {
	t.Helper()
	var out bytes.Buffer
	if err := json.Indent(&out, []byte(body), "", "  "); err != nil {
		t.Fatalf("Indent(%s) = %v", body, err)
	}
	return out.String()
}

// quoted renders a text as a JSON string, as most clients do: without escaping < and >.
func quoted(t *testing.T, text string) string {
	t.Helper()
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(text); err != nil {
		t.Fatalf("Encode(%q) = %v", text, err)
	}
	return strings.TrimSpace(out.String())
}

func user(t *testing.T, text string) string {
	t.Helper()
	return `{"role":"user","content":` + quoted(t, text) + `}`
}

func assistant(t *testing.T, text string) string {
	t.Helper()
	return `{"role":"assistant","content":` + quoted(t, text) + `}`
}

// conversation is a chat turn by turn. Its body with n turns is head, the first n turns with commas, tail.
type conversation struct {
	story      string
	endpoint   endpoint
	head, tail string
	turns      []string
}

// asks says whether a request can end with turn n: no client sends a call of a tool without its result.
func (c *conversation) asks(n int) bool {
	return !strings.Contains(c.turns[n-1], `"tool_use"`)
}

func (c *conversation) body(n int) string {
	return c.head + strings.Join(c.turns[:n], ",") + c.tail
}

// mustKey returns the key of a body and fails if there is none.
func mustKey(t *testing.T, story string, e endpoint, body string) (space, key string) {
	t.Helper()
	space, key = keyOf(e, body)
	if key == "" {
		t.Errorf("%s: keyOf(%.200s) found no key", story, body)
	}
	return space, key
}

// nasty texts: names, brackets and quotes that look like JSON's own once they are escaped.
const (
	namesInText    = `use "tools": [{"messages": ["a"]}], "system": "x", "model": "y" and "role":"user"`
	bracketsInText = `}],"} ]} [[[{{{ "}],"`
	pythonInText   = `d = {"a": 1, "b": [1, 2]}, {"c": "it's"}; print("x": "y", "z")`
	windowsInText  = `C:\Users\me\`
	otherScripts   = "日本語 😀 naïve \u2028 <b>&amp;</b> \x00\x1f"
)

const oneTool = `{"type":"function","function":{"name":"weather","description":"Says [how it is","parameters":{"type":"object",` +
	`"properties":{"city":{"type":"string"},"messages":{"type":"array","items":[{"type":"string"}],"minItems":1},` +
	`"model":{"type":"string","enum":["small","big"]},"input":{"type":"string"},"tools":{"type":"array"},` +
	`"system":{"type":"string"}},"required":["city"]}}}`

func conversations(t *testing.T) []conversation {
	plain := []string{user(t, "hello"), assistant(t, "hi"), user(t, "how are you?"), assistant(t, "well"), user(t, "good")}
	texts := []string{
		user(t, namesInText), assistant(t, bracketsInText), user(t, pythonInText), assistant(t, windowsInText),
		user(t, otherScripts), assistant(t, ""), user(t, "\""), assistant(t, `\`), user(t, "last"),
	}
	long := []string{
		user(t, strings.Repeat("a long question ", 1000)), assistant(t, strings.Repeat("an answer ", 2000)),
		user(t, strings.Repeat(`"quoted", `, 1500)+"?"), assistant(t, strings.Repeat(`{"a":[{"b":"c"}],"d":1}`, 600)), user(t, "ok"),
	}
	parts := []string{
		`{"role":"user","content":[{"type":"text","text":"look"},{"type":"image_url","image_url":{"url":"data:image/png;base64,` +
			strings.Repeat("iVBORw0KGgo", 900) + `"}}]}`,
		assistant(t, "a cat"),
		`{"role":"user","content":[{"type":"text","text":"and now?"}],"name":"ann"}`,
		`{"content":[{"type":"text","text":"content first"}],"role":"assistant"}`,
		`{"role":"user","content":[{"type":"text","text":"bye"}]}`,
	}
	calls := []string{
		user(t, "how is the weather in Rome and Paris?"),
		`{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"weather","arguments":` +
			`"{\"city\": \"Rome\", \"tools\": [{}], \"messages\": []}"}},{"id":"c2","type":"function","function":{"name":"weather",` +
			`"arguments":"{\"city\":\"Paris\"}"}}],"refusal":null}`,
		`{"role":"tool","tool_call_id":"c1","content":"sunny"}`,
		`{"role":"tool","tool_call_id":"c2","content":"[{\"sky\":\"grey\"}],\"more\""}`,
		assistant(t, "Sunny in Rome, grey in Paris."),
		user(t, "thanks"),
	}
	blocks := []string{
		user(t, "list the files"),
		`{"role":"assistant","content":[{"type":"text","text":"I list them."},{"type":"tool_use","id":"t1","name":"Task","input":` +
			`{"model":"haiku","system":"be brief","messages":[{"role":"user","content":"x"}],"tools":[{"name":"ls"}],"input":"y"}}]}`,
		`{"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":[{"type":"text","text":"a.go"}],"is_error":false}]}`,
		`{"role":"assistant","content":[{"type":"text","text":"There is a.go."}]}`,
		`{"role":"user","content":[{"type":"text","text":"show it"},{"type":"text","text":"please"}]}`,
	}
	items := []string{
		`{"role":"user","content":[{"type":"input_text","text":"how is the weather?"}]}`,
		`{"type":"reasoning","id":"r1","summary":[],"encrypted_content":"gAAAA"}`,
		`{"type":"function_call","call_id":"c1","name":"weather","arguments":"{\"city\":\"Rome\"}"}`,
		`{"type":"function_call_output","call_id":"c1","output":"sunny"}`,
		`{"type":"message","role":"assistant","content":[{"type":"output_text","text":"Sunny.","annotations":[]}],"status":"completed"}`,
		`{"role":"user","content":"thanks"}`,
	}
	const settings = `"temperature":0.7,"stop":["a","b"],"stream_options":{"include_usage":true}`
	systemBlocks := `"system":[{"type":"text","text":"You are [a] {helper}, \"system\": \"x\""},{"type":"text","text":"second"}]`
	anthropicTool := `"tools":[{"name":"ls","description":"lists [files","input_schema":{"type":"object","properties":{"path":` +
		`{"type":"string"},"any":{"anyOf":[{"type":"string"},{"type":"null"}],"default":null}}}},{"name":"cat"}]`
	responsesTool := `"tools":[{"type":"function","name":"weather","parameters":{"type":"object","properties":{"input":{"type":"string"}}}}]`
	return []conversation{
		{"chat: messages last", endpointChat, `{"model":"m","messages":[`, `]}`, plain},
		{"chat: messages first", endpointChat, `{"messages":[`, `],"model":"m",` + settings + `}`, plain},
		{"chat: nothing but messages", endpointChat, `{"messages":[`, `]}`, plain},
		{"chat: nasty texts", endpointChat, `{"model":"m","messages":[`, `],"stream":true}`, texts},
		{"chat: nasty texts, messages last", endpointChat, `{"model":"m","messages":[`, `]}`, texts},
		{"chat: long texts", endpointChat, `{"messages":[`, `],"model":"m","stream":true}`, long},
		{"chat: long texts, messages last", endpointChat, `{"model":"m","stream":true,"messages":[`, `]}`, long},
		{"chat: parts with images", endpointChat, `{"model":"m","messages":[`, `],"stream":true}`, parts},
		{"chat: parts, messages last", endpointChat, `{"model":"m","messages":[`, `]}`, parts},
		{"chat: tools first", endpointChat, `{"tools":[` + oneTool + `,` + oneTool + `],"model":"m","messages":[`, `]}`, calls},
		{"chat: tools last", endpointChat, `{"messages":[`, `],"model":"m","tools":[` + oneTool + `]}`, calls},
		{"chat: tools after and more", endpointChat, `{"messages":[`, `],"model":"m","tools":[` + oneTool + `],"tool_choice":"auto"}`, calls},
		{"chat: empty tools", endpointChat, `{"messages":[`, `],"model":"m","tools":[],"n":1}`, calls},
		{"chat: null tools", endpointChat, `{"tools":null,"messages":[`, `],"model":"m"}`, calls},
		{"messages: as Claude Code sends them", endpointMessages, `{"model":"m","messages":[`,
			`],` + systemBlocks + `,` + anthropicTool + `,"max_tokens":32000,"stream":true}`, blocks},
		{"messages: system text first", endpointMessages, `{"model":"m","system":"You, \"messages\": [","messages":[`, `],"max_tokens":9}`, blocks},
		{"messages: system text last", endpointMessages, `{"model":"m","max_tokens":9,"messages":[`, `],"system":"You"}`, blocks},
		{"messages: no system, no tools", endpointMessages, `{"model":"m","max_tokens":9,"messages":[`, `]}`, blocks},
		{"messages: tools, then system, then messages", endpointMessages,
			`{` + anthropicTool + `,` + systemBlocks + `,"messages":[`, `],"model":"m"}`, blocks},
		{"messages: nasty texts", endpointMessages, `{"model":"m",` + systemBlocks + `,"messages":[`, `],"metadata":{"user_id":"u"}}`, texts},
		{"responses: items", endpointResponses, `{"model":"m","instructions":"Help.","input":[`, `],` + responsesTool + `,"store":false}`, items},
		{"responses: input last", endpointResponses, `{"model":"m",` + responsesTool + `,"instructions":"Help.","input":[`, `]}`, items},
		{"responses: no tools", endpointResponses, `{"input":[`, `],"model":"m","reasoning":{"effort":"low"}}`, items},
		{"responses: nasty texts", endpointResponses, `{"model":"m","input":[`, `],"instructions":"\"input\": ["}`, texts},
	}
}

func TestKeyOf_aTurnMoreExtendsTheKey(t *testing.T) {
	all := conversations(t)
	for i := range all {
		c := &all[i]
		last, lastSpaced, lastSpace := "", "", ""
		for n := 1; n <= len(c.turns); n++ {
			if !c.asks(n) {
				continue
			}
			space, key := mustKey(t, c.story, c.endpoint, c.body(n))
			if last != "" && (!strings.HasPrefix(key, last) || len(key) <= len(last)) {
				t.Errorf("%s: keyOf(%d turns) = ...%q, want more after that of fewer, ...%q", c.story, n, end(key), end(last))
			}
			if last != "" && space != lastSpace {
				t.Errorf("%s: keyOf(%d turns) has space %q, want %q as with fewer", c.story, n, space, lastSpace)
			}
			spacedSpace, spacedKey := mustKey(t, c.story, c.endpoint, spaced(c.body(n)))
			if last != "" && !strings.HasPrefix(spacedKey, lastSpaced) {
				t.Errorf("%s, spaced: keyOf(%d turns) = ...%q, want more after that of fewer, ...%q",
					c.story, n, end(spacedKey), end(lastSpaced))
			}
			if spacedSpace != space {
				t.Errorf("%s, spaced: keyOf(%d turns) has space %q, want %q as compact", c.story, n, spacedSpace, space)
			}
			last = key
			lastSpaced = spacedKey
			lastSpace = space
		}
	}
}

func TestKeyOf_holdsTheLastTurn(t *testing.T) {
	all := conversations(t)
	for i := range all {
		c := &all[i]
		for n := 1; n <= len(c.turns); n++ {
			if !c.asks(n) {
				continue
			}
			// An early end inside the last turn is fine; half of it should be there.
			turn := c.turns[n-1]
			if _, key := keyOf(c.endpoint, c.body(n)); !strings.Contains(key, turn[:len(turn)/2]) {
				t.Errorf("%s: keyOf(%d turns) = ...%q, want the last turn %.80q in it", c.story, n, end(key), turn)
			}
		}
	}
}

func TestKeyOf_spacesByModel(t *testing.T) {
	all := conversations(t)
	for i := range all {
		c := &all[i]
		want := "m\x00"
		if !strings.Contains(c.head+c.tail, `"model":"m"`) {
			want = "\x00"
		}
		for n := 1; n <= len(c.turns); n++ {
			if !c.asks(n) {
				continue
			}
			if space, _ := keyOf(c.endpoint, c.body(n)); space != want {
				t.Errorf("%s: keyOf(%d turns) has space %q, want %q", c.story, n, space, want)
			}
		}
	}
}

// end returns what stands at the end of a key, for messages.
func end(key string) string {
	if len(key) > 60 {
		return key[len(key)-60:]
	}
	return key
}

func TestKeyOf_keepsTheTurnsOfPrettyJSON(t *testing.T) {
	all := conversations(t)
	for i := range all {
		c := &all[i]
		last := ""
		for n := 1; n <= len(c.turns); n++ {
			if !c.asks(n) {
				continue
			}
			_, key := mustKey(t, c.story, c.endpoint, pretty(t, c.body(n)))
			// What closes the messages may be taken for a part of them.
			common := 0
			for common < len(key) && common < len(last) && key[common] == last[common] {
				common++
			}
			if missing := len(last) - common; missing > len(pretty(t, c.tail2()))+40 {
				t.Errorf("%s, pretty: keyOf(%d turns) has %d of the %d bytes of that of fewer", c.story, n, common, len(last))
			}
			last = key
		}
	}
}

// tail2 returns the tail as JSON of its own.
func (c *conversation) tail2() string {
	return `{"messages":[` + c.tail
}

func TestKeyOf_spacesAndCompactAreOne(t *testing.T) {
	all := conversations(t)
	for i := range all {
		c := &all[i]
		body := c.body(len(c.turns))
		_, compact := keyOf(c.endpoint, body)
		_, python := keyOf(c.endpoint, spaced(body))
		if compact != python {
			at := 0
			for at < len(compact) && at < len(python) && compact[at] == python[at] {
				at++
			}
			t.Errorf("%s: keyOf(spaced) differs from byte %d of %d on: %.60q, want %.60q", c.story, at, len(compact), python[at:], compact[at:])
		}
	}
}

func TestKeyOf_doesNotCareForTheOrderOfMembers(t *testing.T) {
	for _, row := range []struct {
		endpoint endpoint
		members  []string
	}{
		{endpointChat, []string{`"model":"m"`, `"messages":[{"role":"system","content":"s"},{"role":"user","content":"q"}]`,
			`"tools":[` + strings.ReplaceAll(oneTool, "[how", "how") + `,{"name":"b"}]`, `"stream":true`, `"response_format":{"type":"json_schema","json_schema":{"a":[{}]}}`}},
		{endpointChat, []string{`"model":"m"`, `"messages":[{"role":"user","content":[{"type":"text","text":"q"}]}]`, `"cache_salt":"tenant"`,
			`"temperature":0`, `"stop":["x"]`}},
		{endpointMessages, []string{`"model":"m"`, `"messages":[{"role":"user","content":"q"}]`, `"tools":[{"name":"a"},{"name":"b"}]`,
			`"system":[{"type":"text","text":"s"}]`, `"max_tokens":5`}},
		{endpointMessages, []string{`"model":"m"`, `"messages":[{"role":"user","content":[{"type":"text","text":"q"}]}]`, `"tools":[{"name":"a"}]`,
			`"system":"s"`, `"cache_salt":"t"`}},
		{endpointResponses, []string{`"model":"m"`, `"input":[{"role":"user","content":"q"}]`, `"tools":[{"type":"function","name":"a"}]`,
			`"instructions":"i"`, `"store":false`}},
		{endpointResponses, []string{`"model":"m"`, `"input":"a question"`, `"tools":[{"type":"function","name":"a"}]`, `"instructions":"i"`,
			`"stream":true`}},
		{endpointCompletion, []string{`"model":"m"`, `"prompt":"Once upon"`, `"max_tokens":5`, `"stop":["."]`, `"cache_salt":"t"`}},
		{endpointCompletion, []string{`"model":"m"`, `"prompt":["Once","Twice"]`, `"max_tokens":5`, `"stop":["."]`, `"cache_salt":"t"`}},
		{endpointCompletion, []string{`"model":"m"`, `"prompt":[1,22,333]`, `"max_tokens":5`, `"stop":["."]`, `"echo":false`}},
	} {
		first := `{` + strings.Join(row.members, ",") + `}`
		wantSpace, want := mustKey(t, "order", row.endpoint, first)
		for _, order := range permutations(len(row.members)) {
			members := make([]string, len(order))
			for i, j := range order {
				members[i] = row.members[j]
			}
			body := `{` + strings.Join(members, ",") + `}`
			for _, text := range []string{body, spaced(body)} {
				if space, key := keyOf(row.endpoint, text); space != wantSpace || key != want {
					t.Errorf("keyOf(%s) = %q, %q, want %q, %q as for %s", text, space, key, wantSpace, want, first)
				}
			}
			if t.Failed() {
				break // one order tells enough
			}
		}
	}
}

// permutations returns all orders of n things.
func permutations(n int) [][]int {
	if n == 0 {
		return [][]int{{}}
	}
	var out [][]int
	for _, rest := range permutations(n - 1) {
		for at := 0; at <= len(rest); at++ {
			one := append([]int{}, rest[:at]...)
			one = append(one, n-1)
			one = append(one, rest[at:]...)
			out = append(out, one)
		}
	}
	return out
}

func TestKeyOf_samplingDoesNotChangeTheKey(t *testing.T) {
	const messages = `"messages":[{"role":"user","content":"q"}]`
	_, want := keyOf(endpointChat, `{"model":"m",`+messages+`}`)
	for _, more := range []string{
		`"temperature":0`, `"temperature":1.5`, `"seed":42`, `"stream":true`, `"stream":false`, `"n":2`, `"user":"u1"`,
		`"stop":["a","b"]`, `"stop":"a"`, `"logit_bias":{"50256":-100}`, `"stream_options":{"include_usage":true}`,
		`"metadata":{"a":"b"}`, `"max_tokens":1`, `"response_format":{"type":"json_object"}`, `"parallel_tool_calls":false`,
		`"guided_choice":["x"]`, `"messages_hash":"m"`, `"extra":[{"a":[{"b":1}]}]`,
	} {
		for _, body := range []string{`{"model":"m",` + messages + `,` + more + `}`, `{"model":"m",` + more + `,` + messages + `}`} {
			if _, key := keyOf(endpointChat, body); key != want {
				t.Errorf("keyOf(%s) = %q, want %q", body, key, want)
			}
		}
	}
}

func TestKeyOf_whatTheEngineReadsChangesTheKey(t *testing.T) {
	for _, row := range []struct {
		story    string
		endpoint endpoint
		one, two string
	}{
		{"tools swapped", endpointChat, `{"messages":[{"role":"user"}],"tools":[{"a":1},{"b":2}]}`,
			`{"messages":[{"role":"user"}],"tools":[{"b":2},{"a":1}]}`},
		{"a tool more", endpointChat, `{"messages":[{"role":"user"}],"tools":[{"a":1}]}`,
			`{"messages":[{"role":"user"}],"tools":[{"a":1},{"b":2}]}`},
		{"tools or none", endpointChat, `{"messages":[{"role":"user"}],"tools":[{"a":1}]}`, `{"messages":[{"role":"user"}]}`},
		{"another system", endpointMessages, `{"system":"a","messages":[{"role":"user"}]}`, `{"system":"b","messages":[{"role":"user"}]}`},
		{"another system block", endpointMessages, `{"system":[{"text":"a"},{"text":"b"}],"messages":[{"role":"user"}]}`,
			`{"system":[{"text":"a"},{"text":"c"}],"messages":[{"role":"user"}]}`},
		{"other instructions", endpointResponses, `{"instructions":"a","input":"q"}`, `{"instructions":"b","input":"q"}`},
		{"another question", endpointResponses, `{"input":"q"}`, `{"input":"r"}`},
		{"another role", endpointChat, `{"messages":[{"role":"user","content":"q"}]}`, `{"messages":[{"role":"system","content":"q"}]}`},
		{"another prompt", endpointCompletion, `{"prompt":"a"}`, `{"prompt":"b"}`},
		{"other tokens", endpointCompletion, `{"prompt":[1,2]}`, `{"prompt":[1,3]}`},
		{"tokens run together", endpointCompletion, `{"prompt":[1,2]}`, `{"prompt":[12]}`},
	} {
		_, one := mustKey(t, row.story, row.endpoint, row.one)
		_, two := mustKey(t, row.story, row.endpoint, row.two)
		if one == two {
			t.Errorf("%s: keyOf(%s) = keyOf(%s) = %q, want them to differ", row.story, row.one, row.two, one)
		}
	}
}

func TestKeyOf_swappedToolsShareNoMoreThanTheyShould(t *testing.T) {
	_, one := keyOf(endpointChat, `{"messages":[{"role":"user","content":"the same"}],"tools":[{"a":1},{"b":2}]}`)
	_, two := keyOf(endpointChat, `{"messages":[{"role":"user","content":"the same"}],"tools":[{"b":2},{"a":1}]}`)
	if one[:3] == two[:3] {
		t.Errorf("keyOf(tools swapped) = %q and %q, want other beginnings: engines render tools first", one, two)
	}
}

func TestKeyOf_readsPromptsInEveryForm(t *testing.T) {
	for _, row := range []struct {
		body, want string
	}{
		{`{"prompt":"abc"}`, `abc`},
		{`{"prompt":"abc","n":1}`, `abc`},
		{`{"model":"m","prompt":"a \"quoted\", \"text\"","n":1}`, `a \"quoted\", \"text\"`},
		{`{"prompt":"say \"a\",\"b\",","n":1}`, `say \"a\",\"b\",`},
		{`{"prompt":"","n":1}`, ``},
		{`{"prompt": "abc", "n": 1}`, `abc`},
		{`{"prompt":["abc","def"]}`, `"abc","def"`},
		{`{"prompt":["abc","def"],"n":1}`, `"abc","def"`},
		{`{"prompt": ["abc", "def"], "n": 1}`, `"abc","def"`},
		{`{"prompt":[1,22,333]}`, `1,22,333`},
		{`{"prompt":[1,22,333],"n":1}`, `1,22,333`},
		{`{"prompt": [1, 22, 333], "n": 1}`, `1,22,333`},
		{`{"n": 1, "prompt": [1, 22, 333]}`, `1,22,333`},
		{`{"prompt":[[1,2],[3,4]],"n":1}`, `[1,2],[3,4]`},
		{`{"prompt": [[1, 2], [3, 4]], "n": 1}`, `[1,2],[3,4]`},
		{`{"prompt":[[1,2],[3,4]]}`, `[1,2],[3,4]`},
		{`{"prompt":null}`, ``},
		{`{"prompt":5}`, ``},
		{`{"n":1}`, ``},
		{`{"prompt":[]}`, ``},
	} {
		if _, got := keyOf(endpointCompletion, row.body); got != row.want {
			t.Errorf("keyOf(%s) = %q, want %q", row.body, got, row.want)
		}
	}
}

func TestKeyOf_aLongerPromptExtendsTheKey(t *testing.T) {
	for _, row := range []struct{ one, two string }{
		{`{"prompt":"Once upon"}`, `{"prompt":"Once upon a time"}`},
		{`{"prompt":"Once upon","n":1}`, `{"prompt":"Once upon a time","n":2}`},
		{`{"prompt":[1,2,3],"n":1}`, `{"prompt":[1,2,3,4],"n":1}`},
		{`{"prompt":[1,2,3]}`, `{"prompt":[1,2,3,4]}`},
		{`{"prompt":["a","b"],"n":1}`, `{"prompt":["a","b","c"],"n":1}`},
		{`{"prompt":"日本"}`, `{"prompt":"日本語"}`},
	} {
		_, one := mustKey(t, "prompt", endpointCompletion, row.one)
		_, two := mustKey(t, "prompt", endpointCompletion, row.two)
		if !strings.HasPrefix(two, one) {
			t.Errorf("keyOf(%s) = %q, want it to begin with keyOf(%s) = %q", row.two, two, row.one, one)
		}
	}
}

func TestKeyOf_hasNoKeyForWhatItCannotMakeOut(t *testing.T) {
	for _, row := range []struct {
		endpoint endpoint
		body     string
	}{
		{endpointChat, ``}, {endpointChat, `{}`}, {endpointChat, `null`}, {endpointChat, `[]`},
		{endpointChat, `{"messages":"text"}`}, {endpointChat, `{"messages":null}`}, {endpointChat, `{"messages":{}}`},
		{endpointChat, `{"messages"`}, {endpointChat, `{"messages":`}, {endpointChat, `{"messages": `},
		{endpointChat, `{"prompt":"p"}`}, {endpointChat, "\x1f\x8b\x08\x00gzip"},
		{endpointMessages, `{"system":"s"}`}, {endpointResponses, `{"messages":[{"role":"user"}]}`},
		{endpointOther, `{"messages":[{"role":"user"}]}`},
	} {
		if space, key := keyOf(row.endpoint, row.body); key != "" {
			t.Errorf("keyOf(%d, %s) = %q, %q, want no key", row.endpoint, row.body, space, key)
		}
	}
}

func TestKeyOf_dropsWhatMovesFromTurnToTurn(t *testing.T) {
	const mark = `"cache_control":{"type":"ephemeral"}`
	const tail = `],"model":"m"}`
	for _, row := range []struct {
		story    string
		endpoint endpoint
		one, two string // the same key
	}{
		{"a marker on the last block or none", endpointMessages,
			`{"messages":[{"role":"user","content":[{"type":"text","text":"q",` + mark + `}]}` + tail,
			`{"messages":[{"role":"user","content":[{"type":"text","text":"q"}]}` + tail},
		{"a marker first in its block", endpointMessages,
			`{"messages":[{"role":"user","content":[{` + mark + `,"type":"text","text":"q"}]}` + tail,
			`{"messages":[{"role":"user","content":[{"type":"text","text":"q"}]}` + tail},
		{"a marker in the middle, another time to live", endpointMessages,
			`{"messages":[{"role":"user","content":[{"type":"text","cache_control":{"type":"ephemeral","ttl":"1h"},"text":"q"}]}` + tail,
			`{"messages":[{"role":"user","content":[{"type":"text",` + mark + `,"text":"q"}]}` + tail},
		{"a null marker", endpointMessages,
			`{"messages":[{"role":"user","content":[{"type":"text","cache_control":null,"text":"q"}]}` + tail,
			`{"messages":[{"role":"user","content":[{"type":"text","text":"q"}]}` + tail},
		{"a null marker at the end", endpointMessages,
			`{"messages":[{"role":"user","content":[{"type":"text","text":"q","cache_control":null}]}` + tail,
			`{"messages":[{"role":"user","content":[{"type":"text","text":"q"}]}` + tail},
		{"markers on tools and system", endpointMessages,
			`{"tools":[{"name":"a",` + mark + `}],"system":[{"text":"s",` + mark + `}],"messages":[{"role":"user","content":"q"}` + tail,
			`{"tools":[{"name":"a"}],"system":[{"text":"s"}],"messages":[{"role":"user","content":"q"}` + tail},
		{"in chat completions too", endpointChat,
			`{"messages":[{"role":"system","content":[{"type":"text","text":"s",` + mark + `}]},{"role":"user","content":"q"}` + tail,
			`{"messages":[{"role":"system","content":[{"type":"text","text":"s"}]},{"role":"user","content":"q"}` + tail},
		{"an automatic one at the top", endpointMessages,
			`{` + mark + `,"messages":[{"role":"user","content":"q"}` + tail, `{"messages":[{"role":"user","content":"q"}` + tail},
		{"another billing header", endpointMessages,
			`{"system":[{"type":"text","text":"x-anthropic-billing-header: cc_version=2.1; cch=abc;"},{"type":"text","text":"s"}],` +
				`"messages":[{"role":"user","content":"q"}` + tail,
			`{"system":[{"type":"text","text":"x-anthropic-billing-header: cc_version=2.1; cch=def01;"},{"type":"text","text":"s"}],` +
				`"messages":[{"role":"user","content":"q"}` + tail},
		{"a billing header or none", endpointMessages,
			`{"system":[{"type":"text","text":"x-anthropic-billing-header: a"},{"type":"text","text":"s"}],"messages":[{"role":"user","content":"q"}` + tail,
			`{"system":[{"type":"text","text":"s"}],"messages":[{"role":"user","content":"q"}` + tail},
		{"a billing header with the text first", endpointMessages,
			`{"system":[{"text":"x-anthropic-billing-header: a","type":"text"},{"type":"text","text":"s"}],"messages":[{"role":"user","content":"q"}` + tail,
			`{"system":[{"type":"text","text":"s"}],"messages":[{"role":"user","content":"q"}` + tail},
		{"two billing headers, marked", endpointMessages,
			`{"system":[{"type":"text","text":"x-anthropic-billing-header: a",` + mark + `},{"type":"text","text":"x-anthropic-billing-header: b"},` +
				`{"type":"text","text":"s",` + mark + `}],"messages":[{"role":"user","content":"q"}` + tail,
			`{"system":[{"type":"text","text":"s"}],"messages":[{"role":"user","content":"q"}` + tail},
	} {
		_, want := mustKey(t, row.story, row.endpoint, row.two)
		for _, body := range []string{row.one, spaced(row.one), spaced(row.two)} {
			if _, got := keyOf(row.endpoint, body); got != want {
				t.Errorf("%s: keyOf(%s) = %q, want %q as of %s", row.story, body, got, want, row.two)
			}
		}
	}
}

func TestKeyOf_keepsATextAboutMarkers(t *testing.T) {
	const one = `{"messages":[{"role":"user","content":"what is \"cache_control\": {\"type\": \"ephemeral\"}?"}],"model":"m"}`
	const two = `{"messages":[{"role":"user","content":"what is \"cache_control\": {\"type\": \"persistent\"}?"}],"model":"m"}`
	_, a := mustKey(t, "text", endpointChat, one)
	_, b := mustKey(t, "text", endpointChat, two)
	if a == b {
		t.Errorf("keyOf(texts that differ in what they say about cache_control) = %q for both", a)
	}
}

// TestKeyOf_markersThatMoveKeepTheLaw is a chat of a client that marks its last two turns.
func TestKeyOf_markersThatMoveKeepTheLaw(t *testing.T) {
	last := ""
	for n := 1; n <= 8; n++ {
		var turns []string
		for i := 0; i < n; i++ {
			role, mark := "user", ""
			if i%2 == 1 {
				role = "assistant"
			}
			if i >= n-2 {
				mark = `,"cache_control":{"type":"ephemeral"}`
			}
			turns = append(turns, `{"role":"`+role+`","content":[{"type":"text","text":"turn `+strconv.Itoa(i)+`"`+mark+`}]}`)
		}
		body := `{"model":"m","messages":[` + strings.Join(turns, ",") + `],"system":[{"type":"text",` +
			`"text":"x-anthropic-billing-header: cch=` + strconv.Itoa(n*7919) + `;"},{"type":"text","text":"s"}],"max_tokens":1}`
		_, key := mustKey(t, "markers", endpointMessages, body)
		if n > 1 && (!strings.HasPrefix(key, last) || len(key) == len(last)) {
			t.Errorf("keyOf(%d turns) = %q, want more after keyOf(%d turns) = %q", n, key, n-1, last)
		}
		last = key
	}
}

func TestKeyOf_spacesByModelAndSalt(t *testing.T) {
	const messages = `"messages":[{"role":"user","content":"q"}]`
	for _, row := range []struct {
		body, want string
	}{
		{`{"model":"m",` + messages + `}`, "m\x00"},
		{`{` + messages + `,"model":"m"}`, "m\x00"},
		{`{"cache_salt":"t",` + messages + `,"model":"m"}`, "m\x00t"},
		{`{"model":"m",` + messages + `,"cache_salt":"t"}`, "m\x00t"},
		{`{` + messages + `,"model":"m","cache_salt":"t"}`, "m\x00t"},
		{`{"model": "m", "cache_salt": "t", ` + messages + `}`, "m\x00t"},
		{"{\n\t\"model\" : \"m\",\n\t" + messages + "}", "m\x00"},
		{`{` + messages + `}`, "\x00"},
		{`{"model":null,` + messages + `,"cache_salt":5}`, "\x00"},
		{`{` + messages + `,"cache_salt":"m"}`, "\x00m"},
		{`{"tools":[` + oneTool + `],"model":"m",` + messages + `}`, "m\x00"},
		{`{"tools":[` + oneTool + `],` + messages + `,"model":"m"}`, "m\x00"},
		{`{` + messages + `,"tools":[` + oneTool + `],"model":"m"}`, "m\x00"},
		{`{"messages":[{"role":"user","content":"the \"model\":\"x\" and \"cache_salt\":\"y\""}],"model":"m"}`, "m\x00"},
	} {
		if space, _ := keyOf(endpointChat, row.body); space != row.want {
			t.Errorf("keyOf(%s) has space %q, want %q", row.body, space, row.want)
		}
	}
}

func TestKeyOf_isNotMisledByNamesInToolInputs(t *testing.T) {
	// An agent's call with an input that looks like a request of its own.
	const call = `{"role":"assistant","content":[{"type":"tool_use","id":"t","name":"n","input":{"model":"small","cache_salt":"x",` +
		`"system":[{"type":"text","text":"inner"}],"tools":[{"name":"inner"}],"instructions":"inner","prompt":"inner",` +
		`"messages":[{"role":"user","content":"inner"}]}}]}`
	const result = `{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"ok"}]}`
	for _, row := range []struct{ head, tail string }{
		{`{"model":"big","messages":[`, `]}`},
		{`{"messages":[`, `],"model":"big"}`},
		{`{"model":"big","messages":[`, `],"system":"outer","tools":[{"name":"outer"}]}`},
		{`{"tools":[{"name":"outer"}],"system":"outer","messages":[`, `],"model":"big"}`},
	} {
		_, want := keyOf(endpointMessages, row.head+`{"role":"user","content":"q"}`+row.tail)
		space, key := keyOf(endpointMessages, row.head+`{"role":"user","content":"q"},`+call+`,`+result+row.tail)
		if space != "big\x00" {
			t.Errorf("%s...%s: space = %q, want %q", row.head, row.tail, space, "big\x00")
		}
		if !strings.HasPrefix(key, want) || !strings.Contains(key, `"tool_result"`) {
			t.Errorf("%s...%s: keyOf() = %q, want it to begin with %q and hold the result", row.head, row.tail, key, want)
		}
	}
}

func TestKeyOf_isNotMisledByBracketsInTools(t *testing.T) {
	for _, row := range []struct{ story, description string }{
		{"opened only", `a list: [ or [[`},
		{"closed only", `ends with ] or ]]`},
		{"closed and quoted", `}],\"next\"`},
		{"both, unbalanced", `]][`},
	} {
		tools := `"tools":[{"name":"a","description":"` + row.description + `","input_schema":{"anyOf":[{"type":"string"}],"x":1}},{"name":"b"}]`
		for _, shape := range []string{
			`{` + tools + `,"messages":[MESSAGES],"model":"m"}`,
			`{"model":"m","messages":[MESSAGES],` + tools + `}`,
			`{"model":"m","messages":[MESSAGES],` + tools + `,"stream":true}`,
			`{"model":"m",` + tools + `,"messages":[MESSAGES]}`,
		} {
			_, one := mustKey(t, row.story, endpointMessages, strings.Replace(shape, "MESSAGES", `{"role":"user","content":"q"}`, 1))
			_, two := mustKey(t, row.story, endpointMessages, strings.Replace(shape, "MESSAGES",
				`{"role":"user","content":"q"},{"role":"assistant","content":"a"},{"role":"user","content":"r"}`, 1))
			if !strings.HasPrefix(two, one) || len(two) == len(one) {
				t.Errorf("%s: %s: keyOf(2 turns more) = %q, want more after %q", row.story, shape, two, one)
			}
		}
	}
}

func TestKeyOf_isAPureFunction(t *testing.T) {
	all := conversations(t)
	for i := range all {
		c := &all[i]
		for _, text := range []string{c.body(len(c.turns)), spaced(c.body(len(c.turns)))} {
			space, key := keyOf(c.endpoint, text)
			if again, key2 := keyOf(c.endpoint, text); again != space || key2 != key {
				t.Errorf("%s: keyOf() of the same body = %q, %q, want %q, %q", c.story, again, key2, space, key)
			}
		}
	}
}

func TestKeyOf_readsOddEncodings(t *testing.T) {
	const plain = `{"model":"m","messages":[{"role":"user","content":"q"}],"stream":true}`
	_, want := keyOf(endpointChat, plain)
	for _, row := range []struct{ story, body string }{
		{"a byte order mark", "\ufeff" + plain},
		{"spaces around", " \r\n" + plain + "\r\n "},
		{"a line end after it", plain + "\n"},
	} {
		if space, key := keyOf(endpointChat, row.body); key != want || space != "m\x00" {
			t.Errorf("%s: keyOf(%q) = %q, %q, want %q, %q", row.story, row.body, space, key, "m\x00", want)
		}
	}
	// Latin-1 is no JSON, but the bytes of a prompt all the same.
	_, one := mustKey(t, "Latin-1", endpointChat, "{\"messages\":[{\"role\":\"user\",\"content\":\"na\xefve \xe9\"}]}")
	_, two := mustKey(t, "Latin-1", endpointChat, "{\"messages\":[{\"role\":\"user\",\"content\":\"na\xefve \xe9\"},{\"role\":\"user\",\"content\":\"\xff\"}]}")
	if !strings.HasPrefix(two, one) {
		t.Errorf("keyOf(Latin-1, a turn more) = %q, want it to begin with %q", two, one)
	}
}

// oddBodies are small, so that they can be damaged in every place.
func oddBodies() []struct {
	endpoint endpoint
	body     string
} {
	const mark = `"cache_control":{"type":"ephemeral"}`
	return []struct {
		endpoint endpoint
		body     string
	}{
		{endpointChat, `{"model":"m","messages":[{"role":"user","content":"a \"b\", [c]"},{"role":"user","content":[{"type":"text","text":"d"}]}],` +
			`"tools":[{"name":"t","p":{"anyOf":[{}],"x":1}}],"cache_salt":"s"}`},
		{endpointMessages, `{"tools": [{"name": "t", ` + mark + `}], "system": [{"type": "text", "text": "x-anthropic-billing-header: y"}, {"text": "s"}], ` +
			`"messages": [{"role": "user", "content": "q"}], "model": "m"}`},
		{endpointResponses, `{"model":"m","input":"a \"b\",","instructions":"i","tools":[{"type":"function"}]}`},
		{endpointCompletion, `{"prompt": [[1, 2], [3]], "model": "m"}`},
		{endpointCompletion, `{"model":"m","prompt":"a\\","n":1}`},
		{endpointCompletion, `{"prompt":["a","b"],"cache_salt":"s"}`},
	}
}

// survives calls keyOf and reports a panic.
func survives(t *testing.T, e endpoint, body string) {
	t.Helper()
	defer func() {
		if r := recover(); r != nil {
			t.Errorf("keyOf(%d, %q) panics: %v", e, body, r)
		}
	}()
	keyOf(e, body)
}

func TestKeyOf_survivesTruncatedBodies(t *testing.T) {
	for _, odd := range oddBodies() {
		for _, text := range []string{odd.body, pretty(t, odd.body)} {
			for i := 0; i <= len(text); i++ {
				survives(t, odd.endpoint, text[:i])
				survives(t, odd.endpoint, text[i:])
			}
		}
	}
}

func TestKeyOf_survivesDamagedBodies(t *testing.T) {
	for _, odd := range oddBodies() {
		for i := 0; i < len(odd.body); i++ {
			survives(t, odd.endpoint, odd.body[:i]+odd.body[i+1:])
			for _, c := range `{]",: \` {
				survives(t, odd.endpoint, odd.body[:i]+string(c)+odd.body[i+1:])
			}
		}
	}
}

func TestKeyOf_survivesShuffledBodies(t *testing.T) {
	// All orders of pieces that mean something to the searches.
	pieces := []string{`"messages":[`, `{"role":"`, `}],"`, `"tools":[{`, `"system":"`, `"model":"`}
	for _, order := range permutations(len(pieces)) {
		body := "{"
		for _, i := range order {
			body += pieces[i]
		}
		survives(t, endpointMessages, body)
	}
}

func TestKeyOf_takesNoLongerThanTheBodyIsLong(t *testing.T) {
	const user = `{"messages":[{"role":"user"}],`
	for _, row := range []struct {
		story    string
		endpoint endpoint
		body     func(n int) string
	}{
		{"escaped quotes in a prompt", endpointCompletion, func(n int) string { return `{"prompt":"` + strings.Repeat(`\","`, n) }},
		{"markers", endpointMessages, func(n int) string { return user + `"system":[` + strings.Repeat(`{"cache_control":{}},`, n) + `]}` }},
		{"names without a list", endpointChat, func(n int) string { return `{` + strings.Repeat(`"messages":{`, n) }},
		{"models without a text", endpointChat, func(n int) string { return `{` + strings.Repeat(`"model":{`, n) + user }},
		{"texts of billing headers", endpointMessages, func(n int) string {
			return user + `"system":[` + strings.Repeat(`"text":"x-anthropic-billing-header`, n/4) + `]}`
		}},
	} {
		checkLinear(t, row.story, row.endpoint, row.body)
	}
}

// TestKeyOf_isNotHeldUpByHostileBodies has bodies that cost the square of their length when each find searches again.
func TestKeyOf_isNotHeldUpByHostileBodies(t *testing.T) {
	const user = `{"messages":[{"role":"user"}],`
	for _, row := range []struct {
		story string
		body  func(n int) string
	}{
		{"lists of tools that never close", func(n int) string {
			return `{"tools":[{"a":"` + strings.Repeat("[", 2*n) + `"},` + strings.Repeat(`[{}],"`, n) + `],"messages":[{"role":"user"}]}`
		}},
		{"names of tools before a role", func(n int) string { return user + strings.Repeat(`"tools":[{`, n) + `"role":"` }},
		{"billing headers", func(n int) string {
			return user + `"system":[` + strings.Repeat(`{"text":"x-anthropic-billing-header"},`, n) + `]}`
		}},
	} {
		checkLinear(t, row.story, endpointMessages, row.body)
	}
}

// checkLinear stops the test when a body four times as long takes ten times as long or more, three times in a row, for the
// machine may be busy.
func checkLinear(t *testing.T, story string, e endpoint, body func(n int) string) {
	t.Helper()
	const n = 6000
	short, long := []byte(body(n)), []byte(body(4*n))
	var once, four time.Duration
	for try := 0; try < 10; try++ {
		once = elapsed(e, short)
		four = elapsed(e, long)
		if four < 50*time.Millisecond || four < 10*once {
			return
		}
	}
	t.Fatalf("%s: keyOf(%d KB) took %v and keyOf(%d KB) %v, want about four times as long", story, len(short)>>10, once, len(long)>>10, four)
}

func elapsed(e endpoint, body []byte) time.Duration {
	began := time.Now()
	keyOf(e, string(body))
	return time.Since(began)
}

func TestKeyOf_aLongSchemaAfterTheMessagesIsNoPartOfTheKey(t *testing.T) {
	tail := `],"model":"m","response_format":{"type":"json_schema","json_schema":{"schema":{"properties":{` +
		strings.Repeat(`"field":{"anyOf":[{"type":"string"},{"type":"null"}],"title":"Field"},`, 100) + `"last":{"type":"string"}}}}}}`
	_, want := keyOf(endpointChat, `{"messages":[`+user(t, "q")+`],"model":"m"}`)
	if _, got := keyOf(endpointChat, `{"messages":[`+user(t, "q")+tail); got != want {
		t.Errorf("keyOf(a schema of %d bytes after the messages) = %d bytes, want %q", len(tail), len(got), want)
	}
}

func TestKeyOf_spacesInListsOfNumbersAreOne(t *testing.T) {
	const body = `{"model":"m","tools":[{"name":"t","p":{"enum":[1,2,3],"examples":[[true,null],[{},{}]]}}],"messages":[{"role":"user","content":"q"}]}`
	_, want := keyOf(endpointChat, body)
	if _, got := keyOf(endpointChat, spaced(body)); got != want {
		t.Errorf("keyOf(%s) = %q, want %q", spaced(body), got, want)
	}
}

func TestEndpointOf_routesByExactPath(t *testing.T) {
	for _, row := range []struct {
		method, path string
		want         endpoint
	}{
		{"POST", "/v1/chat/completions", endpointChat},
		{"POST", "/v1/completions", endpointCompletion},
		{"POST", "/v1/messages", endpointMessages},
		{"POST", "/v1/responses", endpointResponses},
		{"GET", "/v1/chat/completions", endpointOther},
		{"PUT", "/v1/completions", endpointOther},
		{"POST", "/v1/chat/completions/", endpointOther},
		{"POST", "/api/v1/chat/completions", endpointOther},
		{"POST", "/v1/messages/count_tokens", endpointOther},
		{"POST", "/v1/responses/r1/cancel", endpointOther},
		{"POST", "/v1/embeddings", endpointOther},
		{"POST", "/V1/completions", endpointOther},
		{"POST", "", endpointOther},
	} {
		if got := endpointOf(row.method, row.path); got != row.want {
			t.Errorf("endpointOf(%q, %q) = %d, want %d", row.method, row.path, got, row.want)
		}
	}
}

// TestKeyOf_golden compares the keys of whole bodies as clients send them. A file's name begins with its endpoint.
func TestKeyOf_golden(t *testing.T) {
	bodies, err := filepath.Glob("testdata/extract/*.json")
	if err != nil || len(bodies) < 12 {
		t.Fatalf("Glob(testdata/extract/*.json) = %d files, %v, want a dozen", len(bodies), err)
	}
	endpoints := map[string]endpoint{
		"chat": endpointChat, "completion": endpointCompletion, "messages": endpointMessages, "responses": endpointResponses,
	}
	for _, name := range bodies {
		body, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		base := filepath.Base(name)
		e, known := endpoints[base[:strings.IndexByte(base, '-')]]
		if !known {
			t.Fatalf("%s names no endpoint", name)
		}
		space, key := keyOf(e, string(body))
		got := fmt.Sprintf("space %q\n%s\n", space, strings.ReplaceAll(key, "\x00", "\n\\0\n"))
		golden := strings.TrimSuffix(name, ".json") + ".key"
		if *update {
			if err := os.WriteFile(golden, []byte(got), 0o600); err != nil {
				t.Fatal(err)
			}
			continue
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if got != string(want) {
			t.Errorf("keyOf(%s) =\n%swant\n%s", name, got, want)
		}
	}
}

// TestKeyOf_goldenFormsAreOne compares bodies that are the same to the engine.
func TestKeyOf_goldenFormsAreOne(t *testing.T) {
	for _, row := range []struct {
		endpoint endpoint
		one, two string
	}{
		{endpointChat, "chat-openai-python", "chat-openai-python-spaced"},
		{endpointMessages, "messages-claude-code-1", "messages-claude-code-1-unmarked"},
	} {
		one, two := readGolden(t, row.one), readGolden(t, row.two)
		_, a := keyOf(row.endpoint, one)
		_, b := keyOf(row.endpoint, two)
		if a != b || a == "" {
			t.Errorf("keyOf(%s) = %q, want %q as of %s", row.two, b, a, row.one)
		}
	}
}

func TestKeyOf_goldenTurnsFollowEachOther(t *testing.T) {
	for _, row := range []struct {
		endpoint endpoint
		one, two string
	}{
		{endpointMessages, "messages-claude-code-1", "messages-claude-code-2"},
		{endpointChat, "chat-function-loop-1", "chat-function-loop-2"},
		{endpointResponses, "responses-items-1", "responses-items-2"},
	} {
		_, a := keyOf(row.endpoint, readGolden(t, row.one))
		_, b := keyOf(row.endpoint, readGolden(t, row.two))
		if a == "" || !strings.HasPrefix(b, a) || len(b) == len(a) {
			t.Errorf("keyOf(%s) = %q, want more after keyOf(%s) = %q", row.two, b, row.one, a)
		}
	}
}

func readGolden(t *testing.T, name string) string {
	t.Helper()
	body, err := os.ReadFile("testdata/extract/" + name + ".json")
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

func TestKeyOf_toolsWithALoneBracketBehindTheMessagesKeepTheLaw(t *testing.T) {
	body := func(turns, tokens string) string {
		return `{"messages":[` + turns + `],"tools":[{"name":"a","description":"opens with [","input_schema":{"type":"object"}}],"max_tokens":` +
			tokens + `}`
	}
	_, one := keyOf(endpointMessages, body(`{"role":"user","content":"q"}`, "100"))
	_, two := keyOf(endpointMessages, body(`{"role":"user","content":"q"},{"role":"assistant","content":"a"}`, "101"))
	if one == "" || !strings.HasPrefix(two, one) {
		t.Errorf("keyOf(a turn more) = %q, want it to begin with %q", two, one)
	}
}

func TestKeyOf_takesNoSchemasListForTheMessages(t *testing.T) {
	body := `{"tools":[{"type":"function","function":{"name":"f","parameters":{"default":{"messages":[]}}}}],` +
		`"messages":[{"role":"user","content":"the real one"}]}`
	if _, key := keyOf(endpointChat, body); !strings.Contains(key, "the real one") {
		t.Errorf("keyOf(%s) = %q, want the real messages in it", body, key)
	}
}

func TestKeyOf_givesUpOnEndlessSearches(t *testing.T) {
	const size = 4 << 20
	for _, row := range []struct {
		endpoint endpoint
		head     string
		repeated string
	}{
		{endpointChat, `{"messages":[{"role":"user","content":"x","z":`, `"cache_control":`},
		{endpointChat, `{"messages":[{"role":"user","content":"x","z":`, `"cache_control":{`},
		{endpointChat, `{"messages":[{"role":"user","content":"x","z":`, `"cache_control":1,`},
		{endpointChat, `{"tools":[{` + strings.Repeat("[", size/3), `}],"`},
		{endpointCompletion, `{"prompt":"`, `\","`},
		{endpointResponses, `{`, `"input":1,`},
		{endpointMessages, `{"messages":[{"role":"user"}],`, `"system":1,`},
		{endpointMessages, `{"messages":[{"role":"user"}],"system":[`, `{"text":"x-anthropic-billing-header"},`},
	} {
		body := row.head + strings.Repeat(row.repeated, (size-len(row.head))/len(row.repeated))
		// A search that starts anew at each of them would take hours.
		const bound = 20 * time.Second
		if took := elapsed(row.endpoint, []byte(body)); took > bound {
			t.Errorf("keyOf(%d, %.10s%s...) took %v, want less than %v", row.endpoint, row.head, row.repeated, took, bound)
		}
	}
}
