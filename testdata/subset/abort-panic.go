package cart

import "net/http"

func abortPanic(err error) {
	if err == http.ErrAbortHandler {
		panic(err.Error())
	}
	panic(http.ErrAbortHandler) // bad
}
