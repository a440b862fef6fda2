package cart

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"
)

// discovery is what a pool knows of the source of its replicas. The pool's lock guards it.
type discovery struct {
	source    string       // the source it is about, see source.name; "" = there is none
	client    *http.Client // for Traefik's API
	since     time.Time    // when that source was named
	servers   []server     // the last list, with those that are about to leave
	former    []server     // the list of the source before, which stays until this one has answered
	ignored   []string     // servers that CART cannot use, and why
	succeeded time.Time    // when it last gave a list; zero = not yet
	failures  int          // looks in vain since then
	err       string       // of the last one, "" = it went well
	logged    string       // the trouble that the last log line about it told of, "" = none
	due       time.Time    // when to look again
	wait      time.Duration
	hints     int    // reloads of Traefik's configuration make it look sooner that often
	stop      func() // ends the look that is under way; nil = none is
}

const (
	firstWait   = 100 * time.Millisecond // between looks until the source first answers; grows by half
	hintWait    = 200 * time.Millisecond // from a reload until Traefik's API shows what is new
	lookTimeout = 5 * time.Second
	// quietStart is how long a source may be in trouble before a log line says so, when it has not answered before:
	// Traefik's API answers only after the first configuration, that is after CART was built.
	quietStart = 3 * time.Second
	// staleAfter is how many looks in vain make the word of Traefik's health check too old to go by.
	staleAfter = 3
)

// discoverLoop looks at the pool's source, if it has one, again and again until the pool ends.
func discoverLoop(p *pool) {
	for !p.hasEnded() {
		time.Sleep(p.discover(time.Now()))
	}
}

// look is one look at a source, with what it needs of the pool.
type look struct {
	set     *settings
	client  *http.Client
	resolve *net.Resolver
	ctx     context.Context
	stop    func()
	servers []server // the list before

	found   []server
	ignored []string
	err     error
}

// discover looks at the source if it is time, and returns how long to wait until it is asked again.
func (p *pool) discover(now time.Time) time.Duration {
	l, wait := p.beginLook(now)
	if l == nil {
		return wait
	}
	findReplicas(l)
	p.endLook(l, time.Now())
	return 0
}

// beginLook returns nil and how long to wait if it is not time yet.
func (p *pool) beginLook(now time.Time) (*look, time.Duration) {
	const tick = 100 * time.Millisecond // so that a new source is soon noticed
	p.mu.Lock()
	defer p.mu.Unlock()
	d := &p.discovery
	if p.ended || p.set.source == nil {
		return nil, tick
	}
	if wait := d.due.Sub(now); wait > 0 {
		if wait > tick {
			wait = tick
		}
		return nil, wait
	}
	ctx, stop := context.WithTimeout(context.Background(), lookTimeout)
	d.stop = stop
	return &look{set: p.set, client: d.client, resolve: p.resolve, ctx: ctx, stop: stop, servers: d.servers}, 0
}

// findReplicas asks the source. A panic is an answer that could not be read.
func findReplicas(l *look) {
	defer func() {
		if r := recover(); r != nil {
			l.err = errors.New("panic in discovery: " + fmt.Sprint(r))
		}
	}()
	src := l.set.source
	if src.dns != nil {
		l.found, l.err = findAddresses(l.ctx, l.resolve, src)
		return
	}
	l.found, l.ignored, l.err = findServers(l.ctx, l.client, src)
}

