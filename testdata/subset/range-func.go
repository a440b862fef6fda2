package cart

func rangeFunc(each func(yield func(int) bool), ch chan int) {
	for i := range each { // bad
		_ = i
	}
	each(func(int) bool { return true })
	for i := range ch {
		_ = i
	}
}
