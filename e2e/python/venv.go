// Package python installs pinned programs from the Python package index.
package python

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// Venv fills a virtual environment with exactly what a list of pinned packages says, unless it has been already, and returns
// its folder of programs. The list names the dependencies of its packages too: pip resolves nothing.
func Venv(ctx context.Context, venv string, lock []byte, limit time.Duration) (bin string, err error) {
	bin = filepath.Join(venv, "bin")
	installed := filepath.Join(venv, "installed.lock") // written last
	if have, err := os.ReadFile(installed); err == nil && string(have) == string(lock) {
		return bin, nil
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if err := run(ctx, interpreter(), "-m", "venv", "--clear", venv); err != nil {
		return "", err
	}
	wanted := filepath.Join(venv, "wanted.lock")
	if err := os.WriteFile(wanted, lock, 0o644); err != nil {
		return "", err
	}
	err = run(ctx, filepath.Join(bin, "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
		"--no-deps", "--only-binary", ":all:", "-r", wanted)
	if err != nil {
		return "", err
	}
	return bin, os.Rename(wanted, installed)
}

// interpreter is $PYTHON or python3.
func interpreter() string {
	if named := os.Getenv("PYTHON"); named != "" {
		return named
	}
	return "python3"
}

func run(ctx context.Context, argv ...string) error {
	out, err := exec.CommandContext(ctx, argv[0], argv[1:]...).CombinedOutput()
	if err != nil {
		const most = 400
		return fmt.Errorf("%s: %w: %s", filepath.Base(argv[0]), err, out[max(0, len(out)-most):])
	}
	return nil
}
