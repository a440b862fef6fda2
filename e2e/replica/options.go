package replica

import "time"

// Options describe one simulated replica. The zero value is a fast, ordinary one: any model, no waiting, a cache of 8,192
// blocks.
type Options struct {
	// Name appears in answers of /_sim/stats and nowhere else. Default "replica".
	Name string

	// Addr is the host:port to listen on. Default "127.0.0.1:0", a free port.
	Addr string

	// Control is the host:port of a second listener that serves only /_sim, and goes on doing so while the first one
	// refuses connections or is dead. Default "", none.
	Control string

	// Models are the served model ids; a request that names another one gets a 404. Default none: any name is served, and
	// /v1/models lists "sim".
	Models []string

	// BlockTokens is the number of tokens in a cache block; only whole blocks are reused. Default 16.
	BlockTokens int

	// CacheTokens is the capacity of the KV cache in tokens, shared by running sequences and by what earlier ones left
	// behind. Default 131,072.
	CacheTokens int

	// CharsPerToken is the number of prompt bytes that make a token. Default 4.
	CharsPerToken int

	// Overhead is what a request for text takes before it is queued and before anything of its answer is sent. Default 0.
	Overhead time.Duration

	// PrefillRate is the number of uncached prompt tokens computed in a second, one sequence after another. Default 0, no
	// time at all.
	PrefillRate float64

	// DecodeRate is the number of tokens in a second each running sequence produces, each by itself. Default 0, no time at
	// all. It is not used when StepTime is set.
	DecodeRate float64

	// StepTime, if set, makes the engine work in steps, as real ones do: in each, every running sequence gets a token, and
	// the first of those that wait has at most ChunkTokens of its prompt computed. A step without such a chunk takes StepTime
	// and StepEach for every sequence that decodes, one with a chunk what PrefillRate says of the chunk. Default 0, no steps.
	StepTime time.Duration

	// StepEach is what a sequence that decodes adds to a step. Default 0.
	StepEach time.Duration

	// ChunkTokens bounds what a step computes of a prompt. Default 1,024.
	ChunkTokens int

	// MaxRunning is the number of sequences that run at once; further ones wait in order of arrival. Default 256.
	MaxRunning int

	// OutputTokens is the length of an answer when the request does not set one. Default 16.
	OutputTokens int
}

func (o Options) withDefaults() Options {
	if o.Name == "" {
		o.Name = "replica"
	}
	if o.Addr == "" {
		o.Addr = "127.0.0.1:0"
	}
	orDefault := func(field *int, value int) {
		if *field <= 0 {
			*field = value
		}
	}
	orDefault(&o.BlockTokens, 16)
	orDefault(&o.CacheTokens, 131072)
	orDefault(&o.CharsPerToken, 4)
	orDefault(&o.MaxRunning, 256)
	orDefault(&o.ChunkTokens, 1024)
	orDefault(&o.OutputTokens, 16)
	return o
}

// serves tells whether a request may name this model; an empty name stands for the default one.
func (o Options) serves(model string) bool {
	if model == "" || len(o.Models) == 0 {
		return true
	}
	for _, m := range o.Models {
		if m == model {
			return true
		}
	}
	return false
}

func (o Options) defaultModel() string {
	if len(o.Models) == 0 {
		return "sim"
	}
	return o.Models[0]
}
