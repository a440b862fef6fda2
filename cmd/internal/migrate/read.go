package migrate

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/cart-llm/cart"
	"github.com/cart-llm/cart/cmd/internal/layer"
)

// value is a setting's value in the result.
type value struct {
	text    string
	list    []string
	comment string // what is to be known about it, "" if it means the same as before
}

type settings map[string]value

// keys returns the settings in the order in which the plugin declares them.
func (s settings) keys() []string {
	return slices.SortedFunc(maps.Keys(s), func(a, b string) int { return known.order(a) - known.order(b) })
}

func (m *migration) note(n *layer.Node, key, format string, args ...any) {
	m.account = append(m.account, Line{At: n.At, Key: key, Value: shown(key, n), What: fmt.Sprintf(format, args...)})
}

func (m *migration) lost(n *layer.Node, key, format string, args ...any) {
	what := "NOT CARRIED OVER: " + fmt.Sprintf(format, args...)
	m.account = append(m.account, Line{At: n.At, Key: key, Value: shown(key, n), What: what, Lost: true})
}

// hidden is what cart.Show makes of a value that may be secret.
var hidden = cart.Show("password", "x")

// shown returns the value of a key for the account, without what may be secret.
func shown(key string, n *layer.Node) string {
	if list, ok := n.List(); ok {
		texts := make([]string, len(list))
		for i, element := range list {
			texts[i] = shown(key, element)
		}
		return "[" + strings.Join(texts, ", ") + "]"
	}
	if _, ok := n.Map(); ok {
		return "{" + strings.Join(n.Keys(), ", ") + "}"
	}
	text := n.Scalar()
	if address, err := url.Parse(text); err == nil && address.User != nil {
		return address.Redacted()
	}
	if text != "" && cart.Show(key, text) == hidden {
		return "..."
	}
	return text
}

// read goes through all of the source and accounts for every key.
func (m *migration) read(source *layer.Node) {
	for _, section := range source.Keys() {
		n := source.Get(section)
		switch {
		case n.Null():
			m.note(n, section, "empty, changes nothing")
		case section == "server":
			m.server(n)
		case section == "workers":
			m.readWorkers(n)
		case section == "logging" || section == "log":
			m.section(n, section, m.logging)
		default:
			if _, isMap := n.Map(); isMap {
				m.section(n, section, m.setting)
			} else {
				m.setting(section, n)
			}
		}
	}
	m.defaults(source)
}

// section gives every key of a section to f, also those of sections within it.
func (m *migration) section(n *layer.Node, name string, f func(key string, n *layer.Node)) {
	if _, isMap := n.Map(); !isMap {
		m.lost(n, name, "want a section with keys in it")
		return
	}
	for _, key := range n.Keys() {
		element := n.Get(key)
		full := name + "." + key
		if strings.HasSuffix(full, ".circuit_breaker") {
			full = "circuit_breaker"
		}
		if _, isMap := element.Map(); isMap && !strings.HasSuffix(full, "headers") {
			m.section(element, full, f)
			continue
		}
		f(full, element)
	}
}

func (m *migration) server(n *layer.Node) {
	for _, key := range n.Keys() {
		element := n.Get(key)
		switch key {
		case "host":
			m.listen.host = element.Scalar()
		case "port":
			port, err := strconv.Atoi(element.Scalar())
			if err != nil || port < 1 || port > 65535 {
				m.lost(element, "server.port", "want a port from 1 to 65535; Traefik listens on %s", m.listen.port)
				continue
			}
			m.listen.port = element.Scalar()
		default:
			m.lost(element, "server."+key, "Traefik's entry point has no such setting")
			continue
		}
		m.note(element, "server."+key, "entryPoints.llm.address in traefik.yml")
	}
}

func (m *migration) readWorkers(n *layer.Node) {
	list, ok := n.List()
	if !ok {
		m.lost(n, "workers", "want a list of maps with url, max_load and load_penalty")
		return
	}
	if len(list) == 0 {
		m.note(n, "workers", "no replica yet: CART starts all the same and answers 503 until there is one")
	}
	for i, element := range list {
		name := fmt.Sprintf("workers[%d]", i)
		w := worker{url: element.Text()} // a list of addresses will do as well
		if w.url != "" {
			m.note(element, name, "%s", m.workersAt())
		}
		for _, key := range element.Keys() {
			one := element.Get(key)
			switch key {
			case "url":
				w.url = one.Scalar()
				m.note(one, name+".url", "%s", m.workersAt())
			case "max_load":
				w.maxLoad = one.Scalar()
				m.note(one, name+".max_load", "maxLoad in dynamic/cart.yml, for all or for this worker")
			case "load_penalty":
				w.loadPenalty = one.Scalar()
				if w.loadPenalty == "0" {
					m.note(one, name+".load_penalty", "none, which is the default")
				} else {
					m.note(one, name+".load_penalty", "loadPenalty of this worker in dynamic/cart.yml")
				}
			default:
				m.lost(one, name+"."+key, "a worker has no such setting%s", insteadOf(key))
			}
		}
		if w.url == "" {
			m.lost(element, name, "it has no url")
			continue
		}
		m.workers = append(m.workers, w)
	}
}

