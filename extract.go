package cart

import (
	"context"
	"net/http"
	"strings"
)

// endpoint says which request a path carries, and so where its prompt stands.
type endpoint int

const (
	endpointOther      endpoint = iota // passed through
	endpointChat                       // POST /v1/chat/completions
	endpointCompletion                 // POST /v1/completions
	endpointMessages                   // POST /v1/messages
	endpointResponses                  // POST /v1/responses
)

// routedPaths are the routed paths, by exact spelling.
var routedPaths = map[string]endpoint{
	"/v1/chat/completions": endpointChat,
	"/v1/completions":      endpointCompletion,
	"/v1/messages":         endpointMessages,
	"/v1/responses":        endpointResponses,
}

// endpointOf tells the routed endpoints from all that is passed through.
func endpointOf(method, path string) endpoint {
	if method != http.MethodPost {
		return endpointOther
	}
	return routedPaths[path]
}

// What is searched for in a body without spaces between tokens. A quote inside a JSON string is escaped, so a name with its
// quotes is never found in the middle of a text, only as a key or as a whole string.
//
// A search runs at the speed of memory where the first byte of what is searched for is rare. A quote is not, in prose that
// was written with quotes: 1 MB takes 0.3 to 1 ms. So long texts are searched for an underscore or a bracket, and the quote
// is looked for there.
const (
	openTools    = `"tools":[{`
	messagesKey  = `"messages":`
	openMessages = `"messages":[`
	openFirst    = `"messages":[{` // with the first message's brace, for a tool's schema may have a list of that name
	openObjects  = `[{`            // ends openTools and openFirst
	modelKey     = `"model":"`
	saltKey      = `"cache_salt":"`
	saltMark     = `_salt":"` // ends saltKey
	streamOn     = `"stream":true`
	roleKey      = `"role":"`
	firstRole    = `{"role":"` // as most clients write a message
	controlHead  = `"cache`    // with controlMark a marker's key
	controlMark  = `_control":`
	objectsEnd   = `}],"`
	billingMark  = `x-anthropic-billing-header`
	billingBlock = `"text":"x-anthropic-billing-header`
)

// longestName is the length up to which a model's name or a cache salt is taken for one, in bytes.
const longestName = 1024

// longHead is the length up to which what stands around the messages is copied to be searched, in bytes.
const longHead = 64 << 10

// nearHead is how far the messages' beginning is looked for by its name, in bytes: most bodies have it there.
const nearHead = 4 << 10

// tailWindow is how far before the end of the messages the start of the last one is looked for, in bytes. Searching
// backwards costs about 1 ns a byte, so a long last message is not walked; 4 KiB holds most of them.
const tailWindow = 4096

// maxRounds bounds the loops of the searches below: interpreted, a thousand rounds take some milliseconds. Real bodies need
// a few. What is left after them is taken as it is, for the key is a hint, and no body may hold up the others.
const maxRounds = 1000

// maxKeyBody is how much of a body is searched, in bytes. It holds a prompt of two million tokens; the key of a longer one
// (pictures, mostly) is cut from its beginning.
const maxKeyBody = 8 << 20

// keyOf cuts the routing key out of the body of a routed request: tools, then system or instructions, then the messages,
// input or prompt, as raw bytes. It is a pure function of the body, and a chat that grows by a turn extends its own key.
// The key is a hint: what the searches misread costs a cache hit, never correctness. space separates keys that engines
// never share blocks across: the model and the cache salt. An empty key means that no prompt was made out.
func keyOf(e endpoint, body string) (space, key string) {
	startDeciders()
	ex := &exchange{endpoint: e, body: body, done: make(chan int, 1), keyOnly: true}
	keyJobs <- ex
	<-ex.done
	return ex.space, ex.key
}

