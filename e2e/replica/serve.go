package replica

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// dialect is one of the four generation endpoints.
type dialect struct {
	prompts  func(q *request, perToken int) ([][]byte, error)
	whole    func(c *call, results []result) object
	stream   func(c *call, out *sse) transcript
	notFound func(message string) object // body of the answer to an unknown model
}

// transcript writes the events of one streamed answer.
type transcript interface {
	open(index int, u usage)
	token(index int, text string)
	end(r result)
	done(total usage)
}

// object is a JSON object.
type object = map[string]any

// generate serves a request whose body has been read.
func (p *process) generate(d *dialect, w http.ResponseWriter, r *http.Request, x *Exchange, body []byte) {
	c, err := p.engine.parse(d, body)
	if err != nil {
		writeJSON(w, http.StatusBadRequest, badRequest(err))
		return
	}
	if !p.serves(c.Model) {
		writeJSON(w, http.StatusNotFound, d.notFound("The model `"+c.Model+"` does not exist."))
		return
	}
	if sleep(r.Context(), p.opts.Overhead) != nil {
		return // the client is gone
	}
	var script transcript = silent{}
	if c.Stream {
		script = d.stream(c, startSSE(w))
	}
	results, err := c.run(r.Context(), script)
	p.r.rec.tokens(x, results)
	switch {
	case err != nil: // the client is gone
	case !c.Stream:
		writeJSON(w, http.StatusOK, d.whole(c, results))
	}
}

// run answers the prompts one after another.
func (c *call) run(ctx context.Context, script transcript) ([]result, error) {
	var results []result
	var total usage
	for i, s := range c.seqs {
		r, err := c.answer(ctx, i, s, script)
		results = append(results, r)
		if err != nil {
			return results, err
		}
		total = total.plus(r.usage)
	}
	script.done(total)
	return results, nil
}

func (c *call) answer(ctx context.Context, index int, s *sequence, script transcript) (result, error) {
	if err := s.open(ctx); err != nil {
		return result{index: index}, err
	}
	defer s.close()
	script.open(index, s.usage())
	var text strings.Builder
	for {
		token, more, err := s.next(ctx)
		r := result{index: index, text: text.String(), usage: s.usage(), length: c.limited(s)}
		if c.plan != nil {
			r.tool = c.plan.tool
		}
		if err != nil {
			return r, err
		}
		if !more {
			script.end(r)
			return r, nil
		}
		text.WriteString(token)
		script.token(index, token)
	}
}

// silent is the transcript of an answer that is sent as a whole.
type silent struct{}

func (silent) open(int, usage)   {}
func (silent) token(int, string) {}
func (silent) end(result)        {}
func (silent) done(usage)        {}

// sse writes server-sent events, each with one Write and a flush.
type sse struct {
	w http.ResponseWriter
	c *http.ResponseController
}

// startSSE sends the headers at once, as vLLM does: they are out before the request is admitted.
func startSSE(w http.ResponseWriter) *sse {
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	s := &sse{w: w, c: http.NewResponseController(w)}
	w.WriteHeader(http.StatusOK)
	s.flush()
	return s
}

// send writes one event; name is "" in the dialects whose events have none. SentField tells when it was written.
func (s *sse) send(name string, payload object) {
	payload[SentField] = time.Now().UnixNano()
	b, err := json.Marshal(payload)
	if err != nil {
		panic(err) // payloads are built from strings and numbers here
	}
	event := "data: " + string(b) + "\n\n"
	if name != "" {
		event = "event: " + name + "\n" + event
	}
	s.raw(event)
}

// raw ignores errors: a client that is gone shows in the context of its request.
func (s *sse) raw(event string) {
	_, _ = s.w.Write([]byte(event))
	s.flush()
}

func (s *sse) flush() { _ = s.c.Flush() }

// SentField is the member of each streamed event that holds the time it was written, in Unix nanoseconds.
const SentField = "x_sent_unix_nano"

func writeJSON(w http.ResponseWriter, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	writeBody(w, status, "application/json", b)
}

func writeBody(w http.ResponseWriter, status int, contentType string, body []byte) {
	if w.Header().Get("Content-Type") == "" {
		w.Header().Set("Content-Type", contentType)
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

// badRequest has the OpenAI shape in every dialect, /v1/messages included: so it is in vLLM.
func badRequest(err error) object {
	message := err.Error()
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		message = "[{'type': 'json_invalid', 'loc': ('body', " + strconv.FormatInt(syntax.Offset, 10) +
			"), 'msg': 'JSON decode error'}]"
	}
	return openAIError(http.StatusBadRequest, "BadRequestError", message)
}

func openAIError(code int, kind, message string) object {
	return object{"error": object{"message": message, "type": kind, "param": nil, "code": code}}
}

func openAINotFound(message string) object {
	return openAIError(http.StatusNotFound, "NotFoundError", message)
}
