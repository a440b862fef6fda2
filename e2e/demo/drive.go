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
	"sync"
	"time"
)

// front is where the conversations are sent.
type front struct {
	url    string
	client *http.Client
}

// requestTimeout bounds one turn, so that a fault ends the demo rather than stalls it.
const requestTimeout = 30 * time.Second

// drive has all conversations, as many at once as there are clients, and reports several times a second.
func drive(ctx context.Context, w *workload, to front, report func(*outcome)) *outcome {
	o := &outcome{begun: time.Now(), peers: map[string]int{}}
	next := make(chan *conversation)
	var wg sync.WaitGroup
	for i := 0; i < clients; i++ {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for talk := range next {
				to.converse(ctx, talk, o)
			}
		}()
	}
	stop, reported := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(reported)
		for tick := time.NewTicker(200 * time.Millisecond); ; {
			select {
			case <-tick.C:
				report(o)
			case <-stop:
				tick.Stop()
				return
			}
		}
	}()
	for _, talk := range w.list {
		if ctx.Err() == nil {
			next <- talk
		}
	}
	close(next)
	wg.Wait()
	close(stop)
	<-reported
	o.finish()
	return o
}

// converse takes the turns of one conversation; each waits for the answer before. A turn that fails ends it, and those that
// would have followed count as failed.
func (f front) converse(ctx context.Context, talk *conversation, o *outcome) {
	messages := []message{{"system", talk.system}}
	for i, says := range talk.says {
		select {
		case <-time.After(talk.thinks[i]):
		case <-ctx.Done():
			return
		}
		messages = append(messages, message{"user", says})
		a, err := f.ask(ctx, messages)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			o.fail(err, len(talk.says)-i)
			return
		}
		o.add(a)
		messages = append(messages, message{"assistant", a.text})
	}
}

// answer is what the client and the replica say of one turn.
type answer struct {
	text           string
	ttft           time.Duration // from sending to the first event with text
	peer           string        // the replica
	prompt, cached int           // tokens, as the replica counts them
}

func (f front) ask(ctx context.Context, messages []message) (*answer, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	url := f.url + "/v1/chat/completions"
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body(messages)))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	sent := time.Now()
	resp, err := f.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 300)) // the status is the error; this only explains it
		return nil, fmt.Errorf("%s: %s %s", url, resp.Status, bytes.TrimSpace(text))
	}
	a, err := readStream(resp.Body, sent)
	if err != nil {
		return nil, err
	}
	a.peer = resp.Header.Get("X-Routed-Peer")
	return a, nil
}

// chunk is the part of an event that counts here.
type chunk struct {
	Choices []struct {
		Delta struct {
			Content string `json:"content"`
		} `json:"delta"`
	} `json:"choices"`
	Usage *struct {
		PromptTokens        int `json:"prompt_tokens"`
		PromptTokensDetails struct {
			CachedTokens int `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
	} `json:"usage"`
}

func readStream(r io.Reader, sent time.Time) (*answer, error) {
	a := &answer{}
	done := false
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		data, isData := strings.CutPrefix(lines.Text(), "data: ")
		if !isData {
			continue
		}
		if data == "[DONE]" {
			done = true
			continue
		}
		var c chunk
		if err := json.Unmarshal([]byte(data), &c); err != nil {
			return nil, fmt.Errorf("event %q: %w", data, err)
		}
		for _, choice := range c.Choices {
			if choice.Delta.Content != "" && a.text == "" {
				a.ttft = time.Since(sent)
			}
			a.text += choice.Delta.Content
		}
		if c.Usage != nil {
			a.prompt, a.cached = c.Usage.PromptTokens, c.Usage.PromptTokensDetails.CachedTokens
		}
	}
	switch {
	case lines.Err() != nil:
		return nil, lines.Err()
	case !done || a.text == "" || a.prompt == 0:
		return nil, errors.New("the stream ended early")
	}
	return a, nil
}
