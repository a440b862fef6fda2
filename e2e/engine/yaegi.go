package engine

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/cart-llm/cart/e2e/traefik"
	"github.com/traefik/yaegi/interp"
	"github.com/traefik/yaegi/stdlib"
)

// yaegiLoader calls the plugin in an interpreter of its own, as Traefik has one per plugin.
type yaegiLoader struct {
	createConfig, newHandler reflect.Value
}

func newYaegiLoader(t testing.TB) yaegiLoader {
	t.Helper()
	root, err := traefik.Root()
	if err != nil {
		t.Fatal(err)
	}
	goPath := t.TempDir()
	source := filepath.Join(goPath, "src", "github.com", "cart-llm", "cart")
	if err := os.MkdirAll(filepath.Dir(source), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(root, source); err != nil {
		t.Fatal(err)
	}
	// Standard error is where the interpreter tells of panics.
	loader, err := loadInto(interp.New(interp.Options{GoPath: goPath, Env: os.Environ(), Stderr: &stdout.log}))
	if err != nil {
		t.Fatal(err)
	}
	return loader
}

func loadInto(i *interp.Interpreter) (yaegiLoader, error) {
	var l yaegiLoader
	if err := i.Use(stdlib.Symbols); err != nil {
		return l, err
	}
	if _, err := i.Eval(`import "github.com/cart-llm/cart"`); err != nil {
		return l, fmt.Errorf("failed to import plugin code: %w", err)
	}
	var err error
	if l.newHandler, err = i.Eval("cart.New"); err != nil {
		return l, err
	}
	l.createConfig, err = i.Eval("cart.CreateConfig")
	return l, err
}

func (l yaegiLoader) build(ctx context.Context, next http.Handler, config Config, name string) (http.Handler, error) {
	c := l.createConfig.Call(nil)[0]
	if err := decode(config, c.Interface()); err != nil {
		return nil, err
	}
	results := l.newHandler.Call([]reflect.Value{reflect.ValueOf(ctx), reflect.ValueOf(next), c, reflect.ValueOf(name)})
	if err, ok := results[1].Interface().(error); ok && err != nil {
		return nil, err
	}
	handler, ok := results[0].Interface().(http.Handler)
	if !ok {
		return nil, fmt.Errorf("invalid handler type: %T", results[0].Interface())
	}
	return handler, nil
}
