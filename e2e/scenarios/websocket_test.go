package scenarios

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/cart-llm/cart/e2e/engine"
)

// TestWebSocketPasses: an upgrade reaches a replica, frames pass both ways, and the connection counts as load while it
// lasts.
func TestWebSocketPasses(t *testing.T) {
	engine.Each(t, func(t *testing.T, kind engine.Kind) {
		r := start(t, kind, pool{size: 2})
		host := strings.TrimPrefix(r.e.URL(), "http://")
		c, err := net.Dial("tcp", host)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if err := c.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(c, "GET /v1/realtime?model=sim HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
			"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n", host)
		in := bufio.NewReader(c)
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusSwitchingProtocols || resp.Header.Get("Sec-Websocket-Accept") != "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" {
			t.Fatalf("answer to the upgrade = %s %v, want 101 with the accept key", resp.Status, resp.Header)
		}
		if got := r.state().load(); got != 1 {
			t.Errorf("load in /workers with a websocket open = %d, want 1", got)
		}
		for _, size := range []int{1, 125, 70000} {
			want := []byte(text("frame", size))
			if _, err := c.Write(clientFrame(want)); err != nil {
				t.Fatal(err)
			}
			got := make([]byte, len(serverFrame(want)))
			if _, err := io.ReadFull(in, got); err != nil || !bytes.Equal(got, serverFrame(want)) {
				t.Errorf("echo of a frame of %d bytes differs, error %v", size, err)
			}
		}
		c.Close()
		r.waitIdle()
	})
}

// clientFrame is a binary frame with the mask of zeros, which leaves the payload as it is.
func clientFrame(payload []byte) []byte {
	f := serverFrame(payload)
	head := len(f) - len(payload)
	out := append([]byte(nil), f[:head]...)
	out[1] |= 0x80
	out = append(out, 0, 0, 0, 0)
	return append(out, payload...)
}

func serverFrame(payload []byte) []byte {
	out := []byte{0x82}
	switch n := len(payload); {
	case n < 126:
		out = append(out, byte(n))
	case n < 1<<16:
		out = binary.BigEndian.AppendUint16(append(out, 126), uint16(n))
	default:
		out = binary.BigEndian.AppendUint64(append(out, 127), uint64(n))
	}
	return append(out, payload...)
}
