// Package prometheus runs the real Prometheus and its promtool, which Debian's package prometheus has.
package prometheus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Look returns where a program of the package is. Without it the test is skipped, and fails where CI runs it.
func Look(t testing.TB, program string) string {
	t.Helper()
	path, err := exec.LookPath(program)
	if err == nil {
		return path
	}
	const why = "%s is not on the PATH: apt-get install prometheus"
	if os.Getenv("CI") != "" {
		t.Fatalf(why, program)
	}
	t.Skipf(why, program)
	return ""
}

// Tool runs promtool and returns what it printed.
func Tool(t testing.TB, input string, arguments ...string) (output string, err error) {
	t.Helper()
	cmd := exec.Command(Look(t, "promtool"), arguments...)
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// Server is a running Prometheus.
type Server struct {
	url string
}

// Options tell what it scrapes.
type Options struct {
	Targets  []string      // addresses of metrics, such as http://127.0.0.1:8080/metrics
	Interval time.Duration // between two scrapes
	Rules    string        // a file of rules, "" = none
}

// Start runs a Prometheus until the test ends. It keeps what it scrapes in the test's folder.
func Start(t testing.TB, o Options) *Server {
	t.Helper()
	binary := Look(t, "prometheus")
	dir := t.TempDir()
	config, err := json.Marshal(configOf(o))
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "prometheus.yml"), config, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	// A port that was free may be taken when Prometheus binds it, so a start that fails is tried again.
	for attempt := 1; ; attempt++ {
		s, err := start(t, binary, dir)
		if err == nil {
			return s
		}
		if attempt == 3 {
			t.Fatal(err)
		}
	}
}

func configOf(o Options) map[string]any {
	jobs := []any{}
	for i, target := range o.Targets {
		u, err := url.Parse(target)
		if err != nil {
			panic(err) // a test's own mistake
		}
		jobs = append(jobs, map[string]any{
			"job_name": "cart-" + strconv.Itoa(i), "metrics_path": u.Path,
			"static_configs": []any{map[string]any{"targets": []string{u.Host}}},
		})
	}
	interval := strconv.FormatInt(o.Interval.Milliseconds(), 10) + "ms"
	config := map[string]any{
		"global":         map[string]any{"scrape_interval": interval, "scrape_timeout": interval, "evaluation_interval": interval},
		"scrape_configs": jobs,
	}
	if o.Rules != "" {
		config["rule_files"] = []string{o.Rules}
	}
	return config
}

func start(t testing.TB, binary, dir string) (*Server, error) {
	address, err := freeAddress()
	if err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(binary, "--config.file="+filepath.Join(dir, "prometheus.yml"), "--storage.tsdb.path="+filepath.Join(dir, "data"),
		"--web.listen-address="+address, "--log.level=warn")
	cmd.Dir = dir
	cmd.Stdout = log
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	exited := make(chan struct{})
	go func() {
		_ = cmd.Wait() // that it ended is what counts
		close(exited)
	}()
	s := &Server{url: "http://" + address}
	if err := s.waitReady(exited); err != nil {
		_ = cmd.Process.Kill()
		<-exited
		text, _ := os.ReadFile(filepath.Join(dir, "log"))
		return nil, fmt.Errorf("prometheus did not start: %w\n%s", err, text)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-exited
	})
	return s, nil
}

func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

func (s *Server) waitReady(exited <-chan struct{}) error {
	for deadline := time.Now().Add(30 * time.Second); ; {
		resp, err := http.Get(s.url + "/-/ready")
		if err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
			err = errors.New(resp.Status)
		}
		if time.Now().After(deadline) {
			return err
		}
		select {
		case <-exited:
			return errors.New("it ended")
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Sample is one series of an answer, with its value.
type Sample struct {
	Labels map[string]string
	Value  float64
}

// Query asks for an expression now.
func (s *Server) Query(expression string) ([]Sample, error) {
	var data struct {
		ResultType string            `json:"resultType"`
		Result     []json.RawMessage `json:"result"`
	}
	if err := s.api("query?query="+url.QueryEscape(expression), &data); err != nil {
		return nil, fmt.Errorf("%s: %w", expression, err)
	}
	var out []Sample
	if data.ResultType != "vector" {
		return nil, fmt.Errorf("%s: a %s, not a vector", expression, data.ResultType)
	}
	for _, raw := range data.Result {
		var one struct {
			Metric map[string]string `json:"metric"`
			Value  [2]any            `json:"value"`
		}
		if err := json.Unmarshal(raw, &one); err != nil {
			return nil, err
		}
		text, _ := one.Value[1].(string)
		value, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return nil, err
		}
		out = append(out, Sample{one.Metric, value})
	}
	return out, nil
}

// Names returns the names of all metrics with that prefix.
func (s *Server) Names(prefix string) ([]string, error) {
	var all, out []string
	err := s.api("label/__name__/values", &all)
	for _, name := range all {
		if strings.HasPrefix(name, prefix) {
			out = append(out, name)
		}
	}
	return out, err
}

func (s *Server) api(path string, into any) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+"/api/v1/"+path, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	var answer struct {
		Status string          `json:"status"`
		Error  string          `json:"error"`
		Data   json.RawMessage `json:"data"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return fmt.Errorf("%s: %w", resp.Status, err)
	}
	if answer.Status != "success" {
		return errors.New(answer.Error)
	}
	return json.Unmarshal(answer.Data, into)
}
