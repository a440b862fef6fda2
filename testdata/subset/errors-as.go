package cart

import (
	"errors"
	"net"
	"net/http"
)

type refused struct{}

func (*refused) Error() string { return "refused" }

var errRefused = errors.New("refused")

func errorsAs(err error) {
	var own *refused
	_ = errors.As(err, &own) // bad
	var large *http.MaxBytesError
	_ = errors.As(err, &large)
	var network net.Error
	_ = errors.As(err, &network)
	_ = errors.Is(err, errRefused)
	_, _ = err.(*refused)
}
