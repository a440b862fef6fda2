package cart

import (
	"encoding/json"
	"io"
)

type leaking struct {
	A int
	b int
}

type embedding struct{ clean }

type clean struct {
	A int      `json:"a"`
	C []nested `json:"c"`
	d int      `json:"-"`
}

type nested struct{ E int }

type custom struct{ v int }

func (custom) MarshalJSON() ([]byte, error) { return nil, nil }

type nesting struct{ C map[string]*custom }

func jsonTypes(w io.Writer, raw json.RawMessage) {
	_, _ = json.Marshal(leaking{})                         // bad
	_ = json.Unmarshal(raw, &embedding{})                  // bad
	_ = json.NewEncoder(w).Encode(map[string][]*leaking{}) // bad
	_, _ = json.Marshal(nesting{})                         // bad
	_, _ = json.Marshal(clean{})
	_ = json.Unmarshal(raw, &clean{})
	_, _ = json.Marshal(map[string]interface{}{"a": 1})
}
