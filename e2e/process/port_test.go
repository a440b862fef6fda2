package process

import (
	"context"
	"errors"
	"net"
	"syscall"
	"testing"
)

func TestHoldPort(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := ln.Addr().String()
	if _, err := HoldPort(addr); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("HoldPort of an address in use = %v, want EADDRINUSE", err)
	}
	ln.Close()
	release, err := HoldPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := net.Dial("tcp", addr); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a connection to the held port = %v, want ECONNREFUSED", err)
	}
	// When the kernel picks a port it passes over those that a socket without SO_REUSEADDR could not have.
	picks := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) { _ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 0) })
	}}
	if l, err := picks.Listen(context.Background(), "tcp", addr); err == nil {
		l.Close()
		t.Error("another could get the held port by chance")
	}
	if err := release(); err != nil {
		t.Fatal(err)
	}
	ln, err = net.Listen("tcp", addr)
	if err != nil {
		t.Fatalf("after release: %v", err)
	}
	ln.Close()
	for _, bad := range []string{"", "localhost:80", "127.0.0.1", "[::1]:80"} {
		if _, err := HoldPort(bad); err == nil {
			t.Errorf("HoldPort(%q) gave no error", bad)
		}
	}
}
