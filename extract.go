package cart

import (
	"bytes"
	"net/http"
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

// endpointOf tells the routed endpoints, by exact path, from all that is passed through.
func endpointOf(method, path string) endpoint {
	if method != http.MethodPost {
		return endpointOther
	}
	switch path {
	case "/v1/chat/completions":
		return endpointChat
	case "/v1/completions":
		return endpointCompletion
	case "/v1/messages":
		return endpointMessages
	case "/v1/responses":
		return endpointResponses
	}
	return endpointOther
}

// The names that are searched for, with their quotes. A quote inside a JSON string is escaped, so such a name is never
// found in the middle of a text, only as a key or as a whole string.
var (
	nameTools        = []byte(`"tools"`)
	nameSystem       = []byte(`"system"`)
	nameInstructions = []byte(`"instructions"`)
	nameMessages     = []byte(`"messages"`)
	nameInput        = []byte(`"input"`)
	namePrompt       = []byte(`"prompt"`)
	nameModel        = []byte(`"model"`)
	nameSalt         = []byte(`"cache_salt"`)
	nameCacheControl = []byte(`"cache_control"`)

	roleKey      = []byte(`"role":"`)
	stringEnd    = []byte(`","`)
	objectsEnd   = []byte(`}],"`)
	listEnd      = []byte(`],"`)
	lastObjects  = []byte(`}]}`)
	lastList     = []byte(`]}`)
	lastString   = []byte(`"}`)
	billingBlock = []byte(`"text":"x-anthropic-billing-header`)
	keySeparator = []byte{0}
)

// tailWindow is how far before the end of the messages the start of the last one is looked for, in bytes. Searching
// backwards costs about 1 ns a byte, so a long last message is not walked; 4 KiB holds most of them.
const tailWindow = 4096

// keyOf cuts the routing key out of the body of a routed request: tools, then system or instructions, then the messages,
// input or prompt, as raw bytes. It is a pure function of the body, and a chat that grows by a turn extends its own key.
// The key is a hint: what the searches misread costs a cache hit, never correctness. space separates keys that engines
// never share blocks across: the model and the cache salt. An empty key means that no prompt was made out.
func keyOf(e endpoint, body []byte) (space, key string) {
	body = normalise(body)
	var preamble, main []byte
	switch e {
	case endpointChat:
		main = nameMessages
	case endpointCompletion:
		main = namePrompt
	case endpointMessages:
		main, preamble = nameMessages, nameSystem
	case endpointResponses:
		main, preamble = nameInput, nameInstructions
	default:
		return "", ""
	}

	// Where each section's name and value start; -1 = there is none.
	mainName, mainValue := findValue(body, main, 0)
	for mainValue >= 0 && (body[mainValue] != '[' && (e == endpointChat || e == endpointMessages || body[mainValue] != '"')) {
		mainName, mainValue = findValue(body, main, mainValue)
	}
	if mainValue < 0 {
		return "", ""
	}
	toolsName, toolsValue := -1, -1
	if e != endpointCompletion {
		toolsName, toolsValue = findSection(body, nameTools, mainName, true)
	}
	preName, preValue := -1, -1
	if preamble != nil {
		preName, preValue = findSection(body, preamble, mainName, false)
	}

	// A section ends at the latest where the next one starts.
	mainLimit, toolsLimit, preLimit := len(body), len(body), len(body)
	if toolsName > mainName {
		mainLimit = toolsName
	} else if toolsName >= 0 {
		toolsLimit = mainName
	}
	if preName > mainName {
		if preName < mainLimit {
			mainLimit = preName
		}
	} else if preName >= 0 {
		preLimit = mainName
	}
	if toolsName >= 0 && preName >= 0 {
		if toolsName < preName && preName < toolsLimit {
			toolsLimit = preName
		} else if preName < toolsName && toolsName < preLimit {
			preLimit = toolsName
		}
	}

	// Only a body that is no JSON has a limit before the value.
	if mainLimit <= mainValue {
		mainLimit = len(body)
	}
	if toolsLimit <= toolsValue {
		toolsLimit = len(body)
	}
	if preLimit <= preValue {
		preLimit = len(body)
	}

	mainEnd := endOfMain(body, mainValue, mainLimit)
	prompt := body[mainValue+1 : mainEnd]
	if toolsName >= 0 || preName >= 0 {
		var tools, pre []byte
		if toolsName >= 0 {
			tools = body[toolsValue+1 : endOfTools(body, toolsValue, toolsLimit)]
		}
		if preName >= 0 {
			pre = body[preValue+1 : endOfPreamble(body, preValue, preLimit)]
			if bytes.Contains(pre, billingBlock) {
				pre = dropBilling(pre)
			}
		}
		prompt = bytes.Join([][]byte{tools, pre, prompt}, keySeparator)
	}
	return textAround(body, nameModel, mainName, mainEnd) + "\x00" + textAround(body, nameSalt, mainName, mainEnd), string(prompt)
}

// normalise brings a body to the one layout that the searches know: spaces between tokens as Python's json module
// writes them are taken out, cache_control markers are dropped. A body that has neither is returned as it is.
func normalise(body []byte) []byte {
	if i := bytes.IndexByte(body, ':'); i >= 0 && i+1 < len(body) && body[i+1] == ' ' {
		// An escaped quote before the colon belongs to a text and stays.
		body = bytes.ReplaceAll(body, []byte(`\": `), []byte("\\\"\x00 "))
		body = bytes.ReplaceAll(body, []byte(`": `), []byte(`":`))
		body = bytes.ReplaceAll(body, []byte("\\\"\x00 "), []byte(`\": `))
		body = bytes.ReplaceAll(body, []byte(`, "`), []byte(`,"`))
		body = bytes.ReplaceAll(body, []byte(`}, {"`), []byte(`},{"`))
		const tokens = `"prompt":[`
		if i := bytes.Index(body, []byte(tokens)) + len(tokens); i >= len(tokens) && i < len(body) && body[i] != '"' {
			body = bytes.ReplaceAll(body, []byte(`, `), []byte(`,`))
		}
	}
	if bytes.Contains(body, nameCacheControl) {
		body = dropCacheControl(body)
	}
	return body
}

// dropCacheControl removes every cache_control member. Clients move these markers from turn to turn.
func dropCacheControl(body []byte) []byte {
	out := make([]byte, 0, len(body))
	for {
		i := bytes.Index(body, nameCacheControl)
		if i < 0 {
			return append(out, body...)
		}
		end := i + len(nameCacheControl)
		if bytes.HasPrefix(body[end:], []byte(`:{`)) {
			if n := bytes.IndexByte(body[end:], '}'); n >= 0 {
				end += n + 1
			}
		} else if n := bytes.IndexAny(body[end:], ",}"); n >= 0 {
			end += n
		}
		if i > 0 && body[i-1] == ',' {
			i--
		} else if end < len(body) && body[end] == ',' {
			end++
		}
		out = append(out, body[:i]...)
		body = body[end:]
	}
}

// dropBilling removes the system blocks that engines remove too: a line with a hash of each request.
func dropBilling(blocks []byte) []byte {
	for {
		i := bytes.Index(blocks, billingBlock)
		if i < 0 {
			return blocks
		}
		start := bytes.LastIndexByte(blocks[:i], '{')
		end := bytes.IndexByte(blocks[i:], '}')
		if start < 0 || end < 0 {
			return blocks
		}
		end += i + 1
		if end < len(blocks) && blocks[end] == ',' {
			end++
		}
		blocks = bytes.Join([][]byte{blocks[:start], blocks[end:]}, nil)
	}
}

// findValue returns where the first key of that name stands at or after from, and where its value starts, or -1, -1.
func findValue(body, name []byte, from int) (at, value int) {
	for {
		i := bytes.Index(body[from:], name)
		if i < 0 {
			return -1, -1
		}
		at = from + i
		value = at + len(name)
		for value < len(body) && (body[value] == ' ' || body[value] == '\n' || body[value] == '\r' || body[value] == '\t') {
			value++
		}
		if value < len(body) && body[value] == ':' {
			value++
			for value < len(body) && (body[value] == ' ' || body[value] == '\n' || body[value] == '\r' || body[value] == '\t') {
				value++
			}
			if value < len(body) {
				return at, value
			}
		}
		from = at + len(name)
	}
}

// findSection finds a top-level list (of objects only, if objects is set) or text beside the messages, which start at
// main. A name found among the messages is not one: a further role follows it.
func findSection(body, name []byte, main int, objects bool) (at, value int) {
	at, value = findValue(body, name, 0)
	for value >= 0 {
		good := body[value] == '[' || (body[value] == '"' && !objects)
		if good && objects {
			next := value + 1
			for next < len(body) && (body[next] == ' ' || body[next] == '\n' || body[next] == '\r' || body[next] == '\t') {
				next++
			}
			good = next < len(body) && body[next] == '{'
		}
		if good && (at < main || !bytes.Contains(body[at:], roleKey)) {
			return at, value
		}
		at, value = findValue(body, name, value)
	}
	return -1, -1
}

// endOfMain returns the end of the messages, input or prompt that start at value, without what closes them, so that the
// key of a chat is a prefix of the key of the same chat with another turn. Too early an end only shortens the match.
func endOfMain(body []byte, value, limit int) int {
	if body[value] == '"' {
		return endOfString(body, value, limit)
	}
	next := value + 1
	if next < limit && (body[next] == '{' || body[next] == '\n' || body[next] == ' ') {
		from := value + 1
		if limit-tailWindow > from {
			from = limit - tailWindow
		}
		if i := bytes.LastIndex(body[from:limit], roleKey); i >= 0 {
			from += i
		}
		if i := bytes.Index(body[from:limit], objectsEnd); i >= 0 {
			return from + i + 1
		}
		return trimmedEnd(body[:limit], lastObjects, 1, value)
	}
	// A list of texts or of token ids.
	if i := bytes.Index(body[value:limit], listEnd); i >= 0 {
		return value + i
	}
	return trimmedEnd(body[:limit], lastList, 0, value)
}

// endOfTools returns the end of the list of tools that starts at value: the first place where a list of objects closes
// and as many brackets are closed as were opened. A bracket in a description without its partner makes it overshoot, and
// then the limit holds.
func endOfTools(body []byte, value, limit int) int {
	from := value
	for {
		i := bytes.Index(body[from:limit], objectsEnd)
		if i < 0 {
			return trimmedEnd(body[:limit], lastObjects, 1, value)
		}
		end := from + i + 2
		if bytes.Count(body[value:end], []byte{'['}) <= bytes.Count(body[value:end], []byte{']'}) {
			return end - 1
		}
		from = end
	}
}

// endOfPreamble returns the end of the system or instructions text or blocks that start at value.
func endOfPreamble(body []byte, value, limit int) int {
	if body[value] == '"' {
		return endOfString(body, value, limit)
	}
	if i := bytes.Index(body[value:limit], objectsEnd); i >= 0 {
		return value + i + 1
	}
	return trimmedEnd(body[:limit], lastObjects, 1, value)
}

// endOfString returns where the string that starts at value is closed: at the first quote, comma, quote, for another
// key has to follow, or at the end of the body.
func endOfString(body []byte, value, limit int) int {
	from := value + 1
	for {
		i := bytes.Index(body[from:limit], stringEnd)
		if i < 0 {
			return trimmedEnd(body[:limit], lastString, 0, value)
		}
		end := from + i
		if body[end-1] != '\\' || end-1 == value {
			return end
		}
		from = end + 1
	}
}

// trimmedEnd returns the end of a section that runs to the end of the body, or as far as it is known: without suffix, of
// which keep bytes belong to the section.
func trimmedEnd(body, suffix []byte, keep, value int) int {
	body = bytes.TrimRight(body, " \r\n\t")
	if bytes.HasSuffix(body, suffix) && len(body)-len(suffix)+keep > value {
		return len(body) - len(suffix) + keep
	}
	if len(body) <= value {
		return value + 1
	}
	return len(body)
}

// textAround returns the string value of a name that stands before main, where the messages start, or after their end.
func textAround(body, name []byte, main, end int) string {
	part := body[:main]
	for turn := 0; turn < 2; turn++ {
		_, value := findValue(part, name, 0)
		for value >= 0 && part[value] != '"' {
			_, value = findValue(part, name, value)
		}
		if value >= 0 {
			if i := bytes.IndexByte(part[value+1:], '"'); i >= 0 && i < 1024 {
				return string(part[value+1 : value+1+i])
			}
		}
		part = body[end:]
	}
	return ""
}
