package cart

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// setKey writes a value into the field of that key. Keys of a worker are those of the first.
func setKey(t *testing.T, c *Config, key, value string) {
	t.Helper()
	if strings.HasPrefix(key, "workers[0].") && len(c.Workers) == 0 {
		c.Workers = []WorkerConfig{{URL: "http://a:8000"}}
	}
	if strings.HasPrefix(key, "discovery.api.") && c.Discovery.Service == "" {
		c.Discovery.Service = "vllm@docker" // its settings are for that
	}
	if key == "discovery.api.passwordFile" {
		c.Discovery.API.User = "cart"
	}
	switch key {
	case "proxy.retryStatuses":
		c.Proxy.RetryStatuses = []string{"500", value}
		return
	case "workers[0].headers":
		c.Workers[0].Headers = map[string]string{value: "x"}
		return
	case "health.headers":
		c.Health.Headers = map[string]string{value: "x"}
		return
	}
	field := map[string]*string{
		"policy":                           &c.Policy,
		"maxLoad":                          &c.MaxLoad,
		"logLevel":                         &c.LogLevel,
		"logFormat":                        &c.LogFormat,
		"cache.threshold":                  &c.Cache.Threshold,
		"cache.matchAbsThreshold":          &c.Cache.MatchAbsThreshold,
		"cache.balanceAbsThreshold":        &c.Cache.BalanceAbsThreshold,
		"cache.balanceRelThreshold":        &c.Cache.BalanceRelThreshold,
		"cache.maxTreeSize":                &c.Cache.MaxTreeSize,
		"cache.maxTreeBytes":               &c.Cache.MaxTreeBytes,
		"cache.evictionInterval":           &c.Cache.EvictionInterval,
		"cache.dailyCleanupHourUtc":        &c.Cache.DailyCleanupHourUtc,
		"proxy.maxRetries":                 &c.Proxy.MaxRetries,
		"proxy.initialBackoff":             &c.Proxy.InitialBackoff,
		"proxy.backoffMultiplier":          &c.Proxy.BackoffMultiplier,
		"proxy.maxBackoff":                 &c.Proxy.MaxBackoff,
		"proxy.jitterFactor":               &c.Proxy.JitterFactor,
		"proxy.connectTimeout":             &c.Proxy.ConnectTimeout,
		"proxy.firstByteTimeout":           &c.Proxy.FirstByteTimeout,
		"proxy.requestTimeout":             &c.Proxy.RequestTimeout,
		"proxy.streamIdleTimeout":          &c.Proxy.StreamIdleTimeout,
		"proxy.maxBodyBytes":               &c.Proxy.MaxBodyBytes,
		"proxy.remoteMediaUrlPolicy":       &c.Proxy.RemoteMediaURLPolicy,
		"proxy.addRoutedPeerHeader":        &c.Proxy.AddRoutedPeerHeader,
		"proxy.addDecisionHeaders":         &c.Proxy.AddDecisionHeaders,
		"health.endpoint":                  &c.Health.Endpoint,
		"health.interval":                  &c.Health.Interval,
		"health.timeout":                   &c.Health.Timeout,
		"health.failureThreshold":          &c.Health.FailureThreshold,
		"health.successThreshold":          &c.Health.SuccessThreshold,
		"health.metrics.endpoint":          &c.Health.Metrics.Endpoint,
		"health.metrics.interval":          &c.Health.Metrics.Interval,
		"health.models.endpoint":           &c.Health.Models.Endpoint,
		"health.models.interval":           &c.Health.Models.Interval,
		"circuitBreaker.failureThreshold":  &c.CircuitBreaker.FailureThreshold,
		"circuitBreaker.successThreshold":  &c.CircuitBreaker.SuccessThreshold,
		"circuitBreaker.timeout":           &c.CircuitBreaker.Timeout,
		"tls.insecureSkipVerify":           &c.TLS.InsecureSkipVerify,
		"tls.caFile":                       &c.TLS.CAFile,
		"tls.certFile":                     &c.TLS.CertFile,
		"tls.keyFile":                      &c.TLS.KeyFile,
		"endpoints.health":                 &c.Endpoints.Health,
		"endpoints.workers":                &c.Endpoints.Workers,
		"discovery.service":                &c.Discovery.Service,
		"discovery.dns":                    &c.Discovery.DNS,
		"discovery.interval":               &c.Discovery.Interval,
		"discovery.api.address":            &c.Discovery.API.Address,
		"discovery.api.user":               &c.Discovery.API.User,
		"discovery.api.password":           &c.Discovery.API.Password,
		"discovery.api.passwordFile":       &c.Discovery.API.PasswordFile,
		"discovery.api.caFile":             &c.Discovery.API.CAFile,
		"discovery.api.insecureSkipVerify": &c.Discovery.API.InsecureSkipVerify,
		"endpoints.metrics":                &c.Endpoints.Metrics,
		"endpoints.explain":                &c.Endpoints.Explain,
		"log.maxPerSecond":                 &c.Log.MaxPerSecond,
		"shadow":                           &c.Shadow,
		"cost.instances":                   &c.Cost.Instances,
	}[key]
	if strings.HasPrefix(key, "workers[0].") {
		field = map[string]*string{
			"workers[0].url":         &c.Workers[0].URL,
			"workers[0].maxLoad":     &c.Workers[0].MaxLoad,
			"workers[0].loadPenalty": &c.Workers[0].LoadPenalty,
			"workers[0].cacheTokens": &c.Workers[0].CacheTokens,
			"workers[0].apiKeyFile":  &c.Workers[0].APIKeyFile,
		}[key]
	}
	if field == nil {
		t.Fatalf("setKey(%q): no such key", key)
	}
	*field = value
}

