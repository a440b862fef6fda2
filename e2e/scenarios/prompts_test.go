package scenarios

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strings"
)

// chat is an OpenAI chat that can grow.
type chat struct {
	Model     string    `json:"model"`
	Messages  []message `json:"messages"`
	MaxTokens int       `json:"max_tokens"`
	Stream    bool      `json:"stream,omitempty"`
}

type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// newChat returns a chat with a system prompt of 2 KB that no chat of another name begins with.
func newChat(name string) *chat {
	return &chat{Model: "sim", MaxTokens: 4, Messages: []message{
		{"system", text(name, 2000)}, {"user", "Question 1 of " + name},
	}}
}

// grown returns the chat one turn longer.
func (c *chat) grown(reply string) *chat {
	next := *c
	question := fmt.Sprintf("Question %d: %s", len(c.Messages)/2+1, text(reply, 60))
	next.Messages = append(append([]message(nil), c.Messages...), message{"assistant", reply}, message{"user", question})
	return &next
}

// stream returns the chat with a streamed answer.
func (c *chat) stream() *chat {
	next := *c
	next.Stream = true
	return &next
}

// tokens returns the chat with an answer of that length.
func (c *chat) tokens(n int) *chat {
	next := *c
	next.MaxTokens = n
	return &next
}

func (c *chat) body() []byte {
	b, err := json.Marshal(c)
	if err != nil {
		panic(err) // texts and numbers always encode
	}
	return b
}

// reply is the text of a chat's answer.
func reply(a answer) string {
	var got struct {
		Choices []struct {
			Message message
		}
	}
	if json.Unmarshal(a.body, &got) != nil || len(got.Choices) == 0 {
		return ""
	}
	return got.Choices[0].Message.Content
}

var words = strings.Fields("the of and to in is that for it as was with be by on not he his but at are this have from or " +
	"had an they which one you were all her she there would their we him been has when who will no more if out so")

// text returns n bytes of words, the same for the same name and others from the first byte on for another one.
func text(name string, n int) string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name))
	random := rand.New(rand.NewPCG(h.Sum64(), 1))
	var b strings.Builder
	fmt.Fprintf(&b, "%016x", random.Uint64())
	for b.Len() < n {
		b.WriteByte(' ')
		b.WriteString(words[random.IntN(len(words))])
	}
	return b.String()[:n]
}
