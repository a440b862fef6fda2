package cart

// Replay decides on a prompt at a time of the caller's and without HTTP: e2e/replay finds it on what New returns. began is
// to be called when the answer begins, ended at its end; both take nanoseconds above 0. worker is an index into the
// configured list, -1 if no replica can be had.
func (h *handler) Replay(prompt string, streamed bool, now int64) (worker int, began func(), ended func(now int64)) {
	ex := &exchange{route: h.route, endpoint: endpointChat, key: prompt, streamed: streamed, done: make(chan int, 1)}
	a, _ := choose(h.pool, ex, now)
	if a == nil {
		return -1, nil, nil
	}
	ex.attempt = a
	began = func() {
		h.pool.mu.Lock()
		defer h.pool.mu.Unlock()
		a.begin()
	}
	ended = func(now int64) {
		ex.answered = true
		ex.result = outcomeSuccess
		release(ex, a, now)
	}
	for i, r := range h.pool.replicas {
		if r == a.replica {
			worker = i
		}
	}
	return worker, began, ended
}

// Seed makes a replay's chance the same each time.
func (h *handler) Seed(seed uint64) { h.pool.seed = seed }
