package cart

import (
	"os"
	"strconv"
	"strings"
	"sync"
)

// enoughFiles is the limit of open files below which a busy proxy runs out of them: each exchange takes two, and idle
// connections take more.
const enoughFiles = 65535

var fewFilesOnce sync.Once // for a process is warned once

// checkOpenFiles warns if the process may not open enough files. Linux tells; a plugin has no syscall to ask with.
func checkOpenFiles(p *pool) {
	text, err := os.ReadFile("/proc/self/limits")
	if err == nil {
		warnOfFewFiles(p, string(text), &fewFilesOnce)
	}
}

// warnOfFewFiles warns once. limits is the text of /proc/self/limits.
func warnOfFewFiles(p *pool, limits string, once *sync.Once) {
	limit := openFiles(limits)
	if limit < 0 || limit >= enoughFiles {
		return
	}
	p.mu.Lock()
	log := p.log
	p.mu.Unlock()
	once.Do(func() {
		log.print(levelWarn, "the limit of open files is low: raise it (ulimit -n, LimitNOFILE), or connections fail under load",
			"limit", limit, "want", enoughFiles)
	})
}

// openFiles reads the limit of open files from the text of /proc/self/limits; -1 = none, or not to be found.
func openFiles(limits string) int {
	_, rest, _ := strings.Cut(limits, "Max open files")
	fields := strings.Fields(rest)
	if len(fields) == 0 {
		return -1
	}
	limit, err := strconv.Atoi(fields[0])
	if err != nil {
		return -1
	}
	return limit
}
