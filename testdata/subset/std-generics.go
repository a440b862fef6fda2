package cart

import (
	"cmp"
	"maps"
	"slices"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
)

type stdGenerics struct {
	p atomic.Pointer[int] // bad
	v atomic.Value
	n atomic.Int64
}

func useStdGenerics(xs []int, m map[int]int) {
	slices.Sort(xs) // bad
	sort.Ints(xs)
	_ = maps.Keys(m)                              // bad
	_ = sync.OnceValue(func() int { return 1 })   // bad
	for part := range strings.SplitSeq("", ",") { // bad
		_ = part
	}
	_ = slices.Contains(xs, 1)
	_ = slices.Index(xs, 1)
	_ = cmp.Compare(1, 2)
	_ = sync.OnceFunc(func() {})
	_ = strings.Split("", ",")
}
