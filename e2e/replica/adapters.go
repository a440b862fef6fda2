package replica

import (
	"encoding/json"
	"net/http"
	"slices"
	"sync"
)

// adapters are the LoRA adapters that a process was told to load, and forgets when it ends. They are served like models,
// whether there are Options.Models or not.
type adapters struct {
	mu     sync.Mutex
	loaded []string
}

func (a *adapters) names() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.loaded)
}

// add says whether the adapter was not there before.
func (a *adapters) add(name string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if slices.Contains(a.loaded, name) {
		return false
	}
	a.loaded = append(a.loaded, name)
	return true
}

// remove says whether the adapter was there.
func (a *adapters) remove(name string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	i := slices.Index(a.loaded, name)
	if i < 0 {
		return false
	}
	a.loaded = slices.Delete(a.loaded, i, i+1)
	return true
}

// serves tells whether a request may name this model.
func (p *process) serves(model string) bool {
	return p.opts.serves(model) || slices.Contains(p.adapters.names(), model)
}

func (p *process) loadAdapter(w http.ResponseWriter, _ *http.Request, _ *Exchange, body []byte) {
	p.changeAdapters(w, body, p.adapters.add, http.StatusBadRequest, "has already been loaded")
}

func (p *process) unloadAdapter(w http.ResponseWriter, _ *http.Request, _ *Exchange, body []byte) {
	p.changeAdapters(w, body, p.adapters.remove, http.StatusNotFound, "cannot be found")
}

func (p *process) changeAdapters(w http.ResponseWriter, body []byte, change func(name string) bool, refused int, why string) {
	var q struct {
		Name string `json:"lora_name"`
	}
	if err := json.Unmarshal(body, &q); err != nil || q.Name == "" {
		writeJSON(w, http.StatusBadRequest, openAIError(http.StatusBadRequest, "InvalidUserInput", "lora_name must be provided"))
		return
	}
	if !change(q.Name) {
		writeJSON(w, refused, openAIError(refused, "InvalidUserInput", "The adapter "+q.Name+" "+why+"."))
		return
	}
	writeBody(w, http.StatusOK, "text/plain; charset=utf-8", []byte("Success: LoRA adapter '"+q.Name+"'."))
}
