package check

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

type object = map[string]any

// daemon stands for Docker's: it lists containers and tells of new ones, as far as Traefik's Docker provider asks.
type daemon struct {
	server *httptest.Server

	mu         sync.Mutex
	containers []object
	started    chan struct{} // closed and made anew when one more container runs
}

func startDaemon(t *testing.T) *daemon {
	t.Helper()
	d := &daemon{started: make(chan struct{})}
	d.server = httptest.NewServer(http.HandlerFunc(d.serve))
	t.Cleanup(func() {
		d.server.CloseClientConnections() // of those that wait for events
		d.server.Close()
	})
	return d
}

// address is one for --providers.docker.endpoint.
func (d *daemon) address() string { return "tcp://" + strings.TrimPrefix(d.server.URL, "http://") }

// run adds a container that listens on a port of an address.
func (d *daemon) run(name, address, port string, labels map[string]string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.containers = append(d.containers, object{
		"Id": fmt.Sprintf("%064d", len(d.containers)+1), "Name": "/" + name, "Names": []string{"/" + name}, "Image": name,
		"State":      object{"Status": "running", "Running": true},
		"Config":     object{"Labels": labels, "ExposedPorts": object{port + "/tcp": object{}}},
		"Labels":     labels,
		"HostConfig": object{"NetworkMode": "bridge"},
		"NetworkSettings": object{
			"Ports":    object{port + "/tcp": nil},
			"Networks": object{"bridge": object{"IPAddress": address, "NetworkID": "bridge"}},
		},
	})
	close(d.started)
	d.started = make(chan struct{})
}

var apiVersion = regexp.MustCompile(`^/v[0-9.]+`)

func (d *daemon) serve(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Api-Version", "1.47")
	w.Header().Set("Content-Type", "application/json")
	switch path := apiVersion.ReplaceAllString(r.URL.Path, ""); path {
	case "/_ping":
	case "/version":
		reply(w, object{"Version": "27.0.0", "ApiVersion": "1.47", "MinAPIVersion": "1.24"})
	case "/events":
		d.events(w, r)
	case "/containers/json":
		d.list(w)
	default:
		d.inspect(w, strings.TrimSuffix(strings.TrimPrefix(path, "/containers/"), "/json"))
	}
}

func (d *daemon) list(w http.ResponseWriter) {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := []object{}
	for _, c := range d.containers {
		// A list has the state as text.
		out = append(out, object{"Id": c["Id"], "Names": c["Names"], "State": "running", "Labels": c["Labels"], "HostConfig": c["HostConfig"]})
	}
	reply(w, out)
}

func (d *daemon) inspect(w http.ResponseWriter, id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.containers {
		if c["Id"] == id {
			reply(w, c)
			return
		}
	}
	w.WriteHeader(http.StatusNotFound)
	reply(w, object{"message": "No such container: " + id})
}

// events says that a container has started, whenever one has.
func (d *daemon) events(w http.ResponseWriter, r *http.Request) {
	flusher, ok := w.(http.Flusher)
	if !ok {
		return
	}
	flusher.Flush()
	for {
		d.mu.Lock()
		started := d.started
		d.mu.Unlock()
		select {
		case <-started:
			reply(w, object{"Type": "container", "Action": "start", "Actor": object{"ID": "1"}, "time": time.Now().Unix()})
			flusher.Flush()
		case <-r.Context().Done():
			return
		}
	}
}

func reply(w http.ResponseWriter, value any) {
	_ = json.NewEncoder(w).Encode(value) // Traefik may be gone
}
