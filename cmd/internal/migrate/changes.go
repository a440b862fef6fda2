package migrate

import (
	"strings"

	"github.com/cart-llm/cart/cmd/internal/layer"
)

// changes are the settings that do not mean quite the same. Each takes the value, with its unit, and returns the one for
// CART, "" to leave it out, and what is to be known.
var changes = map[string]func(text string) (changed, what string){
	"cache.matchAbsThreshold": func(text string) (string, string) {
		if text == "0" {
			return "1073741824", "0 turned it off; a length that no prompt has does that now"
		}
		return text, ""
	},
	"cache.balanceAbsThreshold": func(text string) (string, string) {
		return text, "the Rust router gave a holder up at so many above, CART does at more than that"
	},
	"cache.evictionInterval": func(text string) (string, string) {
		if text == "0s" {
			return text, "0 let the tree grow without bound; CART keeps to maxTreeSize and maxTreeBytes all the same"
		}
		return text, ""
	},
	"cache.maxTreeSize": func(text string) (string, string) {
		return text, "the Rust router compared it with the characters known of each worker, CART with the nodes of the tree; " +
			"maxTreeBytes bounds the memory"
	},
	"cache.dailyCleanupHourUtc": func(text string) (string, string) {
		if strings.HasPrefix(text, "-") {
			return "-1", ""
		}
		return text, ""
	},
	"proxy.remoteMediaUrlPolicy": func(text string) (string, string) {
		if text == "200" {
			return "", "200 allows remote media, which is what CART does without the setting"
		}
		return text, "CART refuses all remote media with it, and bodies that it cannot inspect with 415"
	},
	"proxy.requestTimeout": func(text string) (string, string) {
		return text, "it bounded each attempt, and bounds the whole exchange with its retries now"
	},
}

// defaults accounts for what the source does not set and CART has another default for.
func (m *migration) defaults(source *layer.Node) {
	if _, set := m.settings["proxy.addRoutedPeerHeader"]; !set {
		what := "off as it was: CART would send x-routed-peer, which tells clients the replicas' addresses"
		m.settings["proxy.addRoutedPeerHeader"] = value{text: "false", comment: what}
		m.account = append(m.account, Line{Key: "proxy.add_routed_peer_header", What: "not set: addRoutedPeerHeader = false (" + what + ")"})
	}
	for _, d := range []struct{ key, rust, setting, cart string }{
		{"cache.balance_rel_threshold", "1.25", "cache.balanceRelThreshold", "1.6"},
		{"cache.max_tree_size", "1048576 characters of each worker", "cache.maxTreeSize", "1000000 nodes and 256MiB"},
		{"health.endpoint", "/v1/models", "health.endpoint", "/health"},
		{"health.timeout_secs", "10", "health.timeout", "2s"},
		{"proxy.max_retries", "1", "proxy.maxRetries", "2"},
		{"proxy.request_timeout_secs", "10000", "proxy.requestTimeout", "0 (none), with streamIdleTimeout 5m"},
		{"proxy.max_body_size", "10485760", "proxy.maxBodyBytes", "64MiB"},
	} {
		if _, set := m.settings[d.setting]; !set {
			m.account = append(m.account, Line{Key: d.key, What: "not set: CART's default is " + d.cart + ", the Rust router's was " + d.rust})
		}
	}
	if source.Get("server") == nil {
		m.account = append(m.account, Line{Key: "server", What: "not set: the port stays 6700"})
	}
	if source.Get("workers") == nil {
		what := "not set, which the Rust router refuses: no replicas until there are some"
		m.account = append(m.account, Line{Key: "workers", What: what, Lost: true})
	}
}
