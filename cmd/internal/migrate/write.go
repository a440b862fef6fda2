package migrate

import (
	"bytes"
	"net"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/cart-llm/cart/cmd/internal/source"
)

// block is a map of YAML that is being written, with comments.
type block struct{ node *yaml.Node }

func newBlock() *block { return &block{&yaml.Node{Kind: yaml.MappingNode}} }

// set adds a key. comment goes above it, or behind the value if it is short.
func (b *block) set(key string, value *yaml.Node, comment string) {
	name := scalar(key)
	if len(comment) > 0 && len(comment) <= 60 && value.Kind == yaml.ScalarNode {
		value.LineComment = "# " + comment
	} else if comment != "" {
		name.HeadComment = wrap(sentence(comment))
	}
	b.node.Content = append(b.node.Content, name, value)
}

// value adds one that is a text, number or truth value as it stands.
func (b *block) value(key, text, comment string) { b.set(key, scalar(text), comment) }

// block adds a map, or returns the one that is there.
func (b *block) block(key, comment string) *block {
	for i := 0; i < len(b.node.Content); i += 2 {
		if b.node.Content[i].Value == key {
			return &block{b.node.Content[i+1]}
		}
	}
	below := newBlock()
	b.set(key, below.node, comment)
	return below
}

// path adds maps within maps.
func (b *block) path(keys ...string) *block {
	for _, key := range keys {
		b = b.block(key, "")
	}
	return b
}

func scalar(text string) *yaml.Node { return &yaml.Node{Kind: yaml.ScalarNode, Value: text} }

// flow is a list in one line.
func flow(texts ...string) *yaml.Node {
	n := &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle}
	for _, text := range texts {
		n.Content = append(n.Content, scalar(text))
	}
	return n
}

// text returns the block as a file with a comment at its head.
func (b *block) text() ([]byte, error) {
	if len(b.node.Content) == 0 {
		return []byte(b.node.HeadComment + "\n"), nil
	}
	document := &yaml.Node{Kind: yaml.DocumentNode, Content: []*yaml.Node{b.node}, HeadComment: b.node.HeadComment}
	b.node.HeadComment = ""
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	if err := encoder.Encode(document); err != nil {
		return nil, err
	}
	return out.Bytes(), encoder.Close()
}

// plain returns the block as a parser would read it.
func (b *block) plain() (map[string]any, error) {
	out := map[string]any{}
	return out, b.node.Decode(&out)
}

