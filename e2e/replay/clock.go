package main

import (
	"container/heap"
	"time"
)

// clock runs events in the order of their time, those of the same time in the order they were planned.
type clock struct {
	now    int64 // nanoseconds of the Unix epoch
	events events
	count  int
}

func newClock() *clock { return &clock{now: time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano()} }

// after plans do.
func (c *clock) after(d time.Duration, do func()) {
	c.count++
	heap.Push(&c.events, event{at: c.now + int64(d), turn: c.count, do: do})
}

// run runs all events, those planned meanwhile included.
func (c *clock) run() {
	for len(c.events) > 0 {
		e := heap.Pop(&c.events).(event)
		c.now = e.at
		e.do()
	}
}

type event struct {
	at   int64
	turn int
	do   func()
}

type events []event

func (e events) Len() int      { return len(e) }
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].turn < e[j].turn
}
func (e *events) Push(x any) { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	last := len(*e) - 1
	x := (*e)[last]
	(*e)[last] = event{}
	*e = (*e)[:last]
	return x
}
