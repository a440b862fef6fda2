package cart

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
)

// seen is what GET /workers answers to that Accept header.
func seen(t *testing.T, method, accept string) *httptest.ResponseRecorder {
	t.Helper()
	p := poolOf(t, "ab")
	h := newHandler(p, p.set, policies[p.set.policy])
	req := httptest.NewRequest(method, "/workers", nil)
	if accept != "" {
		req.Header.Set("Accept", accept)
	}
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, req)
	return rec
}

func TestWorkers_browsersGetThePage(t *testing.T) {
	for _, row := range []struct {
		accept string
		page   bool
	}{
		{"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", true},
		{"text/html", true},
		{"", false},
		{"*/*", false},
		{"application/json", false},
		{"application/json, text/html;q=0.5", false},
	} {
		rec := seen(t, http.MethodGet, row.accept)
		kind, body := rec.Header().Get("Content-Type"), rec.Body.String()
		if strings.HasPrefix(kind, "text/html") != row.page || strings.HasPrefix(body, "<!doctype html>") != row.page {
			t.Errorf("Accept: %q gets %s, want the page: %v", row.accept, kind, row.page)
		}
		if !row.page && !json.Valid(rec.Body.Bytes()) {
			t.Errorf("Accept: %q gets %q, want JSON", row.accept, body)
		}
		if got := rec.Header().Get("Vary"); got != "Accept" {
			t.Errorf("Accept: %q: Vary = %q, want Accept", row.accept, got)
		}
	}
	rec := seen(t, http.MethodHead, "text/html")
	if rec.Body.Len() != 0 || rec.Header().Get("Content-Length") == "" {
		t.Errorf("HEAD gets %d bytes, Content-Length %q, want only the headers", rec.Body.Len(), rec.Header().Get("Content-Length"))
	}
}

func TestPage_loadsAndRunsNothingFromElsewhere(t *testing.T) {
	rec := seen(t, http.MethodGet, "text/html")
	policy, body := rec.Header().Get("Content-Security-Policy"), rec.Body.String()
	for _, want := range []string{"default-src 'none'", "frame-ancestors 'none'", hashOf(pageScript), hashOf(pageStyle)} {
		if !strings.Contains(policy, want) {
			t.Errorf("Content-Security-Policy = %q, want %q in it", policy, want)
		}
	}
	if strings.Contains(policy, "unsafe") {
		t.Errorf("Content-Security-Policy = %q allows what is unsafe", policy)
	}
	if !strings.Contains(body, "<style>"+pageStyle+"</style>") || !strings.Contains(body, "<script>"+pageScript+"</script>") {
		t.Error("the page's style and script are not what the policy names")
	}
	addresses := regexp.MustCompile(`(https?:)?//[a-z0-9.]+`).FindAllString(pageHead+pageBody+pageStyle, -1)
	for _, address := range addresses {
		if address != "http://www.w3.org" { // a name, not an address
			t.Errorf("the page names the address %s", address)
		}
	}
	for _, bad := range []string{"innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval(", "Function(", "import(", " on[a-z]+="} {
		if m := regexp.MustCompile(regexp.QuoteMeta(bad)).FindString(pageScript + pageBody); m != "" {
			t.Errorf("the page has %q, by which text could become markup or script", m)
		}
	}
}
