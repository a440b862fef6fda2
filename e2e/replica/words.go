package replica

import (
	"crypto/rand"
	"encoding/hex"
	"hash/fnv"
	"math"
)

const (
	consonants = "bdfghklmnprstvz"
	vowels     = "aeiou"
)

// word returns token i of the answer to the prompt with this seed: pronounceable nonsense of exactly size bytes. Equal
// prompts get equal answers on every replica, as greedy decoding would give.
func word(seed uint64, i, size int) string {
	x := mix(seed + uint64(i)*0x9e3779b97f4a7c15)
	b := make([]byte, size)
	for k := range b {
		switch {
		case k == size-1 && size > 1:
			b[k] = ' '
		case k%2 == 0:
			b[k] = consonants[x%uint64(len(consonants))]
		default:
			b[k] = vowels[x%uint64(len(vowels))]
		}
		x = mix(x)
	}
	return string(b)
}

func seedOf(text []byte) uint64 {
	h := fnv.New64a()
	h.Write(text)
	return h.Sum64()
}

// mix is the finaliser of splitmix64.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// embedding returns a unit vector that depends on the text alone.
func embedding(text []byte) []float64 {
	v := make([]float64, dimensions)
	x, norm := seedOf(text), 0.0
	for i := range v {
		x = mix(x + uint64(i))
		v[i] = float64(x>>11)/(1<<52) - 1
		norm += v[i] * v[i]
	}
	for i := range v {
		v[i] /= math.Sqrt(norm)
	}
	return v
}

// newID returns 32 random hex digits.
func newID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}
