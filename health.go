package cart

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"time"
)

type healthSettings struct {
	endpoint            string
	interval, timeout   time.Duration
	failures, successes int
	metrics, models     askSettings
}

type askSettings struct {
	endpoint string
	interval time.Duration // 0 = nothing is asked
}

func (v *validator) health(s *settings, c *HealthConfig) {
	v.unknown("health.", c.Unknown)
	s.health = healthSettings{
		endpoint:  v.path("health.endpoint", c.Endpoint, false),
		interval:  v.duration("health.interval", c.Interval, true),
		timeout:   v.duration("health.timeout", c.Timeout, false),
		failures:  v.integer("health.failureThreshold", c.FailureThreshold, 1, 1000),
		successes: v.integer("health.successThreshold", c.SuccessThreshold, 1, 1000),
		metrics:   v.ask("health.metrics.", &c.Metrics),
		models:    v.ask("health.models.", &c.Models),
	}
	s.probeHeaders = v.headers("health.headers", c.Headers)
}

func (v *validator) ask(key string, c *AskConfig) askSettings {
	v.unknown(key, c.Unknown)
	return askSettings{endpoint: v.path(key+"endpoint", c.Endpoint, false), interval: v.duration(key+"interval", c.Interval, true)}
}

// healthLoop probes every replica of the pool side by side, each at its interval, until the pool stops. The first probe of
// a replica follows at once.
func healthLoop(p *pool) {
	due := map[int]time.Time{}
	for !p.hasEnded() {
		// No select: see CONTRIBUTING.md.
		time.Sleep(probeDue(p, due, time.Now()))
	}
}

// newProbeClient returns a client that reaches replicas as requests do, each time on a connection of its own: a probe on an
// old connection would not see that new ones are refused.
func newProbeClient(transport *http.Transport) *http.Client {
	own := transport.Clone()
	own.DisableKeepAlives = true
	own.ResponseHeaderTimeout = 0
	client := &http.Client{CheckRedirect: noRedirect}
	client.Transport = own
	return client
}

// noRedirect makes a redirect the probe's answer: a login page must not pass for good health.
func noRedirect(req *http.Request, via []*http.Request) error {
	return http.ErrUseLastResponse
}

// probeDue starts the probes whose time has come and returns how long to wait until it looks again. A replica whose probe
// still runs is not probed a second time.
func probeDue(p *pool, due map[int]time.Time, now time.Time) time.Duration {
	const tick = 100 * time.Millisecond // so that a new replica or interval is soon noticed
	p.mu.Lock()
	defer p.mu.Unlock()
	set := p.set
	if set.health.interval <= 0 {
		for _, r := range p.replicas {
			r.failed = false
			r.why = ""
			if r.judge() {
				p.rankedUntil = 0
			}
		}
		return tick
	}
	for _, r := range p.replicas {
		if r.probing || now.Before(due[r.life]) {
			continue
		}
		due[r.life] = now.Add(set.health.interval)
		r.probing = true
		startProbe(p, p.probes, r, set)
	}
	if len(due) > 2*len(p.replicas)+16 {
		here := map[int]bool{}
		for _, r := range p.replicas {
			here[r.life] = true
		}
		for life := range due {
			if !here[life] {
				delete(due, life)
			}
		}
	}
	if set.health.interval < tick {
		return set.health.interval
	}
	return tick
}

// startProbe probes one replica in the background. It is a function of its own, for closures made in a loop share their
// variables under Yaegi.
func startProbe(p *pool, client *http.Client, r *replica, set *settings) {
	life, w := r.life, r.worker
	go guard("health probe", func() {
		why := probe(client, w, set)
		p.mu.Lock()
		defer p.mu.Unlock()
		if r.life != life {
			return
		}
		if r.probed(why, &p.set.health) {
			p.rankedUntil = 0
			if r.up {
				p.log.printLater(levelInfo, "replica is up", "pool", p.name, "replica", w.name)
			} else {
				p.log.printLater(levelWarn, "replica is down", "pool", p.name, "replica", w.name, "why", why)
			}
		}
	})
}

// probe asks one replica how it is: an empty answer means well.
func probe(client *http.Client, w *worker, set *settings) (why string) {
	ctx, cancel := context.WithTimeout(context.Background(), set.health.timeout)
	defer cancel()
	req, err := probeRequest(ctx, w, set, set.health.endpoint)
	if err != nil {
		return "the probe's address is wrong: " + err.Error()
	}
	res, err := client.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			return "no answer to " + set.health.endpoint + " within " + set.health.timeout.String()
		}
		return reasonOf(err)
	}
	defer res.Body.Close()
	io.CopyN(io.Discard, res.Body, 64<<10)
	if res.StatusCode < 200 || res.StatusCode > 299 {
		return "GET " + req.URL.Path + " answered " + strconv.Itoa(res.StatusCode)
	}
	return ""
}

// probeRequest asks a replica for one of its own paths.
func probeRequest(ctx context.Context, w *worker, set *settings, path string) (*http.Request, error) {
	base := *w.base
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base.String()+path, nil)
	if err != nil {
		return nil, err
	}
	for _, h := range w.headers {
		req.Header[h.name] = h.value
	}
	for _, h := range set.probeHeaders {
		req.Header[h.name] = h.value
	}
	if host := req.Header.Get("Host"); host != "" {
		req.Host = host
	}
	return req, nil
}
