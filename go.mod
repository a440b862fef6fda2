module github.com/cart-llm/cart

go 1.20

require (
	github.com/traefik/genconf v0.5.2
	github.com/traefik/paerser v0.2.0
)
