package cart

import (
	"bytes"
	"strings"
	"sync"
	"testing"
)

func TestOpenFiles(t *testing.T) {
	const text = `Limit                     Soft Limit           Hard Limit           Units
Max processes             95912                95912                processes
Max open files            1024                 524288               files
Max locked memory         8388608              8388608              bytes
`
	for _, row := range []struct {
		text string
		want int
	}{
		{text, 1024},
		{strings.Replace(text, "1024  ", "unlimited", 1), -1},
		{strings.Replace(text, "1024   ", "1048576", 1), 1048576},
		{"", -1},
		{"Max open files", -1},
	} {
		if got := openFiles(row.text); got != row.want {
			t.Errorf("openFiles(%q) = %d, want %d", row.text, got, row.want)
		}
	}
}

func TestOpenFiles_warnsOnce(t *testing.T) {
	var out bytes.Buffer
	p := quietPool(t, CreateConfig())
	p.log = captured(&out, levelWarn)
	for _, row := range []struct {
		text  string
		lines int
	}{{"Max open files 65535 x", 0}, {"Max open files 65534 x", 1}, {"Max open files 10 x", 1}} {
		out.Reset()
		var once sync.Once
		for i := 0; i < 2; i++ {
			warnOfFewFiles(p, row.text, &once)
		}
		if n := strings.Count(out.String(), "ulimit -n"); n != row.lines {
			t.Errorf("%s: %d lines, want %d: %s", row.text, n, row.lines, out.String())
		}
	}
}
