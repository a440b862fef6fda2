package cases

import (
	"sync"
	"time"
)

// pauses are the times in which this process did not run, for the machine was busy or stopped. Who measures how long something
// takes leaves them out: they are not what was measured.
var pauses pauseLog

type pauseLog struct {
	mu   sync.Mutex
	list []pause
}

type pause struct{ from, to time.Time }

// watch goes on until the process ends.
func (p *pauseLog) watch() {
	const every, least = 5 * time.Millisecond, 20 * time.Millisecond
	for last := time.Now(); ; {
		time.Sleep(every)
		now := time.Now()
		if now.Sub(last) > every+least {
			p.mu.Lock()
			p.list = append(p.list, pause{last.Add(every), now})
			p.mu.Unlock()
		}
		last = now
	}
}

// within is how much of the time between two moments was such a pause.
func (p *pauseLog) within(from, to time.Time) (sum time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, one := range p.list {
		begin, end := one.from, one.to
		if begin.Before(from) {
			begin = from
		}
		if end.After(to) {
			end = to
		}
		sum += max(0, end.Sub(begin))
	}
	return sum
}

// since is how long ago a moment was, pauses left out.
func since(began time.Time) time.Duration {
	now := time.Now()
	return now.Sub(began) - pauses.within(began, now)
}
