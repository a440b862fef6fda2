package cart

import (
	"bytes"
	"encoding/json"
	"strings"
)

// Where the sections of a body begin and end, and what is taken out of them: the functions of keyLoop.

// findMain returns where the key of the messages, input or prompt stands, or -1.
func findMain(body, name string) int {
	if name == messagesKey {
		if i := findList(body, openFirst); i >= 0 {
			return i
		}
		return strings.Index(body, openMessages)
	}
	return findText(body, name)
}

// findList returns where a key stands whose value is a list of objects, or -1. name ends with openObjects.
func findList(body, name string) int {
	from := 0
	for round := 0; round < maxRounds; round++ {
		i := strings.Index(body[from:], openObjects)
		if i < 0 {
			return -1
		}
		from += i + len(openObjects)
		if strings.HasSuffix(body[:from], name) {
			return from - len(name)
		}
	}
	i := strings.Index(body[from:], name)
	if i < 0 {
		return -1
	}
	return from + i
}

// findText returns where a key stands whose value is a text or a list, or -1. name ends with the colon.
func findText(body, name string) int {
	from := 0
	for round := 0; round < maxRounds; round++ {
		i := strings.Index(body[from:], name)
		if i < 0 {
			return -1
		}
		at := from + i
		from = at + len(name)
		if from < len(body) && (body[from] == '"' || body[from] == '[') {
			return at
		}
	}
	return -1
}

// lastRole returns where the last role of a message starts between value and from, or value. Where all messages are written
// with their role behind, it is searched for a second time.
func lastRole(body string, value, from int) int {
	if at := lastBlockwise(body, value, from, firstRole); at > value {
		return at
	}
	return lastBlockwise(body, value, from, roleKey)
}

// lastBlockwise goes backwards in blocks that are searched forwards, for a search that runs backwards takes ten times as long.
func lastBlockwise(body string, value, from int, what string) int {
	const block = 64 << 10
	for from > value {
		start := from - block
		if start < value {
			start = value
		}
		part := body[start : from+len(what)-1]
		if strings.Contains(part, what) {
			return start + strings.LastIndex(part, what)
		}
		from = start
	}
	return value
}

// compact takes the spaces between tokens out, and a byte order mark. What is no JSON is returned as it is.
func compact(body string) string {
	var out bytes.Buffer
	out.Grow(len(body))
	if json.Compact(&out, []byte(strings.TrimPrefix(body, "\xef\xbb\xbf"))) != nil {
		return body
	}
	return out.String()
}

// writeUnmarked writes a section without its cache_control members. Clients move these markers from turn to turn.
func writeUnmarked(out *strings.Builder, section string) {
	const longest = 256 // bytes of a marker's value
	from := 0
	for round := 0; round < maxRounds; round++ {
		i := strings.Index(section[from:], controlMark)
		if i < 0 {
			break
		}
		i += from
		end := i + len(controlMark)
		if !strings.HasSuffix(section[:i], controlHead) {
			from = end // another key that ends like this one
			continue
		}
		i -= len(controlHead)
		near := section[end:]
		if len(near) > longest {
			near = near[:longest]
		}
		if strings.HasPrefix(near, "{") {
			if n := strings.IndexByte(near, '}'); n >= 0 {
				end += n + 1
			}
		} else if n := strings.IndexAny(near, ",}"); n >= 0 {
			end += n
		}
		if i > 0 && section[i-1] == ',' {
			i--
		} else if end < len(section) && section[end] == ',' {
			end++
		}
		out.WriteString(section[:i])
		section = section[end:]
		from = 0
	}
	out.WriteString(section)
}

// dropBilling removes the system blocks that engines remove too: a line with a hash of each request.
func dropBilling(blocks string, marked bool) string {
	var out strings.Builder
	if marked {
		writeUnmarked(&out, blocks)
		blocks = out.String()
		out.Reset()
	}
	out.Grow(len(blocks))
	for round := 0; round < maxRounds; round++ {
		i := strings.Index(blocks, billingBlock)
		if i < 0 {
			break
		}
		start := strings.LastIndexByte(blocks[:i], '{')
		end := strings.IndexByte(blocks[i:], '}')
		if start < 0 || end < 0 {
			break
		}
		end += i + 1
		if end < len(blocks) && blocks[end] == ',' {
			end++
		}
		out.WriteString(blocks[:start])
		blocks = blocks[end:]
	}
	out.WriteString(blocks)
	return out.String()
}

