package cart

import (
	"fmt"
	"sync"
)

type replica struct {
	mu sync.Mutex
	n  int
}

func (r *replica) probe() {}

func show(int) {}

func lateBinding(rs []*replica, other *replica) (err error) {
	x := 1
	defer show(x)   // bad
	go fmt.Print(x) // bad
	go show(x)
	x = 2
	defer show(x)
	y := 1
	defer show(y)
	defer show(x + y)
	defer fmt.Print(err) // bad
	r := rs[0]
	defer r.probe()     // bad
	defer show(r.n)     // bad
	defer r.mu.Unlock() // bad
	go r.probe()        // bad
	r = rs[1]
	defer other.probe()
	defer other.mu.Unlock()
	defer show(other.n) // bad
	other.n = 3
	for _, r := range rs {
		go r.probe()    // bad
		defer r.probe() // bad
		go func(r *replica) { r.probe() }(r)
		func() {
			defer other.probe()
		}()
	}
	return nil
}
