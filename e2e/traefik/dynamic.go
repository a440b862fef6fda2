package traefik

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

const (
	markerFile   = "zz-generation.yml"
	markerName   = "e2e-generation"
	markerPath   = "/.e2e-generation"
	markerHeader = "X-E2e-Generation"
)

// Write puts a file of dynamic configuration in place, in one step. Content is text ([]byte or string) in the form that
// the name's ending tells (.yml, .toml), or anything that encodes to JSON, for a .yml file. It does not wait.
func (t *Traefik) Write(name string, content any) error {
	var text []byte
	switch c := content.(type) {
	case []byte:
		text = c
	case string:
		text = []byte(c)
	default:
		var err error
		if text, err = json.MarshalIndent(c, "", "  "); err != nil {
			return err
		}
	}
	staged := filepath.Join(t.stagingDir(), name)
	if err := os.WriteFile(staged, text, 0o644); err != nil {
		return err
	}
	return os.Rename(staged, filepath.Join(t.dynamicDir(), name))
}

// Remove takes a file of dynamic configuration away. It does not wait.
func (t *Traefik) Remove(name string) error {
	return os.Remove(filepath.Join(t.dynamicDir(), name))
}

// WaitApplied returns when everything written before is in force on every entry point and in the API.
//
// It adds a router whose answer carries a number that grows: Traefik reads the folder as a whole, so a configuration with
// the new number has all that was written before it, and each entry point is asked, for they are switched one by one.
func (t *Traefik) WaitApplied(ctx context.Context) error {
	t.generation++
	want := t.id + "-" + strconv.Itoa(t.generation)
	if err := t.Write(markerFile, t.marker(want)); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	checks := []func() error{
		func() error { return t.servesGeneration(ctx, t.URL(), want) },
		func() error { return t.showsGeneration(ctx, want) },
	}
	if t.cert != nil {
		checks = append(checks, func() error { return t.servesGeneration(ctx, t.URLTLS(), want) })
	}
	for _, check := range checks {
		if err := t.poll(ctx, check); err != nil {
			return fmt.Errorf("configuration %d is not in force: %w", t.generation, err)
		}
	}
	return nil
}

// servesGeneration tells whether an entry point has the generation.
func (t *Traefik) servesGeneration(ctx context.Context, address, want string) error {
	status, header, err := t.get(ctx, address+markerPath)
	if err != nil {
		return err
	}
	if got := header.Get(markerHeader); got != want {
		return fmt.Errorf("GET %s%s = %d with %s %q, want %q", address, markerPath, status, markerHeader, got, want)
	}
	return nil
}

// showsGeneration tells whether the API has it. The API's entry point cannot be asked as the others are: the dashboard's
// own router takes every path there.
func (t *Traefik) showsGeneration(ctx context.Context, want string) error {
	var shown struct {
		Headers struct {
			CustomResponseHeaders map[string]string
		}
	}
	if err := t.API(ctx, "/api/http/middlewares/"+markerName+"@file", &shown); err != nil {
		return err
	}
	if got := shown.Headers.CustomResponseHeaders[markerHeader]; got != want {
		return fmt.Errorf("the API shows generation %q, want %q", got, want)
	}
	return nil
}

func (t *Traefik) marker(value string) object {
	router := func(entryPoint string) object {
		return object{
			"rule": "Path(`" + markerPath + "`)", "priority": 1 << 30, "entryPoints": []string{entryPoint},
			"middlewares": []string{markerName}, "service": "ping@internal",
		}
	}
	routers := object{markerName: router(EntryPoint)}
	out := object{"http": object{
		"routers": routers,
		"middlewares": object{markerName: object{
			"headers": object{"customResponseHeaders": object{markerHeader: value}},
		}},
	}}
	if t.cert != nil {
		secure := router(EntryPointTLS)
		secure["tls"] = object{}
		routers[markerName+"-tls"] = secure
		pair := object{"certFile": t.cert.certPEM, "keyFile": t.cert.keyPEM}
		out["tls"] = object{"stores": object{"default": object{"defaultCertificate": pair}}}
	}
	return out
}
