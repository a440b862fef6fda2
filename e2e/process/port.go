package process

import (
	"fmt"
	"net/netip"
	"os"
	"syscall"
)

// HoldPort keeps an IPv4 address from others without listening on it: who connects is refused, and no process gets the
// port by chance, as it can when a listener merely closes (who asks for this very port still can). It tries once: what
// listened there must have closed. release gives the port back, so that it can be listened on again.
func HoldPort(addr string) (release func() error, err error) {
	at, err := netip.ParseAddrPort(addr)
	if err != nil || !at.Addr().Is4() {
		return nil, fmt.Errorf("process: hold port %q: want an IPv4 address and a port", addr)
	}
	syscall.ForkLock.RLock() // a program that is started just now is not to inherit it
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err == nil {
		syscall.CloseOnExec(fd)
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	// What was accepted there may still be closing, which would keep the port from us for a minute.
	if err = syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err == nil {
		err = syscall.Bind(fd, &syscall.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()})
	}
	if err != nil {
		syscall.Close(fd)
		return nil, os.NewSyscallError("bind", err)
	}
	return func() error { return os.NewSyscallError("close", syscall.Close(fd)) }, nil
}
