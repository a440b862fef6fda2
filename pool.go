package cart

import (
	"context"
	"fmt"
	"math"
	"net"
	"net/http"
	"sync"
	"time"
)

// pool is what survives a reload: the replicas with their loads, breakers and health, the tree, the counters. There is one
// for each middleware name; the handlers of all routers that use the middleware share it.
type pool struct {
	name string
	refs int // handlers that may still use it; guarded by registryMu

	resolve *net.Resolver // for discovery.dns

	mu        sync.Mutex // guards all below; never held during I/O
	ended     bool       // the last handler has left
	set       *settings  // the latest
	config    string     // what set was made of, to tell a changed configuration from a mere reload
	transport *http.Transport
	bulk      *http.Transport // the same with larger buffers
	probes    *http.Client
	log       *logger
	replicas  []*replica
	draining  []*replica // removed, with requests still running
	discovery discovery
	byID      map[int]*replica
	partial   map[string]bool // models that some replicas list and others do not; nil = none
	lastID    int
	tree      *tree
	sweep     []*node // where the removal of dead claims goes on; nil = none under way
	turn      int
	running   int   // attempts under way
	asked     int64 // when the last decision was asked for, in nanoseconds of the Unix epoch
	seed      uint64
	scratch   []candidate
	room      int64      // characters that all caches hold; 0 = not of all it is known, -1 = to be summed up
	known     []*replica // those that the policy cost knows to hold a part of the prompt

	// What the quick choice goes by: see rank.
	loads       []byte // each replica's load with its penalty, by place; notRanked = not to be chosen
	rankedUntil int64  // until when they hold, in nanoseconds of the Unix epoch
	least       int    // none of them is lower; mostRanked if there is none
	open        int    // how many of them can be chosen

	in         *prompt
	reasons    map[string]int64 // of replicas that are gone; see replica for the others
	shadow     shadow
	refused    map[string]int64
	retries    int64
	departed   int64      // clients that left before the end of their answer
	deciding   *histogram // of the time that routed requests waited for their decision
	prompts    *prompts   // of these requests
	tails      [][]byte   // ends of answers that have not been read yet
	tailed     []*attempt // and the attempts that they are of
	weighed    weighed    // their characters and tokens
	density    float64    // characters a token, as learnt from them; 0 = not yet
	decided    int        // counts the decisions
	last       []*attempt // the latest ones, number n at n modulo the length
	models     *modelList
	modelsTurn int // counts the configurations
}

// cache.maxTreeBytes bounds what the process takes for the tree. Go's garbage collector lets the heap grow to twice of what
// is in use before it collects (GOGC=100), and while it collects, prompts go on coming: the process was seen to grow by 2.9 to
// 3.3 times the bytes in the tree at its worst (make bench-memory).
const headroom = 3.2

// withHeadroom returns what the process takes for that many bytes in the tree, withoutHeadroom the reverse.
func withHeadroom(bytes int) int { return int(headroom * float64(bytes)) }

func withoutHeadroom(bytes int) int { return int(float64(bytes) / headroom) }

// lastDecisions is how many decisions /workers shows.
const lastDecisions = 16

// leaveGrace is how long a pool outlives its last handler: Traefik ends the old handlers' context before it builds the
// new ones, and a reload of a big configuration takes a while.
var leaveGrace = 10 * time.Second

var (
	registryMu sync.Mutex
	registry   = map[string]*pool{}
)

// join returns the pool of that name, made or adapted to the settings, and keeps it alive until ctx ends. With no settings
// it only keeps alive what there is, so that a bad configuration costs no state.
func join(ctx context.Context, name string, set *settings, config string) *pool {
	registryMu.Lock()
	defer registryMu.Unlock()
	p := registry[name]
	fresh := p == nil
	if fresh {
		if set == nil {
			return nil
		}
		p = newPool(name, set)
		registry[name] = p
	}
	if set != nil {
		p.apply(set, config)
		p.hint(time.Now())
	}
	if fresh {
		go guard("health loop", func() { healthLoop(p) })
		go guard("engine loop", func() { engineLoop(p) })
		go guard("feedback", func() { feedbackLoop(p) })
		go guard("janitor", func() { janitor(p) })
		go guard("discovery", func() { discoverLoop(p) })
		go guard("open files", func() { checkOpenFiles(p) })
	}
	p.refs++
	go guard("lease", func() { leaveWithContext(ctx, p) })
	return p
}

