//go:build gc
// +build gc

package cart

import (
	"math"
	"strconv"
	"strings"
	"testing"
	"time"
)

// FuzzConfig writes values into two keys of the default configuration and wants settings within bounds, or an error that
// names each key with a bad value and shows the value.
func FuzzConfig(f *testing.F) {
	for i, value := range []string{
		"", "0", "-1", "1", "20", "1.6", "NaN", "Inf", "1e9", "0x10", "99999999999999999999", "10s", "1h", "-5s", "9999999h", "true", "yes",
		"threshold", "leastload", "debug", "json", "/health", "health", "//a", "http://a:8000/", "https://[::1]:8443/v1", "ftp://a",
		"http://user:secret@a", "http://a?q", "http://a b", "x-api-key", "X Y", "\x00", "é", strings.Repeat("9", 200), "500", "600", " 7 ",
	} {
		f.Add(uint(i), value, uint(i*7+3), "5")
	}
	f.Fuzz(func(t *testing.T, first uint, value string, second uint, other string) {
		a, b := configKeys[first%uint(len(configKeys))], configKeys[second%uint(len(configKeys))]
		badA := checkConfigKey(t, a, value)
		if a.key == b.key || strings.HasPrefix(a.key, "endpoints.") && strings.HasPrefix(b.key, "endpoints.") {
			return // the endpoints must differ, so what is wrong alone may be right together
		}
		badB := checkConfigKey(t, b, other)
		c := CreateConfig()
		setKey(t, c, a.key, value)
		setKey(t, c, b.key, other)
		set, err := validate(c)
		if err == nil {
			checkBounds(t, set)
			if badA || badB {
				t.Errorf("validate(%s: %q, %s: %q) = no error, want one, as for either alone", a.key, value, b.key, other)
			}
			return
		}
		for _, one := range []struct {
			key string
			bad bool
		}{{a.key, badA}, {b.key, badB}} {
			if one.bad && !strings.Contains(err.Error(), one.key+" = ") {
				t.Errorf("validate(%s: %q, %s: %q) = %v, want %s named", a.key, value, b.key, other, err, one.key)
			}
		}
	})
}

// configKey is one key and how its value is shown in an error.
type configKey struct {
	key  string
	show func(value string) string
}

func asItIs(value string) string { return value }

// showPath repeats what validate makes of a path before it judges it.
func showPath(value string) string {
	value = strings.TrimSpace(value)
	if value != "" && !strings.HasPrefix(value, "/") && !strings.Contains(value, "://") {
		value = "/" + value
	}
	return value
}

func showURL(value string) string { return withoutCredentials(strings.TrimSpace(value)) }

// configKeys are all keys that a fuzzer may set. Not among them are files, for they could be any.
var configKeys = []configKey{
	{"policy", asItIs}, {"shadow", asItIs}, {"cost.instances", asItIs}, {"workers[0].cacheTokens", asItIs}, {"maxLoad", asItIs}, {"logLevel", asItIs}, {"logFormat", asItIs}, {"cache.threshold", asItIs},
	{"cache.matchAbsThreshold", asItIs}, {"cache.balanceAbsThreshold", asItIs}, {"cache.balanceRelThreshold", asItIs},
	{"cache.maxTreeSize", asItIs}, {"cache.maxTreeBytes", asItIs}, {"cache.evictionInterval", asItIs},
	{"cache.dailyCleanupHourUtc", asItIs}, {"proxy.maxRetries", asItIs}, {"proxy.retryStatuses", asItIs},
	{"proxy.initialBackoff", asItIs}, {"proxy.backoffMultiplier", asItIs}, {"proxy.maxBackoff", asItIs}, {"proxy.jitterFactor", asItIs},
	{"proxy.connectTimeout", asItIs}, {"proxy.firstByteTimeout", asItIs}, {"proxy.requestTimeout", asItIs},
	{"proxy.streamIdleTimeout", asItIs}, {"proxy.maxBodyBytes", asItIs}, {"proxy.addRoutedPeerHeader", asItIs},
	{"proxy.addDecisionHeaders", asItIs}, {"health.endpoint", showPath}, {"health.interval", asItIs}, {"health.timeout", asItIs},
	{"health.failureThreshold", asItIs}, {"health.successThreshold", asItIs}, {"health.headers", asItIs},
	{"circuitBreaker.failureThreshold", asItIs}, {"circuitBreaker.successThreshold", asItIs}, {"circuitBreaker.timeout", asItIs},
	{"endpoints.health", showPath}, {"endpoints.workers", showPath}, {"endpoints.metrics", showPath},
	{"endpoints.explain", asItIs}, {"log.maxPerSecond", asItIs}, {"workers[0].url", showURL}, {"workers[0].maxLoad", asItIs},
	{"workers[0].loadPenalty", asItIs}, {"workers[0].headers", asItIs}, {"discovery.service", asItIs}, {"discovery.dns", showURL},
	{"discovery.interval", asItIs}, {"discovery.api.address", showURL}, {"discovery.api.user", onlyName},
	{"discovery.api.insecureSkipVerify", asItIs},
}

// checkConfigKey sets one key and says whether its value is refused.
func checkConfigKey(t *testing.T, k configKey, value string) (bad bool) {
	t.Helper()
	c := CreateConfig()
	setKey(t, c, k.key, value)
	set, err := validate(c)
	if err == nil {
		checkBounds(t, set)
		return false
	}
	text := err.Error()
	if set != nil || !shows(text, k.key, value) && !shows(text, k.key, k.show(value)) || !strings.Contains(text, "(want ") {
		t.Errorf("validate(%s: %q) = %v, %v, want no settings and an error with key, value and what is allowed", k.key, value, set, err)
	}
	if password := passwordOf(value); k.show("@") == showURL("@") && password != "" && strings.Contains(text, password) {
		t.Errorf("validate(%s: %q) = %v, which shows the password", k.key, value, err)
	}
	return true
}

