package traefik

import (
	"crypto/tls"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"
)

type ports struct {
	web, tls, api int
}

// object is a piece of configuration. JSON is YAML, so Traefik reads it from a .yml file.
type object = map[string]any

// prepare makes the folder the process works in: static configuration, the plugin's source, no dynamic files yet.
func (t *Traefik) prepare(o Options) error {
	var err error
	if t.dir, err = os.MkdirTemp("", "cart-traefik-"); err != nil {
		return err
	}
	if t.ports, err = freePorts(); err != nil {
		return err
	}
	t.client = &http.Client{Timeout: 5 * time.Second}
	if o.TLS {
		if t.cert, err = newCertificate(); err != nil {
			return err
		}
		t.client.Transport = &http.Transport{TLSClientConfig: &tls.Config{RootCAs: t.cert.pool}}
	}
	source := filepath.Join(t.dir, "plugins-local", "src", module)
	for _, dir := range []string{filepath.Dir(source), t.dynamicDir(), t.stagingDir()} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	if err := os.Symlink(o.Root, source); err != nil {
		return err
	}
	static := t.static(o)
	overlay(static, o.Static)
	if log, ok := static["accessLog"].(object); ok {
		overlay(log, object{"filePath": filepath.Join(t.dir, accessLog)})
	}
	content, err := json.MarshalIndent(static, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(t.dir, "traefik.yml"), content, 0o644)
}

func (t *Traefik) static(o Options) object {
	// A stop does not wait for open streams: what a test still has open then, it has given up.
	lifeCycle := object{"lifeCycle": object{"graceTimeOut": "100ms"}}
	entryPoints := object{
		EntryPoint: object{"address": address(t.ports.web), "transport": lifeCycle},
		"traefik":  object{"address": address(t.ports.api), "transport": lifeCycle},
	}
	if o.TLS {
		entryPoints[EntryPointTLS] = object{"address": address(t.ports.tls), "transport": lifeCycle}
	}
	level := o.LogLevel
	if level == "" {
		level = "INFO"
	}
	throttle := o.Throttle
	if throttle == 0 {
		throttle = 20 * time.Millisecond
	}
	return object{
		"global":      object{"checkNewVersion": false, "sendAnonymousUsage": false},
		"entryPoints": entryPoints,
		"api":         object{"insecure": true, "dashboard": true},
		"ping":        object{},
		"log":         object{"level": level, "filePath": filepath.Join(t.dir, "traefik.log"), "noColor": true},
		"experimental": object{
			"abortOnPluginFailure": true,
			"localPlugins":         object{Alias: object{"moduleName": module}},
		},
		"providers": object{
			"providersThrottleDuration": throttle.String(),
			"file":                      object{"directory": t.dynamicDir(), "watch": true},
		},
	}
}

const accessLog = "access.log"

// overlay puts what is in above over base, maps key by key.
func overlay(base, above object) {
	for key, value := range above {
		below, isMap := base[key].(object)
		over, stillMap := value.(object)
		if isMap && stillMap {
			overlay(below, over)
		} else {
			base[key] = value
		}
	}
}

func (t *Traefik) dynamicDir() string { return filepath.Join(t.dir, "dynamic") }

// stagingDir is where files are written before they are renamed into the watched folder.
func (t *Traefik) stagingDir() string { return filepath.Join(t.dir, "staging") }

func address(port int) string {
	return (&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port}).String()
}

// freePorts holds all listeners open until the last is chosen, so that they differ.
func freePorts() (ports, error) {
	var p ports
	for _, port := range []*int{&p.web, &p.tls, &p.api} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return p, err
		}
		defer l.Close()
		*port = l.Addr().(*net.TCPAddr).Port
	}
	return p, nil
}
