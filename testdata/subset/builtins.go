package cart

func builtins(a, b int, m map[string]int) {
	_ = min(a, b) // bad
	_ = max(a, b) // bad
	clear(m)      // bad
	_ = smaller(a, b)
	{
		min := smaller
		_ = min(a, b)
	}
}

func smaller(a, b int) int {
	if a < b {
		return a
	}
	return b
}
