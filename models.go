package cart

import (
	"encoding/json"
	"sort"
	"strings"
)

// modelsAnswer is the part of an answer to GET /v1/models that counts here.
type modelsAnswer struct {
	Data []modelAnswer `json:"data"`
}

type modelAnswer struct {
	ID string `json:"id"`
}

// readModels returns the names in an answer to GET /v1/models, nil if there are none.
func readModels(text string) map[string]bool {
	var answer modelsAnswer
	if json.Unmarshal([]byte(text), &answer) != nil {
		return nil
	}
	var listed map[string]bool
	for _, one := range answer.Data {
		if one.ID == "" {
			continue
		}
		if listed == nil {
			listed = map[string]bool{}
		}
		listed[one.ID] = true
	}
	return listed
}

// list notes which models a replica serves, nil if that is unknown. The caller holds the lock.
func (p *pool) list(r *replica, listed map[string]bool) {
	if sameModels(r.engine.listed, listed) {
		return
	}
	r.engine.listed = listed
	p.relist()
}

func sameModels(a, b map[string]bool) bool {
	if len(a) != len(b) {
		return false
	}
	for name := range a {
		if !b[name] {
			return false
		}
	}
	return true
}

// relist finds the models that some replicas list and others do not. As a rule there are none, and a request takes the quick
// way to its replica. The caller holds the lock.
func (p *pool) relist() {
	p.partial = nil
	lists := 0
	counts := map[string]int{}
	for _, r := range p.replicas {
		if r.engine.listed == nil {
			continue
		}
		lists++
		for name := range r.engine.listed {
			counts[name]++
		}
	}
	for name, n := range counts {
		if n == lists {
			continue
		}
		if p.partial == nil {
			p.partial = map[string]bool{}
		}
		p.partial[name] = true
	}
}

// partialModel returns the model of a key space if only some replicas list it, else "": then all of them are candidates, for
// they all list it, or all would answer that there is no such model. The caller holds the lock.
func partialModel(p *pool, space string) string {
	model, _, _ := strings.Cut(space, "\x00")
	if strings.Contains(model, `\`) {
		var plain string
		if json.Unmarshal([]byte(`"`+model+`"`), &plain) == nil {
			model = plain
		}
	}
	if p.partial[model] {
		return model
	}
	return ""
}

// lists says whether requests for a model may go to the replica: it lists the model, or its list is unknown.
func (r *replica) lists(model string) bool {
	return r.engine.listed == nil || r.engine.listed[model]
}

// shownModels bounds the models that /workers names of a replica.
const shownModels = 100

// modelNames returns the models that the replica lists, in order, nil if that is unknown.
func (r *replica) modelNames() []string {
	if r.engine.listed == nil {
		return nil
	}
	names := make([]string, 0, len(r.engine.listed))
	for name := range r.engine.listed {
		names = append(names, name)
	}
	sort.Strings(names)
	if len(names) > shownModels {
		names = names[:shownModels]
	}
	return names
}
