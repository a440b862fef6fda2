package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Marks around the table in README.md.
const (
	tableBegin = "<!-- settings: written by make settings -->\n"
	tableEnd   = "<!-- end of settings -->\n"
)

// inReadme are the settings that README.md has; docs/settings.md has all.
var inReadme = []string{
	"workers[].url", "workers[].maxLoad", "workers[].loadPenalty", "workers[].headers", "workers[].apiKeyFile",
	"discovery.service", "discovery.dns",
	"workers[].cacheTokens", "policy", "cost.instances", "shadow", "maxLoad",
	"cache.threshold", "cache.matchAbsThreshold", "cache.balanceAbsThreshold", "cache.balanceRelThreshold",
	"cache.maxTreeBytes",
	"proxy.maxRetries", "proxy.retryStatuses", "proxy.connectTimeout", "proxy.firstByteTimeout", "proxy.requestTimeout",
	"proxy.streamIdleTimeout", "proxy.maxBodyBytes", "proxy.addDecisionHeaders",
	"health.endpoint", "health.interval", "health.failureThreshold", "circuitBreaker.failureThreshold", "circuitBreaker.timeout",
	"endpoints.workers", "endpoints.metrics", "endpoints.explain", "logLevel",
}

// render returns the pages of the project at root as they should be, by path.
func render(root string) (map[string]string, error) {
	groups, err := readGroups(root)
	if err != nil {
		return nil, err
	}
	readme, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		return nil, err
	}
	before, rest, found := strings.Cut(string(readme), tableBegin)
	_, after, closed := strings.Cut(rest, tableEnd)
	if !found || !closed {
		return nil, fmt.Errorf("README.md has no %q that %q follows", tableBegin, tableEnd)
	}
	short, err := shortTable(groups)
	if err != nil {
		return nil, err
	}
	return map[string]string{
		"README.md":        before + tableBegin + short + tableEnd + after,
		"docs/settings.md": wholePage(groups),
	}, nil
}

func shortTable(groups []group) (string, error) {
	wanted := slices.Clone(inReadme)
	var out strings.Builder
	writeHead(&out)
	for _, g := range groups {
		for _, s := range g.settings {
			if i := slices.Index(wanted, s.key); i >= 0 {
				wanted = slices.Delete(wanted, i, i+1)
				first, _, _ := strings.Cut(s.meaning, ". ")
				writeRow(&out, s, strings.TrimSuffix(first, "."))
			}
		}
	}
	if len(wanted) > 0 {
		return "", fmt.Errorf("no such setting: %s", strings.Join(wanted, ", "))
	}
	return out.String(), nil
}

func wholePage(groups []group) string {
	var out strings.Builder
	out.WriteString(`# Settings

<!-- Written by make settings from the comments in config.go. -->

All of them, with their defaults. A dot is a level of nesting: ` + "`cache.threshold` is `threshold` under `cache`" + `.
Durations are written as in Traefik: ` + "`10s`, `1m30s`, `30`" + ` (seconds); sizes in bytes, or with KiB, MiB, GiB;
lengths are in characters. How this looks from each of Traefik's providers is in [configuration.md](configuration.md).
`)
	for _, g := range groups {
		if g.key == "" {
			out.WriteString("\n## On top\n\n")
		} else {
			fmt.Fprintf(&out, "\n## %s\n\n%s\n\n", g.key, capital(g.about))
		}
		writeHead(&out)
		for _, s := range g.settings {
			writeRow(&out, s, s.meaning)
		}
	}
	return out.String()
}

func writeHead(out *strings.Builder) { out.WriteString("| key | default | meaning |\n|---|---|---|\n") }

func writeRow(out *strings.Builder, s setting, meaning string) {
	fmt.Fprintf(out, "| `%s` | %s | %s |\n", s.key, escape(s.defaultValue), escape(meaning))
}

func escape(text string) string { return strings.NewReplacer("|", `\|`, "*", `\*`).Replace(text) }

func capital(text string) string {
	if text == "" {
		return text
	}
	return strings.ToUpper(text[:1]) + text[1:]
}
