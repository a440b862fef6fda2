package cart

import (
	"net/http"
	"sort"
)

type route struct{ f func() int }

func loopClosure(urls []string, done chan func()) []func() int {
	var fs []func() int
	handlers := map[string]http.Handler{}
	for i, u := range urls {
		i, u := i, u
		fs = append(fs, func() int { return i })                                  // bad
		_ = route{f: func() int { return i }}                                     // bad
		go func() { _ = i }()                                                     // bad
		done <- func() { _ = i }                                                  // bad
		handlers[u] = http.HandlerFunc(func(http.ResponseWriter, *http.Request) { // bad
			_ = u
		})
		fs = append(fs, number(i))
		go func(i int) { _ = i }(i)
		go func() { _ = len(urls) }()
		sort.Slice(urls, func(a, b int) bool { return a < i })
		local := func() int { return i }
		_ = local()
	}
	return fs
}

func number(i int) func() int { return func() int { return i } }
