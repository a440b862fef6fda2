package main

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/cart-llm/cart/e2e/replica"
)

// stageOf has one replica and, in place of Traefik and CART, a proxy that names it.
func stageOf(t *testing.T) (*stage, *replica.Replica) {
	t.Helper()
	r, err := replica.Start(replica.Options{DecodeRate: 200})
	if err != nil {
		t.Fatal(err)
	}
	to, err := url.Parse(r.URL())
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(to)
	// Not the default one: any test server that closes, closes connections of that.
	own := &http.Transport{}
	t.Cleanup(own.CloseIdleConnections)
	proxy.Transport = own
	proxy.ModifyResponse = func(resp *http.Response) error {
		resp.Header.Set("X-Routed-Peer", r.URL())
		return nil
	}
	front := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, req *http.Request) {
		// Else the server closes the request's body when the answer begins, and the transport, which may still look for its end,
		// gives the connection up.
		if err := http.NewResponseController(rw).EnableFullDuplex(); err != nil {
			t.Error(err)
		}
		proxy.ServeHTTP(rw, req)
	}))
	front.Config.ErrorLog = nil
	t.Cleanup(func() {
		front.Close()
		if err := r.Close(); err != nil {
			t.Errorf("Close() = %v", err)
		}
	})
	return &stage{traefik: &server{url: front.URL}, client: front.Client(), replicas: []*victim{{url: r.URL()}}}, r
}

func TestSend_countsTheTokensOfEveryDialect(t *testing.T) {
	s, _ := stageOf(t)
	for n := range dialects {
		talk := newTalk(n, 0)
		for _, stream := range []bool{false, true} {
			first := s.send(context.Background(), talk.dialect, plan{stream: stream, body: talk.request(0, stream)})
			next := s.send(context.Background(), talk.dialect, plan{stream: stream, body: talk.request(1, stream)})
			if first.fate != answered || next.fate != answered {
				t.Errorf("%s, stream = %v: fates %d and %d, want both answered: %v, %v", talk.dialect.path, stream, first.fate, next.fate, first.why, next.why)
			}
			if next.prompt <= first.prompt || next.cached < first.prompt*9/10 {
				t.Errorf("%s, stream = %v: second turn has %d tokens, %d cached, after a first one of %d", talk.dialect.path, stream,
					next.prompt, next.cached, first.prompt)
			}
		}
	}
}

func TestSend_everyKindOfNonsenseIsRefused(t *testing.T) {
	s, _ := stageOf(t)
	talk := newTalk(0, 0)
	for n, spoil := range malformed {
		r := s.send(context.Background(), talk.dialect, plan{body: spoil(talk.request(0, false)), bad: true})
		if r.fate != refused {
			t.Errorf("nonsense %d: fate = %d, want refused: %v", n, r.fate, r.why)
		}
	}
}

func TestSend_leavesWhenItIsMeantTo(t *testing.T) {
	s, r := stageOf(t)
	talk := newTalk(0, 0)
	for _, p := range []plan{
		{leave: leavesEarly, body: talk.request(0, false)},
		{leave: leavesInTheMiddle, stream: true, body: talk.request(0, true)},
	} {
		before := r.Aborted()
		if got := s.send(context.Background(), talk.dialect, p); got.fate != left {
			t.Errorf("leave = %d: fate = %d, want left: %v", p.leave, got.fate, got.why)
		}
		for end := time.Now().Add(5 * time.Second); r.Aborted() == before && time.Now().Before(end); {
			time.Sleep(5 * time.Millisecond)
		}
		if r.Aborted() == before {
			t.Errorf("leave = %d: the replica did not see the client go", p.leave)
		}
	}
}

func TestSend_anAnswerCutIsTheReplicasOwnErrorOnlyIfItWasKilled(t *testing.T) {
	for _, killed := range []bool{true, false} {
		s, r := stageOf(t)
		if err := r.SetFault(replica.Fault{Kind: replica.Cut, Events: 3}); err != nil {
			t.Fatal(err)
		}
		want := failed
		if killed {
			s.replicas[0].kills, want = []time.Time{time.Now()}, broken
		}
		talk := newTalk(0, 0)
		if got := s.send(context.Background(), talk.dialect, plan{stream: true, body: talk.request(0, true)}); got.fate != want {
			t.Errorf("killed = %v: fate = %d, want %d: %v", killed, got.fate, want, got.why)
		}
	}
}

