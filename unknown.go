package cart

import (
	"encoding/json"
	"fmt"
	"sort"
	"strconv"
	"strings"
)

// unknown refuses the keys that mapstructure found no field for, and says what may have been meant. prefix tells
// where they stand, such as cache. or workers[0]. with its dot.
func (v *validator) unknown(prefix string, rest map[string]interface{}) {
	if len(rest) == 0 {
		return
	}
	all := placesOf("", fullConfig(), nil)
	names := make([]string, 0, len(rest))
	for name := range rest {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		value := rest[name]
		hint, near := meant(prefix, name, value, all)
		text := prefix + name + " = " + Show(name+" "+near, value) + " is not allowed (" + hint + ")"
		v.faults = append(v.faults, Fault{Key: prefix + name, Text: text})
	}
}

// place is a key that there is.
type place struct {
	prefix string // what stands before the name, such as cache. or workers[].
	name   string
	isMap  bool
	isList bool
}

func (p place) path() string { return p.prefix + p.name }

// meant says what may have been meant by a key that there is not: first it is looked for where it stands, then everywhere.
// near is the name of the key that it is probably mistyped for, "" = none.
func meant(prefix, name string, value interface{}, all []place) (hint, near string) {
	level := levelOf(prefix)
	if i := strings.Index(name, "."); i > 0 {
		return "no such key; a dot in the list of keys is a level of nesting: write " + name[:i] + ": {" + name[i+1:] + ": ...}", ""
	}
	var here, there, elsewhere []string
	for _, p := range all {
		if p.prefix == level && strings.EqualFold(p.name, name) {
			return "the same key as " + prefix + p.name + ", which is there in another spelling: keep one of them", ""
		}
		switch {
		case p.prefix == level:
			here = append(here, p.name)
		case !p.takes(value):
		case strings.EqualFold(p.name, name):
			there = append(there, p.path())
		case len(name) > 4: // of shorter ones too many are near
			elsewhere = append(elsewhere, p.path())
		}
	}
	if words := OtherWords(name); len(words) > 0 {
		return inOtherWords(prefix, level, words, there), lastOf(words[0])
	}
	near = Nearest(name, here)
	switch {
	case near != "" && len(there) > 0:
		return "no such key; did you mean " + prefix + near + "? Or it belongs in " + anyOf(there), near
	case near != "":
		return "no such key; did you mean " + prefix + near + "?", near
	case len(there) > 0:
		return "no such key here; it belongs in " + anyOf(there), ""
	}
	if path := nearestPath(name, elsewhere); path != "" {
		return "no such key; did you mean " + path + "?", lastOf(path)
	}
	return "no such key; see docs/settings.md for all there are", ""
}

// OtherWords returns the keys that do what other gateways call so, none if no other name is known for any.
func OtherWords(name string) []string {
	switch strings.NewReplacer("_", "", "-", "").Replace(strings.ToLower(name)) {
	case "apikey", "apikeys":
		return []string{"workers[].apiKeyFile"}
	case "healthcheck", "healthchecks":
		return []string{"health"}
	case "servers", "replicas", "backends", "upstreams":
		return []string{"workers"}
	case "weight":
		return []string{"workers[].loadPenalty"}
	case "maxbodysize":
		return []string{"proxy.maxBodyBytes"}
	case "retries", "retry":
		return []string{"proxy.maxRetries"}
	case "timeout":
		return []string{"proxy.requestTimeout", "health.timeout"}
	case "strategy", "algorithm":
		return []string{"policy"}
	}
	return nil
}

// inOtherWords suggests what OtherWords has, and of the keys called the same elsewhere those that it does not have.
func inOtherWords(prefix, level string, words, there []string) string {
	var paths []string
	for _, path := range words {
		if level == "workers[]." && strings.HasPrefix(path, level) {
			path = prefix + lastOf(path)
		}
		paths = append(paths, path)
	}
	all := "," + strings.Join(words, ",") + ","
	for _, path := range there {
		if !strings.Contains(all, ","+path+",") {
			paths = append(paths, path)
		}
	}
	hint := paths[0]
	if prefix != "" || len(paths) > 1 {
		hint = anyOf(paths)
	}
	hint = "no such key; did you mean " + hint + "?"
	if words[0] == "workers[].loadPenalty" {
		hint += " A higher penalty gets less"
	}
	return hint
}

// takes tells whether a key can have a value of that kind.
func (p place) takes(value interface{}) bool {
	switch value.(type) {
	case map[string]interface{}:
		return p.isMap || p.isList // an element without its list
	case []interface{}:
		return p.isList
	}
	// The file provider makes a text of an empty map, and lists of values may be one text.
	return !p.isMap || value == nil || value == ""
}

// levelOf returns the level of a prefix: workers[]. for that of any worker.
func levelOf(prefix string) string {
	if strings.HasPrefix(prefix, "workers[") {
		return "workers[]."
	}
	return prefix
}

