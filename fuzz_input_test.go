//go:build gc
// +build gc

// The fuzz targets are kept from Yaegi, for whom the second line is: its test command loads them but runs none, so there
// they would only cost time and have to keep to its subset of Go.

package cart

// fuzzInput turns a fuzzer's bytes into choices. Bytes that are not there are zeros, so that a short input is a simple one.
type fuzzInput struct {
	rest []byte
}

// below returns a number from 0 to n-1, n being at most 256.
func (in *fuzzInput) below(n int) int {
	if len(in.rest) == 0 {
		return 0
	}
	b := in.rest[0]
	in.rest = in.rest[1:]
	return int(b) % n
}

// number returns a number from 0 to 65535.
func (in *fuzzInput) number() int { return in.below(256)<<8 | in.below(256) }

// yes is true for one value out of n.
func (in *fuzzInput) yes(n int) bool { return in.below(n) == n-1 }

// done says that only zeros are left to come.
func (in *fuzzInput) done() bool { return len(in.rest) == 0 }
