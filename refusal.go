package cart

import (
	"encoding/json"
	"net/http"
	"strconv"
)

// refusal is an answer that CART makes itself because there is none from a replica.
type refusal struct {
	why     string // as counted and logged
	status  int
	kind    string // error type in OpenAI's dialect
	anthro  string // error type in Anthropic's dialect
	message string
	retry   int // seconds for Retry-After; 0 = none
}

// Why requests are refused.
const (
	refusedFull        = "all_full"
	refusedNone        = "no_replica"
	refusedTooLarge    = "body_too_large"
	refusedUpload      = "upload_broken"
	refusedSlowUpload  = "upload_timeout"
	refusedFailed      = "all_failed"
	refusedTimeout     = "timeout"
	refusedMedia       = "remote_media"
	refusedUninspected = "not_inspected"
)

var refusals = map[string]*refusal{
	refusedFull: {refusedFull, http.StatusServiceUnavailable, "server_error", "overloaded_error",
		"all replicas are at their maxLoad; try again", 1},
	refusedNone: {refusedNone, http.StatusServiceUnavailable, "server_error", "overloaded_error",
		"no replica is usable, or none is configured; try again", 1},
	refusedTooLarge: {refusedTooLarge, http.StatusRequestEntityTooLarge, "invalid_request_error", "request_too_large",
		"the request body is larger than proxy.maxBodyBytes allows", 0},
	refusedUpload: {refusedUpload, http.StatusBadRequest, "invalid_request_error", "invalid_request_error",
		"the request body ended early", 0},
	refusedSlowUpload: {refusedSlowUpload, http.StatusRequestTimeout, "invalid_request_error", "invalid_request_error",
		"the request body did not arrive in time", 0},
	refusedFailed: {refusedFailed, http.StatusBadGateway, "server_error", "api_error",
		"no replica answered the request", 0},
	refusedTimeout: {refusedTimeout, http.StatusGatewayTimeout, "server_error", "timeout_error",
		"no replica answered the request in time", 0},
	refusedMedia: {refusedMedia, http.StatusUnprocessableEntity, "invalid_request_error", "invalid_request_error",
		"media have to be sent as data URLs here", 0},
	refusedUninspected: {refusedUninspected, http.StatusUnsupportedMediaType, "invalid_request_error", "invalid_request_error",
		"remote media are refused here, so a body has to be plain JSON", 0},
}

// openAIError and anthropicError are the errors' shapes on the wire.
type openAIError struct {
	Error openAIDetail `json:"error"`
}

type openAIDetail struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    string  `json:"code"`
}

type anthropicError struct {
	Type  string          `json:"type"`
	Error anthropicDetail `json:"error"`
}

type anthropicDetail struct {
	Type    string `json:"type"`
	Message string `json:"message"`
}

// refuse answers in the dialect of the endpoint, and counts and logs it.
func refuse(p *pool, rw http.ResponseWriter, e endpoint, r *refusal) {
	p.mu.Lock()
	p.refused[r.why]++
	log, set := p.log, p.set
	p.mu.Unlock()
	pairs := []interface{}{"pool", p.name, "why", r.why, "status", r.status, "message", r.message}
	switch r.why {
	case refusedTooLarge:
		pairs = append(pairs, "maxBodyBytes", set.maxBody)
	case refusedFull:
		pairs = append(pairs, "maxLoad", set.maxLoad)
	}
	log.print(levelWarn, "request refused", pairs...)

	var body []byte
	if e == endpointMessages {
		body, _ = json.Marshal(anthropicError{Type: "error", Error: anthropicDetail{Type: r.anthro, Message: r.message}})
	} else {
		body, _ = json.Marshal(openAIError{Error: openAIDetail{Message: r.message, Type: r.kind, Code: r.why}})
	}
	head := rw.Header()
	head.Set("Content-Type", "application/json")
	head.Set("Content-Length", strconv.Itoa(len(body)))
	if r.retry > 0 {
		head.Set("Retry-After", strconv.Itoa(r.retry))
	}
	rw.WriteHeader(r.status)
	rw.Write(body)
}
