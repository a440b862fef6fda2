package replica

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"
)

// The kinds of faults.
const (
	Refuse     = "refuse"     // new connections are refused, idle ones closed; Path, Match and Count mean nothing here
	Hang       = "hang"       // the request is read and never answered
	HangHealth = "hangHealth" // Hang for GET /health
	Cut        = "cut"        // the connection is reset after Events events or Bytes bytes of the answer
	CutBody    = "cutBody"    // the connection is reset after Bytes bytes of the request; Match means nothing here
	Slow       = "slow"       // Delay before the headers, EventDelay before each event
	Status     = "status"     // the answer is Status, Headers and Body
)

// Fault is a failure on command. Several can be set at once; the first that fits a request is the one it meets.
type Fault struct {
	// Kind is one of the constants above.
	Kind string

	// Path is the exact path of the requests to hit, "*" for all. Default: the generation endpoints and /v1/embeddings.
	Path string

	// Match is a text the body of a request must contain to be hit. Default "", any body.
	Match string

	// Count is the number of requests to hit before the fault is gone. Default 0, without end.
	Count int

	// For ends the fault after a time. Default 0, it stays until it is cleared.
	For time.Duration

	// Events and Bytes say where Cut and CutBody cut: after this many writes (one event each), or in the midst of a write
	// after this many bytes. Both 0: before the first byte, headers included.
	Events, Bytes int

	// Delay and EventDelay belong to Slow.
	Delay, EventDelay time.Duration

	// Status, Headers and Body belong to Status; the default status is 500, the default body an error as vLLM writes it.
	Status  int
	Headers map[string]string
	Body    string
}

// faults is the list in force.
type faults struct {
	onRefuse func(on bool) error // called without the lock

	change  sync.Mutex // held over a change and its onRefuse, so that these do not cross
	mu      sync.Mutex
	list    []*armed
	refused bool
}

type armed struct {
	Fault
	left  int // requests still to hit, when Count is set
	timer *time.Timer
}

// SetFault replaces all faults by these.
func (r *Replica) SetFault(list ...Fault) error {
	for _, f := range list {
		if err := f.validate(); err != nil {
			return err
		}
	}
	return r.faults.set(list)
}

// ClearFault ends all faults. Requests that hang already go on hanging. The error, if any, is that of listening again.
func (r *Replica) ClearFault() error { return r.faults.set(nil) }

func (f *faults) set(list []Fault) error {
	f.change.Lock()
	defer f.change.Unlock()
	f.mu.Lock()
	for _, a := range f.list {
		if a.timer != nil {
			a.timer.Stop()
		}
	}
	f.list = nil
	for _, one := range list {
		a := &armed{Fault: one, left: one.Count}
		if one.For > 0 {
			a.timer = time.AfterFunc(one.For, func() { f.expire(a) })
		}
		f.list = append(f.list, a)
	}
	return f.settleLocked()
}

// settleLocked releases f.mu, then tells of a change in refusing connections.
func (f *faults) settleLocked() error {
	now := false
	for _, a := range f.list {
		now = now || a.Kind == Refuse
	}
	changed := now != f.refused
	f.refused = now
	f.mu.Unlock()
	if !changed {
		return nil
	}
	return f.onRefuse(now)
}

func (f *faults) expire(gone *armed) {
	f.change.Lock()
	defer f.change.Unlock()
	f.mu.Lock()
	f.removeLocked(gone)
	_ = f.settleLocked() // a replica that cannot listen again stays unreachable, which its user will notice
}

func (f *faults) removeLocked(gone *armed) {
	for i, a := range f.list {
		if a == gone {
			f.list = append(f.list[:i:i], f.list[i+1:]...)
			return
		}
	}
}

func (f *faults) refusing() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.refused
}

// pick returns the fault a request meets, if any. It is asked twice: before the body is read, for CutBody alone, and after.
func (f *faults) pick(path string, body []byte, read bool) *Fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, a := range f.list {
		if a.Kind == Refuse || (a.Kind == CutBody) == read || !a.hits(path, body) {
			continue
		}
		if a.Count > 0 {
			a.left--
			if a.left == 0 {
				f.removeLocked(a)
			}
		}
		one := a.Fault
		return &one
	}
	return nil
}

func (f *Fault) hits(path string, body []byte) bool {
	switch {
	case f.Kind == HangHealth:
		return path == "/health"
	case f.Path == "":
		if _, ok := generation[path]; !ok && path != "/v1/embeddings" {
			return false
		}
	case f.Path != "*" && f.Path != path:
		return false
	}
	return f.Kind == CutBody || bytes.Contains(body, []byte(f.Match))
}

func (f *Fault) validate() error {
	switch f.Kind {
	case Refuse, Hang, HangHealth, Cut, CutBody, Slow:
		return nil
	case Status:
		if f.Status != 0 && (f.Status < 200 || f.Status > 599) {
			return fmt.Errorf("fault: status %d: allowed are 200 to 599", f.Status)
		}
		return nil
	}
	return fmt.Errorf("fault: unknown kind %q", f.Kind)
}

// faultJSON is a Fault on the wire: durations are texts such as "50ms".
type faultJSON struct {
	Kind       string            `json:"kind"`
	Path       string            `json:"path,omitempty"`
	Match      string            `json:"match,omitempty"`
	Count      int               `json:"count,omitempty"`
	For        string            `json:"for,omitempty"`
	Events     int               `json:"events,omitempty"`
	Bytes      int               `json:"bytes,omitempty"`
	Delay      string            `json:"delay,omitempty"`
	EventDelay string            `json:"eventDelay,omitempty"`
	Status     int               `json:"status,omitempty"`
	Headers    map[string]string `json:"headers,omitempty"`
	Body       string            `json:"body,omitempty"`
}

// MarshalJSON writes the form that POST /_sim/fault reads.
func (f Fault) MarshalJSON() ([]byte, error) {
	text := func(d time.Duration) string {
		if d == 0 {
			return ""
		}
		return d.String()
	}
	return json.Marshal(faultJSON{
		Kind: f.Kind, Path: f.Path, Match: f.Match, Count: f.Count, For: text(f.For), Events: f.Events, Bytes: f.Bytes,
		Delay: text(f.Delay), EventDelay: text(f.EventDelay), Status: f.Status, Headers: f.Headers, Body: f.Body,
	})
}

// UnmarshalJSON is the inverse of MarshalJSON; unknown members are errors.
func (f *Fault) UnmarshalJSON(b []byte) error {
	var j faultJSON
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&j); err != nil {
		return fmt.Errorf("fault: %w", err)
	}
	var errs []error
	duration := func(s string) time.Duration {
		if s == "" {
			return 0
		}
		d, err := time.ParseDuration(s)
		errs = append(errs, err)
		return d
	}
	*f = Fault{
		Kind: j.Kind, Path: j.Path, Match: j.Match, Count: j.Count, For: duration(j.For), Events: j.Events, Bytes: j.Bytes,
		Delay: duration(j.Delay), EventDelay: duration(j.EventDelay), Status: j.Status, Headers: j.Headers, Body: j.Body,
	}
	return errors.Join(errs...)
}
