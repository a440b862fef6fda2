package cart

func forReinit(n int) {
	for a, b := 0, n; a < b; { // bad
		a++
	}
	for a, b := 0, n; a < b; a++ {
	}
	for a := 0; a < n; {
		a++
	}
	a, b := 0, n
	for a < b {
		a++
	}
}
