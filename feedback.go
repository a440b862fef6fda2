package cart

import (
	"bytes"
	"io"
	"math"
	"strconv"
	"time"
)

// cachedTokens is what a replica's answers say of its cache, summed up over those that say anything.
type cachedTokens struct {
	answers   int64
	prompt    int64 // tokens of their prompts
	predicted int64 // of these, the ones that were taken to be cached
	actual    int64 // and the ones that were

	doubt int64 // evidence that the replica holds less than it was sent, while the size of its cache is unknown
	room  int64 // characters that it holds by its answers, if that is less than what is known otherwise; 0 = it is not
}

// Engines tell of tokens at the end of an answer.
const (
	tailKept  = 2 << 10 // bytes of an answer that comes in pieces
	usageNear = 512     // bytes around the count of cached tokens within which the others stand
	mostTails = 2048    // answers that wait to be read; further ones say nothing
	readEvery = 100 * time.Millisecond
	heedMost  = 16 // answers for which the lock is held at once
)

// What is searched for at the end of an answer. A quote inside a JSON string is escaped, so these are never found in a text.
var (
	usageKey        = []byte(`"usage":`)
	cachedTokensKey = []byte(`"cached_tokens":`) // OpenAI
	promptTokensKey = []byte(`"prompt_tokens":`)
	inputTokensKey  = []byte(`"input_tokens":`) // of /v1/responses, and Anthropic
	cacheReadKey    = []byte(`"cache_read_input_tokens":`)
	cacheMadeKey    = []byte(`"cache_creation_input_tokens":`)
	cacheNKey       = []byte(`"cache_n":`) // llama.cpp's timings, which come without include_usage too
	promptNKey      = []byte(`"prompt_n":`)
)

// How answers correct what is expected of a replica's cache.
const (
	shortfall   = 20  // an answer is short of the prediction by more than one in so many prompt tokens
	blockTokens = 128 // and a block, for engines count whole ones
	roomStep    = 50  // the room goes down or up by one in so many
	leastRoom   = 64 << 10
	leastShare  = 16 // and never below one in so many of what is known otherwise

	doubtAlone = 16 // a short answer, when the replica had nothing else to do
	doubtBusy  = 4  // a short answer, when another one may not have been computed yet
	doubtMost  = 64 // so much makes it certain; a good answer takes one away
)

// keepTail lets an answer of known length pass and keeps its end: for answers that do not come at once. All of it is native.
func keepTail(ex *exchange, body io.Reader, length int64) io.Reader {
	if !ex.answered || ex.endpoint == endpointOther {
		return body
	}
	n := length
	if n > tailKept {
		n = tailKept
	}
	ex.tail = make([]byte, 0, n)
	end := bytes.NewBuffer(ex.tail) // which fits, so it stays in the same memory
	ex.tail = ex.tail[:n]
	return io.MultiReader(io.LimitReader(body, length-n), io.TeeReader(body, end))
}

// streamHead stands before the body of a stream and reads its first piece, of which is noted when it comes: the headers come
// long before, as soon as the replica has taken the request. In the first piece of a stream of messages some engines tell of
// the tokens, as Anthropic does. It is read once.
type streamHead struct {
	ex      *exchange
	body    io.Reader
	watched *watchedBody // in place of body; nil = the silence is not bounded
}

func (h *streamHead) Read(p []byte) (n int, err error) {
	if h.watched != nil {
		n, err = h.watched.Read(p)
	} else {
		n, err = h.body.Read(p)
	}
	if n > 0 {
		firstJobs <- h.ex
	}
	if h.ex.endpoint == endpointMessages {
		if at := bytes.Index(p[:n], cacheReadKey); at >= 0 {
			h.ex.tail = around(p[:n], at)
		}
	}
	if err == nil {
		err = io.EOF // the others read on
	}
	return n, err
}

// streamEnd stands behind the body of a stream whose silence is not bounded. It is read once, at its end.
type streamEnd struct {
	ex *exchange
}

func (e *streamEnd) Read(p []byte) (int, error) {
	noteEnd(e.ex, p)
	return 0, io.EOF
}

