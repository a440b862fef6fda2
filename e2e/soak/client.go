package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// fate is what became of a request, as its client sees it.
type fate int

const (
	answered fate = iota // whole, with 200
	left                 // by the client itself, as planned
	refused              // nonsense, answered with 400
	broken               // after its first byte, by the death of the replica that answered: its own error
	failed               // anything else: an error that CART should have kept from the client
)

// patience bounds one request; nothing here takes as long by right.
const patience = 30 * time.Second

// plan is what a client does with a request.
type plan struct {
	stream bool
	leave  leaving
	body   []byte
	bad    bool // the body is no good
}

// leaving says when a client goes away.
type leaving int

const (
	stays leaving = iota
	leavesEarly
	leavesInTheMiddle
)

// reply is what a client has of its request.
type reply struct {
	fate           fate
	why            error // if it failed or broke
	prompt, cached int   // tokens, if it was answered
}

// send makes one request and judges what comes of it.
func (s *stage) send(ctx context.Context, d *dialect, p plan) reply {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if p.leave == leavesEarly {
		leave := time.AfterFunc(20*time.Millisecond, cancel)
		defer leave.Stop()
	}
	sent := time.Now()
	a, err := s.exchange(ctx, d, p)
	r := reply{prompt: a.prompt, cached: a.cached}
	switch {
	case p.leave != stays && (errors.Is(err, context.Canceled) || errors.Is(err, errLeft) || err == nil):
		r.fate = left
	case err == nil && p.bad:
		r.fate = refused
	case err == nil:
		r.fate = answered
	default:
		r.fate, r.why = s.judge(a, sent, err), err
	}
	return r
}

// judge tells the replicas' own errors from CART's. An answer that began and broke off is the replica's own if that one was
// killed meanwhile. Before the first byte every request can go to another replica, so there all errors are CART's.
func (s *stage) judge(a answer, sent time.Time, err error) fate {
	if !a.begun || a.status != http.StatusOK || errors.Is(err, context.DeadlineExceeded) {
		return failed
	}
	for _, p := range s.replicas {
		if p.url == a.peer && p.killedIn(sent.Add(-100*time.Millisecond), time.Now()) {
			return broken
		}
	}
	return failed
}

// answer is what came of a request.
type answer struct {
	begun          bool // its headers came
	status         int
	peer           string // the replica
	prompt, cached int    // tokens
}

var (
	errLeft  = errors.New("the client left")
	errEarly = errors.New("the answer ended early")
)

func (s *stage) exchange(ctx context.Context, d *dialect, p plan) (a answer, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.traefik.url+d.path, bytes.NewReader(p.body))
	if err != nil {
		return a, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := s.client.Do(req)
	if err != nil {
		return a, err
	}
	defer resp.Body.Close()
	a.begun, a.status, a.peer = true, resp.StatusCode, resp.Header.Get("X-Routed-Peer")
	want := http.StatusOK
	if p.bad {
		want = http.StatusBadRequest
	}
	if resp.StatusCode != want || a.peer == "" {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 300)) // the status is the error; this only explains it
		return a, fmt.Errorf("%s by %q, want %d by a replica: %s", resp.Status, a.peer, want, bytes.TrimSpace(text))
	}
	switch {
	case p.bad:
		_, err = io.Copy(io.Discard, resp.Body)
		return a, err
	case p.stream:
		return a, a.readStream(resp.Body, d, p.leave)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return a, err
	}
	return a, a.count(body)
}

// readStream reads the events up to the last one, or to the third if the client leaves in the middle.
func (a *answer) readStream(r io.Reader, d *dialect, leave leaving) error {
	lines := bufio.NewReader(r)
	var counted, last string
	for events := 0; ; {
		line, err := lines.ReadString('\n')
		if data, isData := strings.CutPrefix(line, "data: "); isData {
			events++
			last = data
			if strings.Contains(data, `"usage":{`) {
				counted = data
			}
			if leave == leavesInTheMiddle && events == 3 {
				return errLeft
			}
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
	}
	if !strings.Contains(last, d.end) {
		return fmt.Errorf("%w: its last event is %.200q", errEarly, last)
	}
	return a.count([]byte(counted))
}

// usage is how the four dialects count tokens.
type usage struct {
	Prompt        int `json:"prompt_tokens"`
	PromptDetails struct {
		Cached int `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
	Input        int `json:"input_tokens"`
	InputDetails struct {
		Cached int `json:"cached_tokens"`
	} `json:"input_tokens_details"`
	CacheRead int `json:"cache_read_input_tokens"` // not among the input tokens
}

func (a *answer) count(body []byte) error {
	var o struct {
		usage    `json:"usage"`
		Response struct {
			usage `json:"usage"`
		} `json:"response"`
	}
	if err := json.Unmarshal(body, &o); err != nil {
		return fmt.Errorf("%w: %w in %.200q", errEarly, err, body)
	}
	u := o.usage
	if u == (usage{}) {
		u = o.Response.usage
	}
	a.prompt = u.Prompt + u.Input + u.CacheRead
	a.cached = u.PromptDetails.Cached + u.InputDetails.Cached + u.CacheRead
	if a.prompt == 0 {
		return fmt.Errorf("%w: no tokens counted in %.200q", errEarly, body)
	}
	return nil
}
