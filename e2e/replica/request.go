package replica

import (
	"encoding/json"
	"errors"
	"math"
	"time"
)

// request holds the members of all four dialects that matter here; each dialect reads its own.
type request struct {
	Model         string `json:"model"`
	Stream        bool   `json:"stream"`
	StreamOptions *struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
	CacheSalt string `json:"cache_salt"`

	MaxTokens           *int `json:"max_tokens"`
	MaxCompletionTokens *int `json:"max_completion_tokens"`
	MaxOutputTokens     *int `json:"max_output_tokens"`

	Tools        json.RawMessage `json:"tools"`
	System       json.RawMessage `json:"system"`
	Messages     json.RawMessage `json:"messages"`
	Instructions json.RawMessage `json:"instructions"`
	Input        json.RawMessage `json:"input"`
	Prompt       json.RawMessage `json:"prompt"`

	ToolChoice     json.RawMessage `json:"tool_choice"`
	ResponseFormat json.RawMessage `json:"response_format"`
	Text           json.RawMessage `json:"text"`
	OutputConfig   json.RawMessage `json:"output_config"`

	EncodingFormat string `json:"encoding_format"`
}

// call is a request made ready to be run: one sequence for each prompt.
type call struct {
	request
	id      string
	created int64 // Unix seconds
	plan    *plan // nil: any words
	seqs    []*sequence
}

// result is what became of one prompt.
type result struct {
	index  int
	text   string
	usage  usage
	length bool   // the answer ended at the length that was asked for
	tool   string // whose arguments the text is, "" for plain text
}

// usage counts tokens.
type usage struct {
	prompt, cached, answer int
}

func (s *sequence) usage() usage {
	return usage{prompt: s.prompt, cached: s.cached, answer: s.done}
}

func (u usage) plus(v usage) usage {
	return usage{prompt: u.prompt + v.prompt, cached: u.cached + v.cached, answer: u.answer + v.answer}
}

// parse decodes a body and builds its prompts.
func (e *engine) parse(d *dialect, body []byte) (*call, error) {
	c := &call{created: time.Now().Unix()}
	if err := json.Unmarshal(body, &c.request); err != nil {
		return nil, err
	}
	want := e.opts.OutputTokens
	for _, n := range []*int{c.MaxTokens, c.MaxCompletionTokens, c.MaxOutputTokens} {
		if n != nil {
			want = *n
		}
	}
	if want < 1 {
		return nil, errors.New("max_tokens: at least 1 is required")
	}
	prompts, err := d.prompts(&c.request, e.opts.CharsPerToken)
	if err != nil {
		return nil, err
	}
	if c.plan, err = planned(&c.request); err != nil {
		return nil, err
	}
	if c.plan != nil && !c.setsLength() {
		want = math.MaxInt // all that is planned
	}
	if c.Model == "" {
		c.Model = e.opts.defaultModel()
	}
	space := c.Model + "\x00" + c.CacheSalt + "\x00"
	for _, p := range prompts {
		s := e.sequence(space, p, want, c.plan)
		if !s.fits() {
			return nil, errTooLong
		}
		c.seqs = append(c.seqs, s)
	}
	c.id = newID()
	return c, nil
}

// limited tells whether the answer of a sequence ends at the length that the request set.
func (c *call) limited(s *sequence) bool {
	if c.plan != nil {
		return s.want < len(s.script)
	}
	return c.setsLength()
}

func (c *call) setsLength() bool {
	return c.MaxTokens != nil || c.MaxCompletionTokens != nil || c.MaxOutputTokens != nil
}

func (c *call) wantsUsage() bool { return c.StreamOptions != nil && c.StreamOptions.IncludeUsage }

// calls tells whether the answer is a call of a tool.
func (c *call) calls() bool { return c.plan != nil && c.plan.tool != "" }
