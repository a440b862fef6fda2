package cart

type holder struct{ f func() }

func deferClosure(given func()) {
	f := func() {}
	defer f() // bad
	var g = func() {}
	defer g() // bad
	h := &holder{f: func() {}}
	defer h.f()         // bad
	defer (func() {})() // bad
	defer given()
	defer func() { f() }()
	returned := release()
	defer returned()
	defer release()()
}

func release() func() { return func() {} }
