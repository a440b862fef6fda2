package scenarios

import (
	"encoding/json"
	"strings"
	"testing"
)

// checkOpenAIError fails the test unless an answer is an error in OpenAI's dialect that names no replica.
func checkOpenAIError(t *testing.T, a answer) {
	t.Helper()
	var got struct {
		Error struct{ Message, Type string }
	}
	err := json.Unmarshal(a.body, &got)
	if err != nil || got.Error.Message == "" || got.Error.Type == "" {
		t.Errorf("error body = %s, %v, want OpenAI's shape with a message and a type", a.body, err)
	}
	checkErrorHead(t, a)
}

// checkAnthropicError is the same for Anthropic's dialect.
func checkAnthropicError(t *testing.T, a answer) {
	t.Helper()
	var got struct {
		Type  string
		Error struct{ Message, Type string }
	}
	err := json.Unmarshal(a.body, &got)
	if err != nil || got.Type != "error" || got.Error.Message == "" || got.Error.Type == "" {
		t.Errorf("error body = %s, %v, want Anthropic's shape with a message and a type", a.body, err)
	}
	checkErrorHead(t, a)
}

func checkErrorHead(t *testing.T, a answer) {
	t.Helper()
	if got := a.header.Get("Content-Type"); !strings.HasPrefix(got, "application/json") {
		t.Errorf("Content-Type of an error = %q, want application/json", got)
	}
	if strings.Contains(string(a.body), "127.0.0.1") {
		t.Errorf("error body = %s, want no replica's address in it", a.body)
	}
}
