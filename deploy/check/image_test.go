package check

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
)

const traefikImage = "deploy/docker/Dockerfile"

// TestImage: the files where the Dockerfile puts them, its entry point and its command make a Traefik that routes a chat, for a
// user who may write nothing.
func TestImage(t *testing.T) {
	t.Parallel()
	i := readImage(t, traefikImage)
	s := newStage(t)
	s.layBase(t)
	i.lay(t, s)
	for _, name := range []string{"plugin.go", ".traefik.yml", "go.mod", "LICENSE", "vendor/modules.txt"} {
		if _, err := os.Stat(s.path("/" + layout + "/" + name)); err != nil {
			t.Errorf("the image: %v", err)
		}
	}
	if tests, _ := filepath.Glob(s.path("/" + layout + "/*_test.go")); len(tests) > 0 {
		t.Errorf("the image has tests: %v", tests)
	}
	if i.workdir != "/" || len(i.entrypoint) != 1 || !slices.Equal(i.cmd, []string{"traefik"}) {
		t.Fatalf("the image starts %q %q in %s, want one entry point and traefik in /", i.entrypoint, i.cmd, i.workdir)
	}
	urls, address := startReplicas(t), s.listen(t)
	s.put(t, filepath.Join(root(t), "examples", "file"), etc, s.fileEdits(address, urls))
	if os.Getuid() == 0 {
		s.uid = 65532 // the official chart's user
	}
	s.run(t, s.path(i.entrypoint[0]), "--configFile="+s.path(etc+"/traefik.yml"))
	asker{base: "http://" + address}.chat(t, "an image")
}

// TestImage_baseIsAnArgument: version and origin of Traefik can be chosen.
func TestImage_baseIsAnArgument(t *testing.T) {
	i := readImage(t, traefikImage)
	defaults := map[string]string{}
	for _, arg := range i.args {
		for _, one := range arg.Args {
			if one.Value != nil {
				defaults[one.Key] = *one.Value
			}
		}
	}
	if defaults["TRAEFIK_IMAGE"] != "traefik" || !strings.HasPrefix(defaults["TRAEFIK_TAG"], "v3.") {
		t.Errorf("the build arguments are %v, want the official image of a Traefik 3", defaults)
	}
	if base := i.stages[0].BaseName; base != "${TRAEFIK_IMAGE}:${TRAEFIK_TAG}" {
		t.Errorf("FROM %s, want the two build arguments", base)
	}
}