func TestValidate_acceptsTheDefaults(t *testing.T) {
	set, err := validate(CreateConfig())
	if err != nil {
		t.Fatalf("validate(the defaults) = %v, want no error", err)
	}
	if len(set.workers) != 0 {
		t.Errorf("validate(the defaults) has %d workers, want none", len(set.workers))
	}
	for _, row := range []struct {
		key       string
		got, want interface{}
	}{
		{"policy", set.policy, "threshold"},
		{"cache.threshold", set.threshold, 0.3},
		{"cache.matchAbsThreshold", set.matchAbs, 8192},
		{"cache.balanceAbsThreshold", set.balanceAbs, 5},
		{"cache.balanceRelThreshold", set.balanceRel, 1.6},
		{"cache.maxTreeSize", set.maxNodes, 1000000},
		{"cache.maxTreeBytes", set.maxBytes, 256 << 20},
		{"cache.evictionInterval", set.evictEvery, time.Minute},
		{"cache.dailyCleanupHourUtc", set.cleanupHour, -1},
		{"proxy.maxRetries", set.maxRetries, 2},
		{"proxy.initialBackoff", set.backoff.initial, 100 * time.Millisecond},
		{"proxy.backoffMultiplier", set.backoff.multiplier, 2.0},
		{"proxy.maxBackoff", set.backoff.max, 5 * time.Second},
		{"proxy.jitterFactor", set.backoff.jitter, 0.25},
		{"proxy.connectTimeout", set.connectWait, 2 * time.Second},
		{"proxy.firstByteTimeout", set.firstByteWait, time.Duration(0)},
		{"proxy.requestTimeout", set.requestWait, time.Duration(0)},
		{"proxy.streamIdleTimeout", set.idleWait, 5 * time.Minute},
		{"proxy.maxBodyBytes", set.maxBody, int64(64 << 20)},
		{"proxy.remoteMediaUrlPolicy", set.mediaStatus, 0},
		{"tls.insecureSkipVerify", set.tls.InsecureSkipVerify, false},
		{"proxy.addRoutedPeerHeader", set.peerHeader, true},
		{"proxy.addDecisionHeaders", set.decisionHead, false},
		{"health.endpoint", set.health.endpoint, "/health"},
		{"health.interval", set.health.interval, 10 * time.Second},
		{"health.timeout", set.health.timeout, 2 * time.Second},
		{"health.failureThreshold", set.health.failures, 3},
		{"health.successThreshold", set.health.successes, 1},
		{"health.metrics.endpoint", set.health.metrics.endpoint, "/metrics"},
		{"health.metrics.interval", set.health.metrics.interval, 10 * time.Second},
		{"health.models.endpoint", set.health.models.endpoint, "/v1/models"},
		{"health.models.interval", set.health.models.interval, 10 * time.Second},
		{"circuitBreaker.failureThreshold", set.breaker.failures, 5},
		{"circuitBreaker.successThreshold", set.breaker.successes, 2},
		{"circuitBreaker.timeout", set.breaker.openFor, 30 * time.Second},
		{"endpoints.health", set.healthPath, "/health"},
		{"endpoints.workers", set.workersPath, "/workers"},
		{"endpoints.metrics", set.metricsPath, "/metrics"},
		{"endpoints.explain", set.explain, false},
		{"log.maxPerSecond", set.logDetails, 100},
		{"logLevel", set.logLevel, "info"},
		{"logFormat", set.logFormat, "json"},
	} {
		if fmt.Sprint(row.got) != fmt.Sprint(row.want) {
			t.Errorf("validate(the defaults): %s = %v, want %v", row.key, row.got, row.want)
		}
	}
	for status := 400; status < 600; status++ {
		want := strings.Contains("408,429,500,502,503,504,529", fmt.Sprint(status))
		if set.retryStatus[status] != want {
			t.Errorf("validate(the defaults): proxy.retryStatuses has %d = %v, want %v", status, set.retryStatus[status], want)
		}
	}
}

func TestValidate_acceptsGoodValues(t *testing.T) {
	for _, row := range []struct{ key, values string }{
		{"policy", "threshold cost Cost leastLoad roundRobin random LEASTLOAD"},
		{"maxLoad", "1 1048576"},
		{"logLevel", "debug info warn error Debug"},
		{"logFormat", "json text"},
		{"cache.threshold", "0 1 0.5 .3"},
		{"cache.matchAbsThreshold", "0 1"},
		{"cache.balanceAbsThreshold", "0 64"},
		{"cache.balanceRelThreshold", "1 1.0 1000"},
		{"cache.maxTreeSize", "16"},
		{"cache.maxTreeBytes", "65536 1099511627776"},
		{"cache.evictionInterval", "0 0s 1m30s 30"},
		{"cache.dailyCleanupHourUtc", "-1 0 23"},
		{"proxy.maxRetries", "0 100"},
		{"proxy.retryStatuses", "400 599"},
		{"proxy.initialBackoff", "0 1500ms"},
		{"proxy.backoffMultiplier", "1 2.5"},
		{"proxy.maxBackoff", "0 1h"},
		{"proxy.jitterFactor", "0 1"},
		{"proxy.connectTimeout", "1ms 10"},
		{"proxy.firstByteTimeout", "0 30s"},
		{"proxy.requestTimeout", "0 30s"},
		{"proxy.streamIdleTimeout", "0 30s"},
		{"proxy.maxBodyBytes", "1 1000000"},
		{"proxy.remoteMediaUrlPolicy", "400 403 599"},
		{"tls.insecureSkipVerify", "true false"},
		{"proxy.addRoutedPeerHeader", "true false 1 0 True"},
		{"proxy.addDecisionHeaders", "true false"},
		{"health.endpoint", "/health /a/b?c=d health"},
		{"health.interval", "0 1s"},
		{"health.timeout", "1ms 5"},
		{"health.failureThreshold", "1 1000"},
		{"health.successThreshold", "1 1000"},
		{"health.metrics.endpoint", "/metrics stats/prometheus"},
		{"health.metrics.interval", "0 1s 30"},
		{"health.models.endpoint", "/v1/models /a/b?c=d"},
		{"health.models.interval", "0 1m"},
		{"health.headers", "X-Api-Key x-lower"},
		{"circuitBreaker.failureThreshold", "1 1000"},
		{"circuitBreaker.successThreshold", "1 1000"},
		{"circuitBreaker.timeout", "1ms 1h"},
		{"endpoints.health", "/ready ready"},
		{"endpoints.workers", "/w"},
		{"discovery.service", "vllm@docker llm-vllm-8000@kubernetescrd a.b@file"},
		{"discovery.dns", "http://vllm:8000 https://vllm http://10.0.0.1:8000 http://u:p@vllm/base"},
		{"discovery.interval", "100ms 5s 30"},
		{"discovery.api.address", "http://127.0.0.1:8080 https://traefik/mgmt http://[::1]:8080/"},
		{"discovery.api.insecureSkipVerify", "true false"},
		{"endpoints.metrics", "/m metrics/cart"},
		{"endpoints.explain", "true false"},
		{"log.maxPerSecond", "0 1 1048576"},
		{"workers[0].url", "http://a https://a:8443/base http://10.0.0.1:8000 http://[::1]:8000 HTTP://A:1"},
		{"workers[0].maxLoad", "1 5"},
		{"workers[0].loadPenalty", "0 5"},
		{"workers[0].cacheTokens", "1 450000 2147483647"},
		{"shadow", "true false"},
		{"cost.instances", "1 4"},
		{"workers[0].headers", "X-Api-Key Host"},
	} {
		for _, value := range strings.Fields(row.values) {
			c := CreateConfig()
			setKey(t, c, row.key, value)
			if _, err := validate(c); err != nil {
				t.Errorf("validate(%s: %q) = %v, want no error", row.key, value, err)
			}
			setKey(t, c, row.key, "  "+value+" ")
			if _, err := validate(c); err != nil && !strings.Contains(row.key, "eaders") {
				t.Errorf("validate(%s: %q with spaces around) = %v, want no error", row.key, value, err)
			}
		}
	}
}