// noteEnd looks for the tokens at the end of a stream, in the buffer that all of it was read into, piece after piece, each from
// the buffer's beginning. Engines send the count of tokens as one of the last pieces, and only a few bytes after it, so it is
// still there, but for its first bytes. So a stream costs nothing while it runs. The buffer was wiped when it was lent, so what
// is in it is this stream's.
func noteEnd(ex *exchange, p []byte) {
	at := bytes.Index(p, cachedTokensKey)
	if at < 0 {
		at = findRareTokens(p)
	}
	if at < 0 {
		return
	}
	// What was noted at the stream's head is overwritten in part, maybe.
	if found := around(p, at); ex.tail == nil || readUsage(found).prompt > 0 {
		ex.tail = found
	}
}

// noBytes wipes a buffer of ReverseProxy's.
var noBytes = make([]byte, 16<<10)

func findRareTokens(p []byte) int {
	at := bytes.Index(p, cacheReadKey)
	if at < 0 {
		at = bytes.Index(p, cacheNKey)
	}
	return at
}

// around returns a copy of what stands around a place.
func around(p []byte, at int) []byte {
	from, to := at-usageNear, at+usageNear
	if from < 0 {
		from = 0
	}
	if to > len(p) {
		to = len(p)
	}
	return append([]byte(nil), p[from:to]...)
}

// feedbackLoop reads the ends of answers until the pool stops. They are read in lots, in the background: one by one, as they
// come, would cost each request some calls.
func feedbackLoop(p *pool) {
	for !p.hasEnded() {
		time.Sleep(readEvery)
		readAnswers(p)
	}
}

// usage is what an answer says of its prompt, in tokens.
type usage struct {
	prompt, cached int64
}

// readAnswers learns from the answers that came since it was called last.
func readAnswers(p *pool) {
	p.mu.Lock()
	tails, tailed := p.tails, p.tailed
	p.tails = nil
	p.tailed = nil
	p.mu.Unlock()
	var found []usage
	var of []*attempt
	for i := range tails {
		if u := readUsage(tails[i]); u.prompt > 0 {
			found = append(found, u)
			of = append(of, tailed[i])
		}
	}
	for from := 0; from < len(of); from += heedMost {
		to := from + heedMost
		if to > len(of) {
			to = len(of)
		}
		p.heedAll(of[from:to], found[from:to])
	}
}

func (p *pool) heedAll(of []*attempt, found []usage) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range of {
		p.heed(of[i], found[i])
	}
}

// readUsage finds the tokens of a prompt in the end of an answer; 0 of them = it does not tell. An answer that does not say
// how many were cached says nothing: that is not the same as none.
func readUsage(tail []byte) usage {
	if at := bytes.Index(tail, cachedTokensKey); at >= 0 {
		object := objectAround(tail, at)
		prompt := tokensAt(object, promptTokensKey)
		if prompt < 0 {
			prompt = tokensAt(object, inputTokensKey)
		}
		return usageOf(prompt, tokensAt(tail[at:], cachedTokensKey))
	}
	if at := bytes.Index(tail, cacheReadKey); at >= 0 {
		object := objectAround(tail, at)
		fresh, cached, made := tokensAt(object, inputTokensKey), tokensAt(tail[at:], cacheReadKey), tokensAt(object, cacheMadeKey)
		if fresh < 0 || cached < 0 {
			return usage{}
		}
		if made > 0 {
			fresh += made
		}
		return usageOf(fresh+cached, cached)
	}
	if at := bytes.Index(tail, cacheNKey); at >= 0 {
		fresh, cached := tokensAt(tail[at:], promptNKey), tokensAt(tail[at:], cacheNKey)
		if fresh < 0 || cached < 0 {
			return usage{}
		}
		return usageOf(fresh+cached, cached)
	}
	return usage{}
}

// objectAround returns the object of the usage that a place is in, and what follows.
func objectAround(tail []byte, at int) []byte {
	from := bytes.LastIndex(tail[:at], usageKey)
	if from < at-usageNear {
		from = at - usageNear
	}
	if from < 0 {
		from = 0
	}
	return tail[from:]
}

func usageOf(prompt, cached int64) usage {
	if cached < 0 || cached > prompt {
		return usage{}
	}
	return usage{prompt: prompt, cached: cached}
}

// tokensAt returns the number at the first place where a key stands, -1 if there is none.
func tokensAt(text, key []byte) int64 {
	i := bytes.Index(text, key)
	if i < 0 {
		return -1
	}
	text = bytes.TrimLeft(text[i+len(key):], " ")
	end := bytes.IndexAny(text, ",}] \r\n")
	if end < 0 || end > 12 {
		return -1
	}
	n, err := strconv.ParseInt(string(text[:end]), 10, 64)
	if err != nil || n < 0 {
		return -1
	}
	return n
}

