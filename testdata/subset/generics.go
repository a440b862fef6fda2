package cart

type stack[T any] struct{ items []T } // bad

func mapped[T, U any](xs []T, f func(T) U) []U { // bad
	return nil
}

type list struct{ items []interface{} }

func length(l list) int { return len(l.items) }
