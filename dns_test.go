package cart

import (
	"context"
	"encoding/binary"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// nameServer answers questions for one name.
type nameServer struct {
	address string

	mu     sync.Mutex
	ips    []string
	broken bool // says SERVFAIL
}

// startNameServer starts a name server that the package asks until the test ends.
func startNameServer(t *testing.T) *nameServer {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n := &nameServer{address: conn.LocalAddr().String()}
	go guard("name server", func() { n.serve(conn) })
	before := resolver
	resolver = &net.Resolver{PreferGo: true}
	resolver.Dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
		d := &net.Dialer{}
		return d.DialContext(ctx, "udp", n.address)
	}
	t.Cleanup(func() {
		resolver = before
		conn.Close()
	})
	return n
}

func (n *nameServer) set(broken bool, ips ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.broken = broken
	n.ips = ips
}

func (n *nameServer) serve(conn net.PacketConn) {
	question := make([]byte, 1500)
	for {
		size, from, err := conn.ReadFrom(question)
		if err != nil {
			return
		}
		conn.WriteTo(n.answer(question[:size]), from)
	}
}

// answer repeats the question and adds the records of its type: RFC 1035, section 4.
func (n *nameServer) answer(question []byte) []byte {
	n.mu.Lock()
	defer n.mu.Unlock()
	const header = 12
	end := header
	for question[end] != 0 {
		end += 1 + int(question[end])
	}
	end++ // the empty label at the end of the name
	kind := binary.BigEndian.Uint16(question[end:])
	end += 4
	out := append([]byte{}, question[:end]...)
	out[2] = 0x84 // an answer, and one with authority
	out[3] = 0
	var records []byte
	count := 0
	for _, text := range n.ips {
		ip := net.ParseIP(text)
		four := ip.To4()
		if (kind == 1) != (four != nil) || (kind != 1 && kind != 28) {
			continue
		}
		if four != nil {
			ip = four
		}
		count++
		// The name as a pointer to the question's, type, class, time to live, length.
		records = append(records, 0xc0, header, 0, byte(kind), 0, 1, 0, 0, 0, 0, 0, byte(len(ip)))
		records = append(records, ip...)
	}
	if n.broken {
		out[3] = 2
		count = 0
		records = nil
	}
	binary.BigEndian.PutUint16(out[6:], uint16(count))
	binary.BigEndian.PutUint16(out[8:], 0)
	binary.BigEndian.PutUint16(out[10:], 0)
	return append(out, records...)
}

// namedAt returns a configuration that takes its replicas from DNS.
func namedAt(address string) *Config {
	c := CreateConfig()
	c.Discovery.DNS = address
	c.Health.Interval = "0"
	c.Health.Metrics.Interval = "0"
	c.Health.Models.Interval = "0"
	c.LogLevel = "error"
	return c
}

func TestDNS_eachAddressIsAReplica(t *testing.T) {
	n := startNameServer(t)
	for _, row := range []struct{ dns, ips, want string }{
		{"http://vllm.test:8000", "10.0.0.2 10.0.0.1", "http://10.0.0.1:8000 http://10.0.0.2:8000"},
		{"http://vllm.test:8000", "10.0.0.1 fd00::1", "http://10.0.0.1:8000 http://[fd00::1]:8000"},
		{"http://vllm.test", "10.0.0.1 fd00::1", "http://10.0.0.1 http://[fd00::1]"},
		{"https://vllm.test:8443/base/", "10.0.0.1", "https://10.0.0.1:8443/base"},
		{"http://10.1.1.1:8000", "", "http://10.1.1.1:8000"},
	} {
		n.set(false, strings.Fields(row.ips)...)
		p := quietPool(t, namedAt(row.dns))
		lookNow(t, p, noon)
		if got := listed(p); got != row.want {
			t.Errorf("replicas of %s at %s = %q, want %q: %s", row.dns, row.ips, got, row.want, p.discovery.err)
		}
	}
}

func TestDNS_theNameIsHostAndInTheCertificate(t *testing.T) {
	n := startNameServer(t)
	n.set(false, "10.0.0.1")
	c := namedAt("https://user:pass@vllm.test:8443")
	c.Workers = []WorkerConfig{{URL: "*", Headers: map[string]string{"X-Key": "k"}}}
	p := quietPool(t, c)
	lookNow(t, p, noon)
	var got []string
	for _, h := range p.replicas[0].worker.headers {
		got = append(got, h.name+": "+h.value[0])
	}
	if want := "Authorization: Basic dXNlcjpwYXNz, Host: vllm.test:8443, X-Key: k"; strings.Join(got, ", ") != want {
		t.Errorf("headers = %q, want %q", got, want)
	}
	if name := p.transport.TLSClientConfig.ServerName; name != "vllm.test" {
		t.Errorf("the certificate is checked for %q, want vllm.test", name)
	}
	if d := describe(p, 0).Discovery; d.Source != "dns https://vllm.test:8443" {
		t.Errorf("source = %q, want it without credentials", d.Source)
	}
}

func TestDNS_aLookupInVainKeepsTheList(t *testing.T) {
	n := startNameServer(t)
	n.set(false, "10.0.0.1", "10.0.0.2")
	p := quietPool(t, namedAt("http://vllm.test:8000"))
	lookNow(t, p, noon)
	for _, broken := range []bool{true, false} {
		n.set(broken)
		lookNow(t, p, noon)
		lookNow(t, p, noon)
		d := describe(p, 0).Discovery
		if listed(p) != "http://10.0.0.1:8000 http://10.0.0.2:8000" || !strings.HasPrefix(d.Error, "lookup of vllm.test failed: ") || d.State != "failing" {
			t.Errorf("broken %v: replicas = %q, /workers says %+v, want those before and why", broken, listed(p), d)
		}
	}
	n.set(false, "10.0.0.2", "10.0.0.3")
	lookNow(t, p, noon)
	if got := listed(p); got != "http://10.0.0.2:8000 http://10.0.0.3:8000 http://10.0.0.1:8000-" {
		t.Errorf("replicas = %q, want the new list", got)
	}
}

func TestDNS_endToEnd(t *testing.T) {
	n := startNameServer(t)
	one := serveReplica(t, "one")
	n.set(false, "127.0.0.1")
	c := namedAt(strings.Replace(one, "127.0.0.1", "vllm.test", 1))
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	h, err := build(ctx, t, c)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "a request reaches the address of the name", func() bool {
		_, peer := through(t, h)
		return peer == one
	})
}

func TestDNS_theCertificateHasToBeForTheName(t *testing.T) {
	n := startNameServer(t)
	n.set(false, "127.0.0.1")
	s := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, _ *http.Request) {}))
	t.Cleanup(s.Close)
	_, port, err := net.SplitHostPort(strings.TrimPrefix(s.URL, "https://"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	// httptest's certificate is for example.com and 127.0.0.1.
	for name, want := range map[string]int{"example.com": 200, "other.test": 502} {
		c := namedAt("https://" + name + ":" + port)
		c.TLS.CAFile = writeCertificate(t, s)
		h, err := New(ctx, nil, c, t.Name()+name)
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, "the address of "+name+" is found", func() bool { return len(describe(registered(t.Name()+name), 0).Workers) == 1 })
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, httptest.NewRequest(http.MethodPost, "/v1/chat/completions", strings.NewReader(aChat)))
		if rec.Code != want {
			t.Errorf("a request to %s = %d, want %d", name, rec.Code, want)
		}
	}
}
