package main

import (
	"context"
	"errors"
	"net/http"

	"github.com/cart-llm/cart"
)

// playCart is a plain server whose only handler is CART, compiled. Its arguments are the addresses of the replicas.
func playCart(args []string) error {
	if len(args) == 0 {
		return errors.New("want the addresses of the replicas")
	}
	c := cart.CreateConfig()
	for _, address := range args {
		c.Workers = append(c.Workers, cart.WorkerConfig{URL: address})
	}
	handler, err := cart.New(context.Background(), http.NotFoundHandler(), c, "bench")
	if err != nil {
		return err
	}
	return serveRole(handler)
}
