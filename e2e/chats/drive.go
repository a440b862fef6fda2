package chats

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

// Target is what the conversations are led through.
type Target struct {
	URL  string
	Host string // the Host header, "" = that of the address
}

// Turn is what came of one question.
type Turn struct {
	Begun  time.Time
	First  time.Duration // until the first event of the answer
	Whole  time.Duration // until its end
	Prompt int           // tokens, as the replica told
	Cached int           // of these
	Peer   string        // the replica, if the answer named it in x-routed-peer
	Err    error
}

// answerLimit bounds a turn: a replica that has lost it is not to hold up the run.
const answerLimit = 5 * time.Minute

// Drive leads the conversations, so many at a time, and returns all turns. A conversation with an error is given up.
// It returns early, with what there is, when ctx ends.
func Drive(ctx context.Context, t Target, talks []Talk, atOnce int) []Turn {
	transport := &http.Transport{MaxIdleConnsPerHost: atOnce, DisableCompression: true, WriteBufferSize: 64 << 10}
	defer transport.CloseIdleConnections()
	next := make(chan Talk)
	var mu sync.Mutex
	var turns []Turn
	var clients sync.WaitGroup
	for range atOnce {
		clients.Add(1)
		go func() {
			defer clients.Done()
			for talk := range next {
				lead(ctx, transport, t, talk, func(one Turn) {
					mu.Lock()
					defer mu.Unlock()
					turns = append(turns, one)
				})
			}
		}()
	}
	for _, talk := range talks {
		if ctx.Err() != nil {
			break
		}
		next <- talk // a client takes it soon, for all give up when ctx ends
	}
	close(next)
	clients.Wait()
	return turns
}

type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

func lead(ctx context.Context, transport *http.Transport, t Target, talk Talk, tell func(Turn)) {
	messages := []message{{"system", talk.System}}
	for _, question := range talk.Questions {
		if ctx.Err() != nil {
			return
		}
		messages = append(messages, message{"user", question})
		turn, answer := ask(ctx, transport, t, messages)
		if ctx.Err() != nil {
			return // what was cut off by the end of the run says nothing
		}
		tell(turn)
		if turn.Err != nil {
			return
		}
		messages = append(messages, message{"assistant", answer})
	}
}

// ask has one question answered.
func ask(ctx context.Context, transport *http.Transport, t Target, messages []message) (turn Turn, answer string) {
	body, err := json.Marshal(map[string]any{
		"model": Model, "messages": messages, "max_tokens": AnswerTokens, "temperature": 0, "stream": true,
		"stream_options": map[string]any{"include_usage": true},
	})
	turn.Begun = time.Now()
	if err == nil {
		answer, err = turn.exchange(ctx, transport, t, body)
	}
	turn.Whole = time.Since(turn.Begun)
	turn.Err = err
	return turn, answer
}

// Model is the name of the model that is asked for.
const Model = "tiny"

func (u *Turn) exchange(ctx context.Context, transport *http.Transport, t Target, body []byte) (answer string, err error) {
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, t.URL+"/v1/chat/completions", bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	req.Host = t.Host
	req.Header.Set("Content-Type", "application/json")
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	u.Peer = resp.Header.Get("X-Routed-Peer")
	if resp.StatusCode != http.StatusOK {
		said, _ := io.ReadAll(io.LimitReader(resp.Body, 300)) // for the message only
		return "", fmt.Errorf("answer %s %s", resp.Status, said)
	}
	return u.read(resp.Body)
}

// chunk is an event of a streamed chat.
type chunk struct {
	Choices []struct {
		Delta struct{ Content string }
	}
	Usage *struct {
		Prompt  int `json:"prompt_tokens"`
		Details struct {
			Cached int `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
	}
	Error json.RawMessage
}

// read reads a stream to its end.
func (u *Turn) read(stream io.Reader) (answer string, err error) {
	var text bytes.Buffer
	counted, ended := false, false
	lines := bufio.NewScanner(stream)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		data, ok := bytes.CutPrefix(lines.Bytes(), []byte("data:"))
		if data = bytes.TrimSpace(data); !ok {
			continue
		}
		if string(data) == "[DONE]" {
			ended = true
			continue
		}
		if u.First == 0 {
			u.First = time.Since(u.Begun)
		}
		var c chunk
		if err := json.Unmarshal(data, &c); err != nil {
			return "", fmt.Errorf("event %.200q: %w", data, err)
		}
		if len(c.Error) > 0 {
			return "", fmt.Errorf("the stream tells of an error: %.300s", c.Error)
		}
		for _, choice := range c.Choices {
			text.WriteString(choice.Delta.Content)
		}
		if c.Usage != nil {
			counted = true
			u.Prompt, u.Cached = c.Usage.Prompt, c.Usage.Details.Cached
		}
	}
	if err := lines.Err(); err != nil {
		return "", fmt.Errorf("after %d characters: %w", text.Len(), err)
	}
	if !ended || !counted {
		return "", errors.New("the stream ended without its last event or without usage")
	}
	return text.String(), nil
}
