// What deploy/ and examples/ are checked with. A module of its own, for it needs much that nothing else here does.
module github.com/cart-llm/cart/deploy/check

go 1.26.0

replace (
	github.com/cart-llm/cart => ../../
	github.com/cart-llm/cart/e2e => ../../e2e
)

require github.com/cart-llm/cart/e2e v0.0.0-00010101000000-000000000000
