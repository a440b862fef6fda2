package check

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// asker sends requests.
type asker struct {
	base   string // address of an entry point
	prefix string // in place of /v1
	host   string
	header http.Header
	client *http.Client
}

// answer is what came back.
type answer struct {
	status int
	header http.Header
	body   []byte
}

var plain = &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

func (a asker) send(method, path string, body []byte) (answer, error) {
	req, err := http.NewRequest(method, a.base+path, bytes.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	for name, values := range a.header {
		req.Header[name] = values
	}
	req.Host = a.host
	client := a.client
	if client == nil {
		client = plain
	}
	resp, err := client.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	content, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, content}, err
}

// try asks a question with a long beginning of its own and returns the replica that answered.
func (a asker) try(topic string) (peer string, err error) {
	body, err := json.Marshal(map[string]any{"model": "sim", "max_tokens": 4, "messages": []map[string]string{
		{"role": "system", "content": strings.Repeat(topic+" is what this is about. ", 100)},
		{"role": "user", "content": "What is it about?"},
	}})
	if err != nil {
		return "", err
	}
	path := a.prefix
	if path == "" {
		path = "/v1"
	}
	got, err := a.send(http.MethodPost, path+"/chat/completions", body)
	if err != nil {
		return "", err
	}
	var completion struct {
		Choices []struct {
			Message struct{ Content string }
		}
	}
	if err := json.Unmarshal(got.body, &completion); got.status != http.StatusOK || err != nil || len(completion.Choices) != 1 ||
		completion.Choices[0].Message.Content == "" {
		return "", fmt.Errorf("POST %s%s/chat/completions = %d %.300s, want an answer", a.base, path, got.status, got.body)
	}
	return got.header.Get("X-Routed-Peer"), nil
}

// chat waits for an answer and asks again: CART sends both to the same replica.
func (a asker) chat(t *testing.T, topic string) (peer string) {
	t.Helper()
	eventually(t, func() error {
		var err error
		peer, err = a.try(topic)
		return err
	})
	again, err := a.try(topic)
	if err != nil {
		t.Fatal(err)
	}
	if peer == "" || again != peer {
		t.Errorf("the second time %q answered, the first time %q: want one replica", again, peer)
	}
	return peer
}

// reaches asks about new topics until each of these replicas has answered one.
func (a asker) reaches(t *testing.T, urls ...string) {
	t.Helper()
	missing := map[string]bool{}
	for _, url := range urls {
		missing[url] = true
	}
	n := 0
	eventually(t, func() error {
		for range 8 {
			n++
			peer, err := a.try(fmt.Sprint("topic ", n))
			if err != nil {
				return err
			}
			delete(missing, peer)
		}
		if len(missing) > 0 {
			return fmt.Errorf("nothing came from %v after %d chats", missing, n)
		}
		return nil
	})
}
