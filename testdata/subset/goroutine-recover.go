package cart

import "net/http"

func goroutineRecover(s *http.Server) {
	go func() { work() }() // bad
	go work()              // bad
	go s.ListenAndServe()  // bad
	go func() {            // bad
		defer func() {
			func() { _ = recover() }()
		}()
	}()
	go func() {
		defer func() { _ = recover() }()
		work()
	}()
	go func() {
		defer caught()
		work()
	}()
	go guard(work)
	go func() { guard(work) }()
}

func work() {}

func caught() { _ = recover() }

func guard(f func()) {
	defer caught()
	f()
}
