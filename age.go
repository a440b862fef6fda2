package cart

// age tells which claims of an id still hold. Engines evict what they have not used for longest, the ends of prompts first, so
// an id's claims are ordered by when they were used last, and those fade that do not fit into its cache beside all newer ones.
//
// Each prompt that is sent to the id moves to the newest end of a line: it takes the next of the line's positions, one for
// each character, its last character the oldest of them, and its claims get the newest one as their stamp. So a node that
// ends at some depth is at its stamp less that depth, and it holds as long as that is not before faded. What a prompt has in
// common with an earlier one leaves a hole where it was. Spans of the line know how many characters are left in them, so that
// faded goes on by as much as it takes to give up what does not fit. That is exact but for the order within a span.
type age struct {
	clock  int64     // the newest position, which is the latest stamp
	room   int64     // characters that the cache holds; 0 = unknown, nothing fades
	faded  int64     // the oldest position that holds; never goes back
	held   int64     // characters that hold: what was sent and has not faded
	starts []float64 // the position before each span, the oldest first; none while room is unknown. Floats can be searched
	counts []int64   // characters left in each span
}

// notFaded is faded as long as nothing fades: less than any stamp by more than any prompt is long.
const notFaded = -1 << 61

// A span is full with a part of what the cache holds. Neighbours that have become small enough for one are joined when there
// are too many of them, after which there are at most two for each part.
const (
	spanParts = 16
	mostSpans = 3 * spanParts
)

// setRoom sets how many characters the cache holds, 0 = unknown.
func (a *age) setRoom(room int64) {
	if room == 0 {
		a.starts = nil
		a.counts = nil
	} else if a.counts == nil {
		// Where what was sent so far is in line is not known.
		if a.faded < 0 {
			a.faded = 0
		}
		a.starts = []float64{float64(a.faded)}
		a.counts = []int64{a.held}
	}
	a.room = room
	if room > 0 {
		a.fade()
	}
}

// fade gives up the oldest characters until the rest fits.
func (a *age) fade() {
	for {
		over := a.held - a.room
		if over <= 0 {
			return
		}
		if len(a.counts) > 1 && a.counts[0] <= over {
			a.held -= a.counts[0]
			a.starts = append(a.starts[:0], a.starts[1:]...)
			a.counts = append(a.counts[:0], a.counts[1:]...)
			a.faded = int64(a.starts[0]) // nothing ends in the position itself
			continue
		}
		// A part of a span, over which its characters are taken to be spread evenly.
		end := a.clock
		if len(a.counts) > 1 {
			end = int64(a.starts[1])
		}
		a.faded += int64(float64(end-a.faded) * float64(over) / float64(a.counts[0]))
		a.starts[0] = float64(a.faded)
		a.counts[0] -= over
		a.held -= over
	}
}

// join makes one span of neighbours that are small enough.
func (a *age) join() {
	last := 0
	for i := 1; i < len(a.counts); i++ {
		if a.counts[last]+a.counts[i] <= a.room/spanParts {
			a.counts[last] += a.counts[i]
			continue
		}
		last++
		a.counts[last] = a.counts[i]
		a.starts[last] = a.starts[i]
	}
	a.counts = a.counts[:last+1]
	a.starts = a.starts[:last+1]
}

// takeBack takes back that a prompt was sent which ends at a stamp: so many characters of it, up to a depth.
func (a *age) takeBack(stamp int64, depth, count int) {
	if stamp-a.faded < int64(depth) {
		return // they are gone already
	}
	n := int64(count)
	for i := len(a.counts) - 1; i >= 0; i-- {
		if int64(a.starts[i]) < stamp {
			// Of a span that has faded in part, fewer may be taken to be left.
			if n > a.counts[i] {
				n = a.counts[i]
			}
			a.counts[i] -= n
			break
		}
	}
	a.held -= n
}
