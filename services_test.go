package cart

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// fakeAPI stands for Traefik's API.
type fakeAPI struct {
	url string

	mu       sync.Mutex
	services map[string]json.RawMessage
	trouble  func(http.ResponseWriter, *http.Request) // answers in place of the API; nil = all is well
	asked    int
	user     string
	password string
}

func startAPI(t *testing.T) *fakeAPI {
	t.Helper()
	a := &fakeAPI{services: map[string]json.RawMessage{}}
	s := httptest.NewServer(http.HandlerFunc(a.serve))
	t.Cleanup(s.Close)
	a.url = s.URL
	return a
}

// recordedAPI has the answers of the files in testdata/discovery, which Traefik 3.7.15 gave or would give.
func recordedAPI(t *testing.T) *fakeAPI {
	t.Helper()
	a := startAPI(t)
	for _, provider := range []string{"docker", "kubernetescrd", "file"} {
		text, err := os.ReadFile("testdata/discovery/" + provider + ".json")
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(text, &a.services); err != nil {
			t.Fatalf("%s: %v", provider, err)
		}
	}
	return a
}

func (a *fakeAPI) serve(rw http.ResponseWriter, req *http.Request) {
	a.mu.Lock()
	a.asked++
	trouble := a.trouble
	name := strings.TrimPrefix(req.URL.Path, "/api/http/services/")
	answer, ok := a.services[name]
	a.user, a.password, _ = req.BasicAuth()
	a.mu.Unlock()
	if trouble != nil {
		trouble(rw, req)
		return
	}
	rw.Header().Set("Content-Type", "application/json")
	if !ok {
		rw.WriteHeader(http.StatusNotFound)
		fmt.Fprintf(rw, `{"message":"service not found: %s"}`, name)
		return
	}
	rw.Write(answer)
}

// list makes the service vllm@file one of these servers; an address with ! behind it is down.
func (a *fakeAPI) list(servers ...string) {
	var lines, status []string
	for _, one := range servers {
		address, word := strings.TrimSuffix(one, "!"), "UP"
		if address != one {
			word = "DOWN"
		}
		lines = append(lines, `{"url":`+strconv.Quote(address)+`}`)
		status = append(status, strconv.Quote(address)+`:"`+word+`"`)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.services["vllm@file"] = json.RawMessage(`{"name":"vllm@file","status":"enabled","loadBalancer":{"servers":[` + strings.Join(lines, ",") +
		`]},"serverStatus":{` + strings.Join(status, ",") + `}}`)
}

func (a *fakeAPI) fail(trouble func(http.ResponseWriter, *http.Request)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.trouble = trouble
}

func (a *fakeAPI) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.asked
}

// sourceAt returns the source of a configuration that takes its replicas from a service of that API.
func sourceAt(t *testing.T, address, service string) *source {
	t.Helper()
	c := CreateConfig()
	c.Discovery.Service = service
	c.Discovery.API.Address = address
	set, err := validate(c)
	if err != nil {
		t.Fatal(err)
	}
	return set.source
}

// search looks the service up and tells what was found in one line.
func search(t *testing.T, src *source) (servers string, ignored []string, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	found, ignored, err := findServers(ctx, newAPIClient(&src.api), src)
	return inWords(found), ignored, err
}

// inWords writes addresses with ! behind those that are down and - behind those that are about to leave.
func inWords(servers []server) string {
	var words []string
	for i := range servers {
		word := servers[i].base.String()
		if servers[i].down {
			word += "!"
		}
		if !servers[i].goneAt.IsZero() {
			word += "-"
		}
		words = append(words, word)
	}
	return strings.Join(words, " ")
}

