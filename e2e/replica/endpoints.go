package replica

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net/http"
	"strings"
	"time"
)

// generation are the endpoints that make text.
var generation = map[string]*dialect{
	"/v1/chat/completions": &chat,
	"/v1/completions":      &completions,
	"/v1/messages":         &messages,
	"/v1/responses":        &responses,
}

// serve is the handler of a process: it records the request, lets it meet a fault, and answers it.
func (p *process) serve(w http.ResponseWriter, r *http.Request) {
	if strings.HasPrefix(r.URL.Path, "/_sim/") {
		p.r.serveSim(w, r)
		return
	}
	_, load := generation[r.URL.Path]
	load = load || r.URL.Path == "/v1/embeddings"
	x := p.r.rec.begin(r, load)
	seen := &statusWriter{ResponseWriter: w}
	cut := false // by this side, which cancels the context too
	defer func() {
		aborted := r.Context().Err() != nil && !cut && !p.isKilled()
		p.r.rec.end(x, load, seen.status, aborted)
	}()
	w = seen

	f := p.r.faults.pick(r.URL.Path, nil, false)
	if f != nil {
		cut = true
		p.cutBody(f, r, x)
	}
	body, err := io.ReadAll(r.Body)
	p.r.rec.body(x, body, r.Trailer)
	if err != nil {
		return // the client is gone
	}
	if f := p.r.faults.pick(r.URL.Path, body, true); f != nil {
		cut = f.Kind == Cut
		if w = p.meet(f, w, r); w == nil {
			return
		}
	}
	p.answer(w, r, x, body)
}

func (p *process) cutBody(f *Fault, r *http.Request, x *Exchange) {
	body, _ := io.ReadAll(io.LimitReader(r.Body, int64(f.Bytes)))
	p.r.rec.body(x, body, nil)
	resetConn(r)
}

// endpoint answers one path.
type endpoint struct {
	method string
	serve  func(w http.ResponseWriter, r *http.Request, x *Exchange, body []byte)
}

func (p *process) answer(w http.ResponseWriter, r *http.Request, x *Exchange, body []byte) {
	e, known := p.endpoints[r.URL.Path]
	switch {
	case !known:
		writeJSON(w, http.StatusNotFound, object{"detail": "Not Found"})
	case r.Method == e.method || r.Method == http.MethodHead && e.method == http.MethodGet:
		e.serve(w, r, x, body)
	default:
		w.Header().Set("Allow", e.method)
		writeJSON(w, http.StatusMethodNotAllowed, object{"detail": "Method Not Allowed"})
	}
}

// table returns the endpoints by path.
func (p *process) table() map[string]endpoint {
	get := func(serve func(w http.ResponseWriter, r *http.Request)) endpoint {
		return endpoint{http.MethodGet, func(w http.ResponseWriter, r *http.Request, _ *Exchange, _ []byte) { serve(w, r) }}
	}
	all := map[string]endpoint{
		"/health":             get(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }),
		"/v1/models":          get(func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, http.StatusOK, p.models()) }),
		"/metrics":            get(func(w http.ResponseWriter, _ *http.Request) { p.metrics(w) }),
		"/v1/realtime":        get(echoWebSocket),
		"/reset_prefix_cache": {http.MethodPost, p.resetCache},
		"/v1/embeddings":      {http.MethodPost, p.embed},
		"/tokenize":           {http.MethodPost, p.tokenize},
		"/sleep":              {http.MethodPost, p.resetCache}, // nothing that was cached outlives it

		"/v1/messages/count_tokens": {http.MethodPost, p.countTokens},
		"/v1/load_lora_adapter":     {http.MethodPost, p.loadAdapter},
		"/v1/unload_lora_adapter":   {http.MethodPost, p.unloadAdapter},
	}
	for path, d := range generation {
		all[path] = endpoint{http.MethodPost, func(w http.ResponseWriter, r *http.Request, x *Exchange, body []byte) {
			p.generate(d, w, r, x, body)
		}}
	}
	return all
}

func (p *process) resetCache(w http.ResponseWriter, _ *http.Request, _ *Exchange, _ []byte) {
	p.engine.reset()
	w.WriteHeader(http.StatusOK)
}

