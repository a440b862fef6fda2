package cart

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"
)

// engineView is what a replica's own endpoints told last. Nothing of it is needed to route: what is not told is unknown.
type engineView struct {
	metrics errand
	models  errand

	told     engineMetrics   // the latest good reading of its metrics
	listed   map[string]bool // the models it lists; nil = unknown
	restarts int64           // seen in its metrics
	resets   int64           // requests that passed by and emptied its cache
}

// errand is what a replica is asked at an interval, one question at a time.
type errand struct {
	asking bool
	asked  time.Time // the latest question; zero = none yet
}

const (
	metricsMost = 2 << 20 // bytes; a longer answer is taken for something else
	listMost    = 1 << 20 // bytes
	tokensMost  = 1 << 40 // a cache that is said to hold more is not believed
)

// engineLoop asks every replica of the pool for its metrics and its models, side by side, until the pool stops.
func engineLoop(p *pool) {
	for !p.hasEnded() {
		// No select: see CONTRIBUTING.md.
		time.Sleep(askDue(p, time.Now()))
	}
}

// askDue asks what it is time for and returns how long to wait until it looks again.
func askDue(p *pool, now time.Time) time.Duration {
	const tick = 100 * time.Millisecond // so that a replica that is new or back is soon asked
	p.mu.Lock()
	defer p.mu.Unlock()
	set := p.set
	wait := tick
	for _, interval := range []time.Duration{set.health.metrics.interval, set.health.models.interval} {
		if interval > 0 && interval < wait {
			wait = interval
		}
	}
	for _, r := range p.replicas {
		if set.health.metrics.interval <= 0 {
			if r.engine.told.known {
				r.engine.told = engineMetrics{}
				p.fitRoom(r)
			}
		} else if r.engine.metrics.due(r, set.health.metrics.interval, now) {
			askMetrics(p, p.probes, r, set)
		}
		if set.health.models.interval <= 0 {
			p.list(r, nil)
		} else if r.engine.models.due(r, set.health.models.interval, now) {
			askModels(p, p.probes, r, set)
		}
	}
	return wait
}

// due says whether it is time to ask, and notes that it is being done. A replica that is back since the latest question may be
// another process, so it is asked at once.
func (e *errand) due(r *replica, interval time.Duration, now time.Time) bool {
	if e.asking || (now.Before(e.asked.Add(interval)) && (!r.up || r.since.Before(e.asked))) {
		return false
	}
	e.asking = true
	e.asked = now
	return true
}

// askMetrics reads the metrics of one replica in the background. It is a function of its own, for closures made in a loop
// share their variables under Yaegi.
func askMetrics(p *pool, client *http.Client, r *replica, set *settings) {
	life, w := r.life, r.worker
	go guard("replica's metrics", func() {
		told := engineMetrics{}
		defer func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			if r.life == life && !r.draining {
				r.engine.metrics.asking = false
				p.hear(r, &told)
			}
		}()
		if text, err := fetch(client, w, set, set.health.metrics.endpoint, metricsMost); err == nil {
			told = readMetrics(text)
		}
	})
}

// askModels reads one replica's list of models in the background.
func askModels(p *pool, client *http.Client, r *replica, set *settings) {
	life, w := r.life, r.worker
	go guard("replica's models", func() {
		var listed map[string]bool
		defer func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			if r.life == life && !r.draining {
				r.engine.models.asking = false
				if listed != nil { // else it serves what it did, as far as is known
					p.list(r, listed)
				}
			}
		}()
		if text, err := fetch(client, w, set, set.health.models.endpoint, listMost); err == nil {
			listed = readModels(text)
		}
	})
}

// hear takes what a replica's metrics say. What does not answer or makes no sense changes nothing: a short outage of the same
// process keeps its claims. The caller holds the lock.
func (p *pool) hear(r *replica, told *engineMetrics) {
	if !told.known {
		return
	}
	restarted := r.engine.told.restarted(told)
	r.engine.told = *told
	p.fitRoom(r)
	if restarted {
		r.engine.restarts++
		p.dropClaims(r)
		r.breaker.openUntil = 0 // what opened it is over as well, so the next request may probe at once
		p.rankedUntil = 0
		p.log.printLater(levelInfo, "replica was restarted: its claims are dropped", "pool", p.name, "replica", r.worker.name)
	}
}

// dropClaims forgets what a replica is thought to hold. What the tree has of it stays under an id that is never used again;
// the janitor takes it out. The caller holds the lock.
func (p *pool) dropClaims(r *replica) {
	if r.draining {
		return
	}
	delete(p.byID, r.id)
	delete(p.tree.ages, r.id)
	p.lastID++
	r.id = p.lastID
	p.byID[r.id] = r
	r.age = p.tree.ageOf(r.id)
	p.fitRoom(r)
	p.sweep = p.tree.all()
}

// fetch reads a text from a replica as a probe would: all of it, or it is an error.
func fetch(client *http.Client, w *worker, set *settings, path string, most int64) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), set.health.timeout)
	defer cancel()
	req, err := probeRequest(ctx, w, set, path)
	if err != nil {
		return "", err
	}
	res, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	if res.StatusCode < 200 || res.StatusCode > 299 {
		return "", errors.New("the status is " + strconv.Itoa(res.StatusCode))
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, most+1))
	if err == nil && int64(len(body)) > most {
		err = errors.New("it is too long")
	}
	return string(body), err
}

// What requests that pass by do to their replica, when it answers them well.
const (
	losesCache    = iota + 1 // what it had cached is gone
	changesModels            // it serves other models
)

// managing are the paths of such requests: vLLM's first, then SGLang's.
var managing = map[string]int{
	"/reset_prefix_cache":              losesCache,
	"/sleep":                           losesCache,
	"/v1/load_lora_adapter":            changesModels,
	"/v1/unload_lora_adapter":          changesModels,
	"/flush_cache":                     losesCache,
	"/release_memory_occupation":       losesCache,
	"/update_weights_from_disk":        losesCache,
	"/update_weights_from_tensor":      losesCache,
	"/update_weights_from_distributed": losesCache,
	"/load_lora_adapter":               changesModels,
	"/unload_lora_adapter":             changesModels,
}

// managed draws the consequences of such a request: for the replica that answered it, for the others have not seen it. The
// client has not got the end of the answer yet.
func managed(ex *exchange) {
	method := ex.req.Method
	if !ex.answered || ex.status < 200 || ex.status > 299 || method == http.MethodHead || method == http.MethodOptions {
		return
	}
	p := ex.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	r := ex.attempt.replica
	if r.life != ex.attempt.life || r.draining {
		return
	}
	if managing[ex.req.URL.Path] == changesModels {
		r.engine.models.asked = time.Time{}
		return
	}
	r.engine.resets++
	p.dropClaims(r)
	p.log.printLater(levelInfo, "replica lost its cache: its claims are dropped", "pool", p.name, "replica", r.worker.name,
		"path", ex.req.URL.Path)
}
