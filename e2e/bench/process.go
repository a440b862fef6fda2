package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// process is one that bench has started.
type process struct {
	name   string
	pid    int
	ports  []int
	exited <-chan struct{}
	log    func() string
	stop   func() error
}

func (p *process) url() string { return "http://127.0.0.1:" + strconv.Itoa(p.ports[0]) }

// prove returns an error unless the process lives and it is the one that answers on its ports.
func (p *process) prove() error {
	if err := p.alive(); err != nil {
		return err
	}
	for _, port := range p.ports {
		if err := listens(p.pid, port); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	return nil
}

func (p *process) alive() error {
	select {
	case <-p.exited:
		return fmt.Errorf("%s ended by itself:\n%s", p.name, p.log())
	default:
		return nil
	}
}

// command starts a program. stdout, if not nil, gets what it prints there; the rest is kept for the log.
func command(name string, stdout io.Writer, env []string, argv ...string) (*process, error) {
	log := &lastBytes{}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stderr = log
	cmd.Stdout = log
	if stdout != nil {
		cmd.Stdout = stdout
	}
	// A process of bench's own ends when this pipe does, however bench itself ends.
	hold, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	exited := make(chan struct{})
	go func() {
		_ = cmd.Wait() // it is ended by a signal as a rule; whether it should have is asked of alive
		close(exited)
	}()
	p := &process{name: name, pid: cmd.Process.Pid, exited: exited, log: log.String}
	p.stop = func() error {
		hold.Close()
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-exited:
		case <-time.After(2 * time.Second):
			_ = cmd.Process.Kill()
			<-exited
		}
		return nil
	}
	return p, nil
}

// startRole starts this binary in a role. It returns when the role has told its ports.
func startRole(ctx context.Context, role string, args ...string) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	read, write := io.Pipe()
	p, err := command(role, write, nil, append([]string{self, role}, args...)...)
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
			err = json.Unmarshal(line, &p.ports)
		}
		told <- err
		_, _ = io.Copy(io.Discard, read)
	}()
	select {
	case err = <-told:
	case <-p.exited:
		err = p.alive()
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err == nil {
		err = p.prove()
	}
	if err != nil {
		return nil, errors.Join(err, p.stop())
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

func playRole(role string, args []string) error {
	if role == roleBackends {
		return playBackends(args)
	}
	return playCart(args)
}

// freePort finds a port for a program that has to be told one.
func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// waitHealthy returns when the process answers GET /health with 200.
func waitHealthy(ctx context.Context, p *process) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		_, err := getBody(ctx, p.url()+"/health")
		if err == nil {
			return p.prove()
		}
		select {
		case <-p.exited:
			return p.alive()
		case <-ctx.Done():
			return fmt.Errorf("%s is not healthy: %w\n%s", p.name, err, p.log())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// getBody returns the body of a 200.
func getBody(ctx context.Context, address string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("GET %s = %s %.200s", address, resp.Status, body)
	}
	return body, err
}

// lastBytes keeps the end of what is written to it.
type lastBytes struct {
	mu   sync.Mutex
	text []byte
}

func (b *lastBytes) Write(p []byte) (int, error) {
	const most = 4 << 10
	b.mu.Lock()
	defer b.mu.Unlock()
	b.text = append(b.text, p...)
	if len(b.text) > most {
		b.text = append(b.text[:0], b.text[len(b.text)-most:]...)
	}
	return len(p), nil
}

func (b *lastBytes) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return string(b.text)
}
