package cart

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
)

// maxMediaDepth bounds the nesting of a body that is inspected. Real requests stay below 50.
const maxMediaDepth = 1000

// maxMediaTokens bounds the tokens that are looked at, which takes a quarter of a second. A long conversation with tools
// has some ten thousand; a prompt of token ids may have more.
const maxMediaTokens = 200000

// inspectMedia reads the whole body of a POST, whatever its path, and refuses it if it names media that the engine would
// fetch from elsewhere, or if that cannot be told: engines fetch any address they are given, those inside the cluster
// included. Every value is looked at, repeated keys too, for engines differ in which one they take.
func inspectMedia(req *http.Request, body string, status int) *refusal {
	for _, coding := range req.Header["Content-Encoding"] {
		if coding != "" && !strings.EqualFold(coding, "identity") {
			return refusals[refusedUninspected]
		}
	}
	if strings.TrimSpace(body) == "" {
		return nil
	}
	remote, ok := namesRemoteMedia(body)
	if !ok {
		return refusals[refusedUninspected]
	}
	if remote {
		known := refusals[refusedMedia]
		return &refusal{why: known.why, status: status, kind: known.kind, anthro: known.anthro, message: known.message}
	}
	return nil
}

// namesRemoteMedia walks the tokens of a JSON text. ok is false when it is not one JSON value, or nested too deep.
func namesRemoteMedia(body string) (remote, ok bool) {
	remote = false
	decoder := json.NewDecoder(strings.NewReader(body))
	decoder.UseNumber()
	var objects []bool // of each open bracket: whether it is an object's
	var media []int    // of each open bracket: the kind of place its values are
	kind := mediaNone  // of the place of the next value
	wantKey, whole := false, false
	for tokens := 0; ; tokens++ {
		token, err := decoder.Token()
		if tokens == maxMediaTokens {
			return remote, false
		}
		if err == io.EOF {
			return remote, whole && len(objects) == 0
		}
		if err != nil || (whole && len(objects) == 0) {
			return remote, false
		}
		if delim, isDelim := token.(json.Delim); isDelim {
			switch delim.String() {
			case "{", "[":
				if len(objects) == maxMediaDepth {
					return remote, false
				}
				objects = append(objects, delim.String() == "{")
				media = append(media, kind)
			default:
				objects = objects[:len(objects)-1]
				media = media[:len(media)-1]
			}
			whole = true
		} else {
			text, isText := token.(string)
			if wantKey && isText {
				kind = mediaKind(text, media[len(media)-1])
				wantKey = false
				continue
			}
			if isText && isRemote(text, kind) {
				remote = true
			}
			whole = true
		}
		// What comes next: a key in an object, a value of the same place in a list.
		wantKey = false
		kind = mediaNone
		if n := len(objects); n > 0 {
			wantKey = objects[n-1]
			kind = media[n-1]
		}
	}
}

// The kinds of places in a request, as far as media are concerned.
const (
	mediaNone   = iota
	mediaHolder // inside of which url is an address
	mediaURL    // an address, or an object with one
	mediaData   // content, or an address
)

// mediaKind says what kind of place a key's value is, inside a place of the given kind.
func mediaKind(key string, outer int) int {
	key = strings.ToLower(key)
	address := strings.HasSuffix(key, "url") || strings.HasSuffix(key, "uri") || strings.HasSuffix(key, "urls") ||
		strings.HasSuffix(key, "uris")
	switch {
	case address && len(key) <= 4:
		if outer != mediaNone {
			return mediaURL
		}
	case address:
		for _, word := range mediaWords {
			if strings.Contains(key, word) {
				return mediaURL
			}
		}
	case key == "data" && outer != mediaNone:
		return mediaData
	case key == "source" || key == "file" || key == "data" || strings.HasPrefix(key, "input_"):
		return mediaHolder
	case key == "image_data" || key == "video_data" || key == "audio_data" || key == "file_data":
		return mediaData
	default:
		for _, word := range mediaWords[:3] { // documents and files may be texts
			if key == word || key == word+"s" {
				return mediaData
			}
		}
	}
	return mediaNone
}

var mediaWords = []string{"image", "video", "audio", "file", "media", "document", "picture"}

// isRemote says whether a text in a place of that kind would be fetched.
func isRemote(text string, kind int) bool {
	if kind != mediaURL && kind != mediaData {
		return false
	}
	text = strings.ToLower(strings.TrimLeft(text, " \t\r\n\f\v\x00"))
	if text == "" || strings.HasPrefix(text, "data:") {
		return false
	}
	return kind == mediaURL || strings.Contains(text, "://") || strings.HasPrefix(text, "//")
}
