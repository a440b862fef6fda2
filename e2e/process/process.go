// Package process starts programs, proves that it is they who answer on their ports, and ends them by their process id.
package process

import (
	"context"
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

// Process is a program that runs on this machine and listens on 127.0.0.1.
type Process struct {
	Name  string
	Pid   int
	Ports []int
	// Exited is closed when it has ended.
	Exited <-chan struct{}
	// Log returns the end of what it wrote.
	Log func() string
	// Stop ends it and returns when it has ended.
	Stop func() error
	// Kill ends it as kill -9 does. Those that Start did not start have none.
	Kill func()
}

// Options tells how to start a program. The zero value is good.
type Options struct {
	// Env is added to this process's environment.
	Env []string
	// Stdout gets what the program prints there; nil = it is kept for the log.
	Stdout io.Writer
	// Group gives the program a process group of its own, all of which is ended with it.
	Group bool
	// Grace is how long the program may take to end when it is told to; 0 = 2 s.
	Grace time.Duration
}

// Start starts a program. Its standard input is a pipe that ends when this process does, however that ends: a program
// that is to end then too has to read it.
func Start(name string, o Options, argv ...string) (*Process, error) {
	log := &lastBytes{}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), o.Env...)
	cmd.Stderr = log
	cmd.Stdout = log
	if o.Stdout != nil {
		cmd.Stdout = o.Stdout
	}
	if o.Group {
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	}
	hold, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	exited := make(chan struct{})
	go func() {
		_ = cmd.Wait() // it is ended by a signal as a rule; whether it should have is asked of Alive
		close(exited)
	}()
	p := &Process{Name: name, Pid: cmd.Process.Pid, Exited: exited, Log: log.String}
	p.Kill = func() {
		_ = cmd.Process.Kill() // an error here and below means that it has ended
		if o.Group {
			_ = syscall.Kill(-p.Pid, syscall.SIGKILL)
		}
		<-exited
	}
	p.Stop = func() error {
		hold.Close()
		_ = cmd.Process.Signal(syscall.SIGTERM)
		grace := o.Grace
		if grace == 0 {
			grace = 2 * time.Second
		}
		select {
		case <-exited:
		case <-time.After(grace):
		}
		p.Kill() // what is left of it
		return nil
	}
	return p, nil
}

// URL is the address of the first port.
func (p *Process) URL() string { return "http://127.0.0.1:" + strconv.Itoa(p.Ports[0]) }

// Prove returns an error unless the process lives and it is the one that answers on its ports.
func (p *Process) Prove() error {
	if err := p.Alive(); err != nil {
		return err
	}
	for _, port := range p.Ports {
		if err := Listens(p.Pid, port); err != nil {
			return fmt.Errorf("%s: %w", p.Name, err)
		}
	}
	return nil
}

// Alive returns an error if the process has ended.
func (p *Process) Alive() error {
	select {
	case <-p.Exited:
		return fmt.Errorf("%s ended by itself:\n%s", p.Name, p.Log())
	default:
		return nil
	}
}

// WaitHealthy returns when the process answers GET /health with 200, or an error when it does not within the limit.
func (p *Process) WaitHealthy(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		_, err := GetBody(ctx, p.URL()+"/health")
		if err == nil {
			return p.Prove()
		}
		select {
		case <-p.Exited:
			return p.Alive()
		case <-ctx.Done():
			return fmt.Errorf("%s is not healthy: %w\n%s", p.Name, err, p.Log())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// FreePort finds a port for a program that has to be told one. It may be taken when the program binds it.
func FreePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// GetBody returns the body of a 200.
func GetBody(ctx context.Context, address string) ([]byte, error) {
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
