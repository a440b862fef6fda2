package cart

import (
	"time"

	"github.com/traefik/paerser/types"
)

type settings struct {
	Interval types.Duration // bad
	Timeout  string
	parsed   time.Duration
}

func parse(s settings) error {
	var d types.Duration
	return d.Set(s.Timeout)
}
