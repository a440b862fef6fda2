package source

import (
	"strings"

	"github.com/cart-llm/cart/cmd/internal/layer"
)

// manifest is a Middleware of Kubernetes.
type manifest struct {
	name string
	node *layer.Node
}

func isManifest(n *layer.Node) bool {
	return n.Get("apiVersion").Text() != "" && n.Get("kind").Text() != ""
}

// addManifest takes Middlewares, also out of a List as `kubectl get -o yaml` prints it. All other kinds are no concern.
func (s *search) addManifest(n *layer.Node) {
	if items, ok := n.Get("items").List(); ok {
		for _, item := range items {
			s.addManifest(item)
		}
		return
	}
	group, _, _ := strings.Cut(n.Get("apiVersion").Text(), "/")
	if n.Get("kind").Text() != "Middleware" || (group != "traefik.io" && group != "traefik.containo.us") {
		return
	}
	name := n.Get("metadata", "name").Text()
	if namespace := n.Get("metadata", "namespace").Text(); namespace != "" {
		name = namespace + "/" + name
	}
	for i := range s.manifest {
		if s.manifest[i].name == name {
			s.manifest[i].node = layer.Merge(s.manifest[i].node, n)
			return
		}
	}
	s.manifest = append(s.manifest, manifest{name, n})
}

func (s *search) manifests() {
	for _, m := range s.manifest {
		spec := m.node.Get("spec")
		for _, config := range s.configs("Middleware "+m.name, spec.Get("plugin"), Manifest) {
			s.add(config)
		}
		s.other("Middleware "+m.name, spec)
	}
}