func (m *migration) workersAt() string {
	if m.options.Inline {
		return "a worker in dynamic/cart.yml"
	}
	return "a server in dynamic/workers.yml"
}

// setting carries one setting over.
func (m *migration) setting(key string, n *layer.Node) {
	s, unit, ok := lookup(key)
	if !ok {
		m.lost(n, key, "neither the Rust router nor CART has such a key%s", insteadOf(key))
		return
	}
	if n.Null() {
		m.note(n, key, "empty, changes nothing")
		return
	}
	if _, isMap := n.Map(); isMap {
		m.lost(n, key, "write it into dynamic/cart.yml by hand, as %s", s.key)
		return
	}
	v := valueOf(n, s, unit)
	if change, ok := changes[s.key]; ok {
		v.text, v.comment = change(v.text)
		if v.text == "" {
			m.note(n, key, "left out of dynamic/cart.yml: %s", v.comment)
			return
		}
	}
	m.settings[s.key] = v
	what := s.key
	if v.text != n.Scalar() {
		what += " = " + v.text
	}
	if v.comment != "" {
		what += " (" + v.comment + ")"
	}
	m.note(n, key, "%s", what)
}

// insteadOf names what CART calls otherwise, "" if it has nothing.
func insteadOf(key string) string {
	words := cart.OtherWords(key[strings.LastIndex(key, ".")+1:])
	if len(words) == 0 {
		return ""
	}
	return "; CART has " + strings.Join(words, " and ")
}

// valueOf reads a list or a single value; numbers that are durations get their unit.
func valueOf(n *layer.Node, s setting, unit string) value {
	v := value{text: n.Scalar()}
	list, _ := n.List()
	for _, element := range list {
		v.list = append(v.list, element.Scalar())
	}
	if unit == "" {
		unit = "s"
	}
	if _, err := strconv.ParseUint(v.text, 10, 63); err == nil && s.duration {
		v.text += unit
	}
	return v
}

// logging carries the level and the format over. The level may be a filter such as cache_aware_router=debug,info.
func (m *migration) logging(key string, n *layer.Node) {
	if key == "logging.format" || key == "log.format" {
		format := strings.ToLower(n.Scalar())
		if format != "json" && format != "text" {
			m.lost(n, key, "want json or text; CART logs as json")
			return
		}
		m.settings["logFormat"] = value{text: format}
		m.note(n, key, "logFormat")
		return
	}
	if key != "logging.level" && key != "log.level" {
		m.lost(n, key, "neither the Rust router nor CART has such a key")
		return
	}
	level, exact := levelOf(n.Scalar())
	if level == "" {
		m.lost(n, key, "want trace, debug, info, warn, error or off; CART logs at info")
		return
	}
	v := value{text: level}
	if !exact {
		v.comment = "CART has the levels debug, info, warn and error and no filters by module"
	}
	m.settings["logLevel"] = v
	what := "logLevel = " + level
	if level == "info" {
		what += " (CART logs its decisions at debug, the Rust router at info)"
	} else if !exact {
		what += " (" + v.comment + ")"
	}
	m.note(n, key, "%s", what)
}

// levelOf returns CART's level for a filter; exact tells whether it says the same.
func levelOf(filter string) (level string, exact bool) {
	parts := strings.Split(strings.ToLower(filter), ",")
	for _, part := range parts {
		module, name, forModule := strings.Cut(strings.TrimSpace(part), "=")
		if !forModule {
			name = module
		} else if module != "cache_aware_router" {
			continue
		}
		switch name {
		case "debug", "info", "warn", "error":
			level, exact = name, !forModule && len(parts) == 1
		case "trace":
			level, exact = "debug", false
		case "off":
			level, exact = "error", false
		}
		if forModule && level != "" {
			return level, false
		}
	}
	return level, exact
}
