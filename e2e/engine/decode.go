package engine

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"github.com/mitchellh/mapstructure"
)

// written turns a configuration into what Traefik's file provider makes of it: scalars are text, numbers with a fraction
// have six digits of it, empty lists and maps are the empty text, null is nothing. Lists of scalars of one type stay.
func written(config Config) (Config, error) {
	text, err := json.Marshal(config)
	if err != nil {
		return nil, err
	}
	var plain Config
	if err := json.Unmarshal(text, &plain); err != nil {
		return nil, err
	}
	out, _ := asText(plain).(Config)
	return out, nil
}

func asText(value any) any {
	switch v := value.(type) {
	case map[string]any:
		if len(v) == 0 {
			return ""
		}
		out := map[string]any{}
		for key, element := range v {
			if element != nil {
				out[key] = asText(element)
			}
		}
		return out
	case []any:
		return listAsText(v)
	case float64:
		return strings.TrimSuffix(strconv.FormatFloat(v, 'f', 6, 64), ".000000")
	default:
		return fmt.Sprint(v)
	}
}

func listAsText(list []any) any {
	if len(list) == 0 {
		return ""
	}
	out := make([]any, len(list))
	uniform := true
	for i, element := range list {
		out[i] = asText(element)
		uniform = uniform && reflect.TypeOf(element) == reflect.TypeOf(list[0])
	}
	switch list[0].(type) {
	case map[string]any, []any:
		return out
	}
	if uniform {
		return list
	}
	return out
}

// decode puts a configuration into a Config of the plugin with the decoder, its settings and its version that Traefik
// 3.7.15 uses. A newer decoder refuses an empty list of workers, which arrives as the empty text.
func decode(config Config, into any) error {
	if len(config) == 0 {
		return nil
	}
	decoder, err := mapstructure.NewDecoder(&mapstructure.DecoderConfig{
		DecodeHook:       mapstructure.StringToSliceHookFunc(","),
		WeaklyTypedInput: true,
		Result:           into,
	})
	if err != nil {
		return err
	}
	if err := decoder.Decode(config); err != nil {
		return fmt.Errorf("failed to decode configuration: %w", err)
	}
	return nil
}