// keyLoop does keyOf's work for one exchange after another and hands each on to a decideLoop. It is one long function that
// never returns, because an interpreted call allocates every variable and every intermediate value of the function, some
// 100 ns each, whether they are reached or not; here that is done once. For the same reason it assigns and does not
// define, and leaves what is rare to functions.
func keyLoop(state *loopState) {
	var jobs = state.jobs
	var ex *exchange
	var body, head, tail, rest, other, name, preName, tools, pre, prompt, model, salt string
	var marked, long, tooled bool
	var e endpoint
	var i, n, size, main, value, toolsAt, preAt, limit, from, end int
	var req, out *http.Request
	var joined strings.Builder
	var header http.Header
	var ctx context.Context
	for {
		ex = <-jobs
		state.ex = ex

		// The request to the replica, as far as it does not depend on which one that is.
		req = ex.req
		if req != nil {
			ex.route = ex.h.route
			body = ex.text.String()
			ex.body = body
			ctx = context.WithValue(req.Context(), exchangeKey, ex)
			if ex.set.requestWait > 0 {
				ctx = limitWhole(ctx, ex)
			}
			ctx, ex.cancel = context.WithCancel(ctx)
			// NewRequest makes body and GetBody natively; an interpreted reader would be called for each block.
			out, _ = http.NewRequestWithContext(ctx, http.MethodPost, "/", strings.NewReader(body))
			header = req.Header
			out.URL = req.URL
			out.Header = header
			out.Host = req.Host
			out.RemoteAddr = req.RemoteAddr
			ex.out = out
			if header["Expect"] != nil || header["Upgrade"] != nil {
				ex.dressed = true
			}
			if header["Content-Encoding"] != nil {
				size = len(body)
				ex.long = size > keptLength
				decideJobs <- ex
				if size > keptLength {
					return
				}
				continue
			}
		} else {
			body = ex.body
		}

		size = len(body)
		if size > keptLength {
			ex.long = true
			if size > maxKeyBody {
				body = body[:maxKeyBody]
			}
		}
		e = ex.endpoint
		preName = ""
		switch e {
		case endpointChat:
			name = messagesKey
		case endpointMessages:
			name = messagesKey
			preName = `"system":`
		case endpointResponses:
			name = `"input":`
			preName = `"instructions":`
		default:
			name = `"prompt":`
		}
		if name == messagesKey {
			if size <= nearHead {
				main = strings.Index(body, openFirst)
			} else {
				main = strings.Index(body[:nearHead], openFirst)
				if main < 0 {
					main = findList(body, openFirst)
				}
			}
		} else {
			main = findText(body, name)
		}
		if main < 0 {
			// Spaces between tokens, or no prompt at all. Only compact bodies are searched.
			body = compact(body)
			main = findMain(body, name)
			if main < 0 {
				finishKey(ex)
				if size > keptLength {
					return
				}
				continue
			}
		}
		marked = e != endpointCompletion && strings.Contains(body, controlMark)
		value = main + len(name)

		// The end of the messages: behind the last role, where a list of objects is closed and another key follows or the
		// body ends. Too early an end is no harm: the key stays a prefix of the next turn's.
		if strings.HasPrefix(body[value:], openObjects) {
			from = len(body) - tailWindow
			if from < value {
				from = value
			}
			i = strings.LastIndex(body[from:], roleKey)
			if i >= 0 {
				from += i
			} else if from > value {
				from = lastRole(body, value, from)
			}
			end = strings.Index(body[from:], objectsEnd)
			if marked && end >= 0 {
				end = endOfObjects(body[from:])
			}
			if end >= 0 {
				end += from + 1
			} else if strings.HasSuffix(body, "}]}") {
				end = len(body) - 2
			} else {
				end = endOfTail(body, value, len(body))
			}
		} else {
			end = endOfValue(body, value, len(body))
		}
		prompt = body[value+1 : end]

		// The other sections stand before the messages or behind them, never between. They are joined, so that one search
		// does for both: what is not there at all is the common case. A long copy would cost more than searching twice.
		head = body[:main]
		tail = body[end:]
		long = main+len(tail) >= longHead
		if !long {
			rest = head + tail
			ex.streamed = strings.Contains(rest, streamOn)
			ex.bulk = size > bulkBody && !ex.streamed
		} else if strings.Contains(head, modelKey) {
			rest = head
			other = tail
		} else {
			rest = tail
			other = head
		}
		model = ""
		salt = ""
		i = strings.Index(rest, modelKey)
		if i >= 0 {
			i += len(modelKey)
			n = strings.IndexByte(rest[i:], '"')
			if n >= 0 && n < longestName {
				model = rest[i : i+n]
			}
			i = strings.Index(rest, saltMark)
			if long && i < 0 {
				rest = other
				i = strings.Index(rest, saltMark)
			}
			if i >= 0 {
				i = strings.Index(rest, saltKey)
				if i >= 0 {
					i += len(saltKey)
					n = strings.IndexByte(rest[i:], '"')
					if n >= 0 && n < longestName {
						salt = rest[i : i+n]
					}
				}
			}
		} else {
			if long {
				rest = body
			}
			model = looseText(rest, `"model"`)
			salt = looseText(rest, `"cache_salt"`)
		}
		ex.space = model + "\x00" + salt

		tooled = long || strings.Contains(rest, openTools)
		if tooled || preName != "" {
			toolsAt = -1
			preAt = -1
			if tooled && e != endpointCompletion {
				toolsAt = findList(head, openTools)
				if toolsAt < 0 {
					toolsAt = findList(tail, openTools)
					if toolsAt >= 0 {
						toolsAt += end
					}
				}
			}
			if preName != "" && (long || strings.Contains(rest, preName)) {
				preAt = findText(head, preName)
				if preAt < 0 {
					preAt = findText(tail, preName)
					if preAt >= 0 {
						preAt += end
					}
				}
			}

			// A section ends at the latest where the next one starts, whose first quote belongs to what is searched for.
			if toolsAt >= 0 || preAt >= 0 {
				tools = ""
				if toolsAt >= 0 {
					limit = len(body)
					if toolsAt < main {
						limit = main + 1
					}
					if preAt > toolsAt && preAt < limit {
						limit = preAt + 1
					}
					from = toolsAt + len(openTools) - 1
					tools = body[from:endOfTools(body, from-1, limit)]
				}
				pre = ""
				if preAt >= 0 {
					limit = len(body)
					if preAt < main {
						limit = main + 1
					}
					if toolsAt > preAt && toolsAt < limit {
						limit = toolsAt + 1
					}
					from = preAt + len(preName)
					pre = body[from+1 : endOfPreamble(body, from, limit)]
					if strings.Contains(pre, billingMark) {
						pre = dropBilling(pre, marked)
					}
				}
				joined.Reset()
				joined.Grow(len(tools) + len(pre) + len(prompt) + 2)
				if marked {
					writeUnmarked(&joined, tools)
					joined.WriteString("\x00")
					writeUnmarked(&joined, pre)
					joined.WriteString("\x00")
					writeUnmarked(&joined, prompt)
				} else {
					joined.WriteString(tools)
					joined.WriteString("\x00")
					joined.WriteString(pre)
					joined.WriteString("\x00")
					joined.WriteString(prompt)
				}
				prompt = joined.String()
				marked = false // no more
			}
		}
		if marked && strings.Contains(prompt, controlMark) {
			joined.Reset()
			joined.Grow(len(prompt))
			writeUnmarked(&joined, prompt)
			prompt = joined.String()
		}
		ex.key = prompt
		if ex.keyOnly {
			ex.done <- 1
		} else {
			if long && ex.set.costs {
				ex.streamed = strings.Contains(tail, streamOn) || strings.Contains(head, streamOn)
			}
			decideJobs <- ex
		}
		if size > keptLength {
			return
		}
	}
}

// finishKey hands on an exchange without a key.
func finishKey(ex *exchange) {
	if ex.keyOnly {
		ex.done <- 1
	} else {
		decideJobs <- ex
	}
}
