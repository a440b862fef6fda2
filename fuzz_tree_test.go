//go:build gc
// +build gc

package cart

import (
	"fmt"
	"strings"
	"testing"
)

// FuzzTree plays a fuzzer's bytes as a story of prompts, failures, evictions and removals, and after each step compares
// the tree with what a naive model knows.
func FuzzTree(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte("\x01a prompt and its next turn, then another and one that forks off from it"))
	f.Add([]byte("\x00\x05\x01\x03\x00\x01\x02\x05\x01\x02\x00\x01\x06\x00\x05\x02\x05\x01\x01\x01\x00\x06\x01"))
	f.Add([]byte("\x03" + strings.Repeat("\x05\x00\x08\x01\x02\x00\x01\x02\x00\x01\x02\x00", 12)))
	f.Add([]byte("\x00" + strings.Repeat("\x05\x00\x04\x00\x01\x02\x03\x01\x01\x05\x02\x04\x00\x02\x01\x00\x02\x01", 12)))
	f.Add([]byte("\x02" + strings.Repeat("\x05\x02\x04\x00\x01\x02\x03\x07\x01\x08\x02\x02\x02\x03", 12)))
	f.Fuzz(func(t *testing.T, data []byte) {
		s := newTreeStory(t, data)
		for n := 0; n < 200 && !s.in.done() && !t.Failed(); n++ {
			s.step()
			s.compare()
		}
		if t.Failed() {
			t.Errorf("the story, %d nodes and %d bytes at most:\n%s", s.tree.maxNodes, s.tree.maxBytes, strings.Join(s.told, "\n"))
		}
	})
}

// treeStory is a tree beside two models: least is what it has to know, most what it may know. They differ where a failure
// cannot be told from what the same replica was sent since, and where something was evicted.
type treeStory struct {
	t           *testing.T
	in          *fuzzInput
	tree        *tree
	least, most map[string]naive // by key space
	pending     []pendingPrompt  // might still fail
	alive       map[int]bool
	sweep       []*node // a removal under way
	lastID      int
	keys        []string // to grow, cut and repeat
	lossy       bool     // not all was learned, or something was evicted
	told        []string
}

type pendingPrompt struct {
	space, key string
	id         int
	stamp      int64
	before     int
	alone      bool // nothing was sent to the same replica since
}

func newTreeStory(t *testing.T, data []byte) *treeStory {
	s := &treeStory{t: t, in: &fuzzInput{data}, alive: map[int]bool{}}
	s.reset()
	s.tree = newTree(manyNodes, manyBytes)
	switch s.in.below(4) {
	case 2:
		s.tree.maxNodes = 16
	case 3:
		s.tree.maxBytes = 16 << 10
	}
	for ; s.lastID < 3; s.lastID++ {
		s.alive[s.lastID+1] = true
	}
	return s
}

func (s *treeStory) reset() {
	s.least = map[string]naive{"m": {}, "n": {}}
	s.most = map[string]naive{"m": {}, "n": {}}
	s.pending, s.sweep = nil, nil
}

func (s *treeStory) tell(format string, args ...interface{}) {
	s.told = append(s.told, fmt.Sprintf(format, args...))
}

func (s *treeStory) step() {
	switch s.in.below(12) {
	case 0:
		s.fail()
	case 1, 2:
		if len(s.sweep) == 0 || s.in.yes(8) {
			s.remove()
		} else {
			s.sweepOn(1 + s.in.below(4))
		}
	case 3:
		share, limit := float64(s.in.below(4))/3, s.in.below(4)
		s.tree.shrink(share, limit)
		s.tell("shrink(%.2f, %d)", share, limit)
	case 4:
		if s.in.yes(16) {
			s.tree.clear()
			s.reset()
			s.tell("clear()")
		}
	default:
		s.learn()
	}
	s.lossy = s.lossy || s.tree.evicted > 0
}

// key makes a prompt: an earlier one with more turns, the beginning of one, or another one. Its letters are few, so that
// beginnings are shared; a byte of it may be half a letter.
func (s *treeStory) key() string {
	key := ""
	if len(s.keys) > 0 {
		switch s.in.below(3) {
		case 1:
			key = s.keys[s.in.below(len(s.keys))]
		case 2:
			whole := s.keys[s.in.below(len(s.keys))]
			return whole[:s.in.number()%(len(whole)+1)]
		}
	}
	for n := s.in.below(12); n > 0; n-- {
		letter := "ab\xc3"[s.in.below(3)]
		if s.in.yes(32) {
			key += strings.Repeat(string(letter), s.in.number()%3000)
		} else {
			key += string(letter)
		}
	}
	return key
}

