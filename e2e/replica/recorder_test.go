package replica

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

func TestRecorder_seesTheRequestAsSent(t *testing.T) {
	r := start(t, Options{})
	body := `{"prompt": "\u00e9" ,"max_tokens":1}`
	// A bare io.Reader makes the client send chunks.
	req, err := http.NewRequest(http.MethodPost, r.URL()+"/v1/completions?a=%2F&&b", io.MultiReader(strings.NewReader(body)))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Request-Id", "one")
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	read(t, resp)
	post(t, r.URL()+"/v1/completions", body)

	sum := sha256.Sum256([]byte(body))
	var list []Exchange
	eventually(t, "both are over", func() bool { list = r.Requests(); return !list[0].End.IsZero() && !list[1].End.IsZero() })
	x := list[0]
	if x.Target != "/v1/completions?a=%2F&&b" || x.Header.Get("X-Request-Id") != "one" || x.Status != 200 {
		t.Errorf("target %q, id %q, status %d", x.Target, x.Header.Get("X-Request-Id"), x.Status)
	}
	if x.BodySHA256 != hex.EncodeToString(sum[:]) || string(x.Body) != body || x.BodyBytes != int64(len(body)) {
		t.Errorf("body %q (%d bytes, %s)", x.Body, x.BodyBytes, x.BodySHA256)
	}
	if !x.Chunked || x.ContentLength != -1 || list[1].Chunked || list[1].ContentLength != int64(len(body)) {
		t.Errorf("framing: chunked %v, length %d, then %v, %d", x.Chunked, x.ContentLength, list[1].Chunked, list[1].ContentLength)
	}
	if x.PromptTokens != 1 || x.AnswerTokens != 1 || x.Aborted || x.End.Before(x.Start) {
		t.Errorf("exchange = %+v", x)
	}
}

func TestRecorder_isBounded(t *testing.T) {
	c := newRecorder()
	req, _ := http.NewRequest(http.MethodPost, "/v1/completions", nil)
	big := make([]byte, maxBody-1)
	for i := 0; i < maxExchanges+10; i++ {
		x := c.begin(req, true)
		if i%40 == 0 {
			c.body(x, big, nil)
		}
		c.end(x, true, 200, false)
	}
	if len(c.recent) > maxExchanges {
		t.Errorf("%d exchanges, want at most %d", len(c.recent), maxExchanges)
	}
	kept := 0
	for _, x := range c.recent {
		kept += len(x.Body)
	}
	if kept > maxBodies || kept != c.bodies || kept == 0 {
		t.Errorf("%d bytes of bodies, counted as %d, want at most %d", kept, c.bodies, maxBodies)
	}
	x := c.begin(req, false)
	c.body(x, make([]byte, maxBody), nil)
	if x.Body != nil || x.BodyBytes != maxBody || x.BodySHA256 == "" {
		t.Errorf("a body of 1 MiB: kept %d bytes, counted %d", len(x.Body), x.BodyBytes)
	}
}

func TestWebSocket_echo(t *testing.T) {
	r := start(t, Options{})
	c, err := net.Dial("tcp", strings.TrimPrefix(r.URL(), "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, _ = io.WriteString(c, "GET /v1/realtime HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
	in := bufio.NewReader(c)
	resp, err := http.ReadResponse(in, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	// Key and answer are the example of RFC 6455, section 1.3.
	if resp.StatusCode != 101 || resp.Header.Get("Sec-Websocket-Accept") != "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" {
		t.Fatalf("handshake: %d, %v", resp.StatusCode, resp.Header)
	}
	for _, size := range []int{0, 5, 126, 70000} {
		sent := frame{head: 0x82, payload: make([]byte, size)}
		_, _ = rand.Read(sent.payload)
		writeMasked(t, c, sent)
		got, err := readFrame(in)
		if err != nil || got.head != sent.head || !bytes.Equal(got.payload, sent.payload) {
			t.Errorf("%d bytes came back as %d with head %x, %v", size, len(got.payload), got.head, err)
		}
	}
	writeMasked(t, c, frame{head: 0x80 | opPing, payload: []byte("p")})
	if f, err := readFrame(in); err != nil || f.head != 0x80|opPong {
		t.Errorf("ping: head %x, %v, want a pong", f.head, err)
	}
	writeMasked(t, c, frame{head: 0x80 | opClose})
	if f, err := readFrame(in); err != nil || f.head != 0x80|opClose {
		t.Errorf("close: head %x, %v", f.head, err)
	}
	if _, err := in.ReadByte(); err != io.EOF {
		t.Errorf("after close: %v, want EOF", err)
	}
}

// writeMasked writes a frame as a client must: with a mask, here built from an unmasked one.
func writeMasked(t *testing.T, w io.Writer, f frame) {
	t.Helper()
	mask := [4]byte{1, 2, 3, 4}
	var plain bytes.Buffer
	out := bufio.NewWriter(&plain)
	writeFrame(out, f)
	if err := out.Flush(); err != nil {
		t.Fatal(err)
	}
	b := plain.Bytes()
	head := len(b) - len(f.payload)
	masked := append([]byte(nil), b[:head]...)
	masked[1] |= 0x80
	masked = append(masked, mask[:]...)
	for i, x := range f.payload {
		masked = append(masked, x^mask[i%4])
	}
	if _, err := w.Write(masked); err != nil {
		t.Fatal(err)
	}
}