// leaveWithContext waits for the end of ctx and the grace, then gives the pool up.
func leaveWithContext(ctx context.Context, p *pool) {
	<-ctx.Done()
	time.Sleep(leaveGrace)
	for !leave(p) {
		time.Sleep(leaveGrace / 10)
	}
}

// leave gives the pool up for one handler. The last one waits for the requests that are still running: a middleware of the
// same name that comes back meanwhile has to know their load.
func leave(p *pool) bool {
	registryMu.Lock()
	defer registryMu.Unlock()
	if p.refs > 1 {
		p.refs--
		return true
	}
	if p.busy() {
		return false
	}
	p.refs = 0
	delete(registry, p.name)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
	p.discovery.end()
	return true
}

// logger returns the pool's logger, which a reload may replace.
func (p *pool) logger() *logger {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log
}

// hasEnded says whether the last handler has left, so that the pool's loops end.
func (p *pool) hasEnded() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ended
}

// busy says whether requests are running.
func (p *pool) busy() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.replicas {
		if r.load > 0 {
			return true
		}
	}
	return len(p.draining) > 0
}

// guard runs f and turns a panic into a log line: one in a goroutine of ours would end the whole of Traefik.
func guard(what string, f func()) {
	defer func() {
		if r := recover(); r != nil {
			newLogger("error", "json", 0).print(levelError, "panic in background work", "work", what, "panic", fmt.Sprint(r))
		}
	}()
	f()
}

func newPool(name string, set *settings) *pool {
	startDeciders()
	return &pool{
		name:     name,
		resolve:  resolver,
		byID:     map[int]*replica{},
		tree:     newTree(set.maxNodes, withoutHeadroom(set.maxBytes)),
		seed:     uint64(time.Now().UnixNano()),
		in:       &prompt{},
		reasons:  map[string]int64{},
		refused:  map[string]int64{},
		deciding: newHistogram(decisionBounds),
		prompts:  &prompts{counts: make([]int64, len(knownBounds))},
		last:     make([]*attempt, lastDecisions),
	}
}

// apply brings the pool to the settings, if they changed.
func (p *pool) apply(set *settings, config string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	config += set.files
	if p.set != nil && p.config == config {
		return
	}
	old := p.set
	p.set = set
	p.config = config
	if old == nil || old.logLevel != set.logLevel || old.logFormat != set.logFormat || old.logDetails != set.logDetails {
		log := newLogger(set.logLevel, set.logFormat, set.logDetails)
		if p.log != nil {
			log.details.lost, log.alarms.lost = p.log.lost()
		}
		p.log = log
	}
	if old == nil || old.connectWait != set.connectWait || old.firstByteWait != set.firstByteWait || old.files != set.files ||
		old.tls.InsecureSkipVerify != set.tls.InsecureSkipVerify || old.tls.ServerName != set.tls.ServerName {
		if p.transport != nil {
			p.transport.CloseIdleConnections()
			p.bulk.CloseIdleConnections()
		}
		p.transport = newTransport(set)
		p.bulk = newBulkTransport(p.transport)
		p.probes = newProbeClient(p.transport)
	}
	p.tree.maxNodes = set.maxNodes
	p.tree.maxBytes = withoutHeadroom(set.maxBytes)
	for i := range set.advice {
		p.log.printLater(levelWarn, set.advice[i].Text, "pool", p.name)
	}
	p.setSource(time.Now())
	p.models = nil
	p.modelsTurn++
}

