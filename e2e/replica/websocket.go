package replica

import (
	"bufio"
	"crypto/sha1" // RFC 6455 asks for it
	"encoding/base64"
	"encoding/binary"
	"errors"
	"io"
	"net/http"
	"strings"
)

const (
	websocketGUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
	maxFrame      = 16 << 20

	opClose = 0x8
	opPing  = 0x9
	opPong  = 0xa
)

// frame is one WebSocket frame, unmasked.
type frame struct {
	head    byte // FIN and reserved bits, and the opcode
	payload []byte
}

// echoWebSocket upgrades the connection and sends every data frame back as it came, until the client closes.
func echoWebSocket(w http.ResponseWriter, r *http.Request) {
	key := r.Header.Get("Sec-Websocket-Key")
	if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") || key == "" {
		w.Header().Set("Upgrade", "websocket")
		writeJSON(w, http.StatusUpgradeRequired, object{"detail": "Upgrade Required"})
		return
	}
	c, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		writeJSON(w, http.StatusInternalServerError, object{"detail": err.Error()})
		return
	}
	defer c.Close()
	sum := sha1.Sum([]byte(key + websocketGUID)) // RFC 6455 asks for it
	_, _ = rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" +
		"Sec-WebSocket-Accept: " + base64.StdEncoding.EncodeToString(sum[:]) + "\r\n\r\n")
	for rw.Flush() == nil {
		f, err := readFrame(rw.Reader)
		if err != nil {
			return
		}
		switch f.head & 0xf {
		case opPing:
			f.head = f.head&0xf0 | opPong
		case opPong:
			continue
		}
		writeFrame(rw.Writer, f)
		if f.head&0xf == opClose {
			_ = rw.Flush()
			return
		}
	}
}

func readFrame(r *bufio.Reader) (frame, error) {
	var head [2]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return frame{}, err
	}
	size := uint64(head[1] & 0x7f)
	switch size {
	case 126:
		var b [2]byte
		if _, err := io.ReadFull(r, b[:]); err != nil {
			return frame{}, err
		}
		size = uint64(binary.BigEndian.Uint16(b[:]))
	case 127:
		var b [8]byte
		if _, err := io.ReadFull(r, b[:]); err != nil {
			return frame{}, err
		}
		size = binary.BigEndian.Uint64(b[:])
	}
	if size > maxFrame {
		return frame{}, errors.New("websocket: frame too long")
	}
	var mask [4]byte
	if head[1]&0x80 != 0 {
		if _, err := io.ReadFull(r, mask[:]); err != nil {
			return frame{}, err
		}
	}
	f := frame{head: head[0], payload: make([]byte, size)}
	_, err := io.ReadFull(r, f.payload)
	for i := range f.payload {
		f.payload[i] ^= mask[i%4]
	}
	return f, err
}

// writeFrame writes a frame without a mask, as servers do. Errors show at the next flush.
func writeFrame(w *bufio.Writer, f frame) {
	n := len(f.payload)
	_ = w.WriteByte(f.head)
	switch {
	case n < 126:
		_ = w.WriteByte(byte(n))
	case n < 1<<16:
		_ = w.WriteByte(126)
		_, _ = w.Write(binary.BigEndian.AppendUint16(nil, uint16(n)))
	default:
		_ = w.WriteByte(127)
		_, _ = w.Write(binary.BigEndian.AppendUint64(nil, uint64(n)))
	}
	_, _ = w.Write(f.payload)
}
