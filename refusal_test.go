package cart

import (
	"encoding/json"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
)

// quietPool makes a pool from the configuration, without its background work.
func quietPool(t *testing.T, c *Config) *pool {
	t.Helper()
	c.LogLevel = "error"
	set, err := validate(c)
	if err != nil {
		t.Fatalf("validate() = %v", err)
	}
	p := newPool(t.Name(), set)
	p.apply(set, "first")
	return p
}

func TestRefuse_answersInTheCallersDialect(t *testing.T) {
	p := quietPool(t, CreateConfig())
	for why, r := range refusals {
		if r.why != why {
			t.Errorf("refusals[%q].why = %q", why, r.why)
		}
		for _, e := range []endpoint{endpointChat, endpointCompletion, endpointResponses, endpointMessages, endpointOther} {
			rec := httptest.NewRecorder()
			refuse(p, rec, e, r)
			if rec.Code != r.status || rec.Code < 400 {
				t.Errorf("refuse(%d, %s): status = %d, want %d", e, why, rec.Code, r.status)
			}
			if got := rec.Header().Get("Content-Type"); got != "application/json" {
				t.Errorf("refuse(%d, %s): Content-Type = %q, want application/json", e, why, got)
			}
			if got := rec.Header().Get("Content-Length"); got != strconv.Itoa(rec.Body.Len()) {
				t.Errorf("refuse(%d, %s): Content-Length = %q, want %d", e, why, got, rec.Body.Len())
			}
			if got := rec.Header().Get("Retry-After"); (got != "") != (r.status == 503) {
				t.Errorf("refuse(%d, %s): Retry-After = %q with status %d, want it on 503 only", e, why, got, r.status)
			}
			checkDialect(t, e, r, rec.Body.Bytes())
		}
		if p.refused[why] != 5 {
			t.Errorf("refused[%q] = %d, want the 5 refusals counted", why, p.refused[why])
		}
	}
}

func checkDialect(t *testing.T, e endpoint, r *refusal, body []byte) {
	t.Helper()
	var got struct {
		Type  string `json:"type"`
		Error struct {
			Type    string `json:"type"`
			Message string `json:"message"`
			Code    string `json:"code"`
		} `json:"error"`
	}
	if err := json.Unmarshal(body, &got); err != nil {
		t.Errorf("refuse(%d, %s) wrote %q, want JSON: %v", e, r.why, body, err)
		return
	}
	if got.Error.Message != r.message || r.message == "" {
		t.Errorf("refuse(%d, %s): message = %q, want %q", e, r.why, got.Error.Message, r.message)
	}
	if e == endpointMessages {
		if got.Type != "error" || got.Error.Type != r.anthro || r.anthro == "" {
			t.Errorf("refuse(%d, %s) = %s, want Anthropic's dialect with type %q", e, r.why, body, r.anthro)
		}
		return
	}
	if got.Type != "" || got.Error.Type != r.kind || r.kind == "" || got.Error.Code != r.why {
		t.Errorf("refuse(%d, %s) = %s, want OpenAI's dialect with type %q and code %q", e, r.why, body, r.kind, r.why)
	}
	if !strings.Contains(string(body), `"param":null`) {
		t.Errorf("refuse(%d, %s) = %s, want a null param as OpenAI has it", e, r.why, body)
	}
}
