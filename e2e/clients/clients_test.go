package clients

import (
	"bufio"
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/cart-llm/cart/e2e/replica"
)

// TestPython and TestNode run side by side, each with a Traefik and replicas of its own.
func TestPython(t *testing.T) { testSuite(t, python) }

func TestNode(t *testing.T) { testSuite(t, node) }

func testSuite(t *testing.T, s suite) {
	t.Parallel()
	s.require(t)
	installed := install(t, s.language)
	l := startLab(t)
	report(t, s.run(t, l, installed))
	t.Run("counters return to zero", l.checkIdle)
	t.Run("replicas received what the SDK sent", l.checkSent)
}

// sent is one attempt of an SDK, as its own transport or fetch saw it.
type sent struct {
	ID      string            `json:"id"`
	Method  string            `json:"method"`
	Target  string            `json:"target"`
	Headers map[string]string `json:"headers"` // names in lower case
	Bytes   int64             `json:"bytes"`
	SHA256  string            `json:"sha256"`
	Status  int               `json:"status"`
	Peer    string            `json:"peer"` // the replica that answered, "" = CART did
}

// leastBodies is a bound for the number of bodies that are compared, so that a transport which notes nothing is noticed.
const leastBodies = 100

// checkSent compares method, target, headers and body of all that the SDK sent with what arrived, on each replica that was
// tried.
func (l *lab) checkSent(t *testing.T) {
	arrived := map[string][]replica.Exchange{}
	for _, one := range l.replicas {
		for _, x := range one.Requests() {
			if id := x.Header.Get("X-Client-Call"); id != "" {
				arrived[id] = append(arrived[id], x)
			} else if x.Method == http.MethodPost {
				t.Errorf("a replica got a %s %s that no SDK sent", x.Method, x.Target)
			}
		}
	}
	bodies, retried := 0, 0
	for _, s := range l.readSent(t) {
		list := arrived[s.ID]
		if s.Peer != "" && len(list) == 0 && s.Target != "/main/v1/models" { // that answer may be a kept one
			t.Errorf("%s %s was answered by %s, where it never arrived", s.Method, s.Target, s.Peer)
		}
		for _, x := range list {
			s.check(t, x)
			if x.BodyBytes > 0 {
				bodies++
			}
		}
		if len(list) > 1 {
			retried++
		}
	}
	t.Logf("%d bodies compared, %d requests arrived at more than one replica", bodies, retried)
	if bodies < leastBodies || retried == 0 {
		t.Errorf("%d bodies compared and %d requests retried by CART, want at least %d and 1", bodies, retried, leastBodies)
	}
}

func (l *lab) readSent(t *testing.T) []sent {
	t.Helper()
	file, err := os.Open(l.sentFile())
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var out []sent
	for lines := bufio.NewScanner(file); lines.Scan(); {
		var s sent
		if err := json.Unmarshal(lines.Bytes(), &s); err != nil {
			t.Fatalf("%v in %s", err, lines.Text())
		}
		out = append(out, s)
	}
	return out
}

// changes are the headers that a proxy owns: those of the connection, and the host, for CART addresses the replica itself.
var changes = map[string]bool{"host": true, "connection": true, "keep-alive": true, "te": true, "transfer-encoding": true}

func (s sent) check(t *testing.T, x replica.Exchange) {
	t.Helper()
	_, target, _ := strings.Cut(strings.TrimPrefix(s.Target, "/"), "/") // the pool's name
	if x.Method != s.Method || x.Target != "/"+target {
		t.Errorf("%s %s arrived as %s %s", s.Method, s.Target, x.Method, x.Target)
	}
	if x.BodyBytes != s.Bytes || x.BodySHA256 != s.SHA256 {
		t.Errorf("%s %s: a body of %d bytes, SHA-256 %s, arrived as %d, %s", s.Method, s.Target, s.Bytes, s.SHA256, x.BodyBytes, x.BodySHA256)
	}
	if s.Bytes > 0 && (x.ContentLength != s.Bytes || x.Chunked) {
		t.Errorf("%s %s: a body of %d bytes came with Content-Length %d, chunked %v", s.Method, s.Target, s.Bytes, x.ContentLength, x.Chunked)
	}
	for name, value := range s.Headers {
		if changes[name] || name == "content-length" {
			continue
		}
		if got := x.Header.Values(name); len(got) != 1 || got[0] != value {
			t.Errorf("%s %s: header %s: %q arrived as %q", s.Method, s.Target, name, value, got)
		}
	}
}