func TestValidate_namesKeyValueAndWhatIsAllowed(t *testing.T) {
	const aDuration, aLongerOne = "a duration such as 10s", "a duration above 0 such as 10s"
	for _, row := range []struct{ key, values, allowed string }{
		{"policy", "best costs", "one of threshold, cost, leastLoad, roundRobin, random"},
		{"shadow", "yes on", "true or false"},
		{"cost.instances", "0 -1 1.5 1001 x", "a whole number from 1 to 1000"},
		{"maxLoad", "0 -1 1.5 many 1e3 99999999999999999999 0x10", "a whole number from 1 to 1048576"},
		{"logLevel", "trace", "one of debug, info, warn, error"},
		{"logFormat", "xml", "one of json, text"},
		{"cache.threshold", "-0.1 1.1 NaN Inf 30% half", "a number from 0 to 1"},
		{"cache.matchAbsThreshold", "-1 1.5", "a whole number from 0 to"},
		{"cache.balanceAbsThreshold", "-1 x", "a whole number from 0 to"},
		{"cache.balanceRelThreshold", "0.9 NaN x", "a number from 1 to 1000"},
		{"cache.maxTreeSize", "0 15 -5", "a whole number from 16 to"},
		{"cache.maxTreeBytes", "1000 256MB 1KiB 99999GiB -1MiB MiB", "a whole number from 65536 to"},
		{"cache.evictionInterval", "-1s 10x forever 20000h", aDuration},
		{"cache.dailyCleanupHourUtc", "24 -2 noon", "a whole number from -1 to 23"},
		{"proxy.maxRetries", "-1 101", "a whole number from 0 to 100"},
		{"proxy.retryStatuses", "200 399 600 5xx", "a whole number from 400 to 599"},
		{"proxy.initialBackoff", "-1s 1.5", aDuration},
		{"proxy.backoffMultiplier", "0.5 101", "a number from 1 to 100"},
		{"proxy.maxBackoff", "-1", aDuration},
		{"proxy.jitterFactor", "1.5 -1", "a number from 0 to 1"},
		{"proxy.connectTimeout", "0 0s -1s x", aLongerOne},
		{"proxy.firstByteTimeout", "-1s x", aDuration},
		{"proxy.requestTimeout", "-1s x", aDuration},
		{"proxy.streamIdleTimeout", "-1s x", aDuration},
		{"proxy.maxBodyBytes", "0 -1 64MB", "a whole number from 1 to"},
		{"proxy.remoteMediaUrlPolicy", "0 200 600 refuse", "a whole number from 400 to 599"},
		{"tls.insecureSkipVerify", "yes", "true or false"},
		{"tls.caFile", "/does/not/exist .traefik.yml", "a readable file of PEM certificates"},
		{"tls.certFile", "/does/not/exist", "a readable PEM certificate, with its key in tls.keyFile"},
		{"proxy.addRoutedPeerHeader", "yes on 2", "true or false"},
		{"proxy.addDecisionHeaders", "yes", "true or false"},
		{"health.endpoint", "http://a/health", "a path such as /health"},
		{"health.interval", "-1s", aDuration},
		{"health.timeout", "0 -1s", aLongerOne},
		{"health.failureThreshold", "0 1001", "a whole number from 1 to 1000"},
		{"health.successThreshold", "0 1001", "a whole number from 1 to 1000"},
		{"health.metrics.endpoint", "http://a/metrics", "a path such as /health"},
		{"health.metrics.interval", "-1s often", aDuration},
		{"health.models.endpoint", "http://a/v1/models", "a path such as /health"},
		{"health.models.interval", "-1s", aDuration},
		{"health.headers", "X:Y (x)", "header names"},
		{"circuitBreaker.failureThreshold", "0 -3", "a whole number from 1 to 1000"},
		{"circuitBreaker.successThreshold", "0", "a whole number from 1 to 1000"},
		{"circuitBreaker.timeout", "0 -1s", aLongerOne},
		{"endpoints.health", "http://a/health /%zz", "a path such as /health"},
		{"endpoints.workers", "https://a", "a path such as /health"},
		{"discovery.service", "vllm @docker vllm@ a/b@file a@b@file", "such as vllm@docker"},
		{"discovery.dns", "vllm vllm:8000 tcp://vllm http:// http://vllm:0", "http:// or https://, a host"},
		{"discovery.interval", "0 -1s 99ms 1ms often", "a duration"},
		{"discovery.api.address", "traefik:8080 ftp://traefik http://traefik?x", "http:// or https://, a host"},
		{"discovery.api.address", "http://user:pass@traefik:8080", "no credentials; they go into discovery.api.user"},
		{"discovery.api.user", "cart", "discovery.api.password"},
		{"discovery.api.passwordFile", "/does/not/exist", "a readable file with the password"},
		{"discovery.api.caFile", "/does/not/exist .traefik.yml", "a readable file of PEM certificates"},
		{"discovery.api.insecureSkipVerify", "yes", "true or false"},
		{"endpoints.metrics", "https://a /m?x=1 /m#x /%6d //m /../m /m/. m//m", "a path such as /health"},
		{"endpoints.explain", "/explain on", "true or false"},
		{"log.maxPerSecond", "-1 1.5 10/s", "a whole number from 0 to 1048576"},
		{"workers[0].url", "a a:8000 //a ftp://a http:// http://:8000 http://a:0 http://a:70000 http://a:x http://a: http://a?q=1 " +
			"http://a/? http://a#f http:a http://[::1 unix:///run/s http://a%zz " +
			"http://::1:8000 http://a:80:80", "http:// or https://, a host"},
		{"workers[0].maxLoad", "0 x", "a whole number from 1 to"},
		{"workers[0].loadPenalty", "-1 x", "a whole number from 0 to"},
		{"workers[0].cacheTokens", "0 -1 450k 1.5 99999999999", "a whole number from 1 to 2147483647"},
		{"workers[0].headers", "X=Y", "header names"},
		{"workers[0].apiKeyFile", "/does/not/exist", "a readable file with one key on one line"},
	} {
		for _, value := range strings.Fields(row.values) {
			checkRefused(t, row.key, value, row.allowed)
		}
	}
	for _, key := range []string{"policy", "shadow", "cost.instances", "maxLoad", "logLevel", "cache.threshold", "cache.evictionInterval", "proxy.connectTimeout",
		"proxy.addDecisionHeaders", "health.endpoint", "workers[0].url", "workers[0].headers"} {
		checkRefused(t, key, "", "")
	}
}