// endOfObjects returns where objectsEnd stands, or -1. A marker may follow a list within a message.
func endOfObjects(text string) int {
	from := 0
	for round := 0; round < maxRounds; round++ {
		i := strings.Index(text[from:], objectsEnd)
		if i < 0 {
			return -1
		}
		from += i
		if !strings.HasPrefix(text[from+len(objectsEnd)-1:], controlHead+controlMark) {
			return from
		}
		from += len(objectsEnd)
	}
	return -1
}

// endOfTools returns the end of the list of tools that starts at value: the first place where a list of objects closes
// and as many brackets are closed as were opened. Where a bracket in a description has no partner, a JSON decoder tells.
func endOfTools(body string, value, limit int) int {
	from, open := value, 0
	for round := 0; round < maxRounds; round++ {
		i := strings.Index(body[from:limit], objectsEnd)
		if i < 0 {
			break
		}
		end := from + i + 2
		open += strings.Count(body[from:end], "[") - strings.Count(body[from:end], "]")
		if open <= 0 {
			return end - 1
		}
		from = end
	}
	var list json.RawMessage
	if from > value && json.NewDecoder(strings.NewReader(body[value:])).Decode(&list) == nil {
		return value + len(list) - 1
	}
	return endOfTail(body, value, limit)
}

// endOfPreamble returns the end of the system or instructions text or blocks that start at value.
func endOfPreamble(body string, value, limit int) int {
	if body[value] == '"' {
		return endOfString(body, value, limit)
	}
	if i := strings.Index(body[value:limit], objectsEnd); i >= 0 {
		return value + i + 1
	}
	return endOfTail(body, value, limit)
}

// endOfValue returns the end of a text, or of a list of texts or token ids, that starts at value.
func endOfValue(body string, value, limit int) int {
	if body[value] == '"' {
		return endOfString(body, value, limit)
	}
	if i := strings.Index(body[value:limit], `],"`); i >= 0 {
		return value + i
	}
	return trimEnd(body, "]}", 0, value, limit)
}

// endOfTail returns the end of a list of objects that runs to the limit in a way that was not foreseen.
func endOfTail(body string, value, limit int) int {
	return trimEnd(body, "}]}", 1, value, limit)
}

// endOfString returns where the text that starts at value is closed: at the first quote, comma, quote, for another key
// has to follow, or at the end of the body.
func endOfString(body string, value, limit int) int {
	from := value + 1
	for round := 0; round < maxRounds; round++ {
		i := strings.Index(body[from:limit], `","`)
		if i < 0 {
			break
		}
		text := body[value+1 : from+i]
		from += i
		if (len(text)-len(strings.TrimRight(text, `\`)))%2 == 0 {
			return from
		}
		from++ // the quote is escaped
	}
	return trimEnd(body, `"}`, 0, value, limit)
}

// trimEnd returns the end of a section that runs to the limit: without what closes it, of which keep bytes belong to it.
func trimEnd(body, closing string, keep, value, limit int) int {
	body = strings.TrimRight(body[:limit], " \r\n\t,")
	end := len(body)
	if strings.HasSuffix(body, closing) {
		end += keep - len(closing)
	}
	if end <= value {
		return value + 1
	}
	return end
}

// looseText returns the text of a key with spaces around its colon.
func looseText(body, name string) string {
	i := strings.Index(body, name)
	if i < 0 {
		return ""
	}
	value := strings.TrimLeft(body[i+len(name):], " \r\n\t:")
	if !strings.HasPrefix(value, `"`) {
		return ""
	}
	if n := strings.IndexByte(value[1:], '"'); n >= 0 && n < longestName {
		return value[1 : n+1]
	}
	return ""
}
