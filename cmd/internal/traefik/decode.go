// Package traefik decodes the plugin's configuration as Traefik 3.7 does, with the decoders that it uses: paerser for what
// its providers read, mapstructure for what its plugin loader makes of that.
package traefik

import (
	"encoding/json"
	"fmt"

	"github.com/cart-llm/cart"
	"github.com/mitchellh/mapstructure"
	"github.com/traefik/paerser/file"
	"github.com/traefik/paerser/parser"
	"go.yaml.in/yaml/v3"
)

// Raw is the configuration of one plugin as a provider hands it over.
type Raw = map[string]any

// Middlewares are the plugins' configurations by middleware and by plugin.
type Middlewares map[string]map[string]Raw

// configuration is the part of Traefik's dynamic configuration that plugins are in. The parsers refuse what they find no
// field for, so it is given only what belongs here.
type configuration struct {
	HTTP *httpConfiguration
}

type httpConfiguration struct {
	Middlewares map[string]*middleware
}

type middleware struct {
	Plugin map[string]pluginConfiguration
}

type pluginConfiguration map[string]any

func (c *configuration) middlewares() Middlewares {
	out := Middlewares{}
	if c.HTTP == nil {
		return out
	}
	for name, m := range c.HTTP.Middlewares {
		out[name] = map[string]Raw{}
		for plugin, config := range m.Plugin {
			out[name][plugin] = Raw(config)
		}
	}
	return out
}

// File returns what the file provider and the HTTP provider make of a plugin's configuration: every scalar becomes a text,
// numbers with a fraction with six digits of it, an empty map or list the empty text.
func File(written Raw) (raw Raw, err error) {
	defer recovered(&err)
	const name = "m"
	plugins := map[string]any{name: written}
	text, err := yaml.Marshal(map[string]any{"http": map[string]any{"middlewares": map[string]any{name: map[string]any{"plugin": plugins}}}})
	if err != nil {
		return nil, err
	}
	var c configuration
	if err := file.DecodeContent(string(text), ".yaml", &c); err != nil {
		return nil, err
	}
	return c.middlewares()[name][name], nil
}

// Labels returns what the providers with labels (Docker, Swarm, ECS, Nomad, Consul Catalog) make of them.
func Labels(labels map[string]string) (m Middlewares, err error) {
	defer recovered(&err)
	var c configuration
	if err := parser.Decode(labels, &c, parser.DefaultRootName, "traefik.http.middlewares."); err != nil {
		return nil, err
	}
	return c.middlewares(), nil
}

// Manifest returns what the Kubernetes provider makes of a plugin's configuration, which stays as it is in JSON.
func Manifest(written Raw) (Raw, error) {
	text, err := json.Marshal(written)
	if err != nil {
		return nil, err
	}
	var out Raw
	return out, json.Unmarshal(text, &out)
}

// Config puts what a provider handed over into the plugin's defaults.
func Config(raw Raw) (config *cart.Config, err error) {
	defer recovered(&err)
	c := cart.CreateConfig()
	if len(raw) == 0 {
		return c, nil
	}
	decoder, err := mapstructure.NewDecoder(&mapstructure.DecoderConfig{
		DecodeHook:       mapstructure.StringToSliceHookFunc(","),
		WeaklyTypedInput: true,
		Result:           c,
	})
	if err != nil {
		return nil, err
	}
	if err := decoder.Decode(raw); err != nil {
		return nil, fmt.Errorf("failed to decode configuration: %w", err)
	}
	return c, nil
}

// recovered makes an error of a panic: some input is too much for Traefik's decoders.
func recovered(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("what Traefik decodes with fails on it: %v", p)
	}
}