func checkRefused(t *testing.T, key, value, allowed string) {
	t.Helper()
	c := CreateConfig()
	setKey(t, c, key, value)
	set, err := validate(c)
	if err == nil {
		t.Errorf("validate(%s: %q) = no error, want one", key, value)
		return
	}
	if set != nil {
		t.Errorf("validate(%s: %q) = settings and an error, want only the error", key, value)
	}
	text := err.Error()
	shown := value
	if strings.Contains(value, "://") {
		shown = withoutCredentials(value)
	}
	if !strings.Contains(text, key+" = ") || !strings.Contains(text, shown) || !strings.Contains(text, allowed) {
		t.Errorf("validate(%s: %q) = %q, want key, value and %q in it", key, value, text, allowed)
	}
	if n := strings.Count(text, "is not allowed"); n != 1 {
		t.Errorf("validate(%s: %q) = %q, want one complaint, not %d", key, value, text, n)
	}
}

func TestValidate_tellsAllErrorsAtOnce(t *testing.T) {
	c := CreateConfig()
	keys := []string{
		"policy", "maxLoad", "cache.threshold", "cache.maxTreeSize", "proxy.maxRetries", "proxy.connectTimeout", "health.timeout",
		"circuitBreaker.failureThreshold", "endpoints.health", "logLevel", "workers[0].url",
	}
	for _, key := range keys {
		setKey(t, c, key, "://wrong")
	}
	c.Unknown = map[string]interface{}{"maxLaod": "5"}
	_, err := validate(c)
	if err == nil {
		t.Fatal("validate(a dozen wrong values) = no error")
	}
	for _, key := range append(keys, "maxLaod") {
		if !strings.Contains(err.Error(), key+" = ") {
			t.Errorf("validate(a dozen wrong values) does not tell of %s: %v", key, err)
		}
	}
}

func TestValidate_refusesUnknownKeysAtEachLevel(t *testing.T) {
	odd := map[string]interface{}{"treshold": "0.5"}
	for _, key := range []string{"treshold", "cache.treshold", "proxy.treshold", "health.treshold", "circuitBreaker.treshold",
		"tls.treshold", "endpoints.treshold", "log.treshold", "workers[1].treshold", "discovery.treshold", "discovery.api.treshold",
		"health.metrics.treshold", "health.models.treshold"} {
		c := CreateConfig()
		c.Workers = []WorkerConfig{{URL: "http://a"}, {URL: "http://b"}}
		switch strings.TrimSuffix(key, ".treshold") {
		case "treshold":
			c.Unknown = odd
		case "cache":
			c.Cache.Unknown = odd
		case "proxy":
			c.Proxy.Unknown = odd
		case "health":
			c.Health.Unknown = odd
		case "health.metrics":
			c.Health.Metrics.Unknown = odd
		case "health.models":
			c.Health.Models.Unknown = odd
		case "circuitBreaker":
			c.CircuitBreaker.Unknown = odd
		case "tls":
			c.TLS.Unknown = odd
		case "endpoints":
			c.Endpoints.Unknown = odd
		case "discovery":
			c.Discovery.Unknown = odd
		case "discovery.api":
			c.Discovery.API.Unknown = odd
		case "log":
			c.Log.Unknown = odd
		default:
			c.Workers[1].Unknown = odd
		}
		_, err := validate(c)
		if err == nil || !strings.Contains(err.Error(), ": "+key+" = \"0.5\"") {
			t.Errorf("validate(unknown key %s) = %v, want an error that names it and its value", key, err)
		}
	}
	c := CreateConfig()
	c.Unknown = map[string]interface{}{"b": map[string]interface{}{"x": "1"}, "a": []interface{}{"1"}}
	if _, err := validate(c); err == nil || !strings.Contains(err.Error(), "a = ") || !strings.Contains(err.Error(), "b = ") {
		t.Errorf("validate(unknown lists and maps) = %v, want both named", err)
	}
}

