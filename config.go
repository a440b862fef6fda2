package cart

// Config is the middleware's dynamic configuration as the user wrote it.
//
// Every scalar is text: Traefik's providers hand over text for all of them but one, and text is the only form in which a
// typing error can still be told from a zero. Durations are written as Traefik writes them: "10s", "1m30s", "30" (seconds).
type Config struct {
	// Workers lists the replicas. An empty list is no error: requests get 503 until there is one. With discovery, an entry
	// adds no replica but tunes the one found at its url, and an entry with the url * tunes all.
	Workers []WorkerConfig `json:"workers,omitempty"`
	// Discovery finds the replicas elsewhere. Default: there are those that workers lists.
	Discovery DiscoveryConfig `json:"discovery,omitempty"`
	// Policy is the rule that picks the replica: threshold (default), cost, leastLoad, roundRobin or random.
	Policy string `json:"policy,omitempty"`
	// Shadow makes the policy a watcher: its choices are counted, but requests go to the least loaded replica. Default false.
	Shadow string `json:"shadow,omitempty"`
	// Cost tunes the policy cost.
	Cost CostConfig `json:"cost,omitempty"`
	// MaxLoad is the number of requests in flight at which a replica takes no further one. Default 20.
	MaxLoad string `json:"maxLoad,omitempty"`
	// Cache tunes the prefix tree and the policy threshold.
	Cache CacheConfig `json:"cache,omitempty"`
	// Proxy tunes the exchange with a replica.
	Proxy ProxyConfig `json:"proxy,omitempty"`
	// Health tunes the periodic probe of every replica.
	Health HealthConfig `json:"health,omitempty"`
	// CircuitBreaker tunes when failing requests take a replica out.
	CircuitBreaker CircuitBreakerConfig `json:"circuitBreaker,omitempty"`
	// TLS tunes connections to https replicas.
	TLS TLSConfig `json:"tls,omitempty"`
	// Endpoints names the paths that CART answers itself.
	Endpoints EndpointsConfig `json:"endpoints,omitempty"`
	// Log bounds what is logged.
	Log LogConfig `json:"log,omitempty"`
	// LogLevel is debug, info (default), warn or error. Each routing decision is a line at debug.
	LogLevel string `json:"logLevel,omitempty"`
	// LogFormat is json (default) or text.
	LogFormat string `json:"logFormat,omitempty"`
	// Unknown catches keys that are none of the above; New refuses them.
	Unknown map[string]interface{} `json:"-" mapstructure:",remain"`
}

// WorkerConfig is one replica.
type WorkerConfig struct {
	// URL is the replica's base address: http or https, host, optional port and base path.
	URL string `json:"url,omitempty"`
	// MaxLoad overrides the general maxLoad for this replica. Empty = the general one.
	MaxLoad string `json:"maxLoad,omitempty"`
	// LoadPenalty is added to the load when replicas are compared, to send a slower one less. Default 0.
	LoadPenalty string `json:"loadPenalty,omitempty"`
	// CacheTokens is how many tokens the replica's prefix cache holds: what was sent there earlier than the last so many is
	// no longer expected there. Empty = unknown: nothing is given up.
	CacheTokens string `json:"cacheTokens,omitempty"`
	// Headers are set on every request and probe towards this replica, in place of the client's.
	Headers map[string]string `json:"headers,omitempty"`
	// APIKeyFile is a file whose trimmed content is sent as "Authorization: Bearer ...". Read when the middleware is built.
	APIKeyFile string                 `json:"apiKeyFile,omitempty"`
	Unknown    map[string]interface{} `json:"-" mapstructure:",remain"`
}

// DiscoveryConfig says where replicas are found, if not in the list of workers: in service or dns, one of the two. A source
// that does not answer costs nothing but news: the replicas it named last stay.
type DiscoveryConfig struct {
	// Service is a Traefik service of any provider by its qualified name, such as vllm@docker. Its servers, or those of the
	// services it is made of, are the replicas, and those that Traefik's own health check has down get no requests.
	Service string `json:"service,omitempty"`
	// DNS is an address such as http://vllm-headless:8000 of whose name each A and AAAA record is a replica. They get the
	// name as Host header, and over TLS have to show a certificate for it.
	DNS string `json:"dns,omitempty"`
	// Interval is the time between two looks at the source, at least 100ms. Default 5s.
	Interval string `json:"interval,omitempty"`
	// API tells how to ask Traefik for the service.
	API     APIConfig              `json:"api,omitempty"`
	Unknown map[string]interface{} `json:"-" mapstructure:",remain"`
}