// setWorkers makes workers the list of replicas. Those that stay keep all their state, those that go drain, and one that
// comes back while it drains takes up its load again but none of its claims.
func (p *pool) setWorkers(workers []worker) {
	known := map[string]*replica{}
	for _, r := range p.draining {
		known[r.worker.name] = r
	}
	for _, r := range p.replicas {
		known[r.worker.name] = r
	}
	old := p.replicas
	p.replicas = nil
	p.draining = nil
	for i := range workers {
		w := &workers[i]
		r := known[w.name]
		if r == nil {
			r = newReplica()
		}
		if r.draining {
			p.lastID++
			r.id = p.lastID
			r.life = p.lastID
			r.engine = engineView{}
			r.cached.room = 0
			r.cached.doubt = 0
			r.up = true
			r.failed = false
			r.reported = false
			r.why = ""
			r.since = time.Now()
			r.draining = false
			r.misses = 0
			r.passes = 0
			r.probing = false
			r.breaker = breaker{}
		}
		w.proxy = newProxy(w.base, p.transport, p.bulk, p.log, buffers)
		w.streams = newProxy(w.base, p.transport, p.bulk, p.log, streamBuffers)
		r.worker = w
		if r.sourced(w) {
			p.log.printLater(levelInfo, "Traefik's health check has news", "pool", p.name, "replica", w.name, "down", w.down)
		}
		p.replicas = append(p.replicas, r)
		delete(known, w.name)
	}
	p.rankedUntil = 0
	p.room = -1
	p.byID = map[int]*replica{}
	for _, r := range p.replicas {
		p.byID[r.id] = r
		r.age = p.tree.ageOf(r.id)
		p.fitRoom(r)
	}
	for id := range p.tree.ages {
		if p.byID[id] == nil {
			delete(p.tree.ages, id)
		}
	}
	p.relist()
	for _, r := range known {
		r.draining = true
		r.ranked = false
		if r.load > 0 {
			p.draining = append(p.draining, r)
		} else {
			p.keepCounts(r)
		}
	}
	// Ids are never reused, so what is left of the claims cannot mislead; the janitor takes them out.
	if len(old) > 0 && len(known) > 0 {
		p.sweep = p.tree.all()
	}
}

// The loads of rank are bytes: up to mostRanked, which stands for all that is higher too, or notRanked for a replica that is
// not to be chosen.
const (
	mostRanked = 254
	notRanked  = 255
)

// rank prepares the quick choice of the least loaded replica: the loads of those that can be chosen, as bytes. It holds
// until a breaker, a health probe, backpressure or the configuration change who that is.
func (p *pool) rank(now int64) {
	p.loads = make([]byte, len(p.replicas))
	p.open = 0
	p.least = 0
	p.rankedUntil = math.MaxInt64
	for i, r := range p.replicas {
		r.place = i
		p.loads[i] = notRanked
		r.ranked = r.up && r.breaker.state == breakerClosed && r.pushedUntil <= now
		change := int64(math.MaxInt64)
		if r.up && r.breaker.state == breakerOpen {
			change = r.breaker.openUntil
		} else if r.up && r.breaker.state != breakerClosed {
			change = 0 // a probe is due
		} else if r.up && r.pushedUntil > now {
			change = r.pushedUntil
		}
		if change < p.rankedUntil {
			p.rankedUntil = change
		}
		if r.ranked && r.load < r.worker.maxLoad {
			load := r.load + r.worker.loadPenalty
			if load > mostRanked {
				load = mostRanked
			}
			p.loads[i] = byte(load)
			p.open++
		}
	}
	if p.open == 0 {
		p.least = mostRanked
	}
}

// attempt is one try of an exchange on one replica.
type attempt struct {
	replica *replica
	worker  *worker // as configured when the attempt began
	id      int     // of the replica when the attempt began
	life    int     // likewise
	probe   bool    // the breaker's probe of half open
	why     string  // reason of the decision
	at      int64   // when it was decided, in nanoseconds of the Unix epoch
	load    int     // of the replica, this request included
	least   int     // load of the least loaded candidate, its loadPenalty included
	others  int     // further candidates there were
	known   int     // characters of the prompt that were known on the candidate that knew most
	matched int     // and there
	total   int     // and of the whole prompt
	stamp   int64   // with before it takes back what the tree was taught; 0 = nothing yet
	before  int
	faded   int // claims at less than this depth had faded; 0 = none

	// Its part of the replica's queue, with the policy cost.
	queued   int   // characters; 0 = its answer has begun
	streamed bool  // the answer is
	ahead    int   // the queue's length when it was sent, itself included
	mark     int64 // the queue of whole answers is through with what was sent before it when done has come that far
}

// settleAttempt ends an attempt whose place is free already: the breaker learns how it went, and the tree forgets what it was
// taught if the replica never began to answer. The caller holds the lock and has found the prompt in the tree.
func settleAttempt(p *pool, ex *exchange, a *attempt, now int64) {
	r := a.replica
	if a.stamp > 0 && !ex.answered {
		p.tree.takeBack(a)
	}
	if ex.answered && ex.firstByte > 0 {
		r.observe(a.why, ex.firstByte)
	}
	if ex.pushed > 0 {
		r.push(now, ex.pushed)
		p.rankedUntil = 0
	}
	if ex.answered && ex.finished {
		ex.result = outcomeSuccess
	}
	if ex.status >= 500 && ex.result == outcomeFailure && !ex.broken && !a.probe {
		ex.charges = append(ex.charges, charge{a: a, status: ex.status})
	} else {
		p.record(a, ex.result, now)
	}
	if ex.next == nil {
		p.settle(ex, now)
	}
	if ex.finished && ex.answered && ex.tail != nil && len(p.tails) < mostTails {
		p.tails = append(p.tails, ex.tail)
		p.tailed = append(p.tailed, a)
	}
	if r.draining && r.load == 0 {
		p.forgetDrained(r)
	}
}

