package check

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cart-llm/cart/e2e/replica"
	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
)

// composeFiles are all of the repository.
var composeFiles = []string{"deploy/docker/compose.yml", "deploy/docker/compose.vllm.yml", "examples/docker/compose.yml"}

// loadCompose does what `docker compose config` does: schema, variables, and what refers to what.
func loadCompose(t *testing.T, file string) *types.Project {
	t.Helper()
	o, err := cli.NewProjectOptions([]string{file}, cli.WithResolvedPaths(true), cli.WithInterpolation(true))
	if err != nil {
		t.Fatal(err)
	}
	project, err := o.LoadProject(t.Context())
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return project
}

// TestCompose_config: each file is one that Compose takes, what it names is there, and clients cannot reach what is not theirs.
func TestCompose_config(t *testing.T) {
	for _, file := range composeFiles {
		t.Run(file, func(t *testing.T) {
			project := loadCompose(t, filepath.Join(root(t), file))
			for name, service := range project.Services {
				if service.Build != nil {
					dockerfile := service.Build.Dockerfile
					if !filepath.IsAbs(dockerfile) {
						dockerfile = filepath.Join(service.Build.Context, dockerfile)
					}
					if service.Build.Context != root(t) {
						t.Errorf("%s is built from %s, want the repository's root", name, service.Build.Context)
					}
					if _, err := os.Stat(dockerfile); err != nil {
						t.Errorf("%s: %v", name, err)
					}
				}
				for _, volume := range service.Volumes {
					if volume.Type == types.VolumeTypeBind && strings.HasPrefix(volume.Source, root(t)) && filepath.Base(volume.Source) != "plugins-local" {
						if _, err := os.Stat(volume.Source); err != nil {
							t.Errorf("%s: %v", name, err)
						}
					}
					if volume.Type == types.VolumeTypeBind && !volume.ReadOnly {
						t.Errorf("%s may write to %s", name, volume.Source)
					}
				}
			}
			checkTraefikService(t, project.Services["traefik"])
		})
	}
}

func checkTraefikService(t *testing.T, service types.ServiceConfig) {
	t.Helper()
	if files := service.Ulimits["nofile"]; files == nil || files.Soft < 65535 || files.Hard < 65535 {
		t.Errorf("traefik may open %v files, want 65535", files)
	}
	for _, port := range service.Ports {
		if port.Target != 8000 && port.HostIP != "127.0.0.1" {
			t.Errorf("port %d is published on %q, want 127.0.0.1", port.Target, port.HostIP)
		}
	}
	if service.Build == nil {
		return
	}
	if service.Build.Args["TRAEFIK_IMAGE"] == nil || service.Build.Args["TRAEFIK_TAG"] == nil {
		t.Error("the base image is no argument")
	}
	if !service.ReadOnly || len(service.CapDrop) == 0 {
		t.Error("traefik may write to its file system, or has rights that it does not need")
	}
}

// TestCompose_simulated starts Traefik with the files and the arguments that deploy/docker/compose.yml gives it.
func TestCompose_simulated(t *testing.T) {
	t.Parallel()
	project := loadCompose(t, filepath.Join(root(t), "deploy", "docker", "compose.yml"))
	engine := startReplica(t, replica.Options{})
	s := newStage(t)
	s.layBase(t)
	readImage(t, traefikImage).lay(t, s)
	web, internal := s.listen(t), s.listen(t)
	service := project.Services["traefik"]
	for _, volume := range service.Volumes {
		s.put(t, volume.Source, volume.Target, edits{
			{`address: ":8000"`, fmt.Sprintf("address: %q", web)},
			{`address: ":8081"`, fmt.Sprintf("address: %q", internal)},
			{etc, s.path(etc)},
			{"http://replica:8000", engine.URL()},
		})
	}
	args := []string(service.Command)
	edits{{etc, s.path(etc)}}.apply(t, args)
	s.run(t, append([]string{s.path("/cart-entrypoint.sh")}, args...)...)
	asker{base: "http://" + web}.chat(t, "a Compose file")
	checkInside(t, internal, web)
}

// TestCompose_labels starts Traefik with the arguments of a Compose file whose containers are found by their labels. A stand-in for
// the Docker daemon says that they run.
func TestCompose_labels(t *testing.T) {
	for _, file := range composeFiles[1:] {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			project := loadCompose(t, filepath.Join(root(t), file))
			s := newStage(t)
			s.layBase(t)
			if project.Services["traefik"].Build != nil {
				readImage(t, traefikImage).lay(t, s)
			} else {
				s.unpack(t) // what its comment says to do
			}
			daemon := startDaemon(t)
			engines := startContainers(t, daemon, project.Services["vllm"], 2)

			web, internal, api := s.listen(t), s.listen(t), s.listen(t)
			traefik := project.Services["traefik"]
			traefik.Labels["traefik.http.middlewares.cart.plugin.cart.discovery.api.address"] = "http://" + api
			traefik.Labels["traefik.http.middlewares.cart.plugin.cart.discovery.interval"] = "200ms"
			daemon.run("traefik-1", "127.0.0.1", "80", traefik.Labels)
			args := slices.DeleteFunc([]string(traefik.Command), func(word string) bool { return word == "traefik" })
			edits{
				{"=:8000", "=" + web},
				{"=:8081", "=" + internal},
				{"127.0.0.1:8080", api},
				{"unix:///var/run/docker.sock", daemon.address()},
			}.apply(t, args)
			s.run(t, append([]string{s.path("/usr/local/bin/traefik")}, args...)...)

			ask := asker{base: "http://" + web}
			ask.chat(t, "labels")
			ask.reaches(t, engines...)
			checkInside(t, internal, web)
			// docker compose up --scale vllm=3
			third := startContainers(t, daemon, project.Services["vllm"], 1)
			ask.reaches(t, append(third, engines...)...)
		})
	}
}

// startContainers runs a replica for each container of a service, on an address of its own, and tells the daemon of them.
func startContainers(t *testing.T, d *daemon, service types.ServiceConfig, n int) (urls []string) {
	t.Helper()
	for range n {
		address := loopback()
		port := freePort(t, address)
		labels := types.Labels{}
		for name, value := range service.Labels {
			if name == "traefik.http.services.vllm.loadbalancer.server.port" {
				if value != "8000" {
					t.Errorf("%s = %s, want vLLM's port 8000", name, value)
				}
				value = port
			}
			labels[name] = value
		}
		engine := startReplica(t, replica.Options{Addr: address + ":" + port})
		d.run("vllm-"+port, address, port, labels)
		urls = append(urls, engine.URL())
	}
	return urls
}

// checkInside: CART's pages are on the internal entry point, and on no other.
func checkInside(t *testing.T, internal, web string) {
	t.Helper()
	for _, path := range []string{"/workers", "/metrics", "/health"} {
		if got, err := (asker{base: "http://" + internal}).send(http.MethodGet, path, nil); err != nil || got.status != http.StatusOK {
			t.Errorf("GET %s inside = %d %.200s, %v, want 200", path, got.status, got.body, err)
		}
		if got, err := (asker{base: "http://" + web}).send(http.MethodGet, path, nil); err != nil || got.status != http.StatusNotFound {
			t.Errorf("GET %s outside = %d %.200s, %v, want 404", path, got.status, got.body, err)
		}
	}
}
