package process

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of the times in /proc/PID/stat: USER_HZ is 100 on every Linux.
const tick = 10 * time.Millisecond

// CPUTime is what all threads of a process have used so far.
func CPUTime(pid int) (time.Duration, error) {
	content, err := os.ReadFile(procFile(pid, "stat"))
	if err != nil {
		return 0, err
	}
	// The name, in brackets, may contain spaces.
	fields := strings.Fields(string(content[strings.LastIndexByte(string(content), ')')+1:]))
	const user, system = 11, 12
	if len(fields) <= system {
		return 0, fmt.Errorf("%s has %d fields", procFile(pid, "stat"), len(fields))
	}
	var sum time.Duration
	for _, field := range []string{fields[user], fields[system]} {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, err
		}
		sum += time.Duration(n) * tick
	}
	return sum, nil
}

// Resident is a process's resident memory in bytes.
func Resident(pid int) (int64, error) { return statusBytes(pid, "VmRSS:") }

// PeakResident is the most that it has been.
func PeakResident(pid int) (int64, error) { return statusBytes(pid, "VmHWM:") }

func statusBytes(pid int, key string) (int64, error) {
	content, err := os.ReadFile(procFile(pid, "status"))
	if err != nil {
		return 0, err
	}
	for _, line := range strings.Split(string(content), "\n") {
		if value, ok := strings.CutPrefix(line, key); ok {
			n, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
			return n << 10, err
		}
	}
	return 0, fmt.Errorf("%s tells no %s", procFile(pid, "status"), key)
}

// Listens returns an error unless it is this process that listens on the port: another one may have taken it.
func Listens(pid, port int) error {
	inodes := map[string]bool{}
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		if err := listeners(table, port, inodes); err != nil && !os.IsNotExist(err) {
			return err
		}
	}
	links, err := filepath.Glob(procFile(pid, "fd/*"))
	if err != nil {
		return err
	}
	for _, link := range links {
		target, err := os.Readlink(link)
		if err == nil && inodes[strings.TrimSuffix(strings.TrimPrefix(target, "socket:["), "]")] {
			return nil
		}
	}
	return fmt.Errorf("process %d does not listen on port %d", pid, port)
}

// listeners adds the inodes of the sockets that listen on a port.
func listeners(table string, port int, inodes map[string]bool) error {
	f, err := os.Open(table)
	if err != nil {
		return err
	}
	defer f.Close()
	const local, state, inode = 1, 3, 9
	suffix := fmt.Sprintf(":%04X", port)
	for lines := bufio.NewScanner(f); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) > inode && strings.HasSuffix(fields[local], suffix) && fields[state] == "0A" {
			inodes[fields[inode]] = true
		}
	}
	return nil
}

func procFile(pid int, name string) string { return filepath.Join("/proc", strconv.Itoa(pid), name) }

// Machine describes where the run took place, in one line.
func Machine() string {
	model := "unknown processor"
	if content, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for _, line := range strings.Split(string(content), "\n") {
			if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
				model = strings.TrimSpace(value)
				break
			}
		}
	}
	return model
}

// LoadAverage is that of the last minute.
func LoadAverage() string {
	content, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	first, _, _ := strings.Cut(string(content), " ")
	return first
}