func TestValidate_refusesNoConfiguration(t *testing.T) {
	if set, err := validate(nil); err == nil || set != nil {
		t.Errorf("validate(nil) = %v, %v, want an error", set, err)
	}
}

func TestValidate_refusesOnePathForTwo(t *testing.T) {
	c := CreateConfig()
	for _, row := range []struct{ health, workers, metrics, named string }{
		{"/status", "status", "/metrics", "endpoints.workers"},
		{"/status", "/workers", "status", "endpoints.metrics"},
		{"/health", "/status", "status", "endpoints.metrics"},
	} {
		c.Endpoints = EndpointsConfig{Health: row.health, Workers: row.workers, Metrics: row.metrics, Explain: "false"}
		if _, err := validate(c); err == nil || !strings.Contains(err.Error(), row.named+" = ") {
			t.Errorf("validate(%+v) = %v, want an error that names %s", c.Endpoints, err, row.named)
		}
	}
	c.Endpoints = EndpointsConfig{Explain: "false"}
	set, err := validate(c)
	if err != nil || set.healthPath != "" || set.workersPath != "" || set.metricsPath != "" {
		t.Errorf("validate(all paths off) = %v, want none and no error", err)
	}
}

func TestValidate_cleansWorkerURLs(t *testing.T) {
	for _, row := range []struct{ url, name, path string }{
		{"http://a:8000", "http://a:8000", ""},
		{"http://a:8000/", "http://a:8000", ""},
		{"http://a:8000//", "http://a:8000", ""},
		{" http://a:8000 ", "http://a:8000", ""},
		{"HTTP://Host.Example:8000", "http://host.example:8000", ""},
		{"https://a/Base/Path/", "https://a/Base/Path", "/Base/Path"},
		{"http://a/a%2Fb/", "http://a/a%2Fb", "/a/b"},
		{"http://[2001:DB8::1]:8000", "http://[2001:db8::1]:8000", ""},
		{"http://[::1]", "http://[::1]", ""},
		{"http://user:pass@a:8000", "http://a:8000", ""},
		{"http://user@a:8000", "http://a:8000", ""},
	} {
		c := CreateConfig()
		c.Workers = []WorkerConfig{{URL: row.url}}
		set, err := validate(c)
		if err != nil {
			t.Errorf("validate(workers[0].url: %q) = %v, want no error", row.url, err)
			continue
		}
		w := set.workers[0]
		if w.name != row.name || len(w.peer) != 1 || w.peer[0] != row.name || w.base.Path != row.path || w.base.User != nil {
			t.Errorf("validate(workers[0].url: %q) = name %q, peer %q, path %q, want %q, path %q", row.url, w.name, w.peer, w.base.Path, row.name, row.path)
		}
	}
}

func TestValidate_refusesAReplicaTwice(t *testing.T) {
	for _, row := range []struct {
		one, two string
		same     bool
	}{
		{"http://a:8000", "http://a:8000", true},
		{"http://a:8000", "http://A:8000/", true},
		{"http://a", "http://a:80", true},
		{"https://a", "https://a:443", true},
		{"http://a:8000/x", "http://a:8000/x/", true},
		{"http://u:p@a:8000", "http://a:8000", true},
		{"http://[::1]:80", "http://[::1]", true},
		{"http://a:8000", "http://a:8001", false},
		{"http://a:8000", "https://a:8000", false},
		{"http://a:8000/x", "http://a:8000/y", false},
		{"http://a:8000", "http://a", false},
		{"http://a:8080", "http://a", false},
		{"http://a:8000/X", "http://a:8000/x", false},
	} {
		c := CreateConfig()
		c.Workers = []WorkerConfig{{URL: "http://other"}, {URL: row.one}, {URL: row.two}}
		_, err := validate(c)
		if (err != nil) != row.same {
			t.Errorf("validate(workers %q, %q) = %v, want an error: %v", row.one, row.two, err, row.same)
		}
		if err != nil && (!strings.Contains(err.Error(), "workers[2].url = ") || !strings.Contains(err.Error(), "workers[1] is the same")) {
			t.Errorf("validate(workers %q, %q) = %v, want both entries named", row.one, row.two, err)
		}
	}
}

func TestValidate_httpOnPort443IsAnotherReplica(t *testing.T) {
	for _, row := range []struct{ one, two string }{{"http://a:443", "http://a"}, {"https://a:80", "https://a"}, {"http://a:443", "http://a:80"}} {
		c := CreateConfig()
		c.Workers = []WorkerConfig{{URL: row.one}, {URL: row.two}}
		if _, err := validate(c); err != nil {
			t.Errorf("validate(workers %q, %q) = %v, want no error: these are two ports", row.one, row.two, err)
		}
	}
}

func TestValidate_showsNoCredentials(t *testing.T) {
	for _, address := range []string{
		"ftp://user:s3cret@a", "http://user:s3cret@a:0", "http://user:s3cret@", "http://user:s3cret@a:x", "http://us er:s3cret@a",
		"http://user:s3cret@a?q=1", "://user:s3cret@a", "http://user:s3c%ret@a", "http://user:s3cret@a/%zz", "user:s3cret@a",
	} {
		c := CreateConfig()
		c.Workers = []WorkerConfig{{URL: address}}
		_, err := validate(c)
		if err == nil || strings.Contains(err.Error(), "s3c") {
			t.Errorf("validate(workers[0].url with a password) = %v, want an error without it", err)
		}
	}
	c := CreateConfig()
	c.Workers = []WorkerConfig{{URL: "http://user:s3cret@a"}, {URL: "http://user:s3cret@a"}}
	if _, err := validate(c); err == nil || strings.Contains(err.Error(), "s3c") {
		t.Errorf("validate(the same worker with a password twice) = %v, want an error without it", err)
	}
	c.Workers = []WorkerConfig{{URL: "http://a", Headers: map[string]string{"X Bad": "s3cret", "X-Key": "s3cret\nx"}}}
	if _, err := validate(c); err == nil || strings.Contains(err.Error(), "s3c") || !strings.Contains(err.Error(), "X-Key") {
		t.Errorf("validate(bad headers with secrets) = %v, want an error that names the headers only", err)
	}
}