func (p *process) models() object {
	ids := p.opts.Models
	if len(ids) == 0 {
		ids = []string{p.opts.defaultModel()}
	}
	list := []object{}
	for _, id := range append(append([]string(nil), ids...), p.adapters.names()...) {
		list = append(list, object{
			"id": id, "object": "model", "created": p.started.Unix(), "owned_by": "vllm", "root": id, "parent": nil,
			"max_model_len": p.opts.CacheTokens,
		})
	}
	return object{"object": "list", "data": list}
}

const dimensions = 64 // of an embedding

func (p *process) embed(w http.ResponseWriter, _ *http.Request, x *Exchange, body []byte) {
	var q request
	inputs, err := [][]byte(nil), json.Unmarshal(body, &q)
	if err == nil {
		inputs, err = completionPrompts(q.Input, p.opts.CharsPerToken)
	}
	if err != nil {
		writeJSON(w, http.StatusBadRequest, badRequest(errors.New(strings.Replace(err.Error(), "prompt", "input", 1))))
		return
	}
	if !p.serves(q.Model) {
		writeJSON(w, http.StatusNotFound, openAINotFound("The model `"+q.Model+"` does not exist."))
		return
	}
	data, tokens := []object{}, 0
	for i, text := range inputs {
		data = append(data, object{"index": i, "object": "embedding", "embedding": q.encoded(embedding(text))})
		tokens += (len(text) + p.opts.CharsPerToken - 1) / p.opts.CharsPerToken
	}
	p.r.rec.tokens(x, []result{{usage: usage{prompt: tokens}}})
	writeJSON(w, http.StatusOK, object{
		"id": "embd-" + newID(), "object": "list", "created": time.Now().Unix(), "model": q.Model, "data": data,
		"usage": object{"prompt_tokens": tokens, "total_tokens": tokens, "completion_tokens": 0},
	})
}

// encoded is an embedding as the request wants it: OpenAI's SDKs ask for base64 unless told otherwise.
func (q *request) encoded(v []float64) any {
	if q.EncodingFormat != "base64" {
		return v
	}
	var b []byte
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(x)))
	}
	return base64.StdEncoding.EncodeToString(b)
}

// countTokens is what Anthropic's clients ask before they send a prompt.
func (p *process) countTokens(w http.ResponseWriter, _ *http.Request, _ *Exchange, body []byte) {
	var q request
	var text []byte
	err := json.Unmarshal(body, &q)
	if err == nil {
		text, err = chatPrompt(&q)
	}
	if err != nil {
		writeJSON(w, http.StatusBadRequest, badRequest(err))
		return
	}
	perToken := p.opts.CharsPerToken
	writeJSON(w, http.StatusOK, object{"input_tokens": (len(text) + perToken - 1) / perToken})
}

// tokenize answers for a prompt or a chat; an id is a hash of the token's bytes.
func (p *process) tokenize(w http.ResponseWriter, _ *http.Request, _ *Exchange, body []byte) {
	var q request
	var text []byte
	err := json.Unmarshal(body, &q)
	if err == nil && present(q.Messages) {
		text, err = chatPrompt(&q)
	} else if err == nil {
		var s string
		err = json.Unmarshal(q.Prompt, &s)
		text = []byte(s)
	}
	if err != nil {
		writeJSON(w, http.StatusBadRequest, badRequest(err))
		return
	}
	ids := []uint64{}
	for r := bytes.NewBuffer(text); r.Len() > 0; {
		ids = append(ids, seedOf(r.Next(p.opts.CharsPerToken))%32000)
	}
	writeJSON(w, http.StatusOK, object{"count": len(ids), "max_model_len": p.opts.CacheTokens, "tokens": ids})
}

// statusWriter notes the status of an answer.
type statusWriter struct {
	http.ResponseWriter
	status int
}

func (s *statusWriter) WriteHeader(status int) {
	if s.status == 0 {
		s.status = status
	}
	s.ResponseWriter.WriteHeader(status)
}

func (s *statusWriter) Unwrap() http.ResponseWriter { return s.ResponseWriter }
