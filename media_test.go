package cart

import (
	"net/http"
	"strings"
	"testing"
)

func TestInspectMedia_refusesWhatTheEngineWouldFetch(t *testing.T) {
	const passes, refused, unclear = 0, 422, 415
	cases := []struct {
		name, body string
		want       int
	}{
		{"image_url object", `{"messages":[{"content":[{"type":"image_url","image_url":{"url":"https://x/a.png"}}]}]}`, refused},
		{"image_url text", `{"image_url":"http://169.254.169.254/x"}`, refused},
		{"escaped scheme", `{"image_url":{"url":"\u0068ttps:\/\/x"}}`, refused},
		{"odd case and space", `{"IMAGE_URL":{"Url":" \tHTTPS://x"}}`, refused},
		{"first of two equal keys", `{"image_url":{"url":"https://x","url":"data:image/png;base64,AA"}}`, refused},
		{"list of urls", `{"video_url":{"url":["https://x"]}}`, refused},
		{"anthropic source", `{"content":[{"type":"image","source":{"type":"url","url":"https://x"}}]}`, refused},
		{"responses input_image", `{"input":[{"content":[{"type":"input_image","image_url":"https://x"}]}]}`, refused},
		{"file_url", `{"type":"input_file","file_url":"https://x"}`, refused},
		{"local file", `{"image_url":{"url":"file:///etc/passwd"}}`, refused},
		{"sglang image_data", `{"text":"x","image_data":["https://x"]}`, refused},
		{"camel case", `{"imageUrl":"https://x"}`, refused},
		{"data inside audio", `{"input_audio":{"data":"http://x"}}`, refused},
		{"a processor's data", `{"data":{"data":"https://x","data_format":"url"}}`, refused},
		{"a tool server", `{"tools":[{"type":"mcp","server_url":"https://x"}]}`, passes},
		{"documents to rank", `{"documents":["see https://x"]}`, passes},
		{"too many tokens", `[` + strings.Repeat("0,", maxMediaTokens) + `0]`, unclear},
		{"data url", `{"image_url":{"url":"data:image/png;base64,AA"}}`, passes},
		{"bare base64", `{"image_data":"iVBORw0KGgo="}`, passes},
		{"a mention in a text", `{"messages":[{"content":[{"type":"text","text":"see https://x"}]}]}`, passes},
		{"a tool's argument", `{"content":[{"type":"tool_use","input":{"url":"https://x"}}]}`, passes},
		{"nothing", ``, passes},
		{"not JSON", `prompt=hi`, unclear},
		{"truncated", `{"image_url":{"url":"https://x"`, unclear},
		{"two values", `{} {"image_url":"https://x"}`, unclear},
		{"BOM", "\xef\xbb\xbf" + `{"image_url":"https://x"}`, unclear},
		{"too deep", strings.Repeat("[", 5000) + strings.Repeat("]", 5000), unclear},
	}
	for _, c := range cases {
		got := passes
		if r := inspectMedia(&http.Request{Header: http.Header{}}, c.body, refused); r != nil {
			got = r.status
		}
		if got != c.want {
			t.Errorf("%s: inspectMedia(%.60s) = %d, want %d", c.name, c.body, got, c.want)
		}
	}
	gzip := &http.Request{Header: http.Header{"Content-Encoding": {"gzip"}}}
	if r := inspectMedia(gzip, `{}`, refused); r == nil || r.status != unclear {
		t.Errorf("inspectMedia(compressed) = %v, want a refusal with %d", r, unclear)
	}
}
