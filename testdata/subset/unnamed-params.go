package cart

func unnamed(int, string) int { return 1 } // bad

func named(_ int, _ string) int { return 1 }

type unnamedParams struct {
	hook func(int, string) int // a type has no parameters to lose
}

func (unnamedParams) method(n int) int { return n }

func (u *unnamedParams) set(f func(string)) {
	u.hook = func(int, string) int { return 2 } // bad
	u.hook = func(_ int, s string) int { return len(s) }
	u.hook = unnamed
	f("")
	_ = named(u.method(1), "")
}