// sent returns what of that header goes to the first worker.
func sent(set *settings, name string) string {
	value := ""
	for _, h := range set.workers[0].headers {
		if h.name == name {
			value = strings.Join(h.value, "|")
		}
	}
	return value
}

func TestValidate_turnsCredentialsIntoHeaders(t *testing.T) {
	file := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, []byte("  sk-123\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		story        string
		worker       WorkerConfig
		header, want string
	}{
		{"a password in the address", WorkerConfig{URL: "http://user:p%40ss@a"}, "Authorization", "Basic dXNlcjpwQHNz"},
		{"a key file", WorkerConfig{URL: "http://a", APIKeyFile: file}, "Authorization", "Bearer sk-123"},
		{"a header in small letters", WorkerConfig{URL: "http://a", Headers: map[string]string{"x-api-key": "k"}}, "X-Api-Key", "k"},
		{"a key file over a header", WorkerConfig{URL: "http://a", APIKeyFile: file, Headers: map[string]string{"authorization": "x"}},
			"Authorization", "Bearer sk-123"},
		{"no header", WorkerConfig{URL: "http://a"}, "Authorization", ""},
	} {
		c := CreateConfig()
		c.Workers = []WorkerConfig{row.worker}
		set, err := validate(c)
		if err != nil {
			t.Errorf("%s: validate() = %v, want no error", row.story, err)
			continue
		}
		if got := sent(set, row.header); got != row.want {
			t.Errorf("%s: %s = %q, want %q", row.story, row.header, got, row.want)
		}
	}
	for _, content := range []string{"", " \n ", "two\nlines", "a\x00b"} {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		c := CreateConfig()
		c.Workers = []WorkerConfig{{URL: "http://a", APIKeyFile: file}}
		_, err := validate(c)
		if err == nil || !strings.Contains(err.Error(), "workers[0].apiKeyFile = ") || (content != "" && strings.Contains(err.Error(), "lines")) {
			t.Errorf("validate(a key file with %q) = %v, want an error that names the file, not its content", content, err)
		}
	}
}

func TestValidate_workersHaveTheirOwnLimits(t *testing.T) {
	c := CreateConfig()
	c.MaxLoad = "7"
	c.Workers = []WorkerConfig{{URL: "http://a"}, {URL: "http://b", MaxLoad: "3", LoadPenalty: "2"}}
	set, err := validate(c)
	if err != nil {
		t.Fatalf("validate() = %v", err)
	}
	a, b := set.workers[0], set.workers[1]
	if a.maxLoad != 7 || a.loadPenalty != 0 || b.maxLoad != 3 || b.loadPenalty != 2 {
		t.Errorf("validate() = maxLoad %d, %d, loadPenalty %d, %d, want 7, 3, 0, 2", a.maxLoad, b.maxLoad, a.loadPenalty, b.loadPenalty)
	}
}

func TestValidate_readsDurationsAsTraefikDoes(t *testing.T) {
	for _, row := range []struct {
		value string
		want  time.Duration
	}{
		{"10s", 10 * time.Second}, {"30", 30 * time.Second}, {"1m30s", 90 * time.Second}, {"1500ms", 1500 * time.Millisecond},
		{"0", 0}, {"10000h", 10000 * time.Hour},
	} {
		c := CreateConfig()
		c.Proxy.StreamIdleTimeout = row.value
		set, err := validate(c)
		if err != nil || set.idleWait != row.want {
			t.Errorf("validate(proxy.streamIdleTimeout: %q) = %v, want %v", row.value, err, row.want)
		}
	}
}

func TestValidate_cutsLongValuesInErrors(t *testing.T) {
	c := CreateConfig()
	c.Policy = strings.Repeat("é", 500)
	if _, err := validate(c); err == nil || len(err.Error()) > 400 {
		t.Errorf("validate(a policy of 1000 bytes) = an error of more than 400, want it cut: %v", err)
	}
}

func TestWithoutCredentials_keepsTheHost(t *testing.T) {
	for _, row := range []struct{ value, want string }{
		{"http://a:1", "http://a:1"}, {"http://u:p@a:1", "...@a:1"}, {"u:p@x@a", "...@a"}, {"", ""},
		{"http://a/v1?key=s3cret", "http://a/v1?..."},
		{"http://user:pass@a?key=s3cret&b=?", "...@a?..."},
		{"http://a?", "http://a?"},
	} {
		if got := withoutCredentials(row.value); got != row.want {
			t.Errorf("withoutCredentials(%q) = %q, want %q", row.value, got, row.want)
		}
	}
}

func TestValidate_readsSizesWithUnits(t *testing.T) {
	for value, want := range map[string]int{"65536": 65536, "64KiB": 65536, " 2 MiB ": 2 << 20, "1GiB": 1 << 30} {
		c := CreateConfig()
		c.Cache.MaxTreeBytes = value
		if set, err := validate(c); err != nil || set.maxBytes != want {
			t.Errorf("validate(cache.maxTreeBytes: %q) = %v, %v, want %d", value, set, err, want)
		}
	}
}