// wrap makes a comment of sentences. A line that begins with a space stays as it is.
func wrap(text string) string {
	var lines []string
	for _, paragraph := range strings.Split(text, "\n") {
		if strings.HasPrefix(paragraph, " ") {
			lines = append(lines, "# "+paragraph)
			continue
		}
		line := "#"
		for _, word := range strings.Fields(paragraph) {
			if len(line)+1+len(word) > 100 {
				lines = append(lines, line)
				line = "#"
			}
			line += " " + word
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

// sentence turns a remark into one.
func sentence(remark string) string {
	remark = strings.ToUpper(remark[:1]) + remark[1:]
	if !strings.HasSuffix(remark, ".") {
		remark += "."
	}
	return remark
}

const (
	entryPoint  = "llm"
	serviceName = "cart-workers"
	apiDefault  = "127.0.0.1:8080"
	apiOther    = "127.0.0.1:8081"
)

// api is where Traefik's API listens: on its usual port, unless that is the router's.
func (m *migration) api() string {
	if m.options.API != "" {
		return m.options.API
	}
	if m.listen.port == "8080" {
		return apiOther
	}
	return apiDefault
}

func (m *migration) madeOf() string {
	return "made by `cart migrate` from " + strings.Join(m.names, " and ")
}

// static is Traefik's static configuration.
func (m *migration) static() *block {
	root := newBlock()
	root.node.HeadComment = wrap("Traefik's static configuration, " + m.madeOf() + ". Start Traefik in this folder, with\n" +
		"  traefik --configFile=traefik.yml\n" +
		"and the plugin's source in plugins-local/src/" + source.Module + " below it.")
	entryPoints := root.block("entryPoints", "")
	address := scalar(net.JoinHostPort(m.listen.host, m.listen.port))
	entryPoints.block(entryPoint, "").set("address", address, "server.host and server.port")
	if !m.options.Inline {
		entryPoints.block("traefik", "").value("address", m.api(), "keep it from others: the API tells all")
		api := root.block("api", "CART asks the API for the workers' service. It also serves the dashboard.")
		api.value("insecure", "true", "on the entry point traefik, see above")
	}
	experimental := root.block("experimental", "")
	experimental.value("abortOnPluginFailure", "true", "else Traefik starts without its plugins and answers 404")
	experimental.path("localPlugins", "cart").value("moduleName", source.Module, "")
	root.path("providers", "file").value("directory", "dynamic", "below the folder that Traefik is started in")
	return root
}

// tuning is the dynamic configuration that people write.
func (m *migration) tuning(middleware *block) *block {
	root := newBlock()
	root.node.HeadComment = wrap("CART's settings and the way to it, " + m.madeOf() + ". Yours to change: Traefik takes changes over at " +
		"once, without a restart, and `cart check` tells what is wrong with them.")
	http := root.block("http", "")
	router := http.path("routers", entryPoint)
	router.set("entryPoints", flow(entryPoint), "")
	router.value("rule", "PathPrefix(`/`)", "The Rust router passed every path on, and so does this. With PathPrefix(`/v1`) "+
		"clients would no longer reach the engines' own pages, nor /health and /workers.")
	router.set("middlewares", flow("cart"), "")
	router.value("service", "noop@internal", "CART answers every request itself")
	plugin := http.path("middlewares", "cart", "plugin")
	plugin.set("cart", middleware.node, "")
	return root
}

// service is the dynamic configuration that a generator may write: the workers and nothing else.
func (m *migration) service() *block {
	if m.options.Inline {
		return nil
	}
	root := newBlock()
	root.node.HeadComment = wrap("The workers, " + m.madeOf() + ". Nothing else is in this file, so that a generator can rewrite it.")
	if len(m.workers) == 0 {
		return root
	}
	servers := &yaml.Node{Kind: yaml.SequenceNode}
	for _, w := range m.workers {
		one := newBlock()
		one.value("url", w.url, "")
		servers.Content = append(servers.Content, one.node)
	}
	root.path("http", "services", serviceName, "loadBalancer").set("servers", servers, "")
	return root
}

// middleware is CART's own configuration, in the order of the README's table.
func (m *migration) middleware() *block {
	root := newBlock()
	general := m.generalMaxLoad()
	if !m.options.Inline {
		discovery := root.block("discovery", "The workers are the servers of this service, which is in workers.yml.")
		discovery.value("service", serviceName+"@file", "")
		if api := m.api(); api != apiDefault {
			discovery.block("api", "").value("address", "http://"+api, "")
		}
	}
	if workers := m.workerList(general); len(workers.Content) > 0 {
		comment := ""
		if !m.options.Inline {
			comment = "These workers differ from the rest. An entry tunes the one at its url and adds none."
		}
		root.set("workers", workers, comment)
	}
	root.value("maxLoad", general, "")
	for _, key := range m.settings.keys() {
		v := m.settings[key]
		steps := strings.Split(key, ".")
		at := root.path(steps[:len(steps)-1]...)
		if v.list != nil {
			at.set(steps[len(steps)-1], flow(v.list...), v.comment)
		} else {
			at.value(steps[len(steps)-1], v.text, v.comment)
		}
	}
	return root
}

// workerList has all workers, or those that need tuning when the list itself is elsewhere.
func (m *migration) workerList(general string) *yaml.Node {
	list := &yaml.Node{Kind: yaml.SequenceNode}
	for _, w := range m.workers {
		one := newBlock()
		one.value("url", w.url, "")
		if w.load() != general {
			one.value("maxLoad", w.load(), "")
		}
		if w.loadPenalty != "" && w.loadPenalty != "0" {
			one.value("loadPenalty", w.loadPenalty, "")
		}
		if m.options.Inline || len(one.node.Content) > 2 {
			list.Content = append(list.Content, one.node)
		}
	}
	return list
}

// defaultMaxLoad is that of a worker in both routers.
const defaultMaxLoad = "20"

func (w *worker) load() string {
	if w.maxLoad == "" {
		return defaultMaxLoad
	}
	return w.maxLoad
}

// generalMaxLoad is what most workers have, the first of several. Workers that come later get it too.
func (m *migration) generalMaxLoad() string {
	counts := map[string]int{}
	best := defaultMaxLoad
	for i := range m.workers {
		load := m.workers[i].load()
		counts[load]++
	}
	for i := range m.workers {
		if load := m.workers[i].load(); counts[load] > counts[best] {
			best = load
		}
	}
	return best
}
