package cart

func rangeArrayPointer(xs *[3]int) {
	for _, x := range xs { // bad
		_ = x
	}
	for _, x := range xs[:] {
		_ = x
	}
	for _, x := range *xs {
		_ = x
	}
}