// shows tells whether an error names the key with the value, of which it need only have the beginning.
func shows(text, key, value string) bool {
	if len(value) > 80 {
		value = value[:80] + "..."
	}
	return strings.Contains(text, key+" = "+strconv.Quote(value))
}

// passwordOf returns what stands between a colon and the last @, if it is long enough not to be there by chance.
func passwordOf(address string) string {
	at := strings.LastIndex(address, "@")
	if at < 0 {
		return ""
	}
	colon := strings.LastIndex(address[:at], ":")
	if at-colon < 8 {
		return ""
	}
	return address[colon+1 : at]
}

// checkBounds wants every number where the documentation of its key says that it may be.
func checkBounds(t *testing.T, s *settings) {
	t.Helper()
	for _, row := range []struct {
		name             string
		got, least, most float64
	}{
		{"cache.threshold", s.threshold, 0, 1},
		{"cache.matchAbsThreshold", float64(s.matchAbs), 0, 1 << 30},
		{"cache.balanceAbsThreshold", float64(s.balanceAbs), 0, 1 << 20},
		{"cache.balanceRelThreshold", s.balanceRel, 1, 1000},
		{"cache.maxTreeSize", float64(s.maxNodes), 16, 1 << 30},
		{"cache.maxTreeBytes", float64(s.maxBytes), 64 << 10, 1 << 40},
		{"cache.dailyCleanupHourUtc", float64(s.cleanupHour), -1, 23},
		{"proxy.maxRetries", float64(s.maxRetries), 0, 100},
		{"proxy.backoffMultiplier", s.backoff.multiplier, 1, 100},
		{"proxy.jitterFactor", s.backoff.jitter, 0, 1},
		{"proxy.maxBodyBytes", float64(s.maxBody), 1, 1 << 40},
		{"log.maxPerSecond", float64(s.logDetails), 0, 1 << 20},
		{"health.failureThreshold", float64(s.health.failures), 1, 1000},
		{"health.successThreshold", float64(s.health.successes), 1, 1000},
		{"circuitBreaker.failureThreshold", float64(s.breaker.failures), 1, 1000},
		{"circuitBreaker.successThreshold", float64(s.breaker.successes), 1, 1000},
	} {
		if math.IsNaN(row.got) || row.got < row.least || row.got > row.most {
			t.Errorf("%s = %v, want from %v to %v", row.name, row.got, row.least, row.most)
		}
	}
	for _, row := range []struct {
		name  string
		got   time.Duration
		least time.Duration
	}{
		{"cache.evictionInterval", s.evictEvery, 0},
		{"proxy.initialBackoff", s.backoff.initial, 0},
		{"proxy.maxBackoff", s.backoff.max, 0},
		{"proxy.connectTimeout", s.connectWait, 1},
		{"proxy.firstByteTimeout", s.firstByteWait, 0},
		{"proxy.requestTimeout", s.requestWait, 0},
		{"proxy.streamIdleTimeout", s.idleWait, 0},
		{"health.interval", s.health.interval, 0},
		{"health.timeout", s.health.timeout, 1},
		{"circuitBreaker.timeout", s.breaker.openFor, 1},
		{"discovery.interval", intervalOf(s), shortestInterval},
	} {
		if row.got < row.least || row.got > 10000*time.Hour {
			t.Errorf("%s = %v, want from %v to 10000h", row.name, row.got, row.least)
		}
	}
	checkNames(t, s)
	for status := range s.retryStatus {
		if status < 400 || status > 599 {
			t.Errorf("proxy.retryStatuses has %d, want 400 to 599", status)
		}
	}
	for _, w := range s.workers {
		u := w.base
		if (u.Scheme != "http" && u.Scheme != "https") || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" ||
			strings.HasSuffix(u.Path, "/") {
			t.Errorf("workers[].url = %q, want scheme, host, port and base path only", u)
		}
		if w.maxLoad < 1 || w.loadPenalty < 0 || w.name != u.String() {
			t.Errorf("worker %q: maxLoad, loadPenalty = %d, %d, want at least 1, 0", w.name, w.maxLoad, w.loadPenalty)
		}
	}
}

func intervalOf(s *settings) time.Duration {
	if s.source == nil {
		return shortestInterval
	}
	return s.source.interval
}

// checkNames wants what is one of a few words to be one of them, and paths to be paths.
func checkNames(t *testing.T, s *settings) {
	t.Helper()
	if policies[s.policy] == nil {
		t.Errorf("policy = %q, want one that exists", s.policy)
	}
	if !strings.Contains(" debug info warn error ", " "+s.logLevel+" ") || !strings.Contains(" json text ", " "+s.logFormat+" ") {
		t.Errorf("logLevel, logFormat = %q, %q", s.logLevel, s.logFormat)
	}
	for _, path := range []string{s.health.endpoint, s.healthPath, s.workersPath, s.metricsPath} {
		if path != "" && path[0] != '/' {
			t.Errorf("path %q does not begin with a slash", path)
		}
	}
	same := (s.healthPath != "" && s.healthPath == s.workersPath) ||
		(s.metricsPath != "" && (s.metricsPath == s.healthPath || s.metricsPath == s.workersPath))
	if s.health.endpoint == "" || same {
		t.Errorf("health.endpoint = %q, endpoints = %q, %q and %q, want a path and three that differ",
			s.health.endpoint, s.healthPath, s.workersPath, s.metricsPath)
	}
}
