package cart

func staleSum(values []int) (sum int) {
	for _, n := range values {
		sum += n // bad
	}
	return sum // bad
}

func staleChoice(n int) (index int, why string) {
	index = n
	if why == "" { // bad
		return index, "none"
	}
	return index, why // bad
}

func staleBare(n int) (found bool) {
	if n == 0 {
		return // bad
	}
	found = n > 1
	return
}

var staleLiteral = func(n int) (out []int) {
	out = append(out, n) // bad
	return out
}

func assignedFirst(values []int) (sum int, err error) {
	sum = 0
	for _, n := range values {
		sum += n
	}
	_, err = staleChoices()
	return sum, err
}

func staleChoices() (n int, err error) { return 1, nil }

func onlyDocumented(n int) (index int, why string) {
	return n, "for godoc"
}

func caught(f func() int) (n int, err error) {
	defer func() {
		if recover() != nil {
			err = nil
		}
	}()
	return f(), nil
}