// APIConfig tells how Traefik's own API is reached.
type APIConfig struct {
	// Address is the API's base address, api.basePath included. Default http://127.0.0.1:8080.
	Address string `json:"address,omitempty"`
	// User is the name for basic authentication. Default: none.
	User string `json:"user,omitempty"`
	// Password goes with the name. Traefik's API and dashboard show it; PasswordFile they cannot.
	Password string `json:"password,omitempty"`
	// PasswordFile is a file whose trimmed content is the password. Read when the middleware is built.
	PasswordFile string `json:"passwordFile,omitempty"`
	// CAFile holds the PEM certificates that the API's certificate is checked against, in place of the system's roots.
	CAFile string `json:"caFile,omitempty"`
	// InsecureSkipVerify accepts any certificate. Default false.
	InsecureSkipVerify string                 `json:"insecureSkipVerify,omitempty"`
	Unknown            map[string]interface{} `json:"-" mapstructure:",remain"`
}

// CostConfig tunes the policy cost.
type CostConfig struct {
	// Instances is the number of Traefik processes that send requests to the same replicas. Each sees only its own, so a
	// replica's cacheTokens count for that part, and new conversations keep closer to the replica that all agree on. Default 1.
	Instances string                 `json:"instances,omitempty"`
	Unknown   map[string]interface{} `json:"-" mapstructure:",remain"`
}

// CacheConfig tunes the prefix tree and the policy threshold. Lengths are in characters (bytes of the request body).
type CacheConfig struct {
	// Threshold is the share of the prompt, 0 to 1, that has to be known on a replica to prefer it. Default 0.3.
	Threshold string `json:"threshold,omitempty"`
	// MatchAbsThreshold is the known length that suffices whatever its share. Default 8192.
	MatchAbsThreshold string `json:"matchAbsThreshold,omitempty"`
	// BalanceAbsThreshold is by how many requests the preferred replica may exceed the least loaded one. Default 5.
	BalanceAbsThreshold string `json:"balanceAbsThreshold,omitempty"`
	// BalanceRelThreshold is by what factor it may exceed it; both have to be exceeded to give it up. At least 1, default 1.6.
	BalanceRelThreshold string `json:"balanceRelThreshold,omitempty"`
	// MaxTreeSize bounds the tree's nodes. Default 1000000.
	MaxTreeSize string `json:"maxTreeSize,omitempty"`
	// MaxTreeBytes bounds the memory that the process takes for the tree, in bytes or as 512MiB. Three tenths of
	// it are prompts, the rest is the headroom of Go's garbage collector. Default 268435456 (256 MiB): prompts of 20 million tokens.
	MaxTreeBytes string `json:"maxTreeBytes,omitempty"`
	// EvictionInterval is how often the tree is brought well below its bounds in the background; 0 = only when an insert
	// would pass a bound. Default 60s.
	EvictionInterval string `json:"evictionInterval,omitempty"`
	// DailyCleanupHourUtc is the hour, 0 to 23, at which the whole tree is dropped; -1 (default) = never.
	DailyCleanupHourUtc string                 `json:"dailyCleanupHourUtc,omitempty"`
	Unknown             map[string]interface{} `json:"-" mapstructure:",remain"`
}