// heed compares what an answer says with what was expected when its request was sent, and corrects what is expected of the
// replica's cache. The caller holds the lock.
func (p *pool) heed(a *attempt, u usage) {
	r := a.replica
	if a.total == 0 || r.id != a.id {
		return // without a prompt there is no prediction, and what the replica held when this was sent is forgotten
	}
	p.learnDensity(a.total, u.prompt)
	known := a.matched
	if a.before > known {
		known = a.before // policies are told only of the longest match
	}
	predicted := u.prompt * int64(known) / int64(a.total)
	if block := r.engine.told.block; block > 1 {
		predicted -= predicted % block
	}
	c := &r.cached
	c.answers++
	c.prompt += u.prompt
	c.predicted += predicted
	c.actual += u.cached
	slack := u.prompt/shortfall + blockTokens
	if u.cached+slack < predicted {
		p.trustLess(r, a.load)
	} else if u.cached > predicted+slack {
		p.trustMore(r)
	} else if c.doubt > 0 {
		c.doubt--
	}
}

// trustLess notes that a replica had less of a prompt than it was sent. Once is no proof: it may be computing it just now.
func (p *pool) trustLess(r *replica, load int) {
	c := &r.cached
	most := p.toldRoom(r)
	if most == 0 && c.room == 0 {
		if load > 1 {
			c.doubt += doubtBusy
		} else {
			c.doubt += doubtAlone
		}
		if c.doubt < doubtMost {
			return
		}
		c.doubt = 0
		c.room = r.age.held // all that it was sent is more than it holds
	} else if c.room == 0 {
		c.room = most
	}
	c.room -= c.room / roomStep
	if least := most / leastShare; c.room < least {
		c.room = least
	}
	if c.room < leastRoom && (most == 0 || most > leastRoom) {
		c.room = leastRoom
	}
	p.fitRoom(r)
}

// trustMore notes that a replica still had what it was not expected to have. That only takes back what trustLess did.
func (p *pool) trustMore(r *replica) {
	c := &r.cached
	if c.room == 0 {
		return
	}
	c.room += c.room / roomStep
	if most := p.toldRoom(r); most > 0 && c.room >= most {
		c.room = 0
	}
	p.fitRoom(r)
}

// toldRoom returns how many characters a replica's cache holds of what this process sends, by its configuration, else by its
// metrics; 0 = unknown.
func (p *pool) toldRoom(r *replica) int64 {
	room := r.worker.room
	if room == 0 {
		room = charsPerToken * r.engine.told.tokens
	}
	room /= int64(p.set.instances) // what the other instances send pushes out as much
	if p.density > 0 {
		room = int64(float64(room) * p.density / charsPerToken)
	}
	return room
}

// fitRoom tells a replica's claims when they fade. The caller holds the lock.
func (p *pool) fitRoom(r *replica) {
	room := p.toldRoom(r)
	if own := r.cached.room; own > 0 && (room == 0 || own < room) {
		room = own
	}
	if r.age.room != room {
		r.age.setRoom(room)
		p.room = -1
	}
}

// charactersPerToken returns how many characters of prompts make a token, as far as that has been learnt.
func (p *pool) charactersPerToken() float64 {
	if p.density > 0 {
		return p.density
	}
	return charsPerToken
}

const (
	densityLeast = 4096    // tokens, before which nothing is concluded
	densityMost  = 1 << 21 // tokens, after which the older half counts half
)

// learnDensity learns how many characters of prompts make a token. The replicas are told when that has changed by a 20th.
func (p *pool) learnDensity(characters int, tokens int64) {
	p.weighed.characters += float64(characters)
	p.weighed.tokens += float64(tokens)
	if p.weighed.tokens < densityLeast {
		return
	}
	density := p.weighed.characters / p.weighed.tokens
	if p.weighed.tokens > densityMost {
		p.weighed.characters /= 2
		p.weighed.tokens /= 2
	}
	if math.Abs(density-p.charactersPerToken()) <= p.charactersPerToken()/20 {
		return
	}
	p.density = math.Max(0.25, math.Min(64, density))
	for _, r := range p.replicas {
		p.fitRoom(r)
	}
}

// weighed is the sum of prompts of which both measures are known.
type weighed struct {
	characters, tokens float64
}
