package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"

	"github.com/cart-llm/cart/e2e/process"
)

// The processes that bench starts from its own binary are told apart by their first argument.
const (
	roleBackends = "role-backends"
	roleCart     = "role-cart"
)

func playRole(role string, args []string) error {
	if role == roleBackends {
		return playBackends(args)
	}
	return playCart(args)
}

// startRole starts this binary in a role. It returns when the role has told its ports.
func startRole(ctx context.Context, role string, args ...string) (*process.Process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	read, write := io.Pipe()
	p, err := process.Start(role, process.Options{Stdout: write}, append([]string{self, role}, args...)...)
	if err != nil {
		return nil, err
	}
	told := make(chan error, 1)
	go func() {
		lines := bufio.NewReader(read)
		line, err := lines.ReadBytes('\n')
		for err == nil && line[0] != '[' {
			line, err = lines.ReadBytes('\n') // CART's log goes there too
		}
		if err == nil {
			err = json.Unmarshal(line, &p.Ports)
		}
		told <- err
		_, _ = io.Copy(io.Discard, read)
	}()
	select {
	case err = <-told:
	case <-p.Exited:
		err = p.Alive()
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err == nil {
		err = p.Prove()
	}
	if err != nil {
		return nil, errors.Join(err, p.Stop())
	}
	return p, nil
}

// serveRole serves the handlers, each on a port of its own, tells the ports, and returns when the parent has ended.
func serveRole(handlers ...http.Handler) error {
	var ports []int
	for _, h := range handlers {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
		server := &http.Server{Handler: h}
		go func() { _ = server.Serve(l) }() // it ends with the process
	}
	if err := json.NewEncoder(os.Stdout).Encode(ports); err != nil {
		return err
	}
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}
