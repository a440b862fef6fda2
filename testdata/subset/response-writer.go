package cart

import "net/http"

type counting struct { // bad
	http.ResponseWriter // bad
	n                   int
}

type own struct{} // bad

func (*own) Header() http.Header         { return nil }
func (*own) Write(p []byte) (int, error) { return 0, nil }
func (*own) WriteHeader(int)             {}

type exchange struct {
	rw http.ResponseWriter
}
