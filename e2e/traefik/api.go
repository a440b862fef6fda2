package traefik

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
)

// Item is a middleware or router as Traefik's API shows it.
type Item struct {
	Name   string   `json:"name"`
	Status string   `json:"status"` // enabled, disabled or warning
	Errors []string `json:"error"`
	UsedBy []string `json:"usedBy"`
}

// Middleware returns the named middleware. A name without a provider is one of the files'.
func (t *Traefik) Middleware(ctx context.Context, name string) (Item, error) {
	return t.item(ctx, "middlewares", name)
}

// Router returns the named router. A name without a provider is one of the files'.
func (t *Traefik) Router(ctx context.Context, name string) (Item, error) {
	return t.item(ctx, "routers", name)
}

func (t *Traefik) item(ctx context.Context, kind, name string) (Item, error) {
	if !strings.Contains(name, "@") {
		name += "@file"
	}
	var item Item
	err := t.API(ctx, "/api/http/"+kind+"/"+url.PathEscape(name), &item)
	return item, err
}

// API decodes the answer of a path of Traefik's API into out.
func (t *Traefik) API(ctx context.Context, path string, out any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, t.URLAPI()+path, nil)
	if err != nil {
		return err
	}
	resp, err := t.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s = %d %s, want 200", path, resp.StatusCode, strings.TrimSpace(string(body)))
	}
	return json.Unmarshal(body, out)
}

// get returns the status and headers of an address.
func (t *Traefik) get(ctx context.Context, address string) (int, http.Header, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return 0, nil, err
	}
	resp, err := t.client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, resp.Header, err
}
