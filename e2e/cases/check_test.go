package cases

import (
	"encoding/json"
	"testing"
	"time"
)

// TestChecksFail: each expectation of the machine form fails when what happened is something else.
func TestChecksFail(t *testing.T) {
	replica, stranger := &mock{addr: "127.0.0.1:1"}, &mock{addr: "127.0.0.1:2"}
	now := time.Now()
	happened := func(expected string) error {
		p := &played{rig: &rig{t: t}, mediaStatus: 422, step: &formStep{}, peers: []*mock{stranger, replica}}
		if err := json.Unmarshal([]byte(expected), &p.step.Expected); err != nil {
			t.Fatal(err)
		}
		p.query = post("/a?b=%2F", `{"x":1}`)
		p.hits = []*exchange{{
			replica: replica, method: "POST", target: "/a?b=%2F", body: []byte(`{"x":1}`), sent: []byte(`{"y":2}`),
			header: header{{"Content-Length", "7"}, {"A", "1"}}, writes: []stamp{{now, 7}},
		}}
		p.reply = reply{
			status: 200, body: []byte(`{"y":2}`), reads: []stamp{{now.Add(time.Second), 7}},
			header: header{{"x-routed-peer", replica.url()}, {"B", "1"}, {"C", "1"}, {"C", "2"}},
		}
		for _, check := range []func() error{p.checkStatus, p.checkUpstream, p.checkAnswer, p.checkHeaders} {
			if err := check(); err != nil {
				return err
			}
		}
		return p.checkAfter(1)
	}
	const good = `{"status":200,"status_not":500,"status_class":2,"upstream_hits":1,"upstream_body":"identical","client_body":"identical",
		"upstream_target":"/a?b=%2F","upstream_headers":{"A":"1"},"upstream_headers_absent":["Z"],"single_framing":true,
		"resp_headers":{"B":"1*"},"resp_headers_multi":{"C":["2","1"]},"resp_headers_present":["b"],"resp_headers_absent":["z"],
		"resp_header_is_peer":"X-Routed-Peer","resp_json_has":["y"],"max_chunk_delay_ms":400,"passed_through":true,"same_peer_as_step":1}`
	if err := happened(good); err != nil {
		t.Errorf("checking what is as expected = %v, want nil", err)
	}
	for _, bad := range []string{
		`{"status":201}`, `{"status":"media_reject_status"}`, `{"status_not":200}`, `{"status_class":4}`, `{"upstream_hits":0}`,
		`{"upstream_target":"/a?b=/"}`, `{"upstream_headers":{"A":"2"}}`, `{"upstream_headers":{"Z":"2"}}`,
		`{"upstream_headers_absent":["a"]}`, `{"resp_headers":{"B":"2*"}}`, `{"resp_headers":{"C":"1"}}`,
		`{"resp_headers_multi":{"C":["1","1"]}}`, `{"resp_headers_multi":{"C":["1"]}}`, `{"resp_headers_present":["z"]}`,
		`{"resp_headers_absent":["b"]}`, `{"resp_header_is_peer":"B"}`, `{"resp_json_has":["y.z"]}`,
		`{"client_body":"identical","max_chunk_delay_ms":300}`, `{"same_peer_as_step":0}`,
	} {
		if happened(bad) == nil {
			t.Errorf("checking %s against something else = nil, want an error", bad)
		}
	}
	for what, h := range map[string]header{
		"no length":            {},
		"two lengths":          {{"Content-Length", "7"}, {"Content-Length", "7"}},
		"a length and chunks":  {{"Content-Length", "7"}, {"Transfer-Encoding", "chunked"}},
		"a length that is off": {{"Content-Length", "0"}},
	} {
		if singleFraming(h, 7) == nil {
			t.Errorf("singleFraming with %s = nil, want an error", what)
		}
	}
	p := &played{rig: &rig{t: t}, step: &formStep{Expected: formExpected{UpstreamBody: "identical", PassedThrough: true}}}
	p.query = post("/a", "sent")
	for _, x := range []*exchange{
		{method: "POST", target: "/a", body: []byte("Sent")},
		{method: "PUT", target: "/a", body: []byte("sent")},
		{method: "POST", target: "//a", body: []byte("sent")},
	} {
		if p.checkSeen(x) == nil {
			t.Errorf("checking %s %s %s against what was sent = nil, want an error", x.method, x.target, x.body)
		}
	}
}
