package source

import (
	"bufio"
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/cart-llm/cart/cmd/internal/layer"
	"github.com/cart-llm/cart/cmd/internal/traefik"
	"github.com/compose-spec/compose-go/v2/dotenv"
	"github.com/compose-spec/compose-go/v2/template"
)

// prefix is that of the labels that make middlewares.
const prefix = "traefik.http.middlewares."

// label is one of a container's labels.
type label struct {
	name, value string
	at          layer.Position
}

// labelled is a container.
type labelled struct {
	name   string // of the service, or "labels"
	labels map[string]label
}

// isLabelFile tells whether a file can only be a list of labels.
func isLabelFile(name string) bool {
	switch strings.ToLower(filepath.Ext(name)) {
	case ".yml", ".yaml", ".toml", ".json":
		return false
	}
	return name != layer.Stdin
}

// labelFile reads a list of labels as `docker run --label-file` does.
func (s *search) labelFile(name string) {
	content, err := os.ReadFile(name)
	if err != nil {
		s.found.Mistakes = append(s.found.Mistakes, &layer.Mistake{At: layer.Position{File: name}, Text: err.Error(), Unread: true})
		return
	}
	var labels []label
	lines := bufio.NewScanner(bytes.NewReader(content))
	lines.Buffer(nil, len(content)+1)
	for at := 1; lines.Scan(); at++ {
		text := strings.TrimSpace(lines.Text())
		if text == "" || strings.HasPrefix(text, "#") {
			continue
		}
		key, value, _ := strings.Cut(text, "=")
		labels = append(labels, label{key, value, layer.Position{File: name, Line: at}})
	}
	s.addLabels("labels", labels)
}

func isCompose(n *layer.Node) bool {
	services, ok := n.Get("services").Map()
	for _, service := range services {
		if _, isMap := service.Map(); !isMap {
			return false
		}
	}
	return ok
}

// compose reads the labels of a Compose file's services: those of the containers, and with Swarm those of the services.
func (s *search) compose(file string, n *layer.Node) {
	lookup := environment(file)
	services := n.Get("services")
	for _, name := range services.Keys() {
		service := services.Get(name)
		var labels []label
		for _, from := range []*layer.Node{service.Get("labels"), service.Get("deploy", "labels")} {
			labels = append(labels, labelsOf(from)...)
		}
		for i := range labels {
			l := &labels[i]
			value, err := template.SubstituteWithOptions(l.value, lookup, template.WithoutLogging)
			if err != nil {
				s.mistake(l.at, "label %s: %v", l.name, err)
				continue
			}
			l.value = value
		}
		s.addLabels("service "+name, labels)
	}
}

// environment is where a Compose file's variables come from: the environment, then the file .env beside it.
func environment(file string) template.Mapping {
	// Compose does not need the file either; what is missing then is told by the labels that need it.
	beside, _ := dotenv.Read(filepath.Join(filepath.Dir(file), ".env"))
	return func(name string) (string, bool) {
		if value, ok := os.LookupEnv(name); ok {
			return value, true
		}
		value, ok := beside[name]
		return value, ok
	}
}

// labelsOf reads labels in both ways that Compose has for them: a map, or a list of NAME=VALUE.
func labelsOf(n *layer.Node) []label {
	var out []label
	for _, name := range n.Keys() {
		element := n.Get(name)
		out = append(out, label{name, element.Scalar(), element.At})
	}
	list, _ := n.List()
	for _, element := range list {
		name, value, _ := strings.Cut(element.Text(), "=")
		out = append(out, label{name, value, element.At})
	}
	return out
}

// addLabels keeps those labels that configure plugins. Labels of a service that is already known are laid over it.
func (s *search) addLabels(name string, labels []label) {
	kept := map[string]label{}
	for _, l := range labels {
		parts := strings.Split(strings.ToLower(l.name), ".")
		if strings.HasPrefix(strings.ToLower(l.name), prefix) && len(parts) > 5 && parts[4] == "plugin" {
			if strings.Count(l.name, "[") != strings.Count(l.name, "]") {
				s.mistake(l.at, "label %s: want an index as in workers[0].url", l.name)
				continue
			}
			kept[l.name] = l
		}
	}
	for i := range s.labelled {
		if s.labelled[i].name == name {
			for key, l := range kept {
				s.labelled[i].labels[key] = l
			}
			return
		}
	}
	s.labelled = append(s.labelled, labelled{name, kept})
}

func (s *search) labels() {
	for _, container := range s.labelled {
		texts := map[string]string{}
		var at layer.Position
		for name, l := range container.labels {
			texts[name] = l.value
			at = l.at
		}
		if len(texts) == 0 {
			continue
		}
		middlewares, err := traefik.Labels(texts)
		if err != nil {
			s.mistake(layer.Position{File: at.File}, "labels of %s: %v", container.name, err)
			continue
		}
		places := linesOfLabels(container.labels)
		for _, name := range slices.Sorted(maps.Keys(middlewares)) {
			written := map[string]any{}
			for plugin, config := range middlewares[name] {
				written[plugin] = config
			}
			n := layer.Build(written, at.File, places[strings.ToLower(name)].line)
			found := s.configs(container.name+": http.middlewares."+name, n, Labels)
			for _, config := range found {
				s.add(config)
			}
			s.other(container.name+": http.middlewares."+name, layer.Build(map[string]any{"plugin": written}, at.File, places[""].line))
		}
	}
}

// places tells the lines of what labels say, by path, in small letters.
type places map[string]int

func (p places) line(path string) (int, bool) {
	line, ok := p[strings.ToLower(path)]
	return line, ok
}

// linesOfLabels tells them by middleware. Traefik reads labels in the order of their names and takes an element of a list
// for the next one when a new index comes, so workers[10] is the second element after workers[1].
func linesOfLabels(labels map[string]label) map[string]places {
	out := map[string]places{}
	indexes := map[string][]string{} // of each list, as they come
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		parts := strings.Split(strings.ToLower(name), ".")
		middleware := parts[3]
		if out[middleware] == nil {
			out[middleware] = places{}
		}
		var path []string
		for _, part := range parts[5:] {
			key, element, isElement := strings.Cut(part, "[")
			path = append(path, key)
			if isElement {
				list := middleware + "\x00" + strings.Join(path, "\x00")
				path = append(path, strconv.Itoa(ordinal(indexes, list, element)))
			}
			at := strings.Join(path, "\x00")
			if line, ok := out[middleware][at]; !ok || labels[name].at.Line < line {
				out[middleware][at] = labels[name].at.Line
			}
		}
	}
	return out
}

// ordinal returns which of a list's indexes one is, and adds it when it is new.
func ordinal(indexes map[string][]string, list, index string) int {
	for i, known := range indexes[list] {
		if known == index {
			return i
		}
	}
	indexes[list] = append(indexes[list], index)
	return len(indexes[list]) - 1
}
