package cart

func selectExit(ch chan int, stop bool) {
loop:
	for {
		select {
		case <-ch:
			break loop // bad
		default:
			if stop {
				break // bad
			}
			if stop {
				break loop
			}
			continue // bad
		}
	}
	for {
		select {
		case <-ch:
			return
		default:
			for {
				break
			}
			switch {
			case stop:
				break
			}
			if stop {
				continue
			}
		}
		if stop {
			break
		}
	}
}
