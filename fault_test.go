package cart

import (
	"strings"
	"testing"
)

// TestValidate_tellsTheKey: each fault has the key that it is about, by which a command finds it in a file.
func TestValidate_tellsTheKey(t *testing.T) {
	c := CreateConfig()
	c.MaxLoad = "many"
	c.Cache.Threshold = "2"
	c.Workers = []WorkerConfig{{URL: "http://a:8000"}, {URL: "nowhere"}}
	c.Proxy.Unknown = map[string]interface{}{"retries": "3"}
	want := map[string]string{"maxLoad": "many", "cache.threshold": "2", "workers[1].url": "nowhere", "proxy.retries": "no such key"}
	faults := Validate(c)
	if len(faults) != len(want) {
		t.Errorf("Validate() = %v, want %d faults", faults, len(want))
	}
	_, err := validate(c)
	for i := range faults {
		f := faults[i]
		if want[f.Key] == "" || !strings.HasPrefix(f.Text, f.Key+" = ") || !strings.Contains(f.Text, want[f.Key]) {
			t.Errorf("Validate() has %q: %q, want one of %v", f.Key, f.Text, want)
		}
		if err == nil || !strings.Contains(err.Error(), f.Text) {
			t.Errorf("validate() = %v, want %q in it", err, f.Text)
		}
	}
	if faults := Validate(CreateConfig()); len(faults) != 0 {
		t.Errorf("Validate(the defaults) = %v, want none", faults)
	}
	if faults := Validate(nil); len(faults) != 1 {
		t.Errorf("Validate(nil) = %v, want one fault", faults)
	}
}
