package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"embed"
	"encoding/json"
	"fmt"
	"math/rand"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"
)

//go:embed testdata/*.gz
var traces embed.FS

// turn is a request of a workload.
type turn struct {
	at     time.Duration // since the start
	input  int           // tokens
	output int
	blocks []int // one for each block of the prompt; equal ones are equal from the start of the prompt on
	whole  bool  // the answer is not streamed
	talk   int   // number of its conversation, where conversations are led: see scenario
	marked bool  // it counts; in a workload without marked turns all do
}

// record is a line of a trace.
type record struct {
	Timestamp int64 `json:"timestamp"` // ms
	Input     int   `json:"input_length"`
	Output    int   `json:"output_length"`
	Hashes    []int `json:"hash_ids"`
}

// loadTrace returns a recorded trace.
func loadTrace(t trace, draw *rand.Rand) ([]turn, error) {
	loading.Lock()
	defer loading.Unlock()
	if loaded[t.name] == nil {
		turns, err := readTrace(t.name)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", t.name, err)
		}
		loaded[t.name] = turns
	}
	out := slices.Clone(loaded[t.name])
	spread(out, t.bin, draw)
	return out, nil
}

// The traces that have been read.
var (
	loading sync.Mutex
	loaded  = map[string][]turn{}
)

func readTrace(name string) ([]turn, error) {
	packed, err := traces.ReadFile("testdata/" + name + ".jsonl.gz")
	if err != nil {
		return nil, err
	}
	plain, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	var out []turn
	lines := bufio.NewScanner(plain)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var one record
		if err := json.Unmarshal(lines.Bytes(), &one); err != nil {
			return nil, fmt.Errorf("line %d: %w", len(out)+1, err)
		}
		at := time.Duration(one.Timestamp) * time.Millisecond
		out = append(out, turn{at: at, input: one.Input, output: one.Output, blocks: one.Hashes})
	}
	return out, lines.Err()
}

// spread gives turns that come at once times of their own within the bin, in the same order.
func spread(turns []turn, bin time.Duration, draw *rand.Rand) {
	for from := 0; from < len(turns); {
		to := from
		for to < len(turns) && turns[to].at == turns[from].at {
			to++
		}
		times := make([]time.Duration, to-from)
		for i := range times {
			times[i] = time.Duration(draw.Int63n(int64(bin)))
		}
		slices.Sort(times)
		for i := range times {
			turns[from+i].at += times[i]
		}
		from = to
	}
}

// byTime sorts turns by their times.
func byTime(turns []turn) []turn {
	sort.SliceStable(turns, func(i, j int) bool { return turns[i].at < turns[j].at })
	return turns
}

// scale stretches the times so that round-robin over n replicas would use that share of their prefill rate.
func scale(turns []turn, m model, n int, load float64) []turn {
	work := 0
	caches := make([]*replica, n)
	for i := range caches {
		caches[i] = newReplica(m, newClock())
	}
	for i, t := range turns {
		r := caches[i%n]
		q := &request{turn: t, done: func() {}}
		r.admit(q)
		r.finish(q)
		work += max(1, q.input-q.hit)
	}
	first := turns[0].at
	factor := float64(work) / float64(n*m.prefill) / load / (turns[len(turns)-1].at - first).Seconds()
	out := slices.Clone(turns)
	for i := range out {
		out[i].at = time.Duration(float64(out[i].at-first) * factor)
	}
	return out
}

const blockChars = blockTokens * 4

var filler = strings.Repeat("the rest of a block is the same everywhere. ", blockChars/40+1)

// prompt makes the text of a turn: each block begins with letters of its own.
func (t *turn) prompt() string {
	var out strings.Builder
	chars := t.input * 4
	out.Grow(chars)
	for _, id := range t.blocks {
		n := min(blockChars, chars-out.Len())
		head := strconv.FormatUint((uint64(id)+1)*0x9E3779B97F4A7C15, 36)
		head = head[:min(len(head), n)]
		out.WriteString(head)
		out.WriteString(filler[:n-len(head)])
	}
	return out.String()
}
