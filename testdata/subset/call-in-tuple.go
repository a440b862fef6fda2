package cart

import "strings"

func one(i int) int { return i }

var table = map[string]func() int{}

type owner struct{ i int }

func (o *owner) get() int { return o.i }

func calls(o *owner, f func() int) (int, int) {
	a, b := one(1), 2
	a, b = b, a
	a, b = one(1), 3  // bad
	a, b = 2, one(a)  // bad
	a, b = f(), a     // bad
	a, b = 1, o.get() // bad
	a, b = len("x"), strings.Count("x", "y")
	a, b = int(int64(a)), b
	a = one(b)
	return a, b
}
