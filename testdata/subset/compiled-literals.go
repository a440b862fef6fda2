package cart

import (
	"io"
	"net/http"
	"strings"
)

type trip struct{}

func (*trip) RoundTrip(*http.Request) (*http.Response, error) { return nil, nil }

type body struct{ io.Reader }

func (body) Close() error { return nil }

type ours struct{ rt http.RoundTripper }

func compiledLiterals() {
	_ = &http.Client{Transport: &trip{}}                 // bad
	_ = http.Response{Body: body{strings.NewReader("")}} // bad
	_ = http.Response{Body: io.NopCloser(strings.NewReader(""))}
	_ = http.Client{Transport: http.DefaultTransport}
	_ = ours{rt: &trip{}}
	var rt http.RoundTripper = &trip{}
	_ = http.Client{Transport: rt}
	c := &http.Client{}
	c.Transport = &trip{}
}
