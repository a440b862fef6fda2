package process

import (
	"net"
	"os"
	"testing"
)

func TestListens(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	if err := Listens(os.Getpid(), port); err != nil {
		t.Errorf("Listens() = %v, want nil", err)
	}
	if err := Listens(os.Getppid(), port); err == nil {
		t.Error("Listens() of another process = nil, want an error")
	}
	l.Close()
	if err := Listens(os.Getpid(), port); err == nil {
		t.Error("Listens() on a closed port = nil, want an error")
	}
}
