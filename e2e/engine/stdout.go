package engine

import (
	"io"
	"os"
	"sync"
)

// stdout is what the plugin writes to the standard output of a test, where it logs to. It also goes on to the real one.
var stdout struct {
	once sync.Once
	log  lockedBuffer
}

// captureStdout puts a pipe in place of os.Stdout for the rest of the process. The tests' own output does not pass it.
func captureStdout() {
	stdout.once.Do(func() {
		in, out, err := os.Pipe()
		if err != nil {
			return // then nothing is captured, and lines go where they went
		}
		real := os.Stdout
		os.Stdout = out
		go func() {
			// Ends with the process.
			_, _ = io.Copy(io.MultiWriter(real, &stdout.log), in)
		}()
	})
}

// since returns what the buffer got after its first n bytes.
func (b *lockedBuffer) since(n int) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return string(b.text.Bytes()[n:])
}

func (b *lockedBuffer) len() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Len()
}
