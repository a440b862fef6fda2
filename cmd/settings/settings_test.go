package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const root = "../.."

func TestPages_areCurrent(t *testing.T) {
	pages, err := render(root)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range pages {
		got, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Error(err)
		} else if string(got) != want {
			t.Errorf("%s differs from what config.go says: run make settings", name)
		}
	}
}

// TestSettings_areWhole has each setting explained, and no default told twice.
func TestSettings_areWhole(t *testing.T) {
	groups, err := readGroups(root)
	if err != nil {
		t.Fatal(err)
	}
	keys := map[string]string{}
	for _, g := range groups {
		for _, s := range g.settings {
			if len(s.meaning) < 10 || strings.Contains(strings.ToLower(s.meaning), "default ") {
				t.Errorf("%s = %q, want an explanation without the default", s.key, s.meaning)
			}
			keys[s.key] = s.defaultValue
		}
	}
	for key, want := range map[string]string{
		"workers[].url": "", "cache.threshold": "0.3", "cache.maxTreeBytes": "256MiB", "cache.balanceRelThreshold": "1.6",
		"proxy.retryStatuses": "408,429,500,502,503,504,529", "discovery.api.address": "http://127.0.0.1:8080", "logLevel": "info",
	} {
		if got, found := keys[key]; !found || got != want {
			t.Errorf("default of %s = %q (found: %v), want %q", key, got, found, want)
		}
	}
}