func TestServices_areResolvedToTheirServers(t *testing.T) {
	a := recordedAPI(t)
	const lb = "http://127.0.0.1:1 http://127.0.0.1:2/base!"
	for _, row := range []struct{ service, want string }{
		{"vllm@docker", "http://172.18.0.3:8000 http://172.18.0.4:8000"},
		{"checked@docker", "http://172.18.0.3:8000 http://172.18.0.4:8000!"},
		{"llm-vllm-8000@kubernetescrd", "http://10.42.0.17:8000 http://10.42.1.9:8000 http://[fd00:42::9]:8000"},
		{"llm-spare-8000@kubernetescrd", ""},
		{"llm-both@kubernetescrd", "http://10.42.0.17:8000 http://10.42.1.9:8000 http://[fd00:42::9]:8000"},
		{"lb@file", lb},
		{"empty@file", ""},
		{"mirrored@file", lb},
		{"weighted@file", lb + " http://127.0.0.1:4"},
		{"hrw@file", "http://127.0.0.1:1 http://127.0.0.1:4 http://127.0.0.1:5!"},
		{"failover@file", lb},
		{"failed@file", "http://127.0.0.1:1 http://127.0.0.1:4 http://127.0.0.1:5!"},
		{"failedtwice@file", "http://127.0.0.1:1 http://127.0.0.1:4 http://127.0.0.1:5!"},
		{"foreign@file", "http://172.18.0.3:8000 http://172.18.0.4:8000"},
	} {
		got, ignored, err := search(t, sourceAt(t, a.url, row.service))
		if err != nil || got != row.want || len(ignored) != 0 {
			t.Errorf("servers of %s = %q, ignored %q, %v, want %q", row.service, got, ignored, err, row.want)
		}
	}
}

func TestServices_whatCannotBeResolvedIsAnError(t *testing.T) {
	a := recordedAPI(t)
	for i := 0; i < 150; i++ {
		a.services["chain"+strconv.Itoa(i)+"@file"] = json.RawMessage(`{"name":"chain` + strconv.Itoa(i) + `@file","mirroring":{"service":"chain` +
			strconv.Itoa(i+1) + `"}}`)
	}
	for _, row := range []struct{ service, want string }{
		{"nobody@file", "Traefik has no service nobody@file"},
		{"missing@file", "Traefik has no service gone@file"},
		{"loop@file", "is made of itself"},
		{"api@internal", "is of a kind that has no servers"},
		{"chain0@file", "more than 100 services"},
	} {
		got, _, err := search(t, sourceAt(t, a.url, row.service))
		if err == nil || !strings.Contains(err.Error(), row.want) || got != "" {
			t.Errorf("servers of %s = %q, %v, want none and an error with %q", row.service, got, err, row.want)
		}
	}
}

func TestServices_aServerOfAnotherKindIsLeftOutAndTold(t *testing.T) {
	a := recordedAPI(t)
	got, ignored, err := search(t, sourceAt(t, a.url, "odd@file"))
	if err != nil || got != "http://127.0.0.1:7" || len(ignored) != 1 || !strings.Contains(ignored[0], "127.0.0.1:6") || strings.Contains(ignored[0], "s3cret") {
		t.Errorf("servers = %q, ignored %q, %v, want the other one, and this one told without its password", got, ignored, err)
	}
}

func TestServices_credentialsInAnAddressBecomeAHeader(t *testing.T) {
	a := recordedAPI(t)
	src := sourceAt(t, a.url, "lb@file")
	found, _, err := findServers(context.Background(), newAPIClient(&src.api), src)
	if err != nil {
		t.Fatal(err)
	}
	w := src.tune(found)[1]
	if w.name != "http://127.0.0.1:2/base" || len(w.headers) != 1 || w.headers[0].value[0] != "Basic dTpw" {
		t.Errorf("tune() = %s with %v, want the address without credentials and these as a header", w.name, w.headers)
	}
}

