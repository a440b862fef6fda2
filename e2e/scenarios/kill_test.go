package scenarios

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cart-llm/cart/e2e/engine"
	"github.com/cart-llm/cart/e2e/process"
)

// TestKillUnderLoad: kill -9 of a replica under 32 clients breaks only answers that had begun.
func TestKillUnderLoad(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "replica")
	if out, err := exec.Command("go", "build", "-o", binary, "github.com/cart-llm/cart/e2e/cmd/replica").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	engine.Each(t, func(t *testing.T, kind engine.Kind) {
		var urls []string
		var processes []*replicaProcess
		for i := 0; i < 3; i++ {
			p := startProcess(t, binary, "127.0.0.1:0")
			processes = append(processes, p)
			urls = append(urls, p.url)
		}
		r := start(t, kind, pool{config: engine.Config{
			"workers":        workersOf(urls...),
			"circuitBreaker": engine.Config{"timeout": "200ms"},
		}})
		clients := startClients(r, 32)
		time.Sleep(700 * time.Millisecond)
		victim := processes[0]
		address := strings.TrimPrefix(victim.url, "http://")
		victim.kill()
		killed := time.Now()
		free, err := process.HoldPort(address) // or somebody else might get it
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(700 * time.Millisecond)
		if err := free(); err != nil {
			t.Fatal(err)
		}
		startProcess(t, binary, address)
		r.waitState(10*time.Second, func(s poolState) error {
			before, _ := s.worker(victim.url)
			if !before.Healthy || before.Load == 0 {
				return fmt.Errorf("the replica that came back in /workers = %+v, want it healthy and loaded", before)
			}
			return nil
		})
		eventually(t, 20*time.Second, func() error {
			if n := clients.count(); n < 200 {
				return fmt.Errorf("only %d requests were sent, too few to show anything", n)
			}
			return nil
		})
		results := clients.stop()
		broken := 0
		for _, got := range results {
			switch {
			case got.status == 0 && got.streamed && errors.Is(got.err, io.EOF) && got.began.Before(killed):
				broken++ // it had begun: the replica's headers were on their way to the client. What fails before is retried or gets 502
			case got.status != http.StatusOK:
				t.Errorf("a client got %d %.200q, %v, want 200", got.status, got.body, got.err)
			case got.err != nil && (got.peer != victim.url || got.began.After(killed)):
				t.Errorf("an answer of %s begun %v after the kill broke: %v", got.peer, got.began.Sub(killed), got.err)
			case got.err != nil:
				broken++
			}
		}
		t.Logf("%d requests, %d of them broke off after their first byte", len(results), broken)
		if broken > 32 {
			t.Errorf("%d answers broke, want at most the 32 that ran at the kill", broken)
		}
		r.waitIdle()
	})
}

// result is one exchange of a client.
type result struct {
	began    time.Time
	streamed bool
	status   int
	peer     string
	body     string // of an answer other than 200
	err      error
}

// clients send chats, half of them streamed, half of them seen before, one after another.
type clients struct {
	r    *rig
	done chan struct{}
	wait sync.WaitGroup

	mu      sync.Mutex
	results []result
}

func startClients(r *rig, n int) *clients {
	c := &clients{r: r, done: make(chan struct{})}
	for i := 0; i < n; i++ {
		c.wait.Add(1)
		go func() {
			defer c.wait.Done()
			c.run(i)
		}()
	}
	return c
}

func (c *clients) run(i int) {
	for n := 0; ; n++ {
		select {
		case <-c.done:
			return
		default:
		}
		one := newChat(fmt.Sprintf("client %d chat %d", i, n/2)).tokens(20)
		if n%2 == 0 {
			one = one.stream()
		}
		got := c.exchange(one)
		c.mu.Lock()
		c.results = append(c.results, got)
		c.mu.Unlock()
	}
}

func (c *clients) exchange(one *chat) result {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	got := result{began: time.Now(), streamed: one.Stream}
	resp, err := c.r.send(ctx, request{method: "POST", path: "/v1/chat/completions", body: one.body()})
	if err != nil {
		got.err = err
		return got
	}
	defer resp.Body.Close()
	got.status, got.peer = resp.StatusCode, resp.Header.Get("x-routed-peer")
	body, err := io.ReadAll(resp.Body)
	got.err = err
	if got.status != http.StatusOK {
		got.body = string(body)
	}
	return got
}

// count is how many exchanges have ended.
func (c *clients) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.results)
}

func (c *clients) stop() []result {
	close(c.done)
	c.wait.Wait()
	return c.results
}

// replicaProcess is a simulated replica in a process of its own.
type replicaProcess struct {
	url string
	cmd *exec.Cmd
}

func startProcess(t *testing.T, binary, addr string) *replicaProcess {
	t.Helper()
	p := &replicaProcess{cmd: exec.Command(binary, "-addr", addr, "-decode-rate", "200")}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.kill)
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("the replica said %q: %v", line, err)
	}
	var pid int
	if _, err := fmt.Sscanf(line, "listening %s pid %d", &p.url, &pid); err != nil || pid != p.cmd.Process.Pid {
		t.Fatalf("the replica said %q, want its address and its pid %d", line, p.cmd.Process.Pid)
	}
	return p
}

// kill is kill -9. A process that has ended already is left alone.
func (p *replicaProcess) kill() {
	if p.cmd.ProcessState == nil {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
	}
}