func TestSend_errorsBeforeTheFirstByteAreNeverTheReplicas(t *testing.T) {
	for _, fault := range []replica.Fault{{Kind: replica.Cut}, {Kind: replica.Status, Status: 503}} {
		s, r := stageOf(t)
		if err := r.SetFault(fault); err != nil {
			t.Fatal(err)
		}
		s.replicas[0].kills = []time.Time{time.Now()}
		talk := newTalk(0, 0)
		if got := s.send(context.Background(), talk.dialect, plan{body: talk.request(0, false)}); got.fate != failed {
			t.Errorf("fault %s: fate = %d, want failed", fault.Kind, got.fate)
		}
	}
}

func TestNewTalk_isTheSameEachTime(t *testing.T) {
	a, b := newTalk(17, 3), newTalk(17, 3)
	if !bytes.Equal(a.request(5, true), b.request(5, true)) {
		t.Error("newTalk(17, 3) differs from time to time")
	}
	if bytes.Equal(a.request(5, true), newTalk(18, 3).request(5, true)) {
		t.Error("newTalk(17, 3) and newTalk(18, 3) are the same")
	}
}

func TestHitRatios_compareWhatBothHadAnswered(t *testing.T) {
	calm, storm := newTally(), newTally()
	both, one := place{client: 1}, place{client: 2}
	calm.add(both, reply{fate: answered, prompt: 100, cached: 90})
	storm.add(both, reply{fate: answered, prompt: 100, cached: 40})
	calm.add(one, reply{fate: answered, prompt: 1000, cached: 0})
	storm.add(one, reply{fate: failed, why: errors.New("x")})
	inCalm, inStorm, common := hitRatios(calm, storm)
	if inCalm != 0.9 || inStorm != 0.4 || common != 1 {
		t.Errorf("hitRatios() = %v, %v over %d, want 0.9, 0.4 over 1", inCalm, inStorm, common)
	}
}

func TestVerdict_namesWhatIsWrong(t *testing.T) {
	good := func() *findings {
		f := &findings{
			calm: newTally(), storm: newTally(), workers: &workers{Retries: 1}, counts: &counts{},
			before: footprint{goroutines: 30, heap: 20 << 20}, after: footprint{goroutines: 31, heap: 21 << 20},
		}
		f.calm.add(place{}, reply{fate: answered, prompt: 100, cached: 90})
		f.storm.add(place{}, reply{fate: answered, prompt: 100, cached: 88})
		f.storm.add(place{}, reply{fate: left})
		f.storm.add(place{}, reply{fate: refused})
		f.storm.add(place{}, reply{fate: broken, why: errors.New("unexpected EOF")})
		f.counts.kills.Add(1)
		f.counts.flaps.Add(1)
		f.counts.changes.Add(1)
		return f
	}
	if err := good().verdict(&strings.Builder{}); err != nil {
		t.Errorf("verdict(all well) = %v", err)
	}
	for _, row := range []struct {
		what  string
		spoil func(*findings)
	}{
		{"errors in the calm", func(f *findings) { f.calm.add(place{}, reply{fate: broken, why: errEarly}) }},
		{"errors in the storm", func(f *findings) { f.storm.add(place{}, reply{fate: failed, why: errEarly}) }},
		{"requests still running there", func(f *findings) { f.running = 1 }},
		{"goroutines before, after", func(f *findings) { f.after.goroutines = 100 }},
		{"heap before, after", func(f *findings) { f.after.heap = 100 << 20 }},
		{"panics and reflect in the log", func(f *findings) { f.log = "fine\nreflect: call of ...\nfine" }},
		{"hit ratio of 1 common requests", func(f *findings) { f.storm.add(place{}, reply{fate: answered, prompt: 100, cached: 80}) }},
		{"retried on another replica", func(f *findings) { f.workers.Retries = 0 }},
		{"kills, flaps", func(f *findings) { f.counts.kills.Store(0) }},
	} {
		f := good()
		row.spoil(f)
		if err := f.verdict(&strings.Builder{}); err == nil || !strings.Contains(err.Error(), row.what) {
			t.Errorf("verdict() = %v, want it to name %q", err, row.what)
		}
	}
}

func TestDuration_readsDUR(t *testing.T) {
	for _, row := range []struct {
		text string
		want time.Duration
	}{{"", 3 * time.Minute}, {"20s", 20 * time.Second}, {"5s", 0}, {"x", 0}, {"180", 0}} {
		got, err := duration(row.text)
		if got != row.want || (err == nil) != (row.want > 0) {
			t.Errorf("duration(%q) = %v, %v, want %v", row.text, got, err, row.want)
		}
	}
}