// TestImage_entrypoint tells of few open files, and starts or refuses as it is asked to.
func TestImage_entrypoint(t *testing.T) {
	t.Parallel()
	script := filepath.Join(root(t), "deploy", "docker", "entrypoint.sh")
	stand := filepath.Join(t.TempDir(), "entrypoint.sh")
	if err := os.WriteFile(stand, []byte("#!/bin/sh\necho \"started $* with $(ulimit -Sn)\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	// Not every machine lets a test set a limit as high as is wanted, so the high ones are the shell's word only.
	high := `ulimit() { case $* in -Hn) echo ` + "%s" + ` ;; -Sn) echo 1024 ;; "-Sn 65535") echo raised ;; esac; }`
	for _, c := range []struct {
		limits, policy string
		status         int
		want           []string
		wantNot        string
	}{
		{"ulimit -n 1024", "", 0, []string{"ulimit -n is 1024, want at least 65535", "started a b with 1024"}, "raised"},
		{"ulimit -n 1025", "warn", 0, []string{"ulimit -n is 1025", "started"}, "raised"},
		{"ulimit -n 1024", "refuse", 78, []string{"ulimit -n is 1024"}, "started"},
		{"ulimit -n 1024", "ignore", 78, []string{`CART_FEW_FILES = "ignore" is not allowed (want warn or refuse)`}, "started"},
		{fmt.Sprintf(high, "65534"), "refuse", 78, []string{"ulimit -n is 65534"}, "started"},
		{fmt.Sprintf(high, "65535"), "refuse", 0, []string{"raised", "started a b"}, "cart:"},
		{fmt.Sprintf(high, "unlimited"), "", 0, []string{"raised", "started a b"}, "cart:"},
	} {
		cmd := exec.Command("sh", "-c", c.limits+"\n"+`. "$SCRIPT"`, "sh", "a", "b")
		cmd.Env = append(os.Environ(), "SCRIPT="+script, "TRAEFIK_ENTRYPOINT="+stand, "CART_FEW_FILES="+c.policy)
		out, err := cmd.CombinedOutput()
		status := 0
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			status, err = exit.ExitCode(), nil
		}
		if err != nil || status != c.status {
			t.Errorf("%s, CART_FEW_FILES=%s: status %d, %v, %s, want %d", c.limits, c.policy, status, err, out, c.status)
		}
		for _, want := range c.want {
			if !strings.Contains(string(out), want) {
				t.Errorf("%s, CART_FEW_FILES=%s wrote %q, want %q in it", c.limits, c.policy, out, want)
			}
		}
		if c.wantNot != "" && strings.Contains(string(out), c.wantNot) {
			t.Errorf("%s, CART_FEW_FILES=%s wrote %q, want no %q in it", c.limits, c.policy, out, c.wantNot)
		}
	}
}

// TestImage_replica: the command that builds the simulated replica does, from the files that the build sees, and what it builds takes
// the arguments that the image starts it with.
func TestImage_replica(t *testing.T) {
	t.Parallel()
	i := readImage(t, "deploy/docker/replica.Dockerfile")
	context := i.context(t)
	s := newStage(t)
	for _, name := range context {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		content, err := os.ReadFile(filepath.Join(root(t), name))
		if err != nil {
			t.Fatal(err)
		}
		s.write(t, path.Join("/src", name), string(content), 0o644)
	}
	built := 0
	for _, command := range i.stages[0].Commands {
		if run, ok := command.(*instructions.RunCommand); ok {
			built++
			// Without what would have the whole standard library compiled anew.
			line := strings.NewReplacer("CGO_ENABLED=0 ", "", "-trimpath ", "", " /replica ", " "+s.path("/replica")+" ").Replace(run.CmdLine[0])
			cmd := exec.Command("sh", "-c", line)
			cmd.Dir = s.path("/src")
			cmd.Env = append(os.Environ(), "GOFLAGS=-buildvcs=false")
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("RUN %s: %v\n%s", run.CmdLine[0], err, out)
			}
		}
	}
	if built != 1 {
		t.Fatalf("the first stage has %d RUN instructions, want one", built)
	}
	address := s.listen(t)
	args := strings.Split(strings.ReplaceAll(strings.Join(slices.Concat(i.entrypoint[1:], i.cmd), "\n"), "0.0.0.0:8000", address), "\n")
	if !slices.Contains(args, address) {
		t.Fatalf("the image starts %q %q, want it to listen on 0.0.0.0:8000", i.entrypoint, i.cmd)
	}
	s.run(t, append([]string{s.path(i.entrypoint[0])}, args...)...)
	eventually(t, func() error {
		got, err := asker{base: "http://" + address}.send("GET", "/health", nil)
		if err == nil && got.status != 200 {
			err = fmt.Errorf("GET /health = %d, want 200", got.status)
		}
		return err
	})
}

// TestImage_hadolint: the linter of Dockerfiles has nothing to say.
func TestImage_hadolint(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join(root(t), "deploy", "docker", "*Dockerfile"))
	if err != nil || len(files) != 2 {
		t.Fatalf("Dockerfiles: %v, %v, want two", files, err)
	}
	if out, err := exec.Command(program(t, "hadolint"), files...).CombinedOutput(); err != nil {
		t.Errorf("hadolint: %v\n%s", err, out)
	}
}

// program returns a tool that `make` fetches into .cache/bin, or one of the PATH; without either a test is skipped, and in CI fails.
func program(t *testing.T, name string) string {
	t.Helper()
	cached := filepath.Join(root(t), ".cache", "bin", name)
	if _, err := os.Stat(cached); err == nil {
		return cached
	}
	if found, err := exec.LookPath(name); err == nil {
		return found
	}
	if os.Getenv("CI") != "" {
		t.Fatalf("no %s in .cache/bin: make packaging fetches it", name)
	}
	t.Skipf("no %s in .cache/bin: make packaging fetches it", name)
	return ""
}
