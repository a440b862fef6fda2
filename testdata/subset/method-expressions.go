package cart

type counter struct{ n int }

func (c *counter) get() int { return c.n }

func methodExpressions(c *counter) {
	_ = (*counter).get // bad
	_ = c.get
	_ = func(c *counter) int { return c.get() }
}