// ProxyConfig tunes the exchange with a replica.
type ProxyConfig struct {
	// MaxRetries is how many further replicas a request may try while nothing was sent to the client. Default 2.
	MaxRetries string `json:"maxRetries,omitempty"`
	// RetryStatuses are the answers worth another replica. Default 408,429,500,502,503,504,529.
	RetryStatuses []string `json:"retryStatuses,omitempty"`
	// InitialBackoff is the wait before the first retry. Default 100ms.
	InitialBackoff string `json:"initialBackoff,omitempty"`
	// BackoffMultiplier grows the wait from retry to retry. At least 1, default 2.
	BackoffMultiplier string `json:"backoffMultiplier,omitempty"`
	// MaxBackoff bounds the wait. Default 5s.
	MaxBackoff string `json:"maxBackoff,omitempty"`
	// JitterFactor spreads each wait by up to this share, 0 to 1, both ways. Default 0.25.
	JitterFactor string `json:"jitterFactor,omitempty"`
	// ConnectTimeout bounds TCP connect and TLS handshake, nothing else. Default 2s.
	ConnectTimeout string `json:"connectTimeout,omitempty"`
	// FirstByteTimeout bounds the wait for a replica's response headers; 0 (default) = none.
	FirstByteTimeout string `json:"firstByteTimeout,omitempty"`
	// RequestTimeout bounds the whole exchange, retries included; 0 (default) = none.
	RequestTimeout string `json:"requestTimeout,omitempty"`
	// StreamIdleTimeout ends an answer of which nothing has come for that long; 0 = never. From 1m on, a stream is ended after three
	// times that and up to an eighth more. Default 5m.
	StreamIdleTimeout string `json:"streamIdleTimeout,omitempty"`
	// MaxBodyBytes bounds the body of a routed request; above it 413. Default 67108864 (64 MiB).
	MaxBodyBytes string `json:"maxBodyBytes,omitempty"`
	// RemoteMediaURLPolicy is the status, 400 to 599, by which requests are refused that name media to be fetched from
	// elsewhere. Then every POST body is parsed, and what cannot be inspected is refused with 415. Empty (default) = off.
	RemoteMediaURLPolicy string `json:"remoteMediaUrlPolicy,omitempty"`
	// AddRoutedPeerHeader sends the replica's address as x-routed-peer. Default true.
	AddRoutedPeerHeader string `json:"addRoutedPeerHeader,omitempty"`
	// AddDecisionHeaders sends the reason and the matched share as x-cart-reason and x-cart-match. Default false.
	AddDecisionHeaders string                 `json:"addDecisionHeaders,omitempty"`
	Unknown            map[string]interface{} `json:"-" mapstructure:",remain"`
}

// HealthConfig tunes the periodic probe of every replica.
type HealthConfig struct {
	// Endpoint is the path, below the replica's base path, that answers 2xx when it is well. Default /health.
	Endpoint string `json:"endpoint,omitempty"`
	// Interval is the time between two probes of a replica; 0 = no probes. Default 10s.
	Interval string `json:"interval,omitempty"`
	// Timeout bounds one probe. Default 2s.
	Timeout string `json:"timeout,omitempty"`
	// FailureThreshold is how many failed probes in a row mark a replica down. Default 3.
	FailureThreshold string `json:"failureThreshold,omitempty"`
	// SuccessThreshold is how many good ones in a row bring it back. Default 1.
	SuccessThreshold string `json:"successThreshold,omitempty"`
	// Headers are sent with every probe, after the worker's own.
	Headers map[string]string `json:"headers,omitempty"`
	// Metrics tunes the look at a replica's own metrics, which tell how much its cache holds and whether it was restarted.
	// Default /metrics each 10s. A replica without them is only known less well.
	Metrics AskConfig `json:"metrics,omitempty"`
	// Models tunes the look at a replica's list of models. If some replicas list the model that a request asks for, it goes to
	// one of these. Default /v1/models each 10s.
	Models  AskConfig              `json:"models,omitempty"`
	Unknown map[string]interface{} `json:"-" mapstructure:",remain"`
}

// AskConfig says what a replica is asked in the background, and how often. health.timeout bounds one question, and
// health.headers go with it.
type AskConfig struct {
	// Endpoint is the path, below the replica's base path.
	Endpoint string `json:"endpoint,omitempty"`
	// Interval is the time between two questions to a replica; 0 = it is not asked.
	Interval string                 `json:"interval,omitempty"`
	Unknown  map[string]interface{} `json:"-" mapstructure:",remain"`
}

// CircuitBreakerConfig tunes when failing requests take a replica out.
type CircuitBreakerConfig struct {
	// FailureThreshold is how many failures in a row open the breaker. Default 5.
	FailureThreshold string `json:"failureThreshold,omitempty"`
	// SuccessThreshold is how many successes of the probing state close it. Default 2.
	SuccessThreshold string `json:"successThreshold,omitempty"`
	// Timeout is how long it stays open before one request may probe. Default 30s.
	Timeout string                 `json:"timeout,omitempty"`
	Unknown map[string]interface{} `json:"-" mapstructure:",remain"`
}