// charge is a failure status that counts against a replica unless a second one answers the same.
type charge struct {
	a      *attempt
	status int
}

// settle charges the failure statuses of an exchange that is over. The same status from two replicas is the request's own
// fault. The caller holds the lock.
func (p *pool) settle(ex *exchange, now int64) {
	for i := range ex.charges {
		result := outcomeFailure
		for j := range ex.charges {
			if j != i && ex.charges[j].status == ex.charges[i].status {
				result = outcomeNeutral
			}
		}
		p.record(ex.charges[i].a, result, now)
	}
	ex.charges = nil
}

// countDeparture notes that a client left before the end of its answer.
func countDeparture(p *pool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.departed++
}

// settleNow settles before the exchange is over, unless the present answer is a failure too.
func settleNow(ex *exchange) {
	if ex.result == outcomeFailure {
		return
	}
	p := ex.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	p.settle(ex, time.Now().UnixNano())
}

// record tells the breaker of an attempt's replica how it went. The caller holds the lock.
func (p *pool) record(a *attempt, result outcome, now int64) {
	r := a.replica
	if r.life != a.life {
		return // removed and back again in the meantime: another life
	}
	if result == outcomeFailure {
		r.failures++
	} else if result == outcomeSuccess && r.breaker.state == breakerClosed {
		r.breaker.failures = 0
		return
	}
	last := true
	for _, o := range p.replicas {
		if o != r && o.up && o.breaker.allows(now) {
			last = false
		}
	}
	before := r.breaker.state
	r.breaker.record(result, a.probe, last, now, &p.set.breaker)
	p.rankedUntil = 0
	if after := r.breaker.state; after != before {
		p.log.printLater(levelWarn, "circuit breaker "+after.String(), "pool", p.name, "replica", r.worker.name)
	}
}

// keepCounts adds the decisions of a replica that goes to the pool's, whose sums never fall.
func (p *pool) keepCounts(r *replica) {
	for why, n := range r.reasons {
		p.reasons[why] += n
	}
}

func (p *pool) forgetDrained(r *replica) {
	p.keepCounts(r)
	for i := range p.draining {
		if p.draining[i] == r {
			p.draining = append(p.draining[:i], p.draining[i+1:]...)
			return
		}
	}
}

// janitor does the tree's slow work in small steps: claims of removed replicas, leaves long unused, the daily clean-up.
func janitor(p *pool) {
	lastDay := -1
	next := time.Now()
	for !p.hasEnded() {
		pause := 500 * time.Millisecond
		if p.tidy(time.Now(), &next, &lastDay) {
			pause = 2 * time.Millisecond
		} else {
			p.logger().tellDropped(time.Now().Unix())
		}
		time.Sleep(pause)
	}
}

// tidy does one step and says whether there is more to do at once. next is when leaves are to be evicted again.
func (p *pool) tidy(now time.Time, next *time.Time, lastDay *int) bool {
	const step = 200 // nodes; about a millisecond interpreted
	p.mu.Lock()
	defer p.mu.Unlock()
	now = now.UTC()
	if p.set.cleanupHour >= 0 && now.Hour() == p.set.cleanupHour && now.YearDay() != *lastDay {
		*lastDay = now.YearDay()
		p.tree.clear()
		p.sweep = nil
		p.log.printLater(levelInfo, "tree dropped at its daily hour", "pool", p.name)
	}
	if len(p.sweep) > 0 {
		alive := map[int]bool{}
		for id := range p.byID {
			alive[id] = true
		}
		p.sweep = p.tree.drop(p.sweep, alive, step)
		return len(p.sweep) > 0
	}
	if p.set.evictEvery > 0 && !now.Before(*next) {
		// A tenth of air, so that inserts seldom have to evict.
		if p.tree.shrink(0.9, step) {
			return true
		}
		*next = now.Add(p.set.evictEvery)
	}
	return false
}