func (s *treeStory) learn() {
	space, key, id := "mn"[:1], s.key(), 1+s.in.below(s.lastID)
	if s.in.yes(4) {
		space = "n"
	}
	if !s.alive[id] {
		return // choose never sends anything there
	}
	if len(s.keys) < 200 {
		s.keys = append(s.keys, key)
	}
	s.lossy = s.lossy || len(key) > s.tree.maxBytes/8 || s.tree.nodes+3 > s.tree.maxNodes ||
		s.tree.bytes+3*nodeBytes+len(key) > s.tree.maxBytes
	stamp, before := learn(s.tree, space, key, id)
	s.tell("insert(%q, %.60q, %d) = %d, %d", space, key, id, stamp, before)
	if least, most := s.least[space].held(key, id), s.most[space].held(key, id); before > most || (!s.lossy && before >= 0 && before < least) {
		s.t.Errorf("insert(%q, %.60q, %d) = before %d, want from %d to %d", space, key, id, before, least, most)
	}
	s.least[space][id] = append(s.least[space][id], key)
	s.most[space][id] = append(s.most[space][id], key)
	for i := range s.pending {
		if s.pending[i].id == id && s.pending[i].space == space {
			s.pending[i].alone = false
		}
	}
	s.pending = append(s.pending, pendingPrompt{space, key, id, stamp, before, true})
}

// fail takes one of the prompts back, whenever it was sent.
func (s *treeStory) fail() {
	if len(s.pending) == 0 {
		return
	}
	i := s.in.below(len(s.pending))
	p := s.pending[i]
	s.pending = append(s.pending[:i], s.pending[i+1:]...)
	s.tree.forget(p.space, p.key, p.id, p.stamp, p.before)
	s.tell("forget(%q, %.60q, %d, %d, %d)", p.space, p.key, p.id, p.stamp, p.before)
	without(s.least[p.space], p.id, p.key)
	if p.alone {
		without(s.most[p.space], p.id, p.key)
	}
}

// without takes the latest prompt equal to key out of what id was sent.
func without(m naive, id int, key string) {
	for i := len(m[id]) - 1; i >= 0; i-- {
		if m[id][i] == key {
			m[id] = append(m[id][:i:i], m[id][i+1:]...)
			return
		}
	}
}

// remove takes a replica out of the configuration and puts a new one in; the removal of its claims starts over.
func (s *treeStory) remove() {
	id := 1 + s.in.below(s.lastID)
	if !s.alive[id] || s.lastID > 60 {
		return
	}
	delete(s.alive, id)
	s.lastID++
	s.alive[s.lastID] = true
	for _, models := range []map[string]naive{s.least, s.most} {
		for _, m := range models {
			delete(m, id)
		}
	}
	for i := len(s.pending) - 1; i >= 0; i-- {
		if s.pending[i].id == id {
			s.pending = append(s.pending[:i], s.pending[i+1:]...)
		}
	}
	s.sweep = s.tree.all()
	s.tell("replica %d removed, %d new", id, s.lastID)
}

func (s *treeStory) sweepOn(limit int) {
	s.sweep = s.tree.drop(s.sweep, s.alive, limit)
	s.tell("drop(%d)", limit)
}

// compare checks the tree's invariants, which a removal under way suspends, and what it knows of one more prompt.
func (s *treeStory) compare() {
	s.t.Helper()
	tr := s.tree
	if len(s.sweep) == 0 {
		checkTree(s.t, tr)
		for id, n := range tr.claimed {
			if !s.alive[id] && n != 0 {
				s.t.Errorf("the removed replica %d still claims %d characters", id, n)
			}
		}
	}
	if tr.nodes > tr.maxNodes || tr.bytes > tr.maxBytes {
		s.t.Errorf("%d nodes and %d bytes, want at most %d and %d", tr.nodes, tr.bytes, tr.maxNodes, tr.maxBytes)
	}
	probe := s.key()
	for space := range s.least {
		longest := 0
		for id := range s.alive {
			got := held(tr, space, probe, id)
			least, most := s.least[space].held(probe, id), s.most[space].held(probe, id)
			if got > most || (got < least && !s.lossy) {
				s.t.Errorf("held(%q, %.60q, %d) = %d, want from %d to %d", space, probe, id, got, least, most)
			}
			if got > longest {
				longest = got
			}
		}
		if tr.find(space, probe); tr.match < longest || (len(s.sweep) == 0 && tr.match != longest) {
			s.t.Errorf("find(%q, %.60q).match = %d, want %d, the longest that any replica holds", space, probe, tr.match, longest)
		}
	}
}
