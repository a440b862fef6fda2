package check

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// TestHelm_traefikValues: what the values for Traefik's chart come to starts a Traefik that routes a chat. (That chart is in no package
// registry, so its templates are not rendered here.)
func TestHelm_traefikValues(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join(root(t), "deploy", "helm", "traefik", "*.yaml"))
	if err != nil || len(files) != 3 {
		t.Fatalf("values: %v, %v, want 3 files", files, err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			v := readValues(t, file)
			if !v.SecurityContext.ReadOnlyRootFilesystem || v.Ports["internal"].Expose.Default {
				t.Error("the root file system may be written to, or the internal entry point is exposed")
			}
			args := v.AdditionalArguments
			for name, plugin := range v.Experimental.LocalPlugins {
				args = append(args, "--experimental.localPlugins."+name+".moduleName="+plugin.ModuleName)
			}
			for name, plugin := range v.Experimental.Plugins {
				if plugin.ModuleName != module || plugin.Version == "" {
					t.Errorf("the plugin %s is %+v", name, plugin)
				}
				// The catalog cannot be reached from here: its plugin has to be local.
				args = append(args, "--experimental.localPlugins."+name+".moduleName="+plugin.ModuleName)
			}
			s := newStage(t)
			s.unpack(t)
			for _, init := range v.Deployment.InitContainers { // fills what is mounted over the plugin's folder
				local := v.Experimental.LocalPlugins["cart"]
				source := newStage(t)
				source.unpack(t)
				command := slices.Clone(init.Command)
				for i := range command {
					switch {
					case strings.HasPrefix(command[i], "/plugins-local/"):
						command[i] = source.path("/") + command[i]
					case command[i] == "/plugin/":
						command[i] = s.path(local.MountPath)
					}
				}
				if err := os.RemoveAll(s.path(local.MountPath)); err != nil {
					t.Fatal(err)
				}
				if err := os.MkdirAll(s.path(local.MountPath), 0o755); err != nil {
					t.Fatal(err)
				}
				if out, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
					t.Fatalf("%v: %v\n%s", command, err, out)
				}
			}
			urls, address := startReplicas(t), s.listen(t)
			s.put(t, filepath.Join(root(t), "examples", "file"), etc, s.fileEdits(address, urls))
			s.start(t, append(args, "--providers.file.filename="+s.path(etc+"/traefik.yml"), "--entryPoints.web.address="+address)...)
			asker{base: "http://" + address}.chat(t, "values")
		})
	}
}

// chartValues are those of Traefik's chart that concern CART.
type chartValues struct {
	Experimental struct {
		LocalPlugins map[string]chartPlugin `yaml:"localPlugins"`
		Plugins      map[string]chartPlugin
	}
	AdditionalArguments []string `yaml:"additionalArguments"`
	Deployment          struct {
		InitContainers []struct {
			Command []string
		} `yaml:"initContainers"`
	}
	SecurityContext struct {
		ReadOnlyRootFilesystem bool `yaml:"readOnlyRootFilesystem"`
	} `yaml:"securityContext"`
	Ports map[string]struct {
		Expose struct{ Default bool }
	}
}

type chartPlugin struct {
	ModuleName string `yaml:"moduleName"`
	Version    string
	MountPath  string `yaml:"mountPath"`
}

func readValues(t *testing.T, file string) (v chartValues) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, &v); err != nil {
		t.Fatal(err)
	}
	return v
}
