package cart

const one = 1

const typed uint64 = 1

func shifts(x uint64, i int) {
	_ = x & (1 << uint(i))    // bad
	_ = x & (one << i)        // bad
	_ = x &^ ((one + 1) << i) // bad
	_ = x & (uint64(1) << uint(i))
	_ = x & (typed << i)
	_ = x & (1 << 3)
	_ = x << i
}
