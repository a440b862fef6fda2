package cart

import "context"

type key struct{}

var pointerKey = new(int)

type first struct{ n int }

type second struct{ n int }

type named interface{ name() string }

func shapeIdentity(ctx context.Context, x interface{}, n named) {
	_ = context.WithValue(ctx, key{}, 1) // bad
	_ = context.WithValue(ctx, pointerKey, 1)
	_ = map[interface{}]int{} // bad
	_ = map[string]interface{}{}
	switch x.(type) { // bad
	case *first:
	case *second:
	}
	switch v := x.(type) {
	case string:
		_ = v
	case map[string]interface{}:
	}
}
