package cart

import (
	"fmt"
	"strings"
	"testing"
)

// serving makes a replica one that lists these models, separated by spaces; "" = its list is unknown.
func serving(t *testing.T, p *pool, letter, models string) {
	t.Helper()
	var listed map[string]bool
	for _, name := range strings.Fields(models) {
		if listed == nil {
			listed = map[string]bool{}
		}
		listed[name] = true
	}
	p.list(byLetter(t, p, letter), listed)
}

func TestReadModels(t *testing.T) {
	for text, want := range map[string]string{
		``:               "unknown",
		`{"data":null}`:  "unknown",
		`{"data":[]}`:    "unknown",
		`{"data":[{}]}`:  "unknown",
		`{"data":{"x":`:  "unknown",
		`<html>`:         "unknown",
		`{"data":[5]}`:   "unknown",
		`{"detail":"x"}`: "unknown",
		`{"object":"list","data":[{"id":"m","parent":null},{"id":"m-lora","parent":"m"},{"id":"m"}],"models":[{"name":"z"}]}`: "m m-lora",
	} {
		r := &replica{engine: engineView{listed: readModels(text)}}
		got := strings.Join(r.modelNames(), " ")
		if r.engine.listed == nil {
			got = "unknown"
		}
		if got != want {
			t.Errorf("readModels(%q) = %q, want %q", text, got, want)
		}
	}
}

func TestChoose_byModel(t *testing.T) {
	now := second(0)
	for _, row := range []struct {
		story  string
		lists  [3]string         // of a, b and c
		states map[string]string // as bring knows them
		space  string
		want   string // the letters it may be
		refuse string
	}{
		{"all lists are unknown", [3]string{"", "", ""}, nil, "m", "abc", ""},
		{"all list it", [3]string{"m", "m", "m"}, nil, "m", "abc", ""},
		{"one lists it", [3]string{"m", "n", "n"}, nil, "m", "a", ""},
		{"two list it", [3]string{"m x", "m", "x"}, nil, "m", "ab", ""},
		{"nobody lists it", [3]string{"x", "y", "z"}, nil, "m", "abc", ""},
		{"no model asked for", [3]string{"x", "y", "z"}, nil, "", "abc", ""},
		{"unknown lists may have it", [3]string{"m", "", "n"}, nil, "m", "ab", ""},
		{"one that lists it is known, the others are not", [3]string{"n", "", ""}, nil, "m", "abc", ""},
		{"with a salt", [3]string{"m", "n", "m"}, nil, "m\x00salt", "ac", ""},
		{"who has it is down", [3]string{"m", "n", "n"}, map[string]string{"a": "down"}, "m", "", refusedNone},
		{"one who has it is down", [3]string{"m", "m", "n"}, map[string]string{"a": "down"}, "m", "b", ""},
		{"who has it is full", [3]string{"m", "n", "n"}, map[string]string{"a": "full"}, "m", "", refusedFull},
		{"who has it was tried", [3]string{"m", "n", "n"}, map[string]string{"a": "tried"}, "m", "", refusedNone},
		{"who has it wants to be left alone", [3]string{"m", "n", "n"}, map[string]string{"a": "pushed"}, "m", "a", ""},
		{"the breakers of all who have it are open", [3]string{"m", "n", "m"}, map[string]string{"a": "open", "c": "open"}, "m", "ac", ""},
		{"the other model is not affected", [3]string{"m", "n", "m"}, map[string]string{"a": "down", "c": "down"}, "n", "b", ""},
		{"a name as JSON may write it", [3]string{"org/m", "n", "n"}, nil, `org\/m`, "a", ""},
	} {
		got := ""
		for try := 0; try < 16; try++ {
			p := poolOf(t, "abc")
			p.seed = uint64(try) * 0x9e3779b97f4a7c15
			for i, letter := range []string{"a", "b", "c"} {
				serving(t, p, letter, row.lists[i])
			}
			ex := ask(p, "a prompt")
			ex.space = row.space
			for letter, state := range row.states {
				bring(byLetter(t, p, letter), ex, state, now)
			}
			a, refusal := choose(p, ex, now)
			if a != nil {
				refusal = ""
			}
			if refusal != row.refuse {
				t.Errorf("%s: choose() = %q, refusal %q, want %q", row.story, letterOf(a), refusal, row.refuse)
				break
			}
			if letter := letterOf(a); !strings.Contains(got, letter) {
				got += letter
			}
		}
		if !sameLetters(got, row.want) {
			t.Errorf("%s: choose() = one of %q, want one of %q, each of them sooner or later", row.story, got, row.want)
		}
	}
}

func TestChoose_otherPathsGoWhateverTheModel(t *testing.T) {
	p := poolOf(t, "ab")
	serving(t, p, "a", "m")
	serving(t, p, "b", "n")
	byLetter(t, p, "a").load = 1
	ex := ask(p, "")
	ex.endpoint = endpointOther
	if a := take(t, p, ex, 0); letterOf(a) != "b" {
		t.Errorf("choose(another path) = %q, want the least loaded b", letterOf(a))
	}
}

