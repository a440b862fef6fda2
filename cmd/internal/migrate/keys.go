package migrate

import (
	"reflect"
	"regexp"
	"strings"
	"time"
	"unicode"

	"github.com/cart-llm/cart"
)

// setting is a key of the plugin's configuration.
type setting struct {
	key      string // such as cache.maxTreeSize
	duration bool
	order    int // in which the plugin declares it
}

// table has settings by the names that the Rust router gives them.
type table map[string]setting

func (t table) order(key string) int {
	for _, s := range t {
		if s.key == key {
			return s.order
		}
	}
	return len(t)
}

// known are the plugin's settings by the names that the Rust router gives them: the same words with underscores. So a
// setting that the Rust router does not have yet migrates as well.
var known = knownSettings()

// isDuration matches the defaults of the settings that are durations.
var isDuration = regexp.MustCompile(`^\d+(ms|s|m|h)$`)

func knownSettings() table {
	out := table{}
	addSettings(out, reflect.ValueOf(*cart.CreateConfig()), "", "")
	// What the Rust router has other words for.
	out["proxy.max_body_size"] = out["proxy.max_body_bytes"]
	return out
}

func addSettings(out table, v reflect.Value, key, rust string) {
	for i := 0; i < v.NumField(); i++ {
		name := strings.Split(v.Type().Field(i).Tag.Get("json"), ",")[0]
		switch f := v.Field(i); {
		case name == "-" || name == "workers":
		case f.Kind() == reflect.Struct:
			addSettings(out, f, key+name+".", rust+snake(name)+".")
		default:
			duration := f.Kind() == reflect.String && isDuration.MatchString(f.String())
			out[rust+snake(name)] = setting{key: key + name, duration: duration, order: len(out)}
		}
	}
}

// snake turns maxTreeSize into max_tree_size.
func snake(name string) string {
	var out strings.Builder
	for i, c := range name {
		if unicode.IsUpper(c) && i > 0 {
			out.WriteByte('_')
		}
		out.WriteRune(unicode.ToLower(c))
	}
	return out.String()
}

// units are the endings by which the Rust router's keys tell what a number counts.
var units = []struct {
	ending string
	unit   time.Duration
	text   string
}{
	{"_secs", time.Second, "s"},
	{"_seconds", time.Second, "s"},
	{"_ms", time.Millisecond, "ms"},
	{"_millis", time.Millisecond, "ms"},
	{"_mins", time.Minute, "m"},
}

// lookup finds the setting for a key of the Rust router. unit is what a number counts, "" if the key does not say.
func lookup(key string) (s setting, unit string, ok bool) {
	if s, ok = known[key]; ok {
		return s, "", true
	}
	for _, u := range units {
		if name, found := strings.CutSuffix(key, u.ending); found {
			if s, ok = known[name]; ok && s.duration {
				return s, u.text, true
			}
		}
	}
	return setting{}, "", false
}
