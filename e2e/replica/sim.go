package replica

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
)

// serveSim answers /_sim/fault and /_sim/stats, on the replica's own port and on that of Options.Control. These requests
// are neither recorded nor hit by faults.
func (r *Replica) serveSim(w http.ResponseWriter, q *http.Request) {
	switch q.Method + " " + q.URL.Path {
	case "POST /_sim/fault":
		body, _ := io.ReadAll(q.Body) // a broken body fails to decode
		list, err := decodeFaults(body)
		if err == nil {
			err = r.SetFault(list...)
		}
		if err != nil {
			writeJSON(w, http.StatusBadRequest, object{"error": err.Error()})
			return
		}
		w.WriteHeader(http.StatusNoContent)
	case "DELETE /_sim/fault":
		if err := r.ClearFault(); err != nil {
			writeJSON(w, http.StatusInternalServerError, object{"error": err.Error()})
			return
		}
		w.WriteHeader(http.StatusNoContent)
	case "GET /_sim/stats":
		writeJSON(w, http.StatusOK, r.simStats(q.URL.Query().Get("exchanges")))
	default:
		writeJSON(w, http.StatusNotFound, object{"detail": "Not Found"})
	}
}

// decodeFaults reads one fault or a list of them.
func decodeFaults(body []byte) ([]Fault, error) {
	if body = bytes.TrimSpace(body); len(body) > 0 && body[0] == '[' {
		var list []Fault
		return list, json.Unmarshal(body, &list)
	}
	var one Fault
	err := json.Unmarshal(body, &one)
	return []Fault{one}, err
}

// simStats is the body of GET /_sim/stats: the totals; with ?exchanges=1 the recent exchanges as well, with
// ?exchanges=bodies those with their bodies in base64.
func (r *Replica) simStats(exchanges string) any {
	if exchanges == "" {
		return r.Stats()
	}
	list := r.Requests()
	if exchanges != "bodies" {
		for i := range list {
			list[i].Body = nil
		}
	}
	return struct {
		Stats
		Exchanges []Exchange `json:"exchanges"`
	}{r.Stats(), list}
}
