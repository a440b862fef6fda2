package cart

func rangeInt(n int, xs []int) {
	for range 3 { // bad
	}
	for i := range n { // bad
		_ = i
	}
	for i := 0; i < n; i++ {
	}
	for i := range xs {
		_ = i
	}
}
