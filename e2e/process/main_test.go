package process

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestMain is the program that the test below starts, if it is told to be.
func TestMain(m *testing.M) {
	if os.Getenv("PROCESS_TEST_MAIN") == "" {
		os.Exit(m.Run())
	}
	RunMain("test", func(ctx context.Context) error {
		if err := breakConnection(); err != nil {
			return err
		}
		fmt.Println("still here")
		for ctx.Err() == nil {
			fmt.Print(".") // which raises SIGPIPE when nobody reads it
			time.Sleep(10 * time.Millisecond)
		}
		return ctx.Err()
	})
}

// breakConnection writes to a connection until it is broken, which raises SIGPIPE.
func breakConnection() error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer listener.Close()
	client, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		return err
	}
	defer client.Close()
	server, err := listener.Accept()
	if err != nil {
		return err
	}
	client.Close()
	for err == nil {
		_, err = server.Write([]byte("x"))
		time.Sleep(time.Millisecond)
	}
	time.Sleep(100 * time.Millisecond) // a stop would have come
	return server.Close()
}

func TestRunMain_stopsWhenToldOrUnread(t *testing.T) {
	for _, end := range []string{"interrupt", "broken pipe"} {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "PROCESS_TEST_MAIN=1")
		var said strings.Builder
		cmd.Stderr = &said
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		kill := time.AfterFunc(30*time.Second, func() { cmd.Process.Kill() })
		if line, err := bufio.NewReader(out).ReadString('\n'); line != "still here\n" {
			t.Fatalf("it printed %q, %v, want that a broken connection is no reason to stop", line, err)
		}
		if end == "interrupt" {
			cmd.Process.Signal(syscall.SIGINT)
		} else {
			out.Close()
		}
		cmd.Wait()
		kill.Stop()
		if code := cmd.ProcessState.ExitCode(); code != ExitInterrupted || said.String() != "\nStopped: "+end+".\n" {
			t.Errorf("%s: exit status %d, it said %q, want %d and the reason", end, code, said.String(), ExitInterrupted)
		}
	}
}
