//go:build gc
// +build gc

package cart

import (
	"bytes"
	"encoding/json"
)

// jsonObject and jsonList are JSON with the order of its members, which encoding/json would sort.
type (
	jsonObject []jsonMember
	jsonList   []interface{}
	jsonMember struct {
		name  string
		value interface{}
	}
)

// jsonStyle is how a client writes JSON.
type jsonStyle struct {
	comma, colon string
}

var (
	compactJSON = jsonStyle{",", ":"}   // JavaScript, Go, httpx
	pythonJSON  = jsonStyle{", ", ": "} // json.dumps
)

func (s jsonStyle) encode(v interface{}) []byte {
	var b bytes.Buffer
	s.write(&b, v)
	return b.Bytes()
}

func (s jsonStyle) write(b *bytes.Buffer, v interface{}) {
	switch v := v.(type) {
	case jsonObject:
		b.WriteByte('{')
		for i, m := range v {
			if i > 0 {
				b.WriteString(s.comma)
			}
			s.write(b, m.name)
			b.WriteString(s.colon)
			s.write(b, m.value)
		}
		b.WriteByte('}')
	case jsonList:
		b.WriteByte('[')
		for i, e := range v {
			if i > 0 {
				b.WriteString(s.comma)
			}
			s.write(b, e)
		}
		b.WriteByte(']')
	default:
		e := json.NewEncoder(b)
		e.SetEscapeHTML(false) // only Go's own clients do that
		if err := e.Encode(v); err != nil {
			panic(err) // texts, numbers and the like always encode
		}
		b.Truncate(b.Len() - 1) // Encode ends with a newline
	}
}

// with returns a copy of the object with one more member.
func (o jsonObject) with(name string, value interface{}) jsonObject {
	return append(append(jsonObject(nil), o...), jsonMember{name, value})
}