// inTrouble are answers that tell nothing of a service.
var inTrouble = []struct {
	story  string
	answer func(http.ResponseWriter, *http.Request)
	want   string // of the error
}{
	{"refused", func(rw http.ResponseWriter, _ *http.Request) {
		rw.WriteHeader(401)
		fmt.Fprint(rw, "s3cret of the answer")
	}, "refuses access with status 401"},
	{"forbidden", func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(403) }, "refuses access with status 403"},
	{"no such service", func(rw http.ResponseWriter, _ *http.Request) {
		rw.WriteHeader(404)
		fmt.Fprint(rw, `{"message":"service not found: vllm@file"}`)
	}, "Traefik has no service vllm@file"},
	{"no API", func(rw http.ResponseWriter, _ *http.Request) { http.Error(rw, "404 page not found", 404) }, "no API of Traefik at"},
	{"broken", func(rw http.ResponseWriter, _ *http.Request) { http.Error(rw, "s3cret of the answer", 500) }, "answers with status 500"},
	{"a login page", func(rw http.ResponseWriter, req *http.Request) { http.Redirect(rw, req, "/login", http.StatusFound) }, "answers with status 302"},
	{"HTML", func(rw http.ResponseWriter, _ *http.Request) { fmt.Fprint(rw, "<html>s3cret of the answer</html>") }, "answers with no service"},
	{"an empty answer", func(rw http.ResponseWriter, _ *http.Request) {}, "answers with no service"},
	{"an empty object", func(rw http.ResponseWriter, _ *http.Request) { fmt.Fprint(rw, `{}`) }, "want one named vllm@file"},
	{"null", func(rw http.ResponseWriter, _ *http.Request) { fmt.Fprint(rw, `null`) }, "want one named vllm@file"},
	{"a list", func(rw http.ResponseWriter, _ *http.Request) { fmt.Fprint(rw, `[]`) }, "answers with no service"},
	{"another service", func(rw http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(rw, `{"name":"other@file","loadBalancer":{}}`)
	}, "want one named vllm@file"},
	{"a router", func(rw http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(rw, `{"name":"vllm@file","rule":"Path","service":"x"}`)
	}, "of a kind that has no servers"},
	{"servers that are no list", func(rw http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(rw, `{"name":"vllm@file","loadBalancer":{"servers":"none"}}`)
	}, "answers with no service"},
	{"half an object", func(rw http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(rw, `{"name":"vllm@file","loadBalancer":{"servers":[{"url":"http://a"}`)
	}, "answers with no service"},
	{"half an answer", func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Length", "1000")
		fmt.Fprint(rw, `{"name":"vllm@file","loadBalancer":{}}`)
	}, "half an answer"},
	{"an endless answer", func(rw http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(rw, `{"name":"vllm@file","loadBalancer":{"servers":[{"url":"`)
		block := strings.Repeat("x", 64<<10)
		for i := 0; i < 80; i++ {
			fmt.Fprint(rw, block)
		}
	}, "more than 4194304 bytes"},
}

func TestServices_troubleIsToldWithoutTheAnswer(t *testing.T) {
	a := startAPI(t)
	src := sourceAt(t, a.url, "vllm@file")
	for _, row := range inTrouble {
		a.fail(row.answer)
		got, _, err := search(t, src)
		if err == nil || !strings.Contains(err.Error(), row.want) || strings.Contains(err.Error(), "s3cret") || got != "" {
			t.Errorf("%s: servers = %q, %v, want none and an error with %q", row.story, got, err, row.want)
		}
	}
	got, _, err := search(t, sourceAt(t, deadAddress(t), "vllm@file"))
	if err == nil || !strings.Contains(err.Error(), "no answer from the API of Traefik at http://127.0.0.") || got != "" {
		t.Errorf("nobody listens: servers = %q, %v, want none and an error that says so", got, err)
	}
}

func TestServices_theAPIMayBeBelowAPathAndWantAPassword(t *testing.T) {
	a := startAPI(t)
	a.list("http://a")
	s := httptest.NewServer(http.StripPrefix("/mgmt", http.HandlerFunc(a.serve)))
	t.Cleanup(s.Close)
	src := sourceAt(t, s.URL+"/mgmt/", "vllm@file")
	src.api.user = "cart"
	src.api.password = "s3cret"
	got, _, err := search(t, src)
	a.mu.Lock()
	defer a.mu.Unlock()
	if err != nil || got != "http://a" || a.user != "cart" || a.password != "s3cret" {
		t.Errorf("servers = %q, %v with user %q and password %q, want http://a with those configured", got, err, a.user, a.password)
	}
}

func TestServices_theAPIMayHaveACertificateOfItsOwn(t *testing.T) {
	a := startAPI(t)
	a.list("http://a")
	s := httptest.NewTLSServer(http.HandlerFunc(a.serve))
	t.Cleanup(s.Close)
	file := writeCertificate(t, s)
	for _, row := range []struct {
		caFile, skip string
		ok           bool
	}{{"", "false", false}, {file, "false", true}, {"", "true", true}} {
		c := CreateConfig()
		c.Discovery.Service = "vllm@file"
		c.Discovery.API.Address = s.URL
		c.Discovery.API.CAFile = row.caFile
		c.Discovery.API.InsecureSkipVerify = row.skip
		set, err := validate(c)
		if err != nil {
			t.Fatal(err)
		}
		got, _, err := search(t, set.source)
		if (err == nil) != row.ok || row.ok && got != "http://a" {
			t.Errorf("caFile %q, insecureSkipVerify %s: servers = %q, %v, want http://a: %v", row.caFile, row.skip, got, err, row.ok)
		}
	}
}

// writeCertificate puts a server's certificate into a file.
func writeCertificate(t *testing.T, s *httptest.Server) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "ca.pem")
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	if err := os.WriteFile(file, block, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