// TLSConfig tunes connections to https replicas. Certificates are checked against the system's roots by default.
type TLSConfig struct {
	// CAFile holds the PEM certificates that replicas' certificates are checked against, in place of the system's roots.
	CAFile string `json:"caFile,omitempty"`
	// InsecureSkipVerify accepts any certificate. Default false.
	InsecureSkipVerify string `json:"insecureSkipVerify,omitempty"`
	// CertFile and KeyFile hold the PEM certificate and key that CART shows to replicas.
	CertFile string                 `json:"certFile,omitempty"`
	KeyFile  string                 `json:"keyFile,omitempty"`
	Unknown  map[string]interface{} `json:"-" mapstructure:",remain"`
}

// EndpointsConfig names the paths that CART answers itself. "" turns one off: the path then goes to a replica.
type EndpointsConfig struct {
	// Health answers 200 with the number of usable replicas, 503 when there is none. Default /health.
	Health string `json:"health,omitempty"`
	// Workers answers with the state of every replica, to a browser with a page that keeps itself up to date. Default
	// /workers.
	Workers string `json:"workers,omitempty"`
	// Metrics answers in Prometheus' text format. Default /metrics.
	Metrics string `json:"metrics,omitempty"`
	// Explain lets a POST to the path of workers with ?explain=/v1/chat/completions tell where its body would be routed, and
	// why, without sending it. Who may ask learns which prompts were seen before. Default false.
	Explain string                 `json:"explain,omitempty"`
	Unknown map[string]interface{} `json:"-" mapstructure:",remain"`
}

// LogConfig bounds what is logged.
type LogConfig struct {
	// MaxPerSecond is how many lines at debug, such as decisions, are written in a second; the others are counted. 0 = all.
	// Default 100. Warnings and errors have a bound of their own, 10 a second.
	MaxPerSecond string                 `json:"maxPerSecond,omitempty"`
	Unknown      map[string]interface{} `json:"-" mapstructure:",remain"`
}

// CreateConfig returns the configuration with every default. Lists and maps stay nil, for Traefik would merge the user's
// into them; New fills in the default of proxy.retryStatuses.
func CreateConfig() *Config {
	return &Config{
		Policy:  policyThreshold,
		Shadow:  "false",
		Cost:    CostConfig{Instances: "1"},
		MaxLoad: "20",
		Discovery: DiscoveryConfig{
			Interval: "5s",
			API:      APIConfig{Address: "http://127.0.0.1:8080", InsecureSkipVerify: "false"},
		},
		Cache: CacheConfig{
			Threshold:           "0.3",
			MatchAbsThreshold:   "8192",
			BalanceAbsThreshold: "5",
			BalanceRelThreshold: "1.6",
			MaxTreeSize:         "1000000",
			MaxTreeBytes:        "268435456",
			EvictionInterval:    "60s",
			DailyCleanupHourUtc: "-1",
		},
		Proxy: ProxyConfig{
			MaxRetries:          "2",
			InitialBackoff:      "100ms",
			BackoffMultiplier:   "2",
			MaxBackoff:          "5s",
			JitterFactor:        "0.25",
			ConnectTimeout:      "2s",
			FirstByteTimeout:    "0s",
			RequestTimeout:      "0s",
			StreamIdleTimeout:   "5m",
			MaxBodyBytes:        "67108864",
			AddRoutedPeerHeader: "true",
			AddDecisionHeaders:  "false",
		},
		Health: HealthConfig{
			Endpoint:         "/health",
			Interval:         "10s",
			Timeout:          "2s",
			FailureThreshold: "3",
			SuccessThreshold: "1",
			Metrics:          AskConfig{Endpoint: "/metrics", Interval: "10s"},
			Models:           AskConfig{Endpoint: "/v1/models", Interval: "10s"},
		},
		CircuitBreaker: CircuitBreakerConfig{FailureThreshold: "5", SuccessThreshold: "2", Timeout: "30s"},
		TLS:            TLSConfig{InsecureSkipVerify: "false"},
		Endpoints:      EndpointsConfig{Health: "/health", Workers: "/workers", Metrics: "/metrics", Explain: "false"},
		Log:            LogConfig{MaxPerSecond: "100"},
		LogLevel:       "info",
		LogFormat:      "json",
	}
}
