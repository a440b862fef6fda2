package engine

import (
	"context"
	"net/http"

	"github.com/cart-llm/cart"
)

// compiledLoader calls the plugin as a Go package.
type compiledLoader struct{}

func (compiledLoader) build(ctx context.Context, next http.Handler, config Config, name string) (http.Handler, error) {
	c := cart.CreateConfig()
	if err := decode(config, c); err != nil {
		return nil, err
	}
	return cart.New(ctx, next, c, name)
}