// anyOf joins places for a sentence.
func anyOf(paths []string) string {
	for i := range paths {
		if !strings.Contains(paths[i], ".") {
			paths[i] += " on top"
		}
	}
	last := len(paths) - 1
	if last == 0 {
		return paths[0]
	}
	return strings.Join(paths[:last], ", ") + " or " + paths[last]
}

// nearestPath is Nearest for paths, of which the last names count.
func nearestPath(name string, paths []string) string {
	names := make([]string, len(paths))
	for i := range paths {
		names[i] = lastOf(paths[i])
	}
	near := Nearest(name, names)
	for i := range names {
		if names[i] == near {
			return paths[i]
		}
	}
	return ""
}

func lastOf(path string) string { return path[strings.LastIndex(path, ".")+1:] }

// placesOf adds the keys of a part of the configuration, as written in YAML, and all below them.
func placesOf(prefix string, part interface{}, to []place) []place {
	text, err := json.Marshal(part)
	var object map[string]json.RawMessage
	if err != nil || json.Unmarshal(text, &object) != nil {
		return to
	}
	var names []string
	for name := range object {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		value := object[name]
		p := place{prefix: prefix, name: name, isMap: value[0] == '{', isList: value[0] == '['}
		to = append(to, p)
		if p.isMap && name != "headers" { // whose names are the user's
			to = placesOf(prefix+name+".", value, to)
		}
		var elements []json.RawMessage
		if p.isList && json.Unmarshal(value, &elements) == nil && len(elements) > 0 && elements[0][0] == '{' {
			to = placesOf(prefix+name+"[].", elements[0], to)
		}
	}
	return to
}

// fullConfig returns a configuration in which every key has a value, so that its JSON has them all.
func fullConfig() *Config {
	c := CreateConfig()
	headers := map[string]string{"x": "x"}
	c.Discovery.Service = "x"
	c.Discovery.DNS = "x"
	c.Discovery.API.User = "x"
	c.Discovery.API.Password = "x"
	c.Discovery.API.PasswordFile = "x"
	c.Discovery.API.CAFile = "x"
	c.Workers = []WorkerConfig{{URL: "x", MaxLoad: "x", LoadPenalty: "x", CacheTokens: "x", Headers: headers, APIKeyFile: "x"}}
	c.Proxy.RetryStatuses = []string{"x"}
	c.Proxy.RemoteMediaURLPolicy = "x"
	c.Health.Headers = headers
	c.TLS.CAFile = "x"
	c.TLS.CertFile = "x"
	c.TLS.KeyFile = "x"
	return c
}

// Nearest returns the key that a mistyped name is closest to, or "" if none is close: at most two letters are missing,
// extra, or wrong.
func Nearest(name string, keys []string) string {
	best, least := "", 3
	for _, key := range keys {
		if d := distance(strings.ToLower(name), strings.ToLower(key)); d < least {
			best = key
			least = d
		}
	}
	return best
}

// distance counts the letters to insert, remove or replace to turn a into b.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		corner := row[0]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			d := corner
			if a[i-1] != b[j-1] {
				d++
			}
			corner = row[j]
			if corner+1 < d {
				d = corner + 1
			}
			if row[j-1]+1 < d {
				d = row[j-1] + 1
			}
			row[j] = d
		}
	}
	return row[len(b)]
}

// Show returns the value of an unknown key for a message: neither what may be a secret nor what only Go is written in. key
// are the names that tell which.
func Show(key string, value interface{}) string {
	switch v := value.(type) {
	case nil:
		return "nothing"
	case map[string]interface{}:
		names := make([]string, 0, len(v))
		for name := range v {
			names = append(names, name)
		}
		sort.Strings(names)
		return "a map with " + strings.Join(names, ", ")
	case []interface{}:
		return "a list of " + strconv.Itoa(len(v))
	}
	text := strings.TrimSpace(fmt.Sprint(value))
	if maySecret(key, text) {
		text = "..."
	} else if len(text) > 80 {
		text = text[:80] + "..."
	}
	return strconv.Quote(text)
}

// maySecret tells whether the value of a key may have to stay hidden. Truth values are no secrets, and numbers are passwords
// at most.
func maySecret(key, value string) bool {
	_, isNumber := strconv.ParseFloat(value, 64)
	switch {
	case strings.EqualFold(value, "true") || strings.EqualFold(value, "false"):
		return false
	case strings.Contains(value, "@") && strings.Contains(value, ":"): // an address with a password
		return true
	case hasWord(key, "pass", "apikey", "api_key", "api-key", "secret", "credential"):
		return true
	}
	return isNumber != nil && hasWord(key, "token", "auth", "header")
}

// hasWord tells whether one of the words is in a text, whatever the case of its letters.
func hasWord(text string, words ...string) bool {
	text = strings.ToLower(text)
	for _, word := range words {
		if strings.Contains(text, word) {
			return true
		}
	}
	return false
}
