package cart

type node struct{ next, prev *node }

func nilInTuple(x *node) (*node, error) {
	var p, q *node
	p, q = x, nil           // bad
	x.next, x.prev = nil, p // bad
	p, q = q, p
	x.next, x.prev = p, q
	p, err := nilInTuple(x)
	p = nil
	_, _ = p, err
	return q, nil
}