func TestValidate_saysWhatAnUnknownKeyMayMean(t *testing.T) {
	explain := map[string]interface{}{"explain": "true"}
	for _, row := range []struct {
		key   string
		value interface{}
		want  string
	}{
		{"maxLaod", "5", "maxLaod = \"5\" is not allowed (no such key; did you mean maxLoad?)"},
		{"Workes", "5", "did you mean workers?"},
		{"cache.threshold", "5", "a level of nesting: write cache: {threshold: ...}"},
		{"temperature", "5", "see docs/settings.md"},
		{"url", "http://a", "(no such key here; it belongs in workers[].url)"},
		{"threshold", "0.5", "(no such key here; it belongs in cache.threshold)"},
		{"THRESHOLD", "0.5", "(no such key here; it belongs in cache.threshold)"},
		{"treshold", "0.5", "(no such key; did you mean cache.threshold?)"},
		{"interval", "5s", "(no such key here; it belongs in discovery.interval, health.interval, health.metrics.interval or health.models.interval)"},
		{"adddecisionheaders", "true", "adddecisionheaders = \"true\" is not allowed (no such key here; it belongs in proxy.addDecisionHeaders)"},
		{"endpoint", explain, "endpoint = a map with explain is not allowed (no such key; did you mean endpoints?)"},
		{"endpoint", "/x", "did you mean endpoints? Or it belongs in health.endpoint, health.metrics.endpoint or health.models.endpoint)"},
		{"metrics", explain, "(no such key here; it belongs in health.metrics)"},
		{"metrics", "/m", "(no such key here; it belongs in endpoints.metrics)"},
		{"retryStatuses", []interface{}{"500"}, "retryStatuses = a list of 1 is not allowed (no such key here; it belongs in proxy.retryStatuses)"},
		{"apiKeyFile", nil, "apiKeyFile = nothing is not allowed (no such key here; it belongs in workers[].apiKeyFile)"},
		{"retries", "3", "retries = \"3\" is not allowed (no such key; did you mean proxy.maxRetries?)"},
		{"apiKey", "s3cret", "apiKey = \"...\" is not allowed (no such key; did you mean workers[].apiKeyFile?)"},
		{"api_key", "s3cret", "api_key = \"...\" is not allowed (no such key; did you mean workers[].apiKeyFile?)"},
		{"healthCheck", map[string]interface{}{"path": "/health"}, "(no such key; did you mean health?)"},
		{"servers", []interface{}{"http://a"}, "servers = a list of 1 is not allowed (no such key; did you mean workers?)"},
		{"replicas", nil, "did you mean workers?)"},
		{"backends", nil, "did you mean workers?)"},
		{"weight", "3", "(no such key; did you mean workers[].loadPenalty? A higher penalty gets less)"},
		{"max-body-size", "1000", "did you mean proxy.maxBodyBytes?)"},
		{"timeout", "5s", "(no such key; did you mean proxy.requestTimeout, health.timeout or circuitBreaker.timeout?)"},
		{"Strategy", "random", "did you mean policy?)"},
		{"algorithm", "random", "did you mean policy?)"},
		{"x", "5", "x = \"5\" is not allowed (no such key; see docs/settings.md"},
	} {
		c := CreateConfig()
		c.Unknown = map[string]interface{}{row.key: row.value}
		if _, err := validate(c); err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("validate(unknown key %s) = %v, want %q in it", row.key, err, row.want)
		}
	}
	c := CreateConfig()
	c.Proxy.Unknown = map[string]interface{}{"retryStatus": "500"}
	c.Cache.Unknown = map[string]interface{}{"maxLoad": "7", "Threshold": "0.5"}
	c.Workers = []WorkerConfig{{URL: "http://a"}, {URL: "http://b", Unknown: map[string]interface{}{"URL": "http://c", "maxlod": "1", "weight": "2", "apiKey": "s3cret", "healthCheck": "/x"}}}
	_, err := validate(c)
	for _, want := range []string{
		"proxy.retryStatus = \"500\" is not allowed (no such key; did you mean proxy.retryStatuses?)",
		"cache.maxLoad = \"7\" is not allowed (no such key here; it belongs in maxLoad on top or workers[].maxLoad)",
		"cache.Threshold = \"0.5\" is not allowed (the same key as cache.threshold, which is there in another spelling: keep one of them)",
		"workers[1].URL = \"http://c\" is not allowed (the same key as workers[1].url, which is there in another spelling",
		"workers[1].weight = \"2\" is not allowed (no such key; did you mean workers[1].loadPenalty? A higher penalty gets less)",
		"workers[1].apiKey = \"...\" is not allowed (no such key; did you mean workers[1].apiKeyFile?)",
		"workers[1].healthCheck = \"/x\" is not allowed (no such key; did you mean health on top?)",
		"workers[1].maxlod = \"1\" is not allowed (no such key; did you mean workers[1].maxLoad?)",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("validate(unknown keys below the top) = %v, want %q in it", err, want)
		}
	}
}

// TestOtherWords: what others call otherwise has a name here, and is no name here.
func TestOtherWords(t *testing.T) {
	all := placesOf("", fullConfig(), nil)
	known := map[string]bool{}
	for _, p := range all {
		known[p.path()] = true
	}
	names := []string{"apiKey", "api_keys", "health-check", "healthChecks", "servers", "Replicas", "backends", "upstreams", "weight",
		"max_body_size", "retries", "retry", "timeout", "strategy", "ALGORITHM"}
	for _, name := range names {
		words := OtherWords(name)
		if len(words) == 0 {
			t.Errorf("OtherWords(%s) = none, want a key", name)
		}
		for _, word := range words {
			if !known[word] {
				t.Errorf("OtherWords(%s) = %v, want keys that there are", name, words)
			}
		}
	}
	for _, p := range all {
		if words := OtherWords(p.name); len(words) > 0 && p.name != "timeout" {
			t.Errorf("OtherWords(%s) = %v, want none of a key that there is", p.name, words)
		}
	}
}

// TestValidate_sendsNobodyToUnknownPlaces: where a key is said to belong there is one.
func TestValidate_sendsNobodyToUnknownPlaces(t *testing.T) {
	all := placesOf("", fullConfig(), nil)
	if len(all) < 60 {
		t.Fatalf("placesOf(everything) = %d keys, want at least 60", len(all))
	}
	for _, p := range all {
		if !p.isMap && p.prefix != "" {
			if hint, _ := meant("log.", p.name, "5", all); p.prefix != "log." && !strings.Contains(hint, p.path()) {
				t.Errorf("meant(log.%s) = %q, want %s in it", p.name, hint, p.path())
			}
		}
	}
}

