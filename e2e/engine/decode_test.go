package engine

import (
	"context"
	"encoding/json"
	"reflect"
	"testing"
)

// TestWritten compares with the official binary, so that the engines in the test get what a user's file gives.
func TestWritten(t *testing.T) {
	config := Config{
		"policy": "threshold", "maxLoad": 12, "flag": true, "nothing": nil, "emptyMap": Config{}, "emptyList": []any{},
		"tenth": 0.3, "tiny": 1.2e-7, "half": 0.0000009, "two": 2.0, "negative": -1.5, "big": 67108864, "long": 1.0000001,
		"numbers": []any{408, 429}, "flags": []any{true}, "texts": []any{"408", "4,29"}, "mixed": []any{1, "a"},
		"map":     Config{"a": "", "b": Config{"c": 1}},
		"workers": []any{Config{"url": "http://127.0.0.1:1", "maxLoad": 3, "headers": Config{}}, Config{"url": "http://127.0.0.1:2"}},
	}
	e := StartOfficial(t, nil, 0)
	setup := Setup{Middlewares: map[string]Config{"m": config}, Routers: map[string]Router{"r": {Middleware: "m"}}}
	if err := e.Reload(setup); err != nil {
		t.Fatal(err)
	}
	var shown struct {
		Plugin map[string]Config
	}
	if err := e.API(context.Background(), "/api/http/middlewares/m@file", &shown); err != nil {
		t.Fatal(err)
	}
	want := shown.Plugin["cart"]
	got, err := written(config)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("written(config) = %s, want what Traefik makes of it: %s", toJSON(t, got), toJSON(t, want))
	}
}

func toJSON(t *testing.T, v any) string {
	t.Helper()
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
