package compare

import (
	"sync"
	"time"
)

// standstill is a pause of this process that no garbage collection and no busy machine explains: it was stopped, with the
// machine or by someone, and what it measured meanwhile is worth nothing.
const standstill = time.Second

// watchStandstills returns a function that ends the watch and tells the longest pause since.
func watchStandstills() func() time.Duration {
	const every = 50 * time.Millisecond
	end := make(chan struct{})
	var mu sync.Mutex
	var most time.Duration
	go func() {
		ticks := time.NewTicker(every)
		defer ticks.Stop()
		for last := time.Now(); ; {
			select {
			case <-end:
				return
			case <-ticks.C:
				now := time.Now()
				mu.Lock()
				most = max(most, now.Sub(last)-every)
				mu.Unlock()
				last = now
			}
		}
	}()
	return func() time.Duration {
		close(end)
		mu.Lock()
		defer mu.Unlock()
		return most
	}
}