func TestAdvise_addressesThatEndInThePathOfRequests(t *testing.T) {
	for _, row := range []struct{ url, want string }{
		{"http://a:8000", ""},
		{"http://a:8000/", ""},
		{"http://a:8000/llm", ""},
		{"http://a:8000/v1/proxy", ""},
		{"http://a:8000/v10", ""},
		{"http://a:8000/v1", "\"http://a:8000/v1\": the path of each request is appended, so that a chat goes to /v1/v1/chat/completions there; leave out /v1 "},
		{"http://user:s3cret@a:8000/llm/v1/", "\"http://a:8000/llm/v1\": the path of each request is appended, so that a chat goes to /llm/v1/v1/chat/completions there; leave out /v1 "},
		{"http://a:8000/v1/chat/completions", "leave out /v1/chat/completions "},
		{"http://a:8000/v1/completions/", "leave out /v1/completions "},
	} {
		for _, key := range []string{"workers[0].url", "discovery.dns"} {
			c := CreateConfig()
			setKey(t, c, key, row.url)
			faults, advice := Validate(c), Advise(c)
			if len(faults) > 0 {
				t.Errorf("Validate(%s: %s) = %v, want no fault", key, row.url, faults)
			}
			if row.want == "" && len(advice) == 0 {
				continue
			}
			if len(advice) != 1 || row.want == "" || advice[0].Key != key || !strings.Contains(advice[0].Text, key+" = ") ||
				!strings.Contains(advice[0].Text, row.want) || strings.Contains(advice[0].Text, "s3cret") {
				t.Errorf("Advise(%s: %s) = %v, want %q and no secret", key, row.url, advice, row.want)
			}
		}
	}
	if got := Advise(nil); got != nil {
		t.Errorf("Advise(nil) = %v, want nothing", got)
	}
	// With discovery an entry is compared with what is found.
	c := CreateConfig()
	c.Discovery.Service = "vllm@file"
	c.Workers = []WorkerConfig{{URL: "http://a/v1"}}
	if got := Advise(c); len(got) != 0 {
		t.Errorf("Advise(an entry that tunes) = %v, want nothing", got)
	}
}

func TestValidate_wantsOneSource(t *testing.T) {
	for _, row := range []struct {
		story  string
		change func(*DiscoveryConfig)
		want   string // in the error, "" = none
	}{
		{"none", func(_ *DiscoveryConfig) {}, ""},
		{"a service", func(d *DiscoveryConfig) { d.Service = "vllm@docker" }, ""},
		{"a name", func(d *DiscoveryConfig) { d.DNS = "http://vllm:8000" }, ""},
		{"both", func(d *DiscoveryConfig) {
			d.Service = "vllm@docker"
			d.DNS = "http://user:s3cret@vllm:8000"
		}, "discovery.dns = \"...@vllm:8000\" is not allowed (want one source"},
		{"an API for nothing", func(d *DiscoveryConfig) {
			d.DNS = "http://vllm:8000"
			d.API.User = "cart"
			d.API.Password = "s3cret"
		}, "discovery.service = \"\" is not allowed (want a service such as vllm@docker, for there are settings of discovery.api)"},
		{"two passwords", func(d *DiscoveryConfig) {
			d.Service = "vllm@docker"
			d.API.User = "cart"
			d.API.Password = "s3cret"
			d.API.PasswordFile = "README.md"
		}, "either discovery.api.password or .passwordFile"},
		{"name and password in one", func(d *DiscoveryConfig) {
			d.Service = "vllm@docker"
			d.API.User = "cart:s3cret"
		}, "discovery.api.user = \"cart:...\" is not allowed"},
		{"a password for nobody", func(d *DiscoveryConfig) {
			d.Service = "vllm@docker"
			d.API.Password = "s3cret"
		}, "discovery.api.user = \"\" is not allowed"},
	} {
		c := CreateConfig()
		row.change(&c.Discovery)
		set, err := validate(c)
		if row.want == "" {
			if err != nil || (set.source != nil) != (row.story != "none") {
				t.Errorf("%s: validate() = %v, want no error", row.story, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), row.want) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: validate() = %v, want an error with %q and no secret", row.story, err, row.want)
		}
	}
}

func TestValidate_oneEntryMayTuneAllThatAreFound(t *testing.T) {
	c := CreateConfig()
	c.Workers = []WorkerConfig{{URL: "*"}}
	if _, err := validate(c); err == nil || !strings.Contains(err.Error(), "workers[0].url = \"*\"") {
		t.Errorf("validate(url * without discovery) = %v, want it refused", err)
	}
	c.Discovery.Service = "vllm@docker"
	c.Workers = []WorkerConfig{{URL: "http://a", MaxLoad: "3"}, {URL: "*", MaxLoad: "x"}, {URL: "*"}}
	_, err := validate(c)
	for _, want := range []string{"workers[1].maxLoad = \"x\"", "workers[2].url = \"*\" is not allowed (want each replica once; workers[1]"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("validate(* twice) = %v, want %q in it", err, want)
		}
	}
	if n := strings.Count(fmt.Sprint(err), "is not allowed"); n != 2 {
		t.Errorf("validate(* twice) = %v, want two complaints, not %d", err, n)
	}
}

func TestValidate_hidesWhatMayBeSecretOfUnknownKeys(t *testing.T) {
	for _, key := range []string{"pasword", "apiKey", "token", "Authorization", "header", "clientSecret"} {
		c := CreateConfig()
		c.Discovery.API.Unknown = map[string]interface{}{key: "s3cret"}
		c.Unknown = map[string]interface{}{"addr": "http://user:s3cret@a"}
		if _, err := validate(c); err == nil || strings.Contains(err.Error(), "s3cret") || !strings.Contains(err.Error(), "discovery.api."+key) {
			t.Errorf("validate(unknown key %s) = %v, want it named without its value", key, err)
		}
	}
	for _, row := range []struct{ key, value, want string }{
		{"passwort", "12345", "..."}, {"apiKey", "12345", "..."}, {"x-api-key", "1e9", "..."}, {"clientSecret", "0", "..."},
		{"header", "12345", "12345"}, {"addDecisionHeader", "True", "True"}, {"cacheToken", "450000", "450000"}, {"token", "abc", "..."},
		{"Authorization", "false", "false"}, {"authorisation", "12 34", "..."}, {"password", "true", "true"},
	} {
		if got := Show(row.key, row.value); got != strconv.Quote(row.want) {
			t.Errorf("Show(%s, %s) = %s, want %q", row.key, row.value, got, row.want)
		}
	}
}