// endLook takes the result of a look. What takes time is done before the lock is taken.
func (p *pool) endLook(l *look, now time.Time) {
	l.stop()
	servers := l.servers
	if l.err == nil {
		servers = reconcile(l.servers, l.found, now, confirmAfter(l.set.source.interval))
	}
	var workers []worker
	if wording(servers) != wording(l.servers) {
		workers = l.set.source.tune(servers)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	d := &p.discovery
	d.stop = nil
	if p.ended {
		return
	}
	if p.set != l.set {
		d.due = now // it was for settings that have been replaced
		return
	}
	if l.err != nil {
		p.lookFailed(l.err, now)
	} else {
		d.servers = servers
		d.ignored = l.ignored
		p.lookWorked(workers, now)
	}
	d.schedule(p.set.source.interval, now)
}

// reconcile returns the list to go by: what was found, and of the list before what is missing from it for the first time.
// A file that was read while somebody wrote it may name half the replicas or none; so one that is missing only gets no
// request while there are others, and is removed when it is still missing after a while.
func reconcile(before, found []server, now time.Time, confirm time.Duration) []server {
	here := map[string]bool{}
	for i := range found {
		here[found[i].id] = true
	}
	out := append([]server{}, found...)
	for i := range before {
		one := before[i]
		if here[one.id] {
			continue
		}
		if one.goneAt.IsZero() {
			one.goneAt = now
		} else if now.Sub(one.goneAt) >= confirm {
			continue
		}
		out = append(out, one)
	}
	return out
}

// confirmAfter is how long a replica may be missing before it is removed: with the look that finds it missing, that makes
// less than two intervals.
func confirmAfter(interval time.Duration) time.Duration { return interval / 2 }

// wording returns a text that is the same for lists that make the same workers. It has secrets.
func wording(servers []server) string {
	lines := make([]string, 0, len(servers))
	for i := range servers {
		one := &servers[i]
		lines = append(lines, fmt.Sprint(one.base, one.headers, one.down, one.goneAt.IsZero()))
	}
	return strings.Join(lines, "\n")
}

// lookWorked takes a new list, nil if it is the one before. The caller holds the lock.
func (p *pool) lookWorked(workers []worker, now time.Time) {
	d := &p.discovery
	first := d.succeeded.IsZero()
	d.succeeded = now
	d.former = nil
	d.failures = 0
	d.err = ""
	if d.logged != "" {
		d.logged = ""
		p.log.printLater(levelInfo, "discovery works again", "pool", p.name, "source", d.source)
	}
	if !first && workers == nil {
		return
	}
	p.setWorkers(workers)
	p.models = nil
	p.modelsTurn++
	if len(workers) == 0 {
		p.log.printLater(levelWarn, "no replica is found: every request gets 503", "pool", p.name, "source", d.source)
		return
	}
	names, leaving := []string{}, []string{}
	for i := range workers {
		if workers[i].leaving {
			leaving = append(leaving, workers[i].name)
		} else {
			names = append(names, workers[i].name)
		}
	}
	p.log.printLater(levelInfo, "replicas found", "pool", p.name, "source", d.source, "replicas", names, "leaving", leaving)
}

// lookFailed notes why the source told nothing; the list stays. The caller holds the lock.
func (p *pool) lookFailed(err error, now time.Time) {
	d := &p.discovery
	d.failures++
	d.err = err.Error()
	trouble, _, _ := strings.Cut(d.err, ": ") // what follows may have port numbers, other ones each time
	if trouble != d.logged && (!d.succeeded.IsZero() || now.Sub(d.since) >= quietStart) {
		d.logged = trouble
		what := "discovery failed: the last known list stays"
		if len(p.replicas) == 0 {
			what = "discovery failed, and no replica is known yet: every request gets 503"
		}
		p.log.printLater(levelWarn, what, "pool", p.name, "source", d.source, "replicas", len(p.replicas), "error", d.err)
	}
	if d.failures != staleAfter {
		return
	}
	// Nobody says any more that what was down is down, so it is up to CART's own probes.
	list := d.inForce()
	for i := range list {
		if list[i].down {
			believed := append([]server{}, list...)
			for j := range believed {
				believed[j].down = false
			}
			if d.succeeded.IsZero() {
				d.former = believed
			} else {
				d.servers = believed
			}
			p.setWorkers(p.set.source.tune(believed))
			return
		}
	}
}

// inForce returns the list to go by: the former source's until this one has answered.
func (d *discovery) inForce() []server {
	if d.succeeded.IsZero() {
		return d.former
	}
	return d.servers
}

// schedule says when to look again.
func (d *discovery) schedule(interval time.Duration, now time.Time) {
	wait := interval
	if d.succeeded.IsZero() {
		d.wait += d.wait / 2
		if d.wait < firstWait {
			d.wait = firstWait
		}
		if d.wait > interval {
			d.wait = interval
		}
		wait = d.wait
	}
	for i := range d.servers {
		if gone := d.servers[i].goneAt; !gone.IsZero() {
			if left := gone.Add(confirmAfter(interval)).Sub(now); left > 0 && left < wait {
				wait = left
			}
		}
	}
	if d.hints > 0 {
		d.hints--
		if wait > time.Second {
			wait = time.Second
		}
	}
	d.due = now.Add(wait)
}

// setSource brings discovery to the pool's latest settings. The list of a source that stays is kept, and of one that is
// replaced until the new one has answered. The caller holds the lock.
func (p *pool) setSource(now time.Time) {
	d := &p.discovery
	d.end()
	src := p.set.source
	if src == nil {
		p.discovery = discovery{}
		p.setWorkers(p.set.workers)
		if len(p.set.workers) == 0 {
			p.log.printLater(levelWarn, "no workers are configured: every request gets 503", "pool", p.name)
		}
		return
	}
	if d.source != src.name() {
		p.discovery = discovery{source: src.name(), since: now, former: d.inForce()}
		d = &p.discovery
	}
	if list := d.inForce(); len(list) > 0 || !d.succeeded.IsZero() {
		p.setWorkers(src.tune(list))
	}
	if src.service != "" {
		d.client = newAPIClient(&src.api)
	}
}

// end gives up what is under way. The caller holds the pool's lock.
func (d *discovery) end() {
	if d.stop != nil {
		d.stop()
	}
	if d.client != nil {
		d.client.CloseIdleConnections()
	}
}

// hint makes discovery look soon, for Traefik has a new configuration, in which the service may be another. It looks twice
// more a little later: the API shows what is new only when Traefik has built all of it.
func (p *pool) hint(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	d := &p.discovery
	if p.set.source == nil || p.set.source.dns != nil {
		return
	}
	d.hints = 2
	if soon := now.Add(hintWait); soon.Before(d.due) {
		d.due = soon
	}
}

// describeDiscovery tells what GET /workers says of the source, nil without one. The caller holds the lock.
func describeDiscovery(p *pool) *discoveryAnswer {
	d := &p.discovery
	src := p.set.source
	if src == nil {
		return nil
	}
	answer := &discoveryAnswer{Source: d.source, Interval: src.interval.String(), State: "ok", Error: d.err, Leaving: []string{},
		Ignored: append([]string{}, d.ignored...), Unmatched: []string{}}
	if !d.succeeded.IsZero() {
		answer.LastSuccess = d.succeeded.UTC().Format(time.RFC3339)
		answer.Unmatched = src.unmatched(d.servers) // before there is a list nothing can be said of it
	}
	switch {
	case d.err != "":
		answer.State = "failing"
	case d.succeeded.IsZero():
		answer.State = "starting"
	}
	for i := range d.servers {
		if !d.servers[i].goneAt.IsZero() {
			answer.Leaving = append(answer.Leaving, d.servers[i].base.String())
		}
	}
	return answer
}