// TestChoose_byModelKeepsTheQuickWay: only a model that some have and others do not takes the slow one, which counts turns.
func TestChoose_byModelKeepsTheQuickWay(t *testing.T) {
	p := poolOf(t, "ab")
	serving(t, p, "a", "m x")
	serving(t, p, "b", "m")
	for space, slow := range map[string]bool{"m": false, "x": true, "unheard-of": false} {
		before := p.turn
		ex := ask(p, "a prompt")
		ex.space = space
		take(t, p, ex, 0)
		if (p.turn != before) != slow {
			t.Errorf("choose(model %s) took the slow way: %v, want %v", space, !slow, slow)
		}
	}
}

// TestRelist: lists of replicas that come and go count as long as they are there.
func TestRelist(t *testing.T) {
	p := poolOf(t, "abc")
	check := func(story, want string) {
		t.Helper()
		got := ""
		for _, name := range []string{"m", "n", "x"} {
			if p.partial[name] {
				got += name
			}
		}
		if got != want || (want == "") != (p.partial == nil) {
			t.Errorf("%s: models that only some have = %q (nil: %v), want %q", story, got, p.partial == nil, want)
		}
	}
	check("nothing known", "")
	serving(t, p, "a", "m")
	check("one list", "")
	serving(t, p, "b", "m n")
	check("two lists", "n")
	setLetters(t, p, "ac")
	check("the one with n is gone", "")
	setLetters(t, p, "abc")
	check("it is back, and has not been asked yet", "")
	serving(t, p, "b", "m n")
	serving(t, p, "c", "x")
	check("three lists", "mnx")
	serving(t, p, "c", "")
	check("one is unknown again", "n")
}

func TestExplain_whyAReplicaIsNoCandidateForAModel(t *testing.T) {
	h := explainer(t, "abc")
	serving(t, h.pool, "a", "m")
	serving(t, h.pool, "b", "m n")
	teach(t, h, "a", chatWith("a prompt that is known"))
	_, answer, text := askWhy(t, h, "1", strings.Replace(chatWith("a prompt that is known"), `"m"`, `"n"`, 1))
	if answer.Replica == "http://a" || answer.Model != "n" {
		t.Errorf("explained replica = %q, model %q, want one that serves n: %s", answer.Replica, answer.Model, text)
	}
	for _, r := range answer.Replicas {
		want := ""
		if r.URL == "http://a" {
			want = `it does not list the model "n"`
		}
		if r.Why != want || r.Candidate != (want == "") {
			t.Errorf("%s: candidate %v, why %q, want %v, %q", r.URL, r.Candidate, r.Why, want == "", want)
		}
	}
	_, answer, _ = askWhy(t, h, "/v1/embeddings", `{"model":"n"}`)
	for _, r := range answer.Replicas {
		if !r.Candidate {
			t.Errorf("%s is no candidate for another path: %q", r.URL, r.Why)
		}
	}
}

func TestModelNames_showsAHundred(t *testing.T) {
	r := &replica{engine: engineView{listed: map[string]bool{}}}
	for i := 0; i < 250; i++ {
		r.engine.listed[fmt.Sprintf("model-%03d", i)] = true
	}
	if names := r.modelNames(); len(names) != shownModels || names[0] != "model-000" || names[99] != "model-099" {
		t.Errorf("modelNames() = %d from %s to %s, want the first %d", len(names), names[0], names[len(names)-1], shownModels)
	}
}

// TestEngine_modelsComeFromTheReplicas is the whole way: lists that are asked for decide where requests go.
func TestEngine_modelsComeFromTheReplicas(t *testing.T) {
	a, urlA := startStub(t)
	b, urlB := startStub(t)
	a.set("/v1/chat/completions", "{}")
	b.set("/v1/chat/completions", "{}")
	a.set("/v1/models", `{"data":[{"id":"base"}]}`)
	b.set("/v1/models", `{"data":[{"id":"base"},{"id":"m"}]}`)
	c := twoReplicas(urlA, urlB) // the second one has a penalty
	c.Health.Models.Interval = "20ms"
	url := serve(t, c)
	eventually(t, "both lists are known", func() bool {
		s := state(t)
		return len(s.Workers[0].Models) == 1 && len(s.Workers[1].Models) == 2
	})
	for i := 0; i < 5; i++ {
		if res, _ := post(t, url+"/v1/chat/completions", aChat); res.Header.Get("X-Routed-Peer") != urlB {
			t.Fatalf("the model m was asked for at %s, want at the only one that has it", res.Header.Get("X-Routed-Peer"))
		}
		if res, _ := post(t, url+"/v1/chat/completions", strings.Replace(aChat, `"m"`, `"base"`, 1)); res.Header.Get("X-Routed-Peer") != urlA {
			t.Fatalf("the model base was asked for at %s, want at the one without penalty", res.Header.Get("X-Routed-Peer"))
		}
	}
	b.set("/v1/models", `{"data":[{"id":"base"}]}`)
	eventually(t, "the adapter is unloaded", func() bool { return len(state(t).Workers[1].Models) == 1 })
	if res, _ := post(t, url+"/v1/chat/completions", strings.Replace(aChat, "a question", "another", 1)); res.Header.Get("X-Routed-Peer") != urlA {
		t.Errorf("a model that nobody lists was asked for at %s, want at the least loaded", res.Header.Get("X-Routed-Peer"))
	}
}
