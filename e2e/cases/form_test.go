package cases

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/cart-llm/cart/e2e/engine"
)

// The machine form of cases: testdata/cases.json, whose "schema" explains the names. Names that are not here are errors,
// for an expectation that is not understood must not pass.

type formFile struct {
	Schema json.RawMessage `json:"schema"`
	Count  int             `json:"count"`
	Cases  []*formCase     `json:"cases"`
}

type formCase struct {
	ID           string            `json:"id"`
	Group        string            `json:"group"`
	Title        string            `json:"title"`
	Policy       *string           `json:"policy"`
	Sources      []string          `json:"sources"`
	Config       map[string]any    `json:"config"`
	Placeholders map[string]string `json:"placeholders"`
	Steps        []*formStep       `json:"steps"`
}

type formStep struct {
	Hold     *int          `json:"hold_on_peer_of_step"`
	Request  formRequest   `json:"request"`
	Upstream *formUpstream `json:"upstream"`
	Expected formExpected  `json:"expected"`
}

type formRequest struct {
	Method     string   `json:"method"`
	Path       string   `json:"path"`
	Headers    header   `json:"headers"`
	Body       *string  `json:"body"`
	BodyB64    *string  `json:"body_b64"`
	BodyChunks []string `json:"body_chunks"`
	BodyGzipOf *string  `json:"body_gzip_of"`
}

type formUpstream struct {
	Status  int      `json:"status"`
	Headers header   `json:"headers"`
	Body    *string  `json:"body"`
	Chunks  []string `json:"chunks"`
	GapMS   int      `json:"gap_ms"`
}

type formExpected struct {
	Status                any                 `json:"status"`
	StatusNot             int                 `json:"status_not"`
	StatusClass           int                 `json:"status_class"`
	UpstreamHits          *int                `json:"upstream_hits"`
	UpstreamBody          string              `json:"upstream_body"`
	UpstreamTarget        string              `json:"upstream_target"`
	UpstreamHeaders       map[string]string   `json:"upstream_headers"`
	UpstreamHeadersAbsent []string            `json:"upstream_headers_absent"`
	SingleFraming         bool                `json:"single_framing"`
	ClientBody            string              `json:"client_body"`
	RespHeaders           map[string]string   `json:"resp_headers"`
	RespHeadersMulti      map[string][]string `json:"resp_headers_multi"`
	RespHeadersPresent    []string            `json:"resp_headers_present"`
	RespHeadersAbsent     []string            `json:"resp_headers_absent"`
	RespHeaderIsPeer      string              `json:"resp_header_is_peer"`
	RespJSONHas           []string            `json:"resp_json_has"`
	LoadAfter             *int                `json:"load_after"`
	SamePeerAsStep        *int                `json:"same_peer_as_step"`
	MaxChunkDelayMS       int                 `json:"max_chunk_delay_ms"`
	PassedThrough         bool                `json:"passed_through"`
}

// UnmarshalJSON takes an object or a list of pairs.
func (h *header) UnmarshalJSON(text []byte) error {
	var pairs [][2]string
	if json.Unmarshal(text, &pairs) == nil {
		*h = pairs
		return nil
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	if _, err := dec.Token(); err != nil {
		return err
	}
	*h = header{}
	for dec.More() { // an object's order is kept
		name, err := dec.Token()
		if err != nil {
			return err
		}
		var value string
		if err := dec.Decode(&value); err != nil {
			return err
		}
		*h = append(*h, [2]string{name.(string), value})
	}
	return nil
}

// placeholders are the texts that stand for long ones, by their description in the file.
var placeholders = map[string]func() string{
	"the word river and a space repeated to 4096 characters": func() string { return strings.Repeat("river ", 700)[:4096] },
}

var placeholderForm = regexp.MustCompile(`@[A-Z0-9_]+@`)

// parseForm reads the file and refuses what it does not understand.
func parseForm(text []byte) ([]*formCase, error) {
	var file formFile
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&file); err != nil {
		return nil, err
	}
	var errs []error
	for _, c := range file.Cases {
		for i, s := range c.Steps {
			if err := c.checkStep(i, s); err != nil {
				errs = append(errs, fmt.Errorf("case %s step %d: %w", c.ID, i, err))
			}
		}
		if _, _, err := c.settings(); err != nil {
			errs = append(errs, fmt.Errorf("case %s: %w", c.ID, err))
		}
	}
	if file.Count != len(file.Cases) {
		errs = append(errs, fmt.Errorf("count = %d, want %d", file.Count, len(file.Cases)))
	}
	return file.Cases, errors.Join(errs...)
}

// checkStep looks at the values that have a fixed set of meanings.
func (c *formCase) checkStep(i int, s *formStep) error {
	e := &s.Expected
	for name, value := range map[string]string{"upstream_body": e.UpstreamBody, "client_body": e.ClientBody} {
		if value != "" && value != "identical" {
			return fmt.Errorf("%s = %q, want identical", name, value)
		}
	}
	switch v := e.Status.(type) {
	case nil:
		if e.StatusNot == 0 && e.StatusClass == 0 {
			return errors.New("nothing is expected of the status")
		}
	case float64:
	case string:
		if v != "media_reject_status" {
			return fmt.Errorf("status = %q, want a number or media_reject_status", v)
		}
	default:
		return fmt.Errorf("status = %v, want a number or media_reject_status", v)
	}
	for _, ref := range []*int{s.Hold, e.SamePeerAsStep} {
		if ref != nil && (*ref < 0 || *ref >= i) {
			return fmt.Errorf("step %d is not one before", *ref)
		}
	}
	if e.LoadAfter != nil && *e.LoadAfter != 0 {
		return fmt.Errorf("load_after = %d, want 0", *e.LoadAfter)
	}
	_, err := c.query(s)
	return err
}

// settings maps the file's names of options to CART's.
func (c *formCase) settings() (config engine.Config, mediaStatus int, err error) {
	config = engine.Config{}
	policy := "off"
	for name, value := range c.Config {
		switch name {
		case "media_policy":
			policy, _ = value.(string)
		case "media_reject_status":
			status, _ := value.(float64)
			mediaStatus = int(status)
		default:
			return nil, 0, fmt.Errorf("config %q is not known", name)
		}
	}
	switch {
	case policy == "off" && mediaStatus == 0:
	case policy == "reject_remote" && mediaStatus != 0:
		config["proxy"] = engine.Config{"remoteMediaUrlPolicy": mediaStatus}
	default:
		return nil, 0, fmt.Errorf("media_policy = %q with status %d is not understood", policy, mediaStatus)
	}
	return config, mediaStatus, nil
}

// expand puts the long texts in.
func (c *formCase) expand(text string) (string, error) {
	var err error
	out := placeholderForm.ReplaceAllStringFunc(text, func(name string) string {
		make, ok := placeholders[c.Placeholders[name]]
		if !ok {
			err = fmt.Errorf("placeholder %s (%q) is not known", name, c.Placeholders[name])
			return name
		}
		return make()
	})
	return out, err
}

// query is a step's request as it goes on the wire.
func (c *formCase) query(s *formStep) (query, error) {
	f := &s.Request
	q := query{method: f.Method, target: f.Path, header: f.Headers}
	bodies := 0
	if f.Body != nil {
		bodies++
		text, err := c.expand(*f.Body)
		if err != nil {
			return q, err
		}
		q.body = []byte(text)
	}
	if f.BodyB64 != nil {
		bodies++
		raw, err := base64.StdEncoding.DecodeString(*f.BodyB64)
		if err != nil {
			return q, err
		}
		q.body = raw
	}
	if f.BodyGzipOf != nil {
		bodies++
		text, err := c.expand(*f.BodyGzipOf)
		if err != nil {
			return q, err
		}
		q.body = gzipped(text)
	}
	if f.BodyChunks != nil {
		bodies++
		for _, chunk := range f.BodyChunks {
			text, err := c.expand(chunk)
			if err != nil {
				return q, err
			}
			q.chunks = append(q.chunks, []byte(text))
		}
	}
	if bodies > 1 {
		return q, errors.New("more than one body")
	}
	return q, nil
}

func gzipped(text string) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	w.Write([]byte(text))
	w.Close()
	return b.Bytes()
}

// sent is the body of a query as a whole.
func (q *query) sent() []byte {
	if q.chunks == nil {
		return q.body
	}
	return bytes.Join(q.chunks, nil)
}

// script is what the replicas answer in a step.
func (u *formUpstream) script() script {
	if u == nil {
		return func(x *exchange) { x.json(200, `{"ok":true}`) }
	}
	return func(x *exchange) {
		if u.Chunks == nil {
			body := ""
			if u.Body != nil {
				body = *u.Body
			}
			x.answer(u.Status, u.Headers, body)
			return
		}
		x.open(u.Status, u.Headers)
		for i, chunk := range u.Chunks {
			if i > 0 && !x.wait(time.Duration(u.GapMS)*time.Millisecond) {
				return
			}
			x.chunk(chunk)
		}
		x.end()
	}
}

func formCases(t testing.TB) []*formCase {
	t.Helper()
	text, err := os.ReadFile("testdata/cases.json")
	if err != nil {
		t.Fatal(err)
	}
	cases, err := parseForm(text)
	if err != nil {
		t.Fatal(err)
	}
	return cases
}

// run plays the steps of a case one after another on two replicas.
func (c *formCase) run(t *testing.T, s *stage) {
	config, mediaStatus, err := c.settings()
	if err != nil {
		t.Fatal(err)
	}
	r := s.start(t, 2, config)
	peers := make([]*mock, len(c.Steps))
	for i, step := range c.Steps {
		p := &played{rig: r, step: step, peers: peers, mediaStatus: mediaStatus}
		if err := p.play(c, i); err != nil {
			t.Errorf("step %d, %s %s: %v", i, step.Request.Method, step.Request.Path, err)
		}
	}
}

// played is one step that has been carried out.
type played struct {
	*rig
	step        *formStep
	peers       []*mock // by step
	mediaStatus int

	query query
	reply reply
	hits  []*exchange
}

func (p *played) play(c *formCase, i int) error {
	q, err := c.query(p.step)
	if err != nil {
		return err
	}
	p.query = q
	p.all(p.step.Upstream.script())
	release := func() {}
	if p.step.Hold != nil {
		held, err := c.query(c.Steps[*p.step.Hold])
		if err != nil {
			return err
		}
		release = p.lean(held, p.peers[*p.step.Hold])
	}
	p.forget()
	p.reply = p.do(q)
	p.hits = p.rig.hits()
	release()
	if len(p.hits) > 0 {
		p.peers[i] = p.hits[len(p.hits)-1].replica
	}
	return errors.Join(p.checkStatus(), p.checkUpstream(), p.checkAnswer(), p.checkHeaders(), p.checkAfter(i))
}

func (p *played) checkStatus() error {
	want, got := &p.step.Expected, p.reply.status
	var errs []error
	if p.reply.err != nil {
		errs = append(errs, fmt.Errorf("the exchange failed: %w", p.reply.err))
	}
	exact := 0
	switch v := want.Status.(type) {
	case float64:
		exact = int(v)
	case string:
		exact = p.mediaStatus
	}
	if exact != 0 && got != exact {
		errs = append(errs, fmt.Errorf("status = %d %.200s, want %d", got, p.reply.body, exact))
	}
	if want.StatusNot != 0 && got == want.StatusNot {
		errs = append(errs, fmt.Errorf("status = %d, want another", got))
	}
	if want.StatusClass != 0 && got/100 != want.StatusClass {
		errs = append(errs, fmt.Errorf("status = %d %.200s, want %dxx", got, p.reply.body, want.StatusClass))
	}
	return errors.Join(errs...)
}

func (p *played) checkUpstream() error {
	want := &p.step.Expected
	var errs []error
	if want.UpstreamHits != nil && len(p.hits) != *want.UpstreamHits {
		errs = append(errs, fmt.Errorf("%d requests reached the replicas, want %d", len(p.hits), *want.UpstreamHits))
	}
	if want.PassedThrough && len(p.hits) != 1 {
		errs = append(errs, fmt.Errorf("%d requests reached the replicas, want 1", len(p.hits)))
	}
	needed := want.UpstreamBody != "" || want.UpstreamTarget != "" || want.UpstreamHeaders != nil || want.SingleFraming
	if len(p.hits) == 0 && needed {
		errs = append(errs, errors.New("no replica saw the request"))
	}
	for _, x := range p.hits {
		errs = append(errs, p.checkSeen(x))
	}
	return errors.Join(errs...)
}

// checkSeen compares one request as a replica saw it.
func (p *played) checkSeen(x *exchange) error {
	want := &p.step.Expected
	var errs []error
	if (want.UpstreamBody != "" || want.PassedThrough) && !bytes.Equal(x.received(), p.query.sent()) {
		errs = append(errs, fmt.Errorf("the replica got the body %q, want %q", cut(x.received()), cut(p.query.sent())))
	}
	target := want.UpstreamTarget
	if want.PassedThrough || want.UpstreamBody != "" {
		if x.method != p.query.method {
			errs = append(errs, fmt.Errorf("the replica saw the method %s", x.method))
		}
		if target == "" {
			target = p.query.target
		}
	}
	if target != "" && x.target != target {
		errs = append(errs, fmt.Errorf("the replica saw the target %q, want %q", x.target, target))
	}
	for name, value := range want.UpstreamHeaders {
		if got := x.header.values(name); len(got) != 1 || got[0] != value {
			errs = append(errs, fmt.Errorf("the replica saw %s = %q, want %q", name, got, value))
		}
	}
	for _, name := range want.UpstreamHeadersAbsent {
		if got := x.header.values(name); len(got) > 0 {
			errs = append(errs, fmt.Errorf("the replica saw %s = %q, want none", name, got))
		}
	}
	if want.SingleFraming {
		errs = append(errs, singleFraming(x.header, len(p.query.sent())))
	}
	return errors.Join(errs...)
}

// singleFraming checks that a message has one length, and the right one.
func singleFraming(h header, length int) error {
	lengths, codings := h.values("Content-Length"), h.values("Transfer-Encoding")
	if len(lengths)+len(codings) != 1 {
		return fmt.Errorf("Content-Length %q and Transfer-Encoding %q, want one of them, once", lengths, codings)
	}
	if len(lengths) == 1 && lengths[0] != fmt.Sprint(length) {
		return fmt.Errorf("Content-Length %q, want %d", lengths[0], length)
	}
	return nil
}

func (p *played) checkAnswer() error {
	want := &p.step.Expected
	var errs []error
	if want.ClientBody != "" && len(p.hits) > 0 {
		last := p.hits[len(p.hits)-1]
		last.mu.Lock()
		sent := last.sent
		last.mu.Unlock()
		if !bytes.Equal(p.reply.body, sent) {
			errs = append(errs, fmt.Errorf("the client got %q, want %q", cut(p.reply.body), cut(sent)))
		}
		if want.MaxChunkDelayMS > 0 {
			errs = append(errs, prompt(last, &p.reply, slack*time.Duration(want.MaxChunkDelayMS)*time.Millisecond))
		}
	}
	for _, path := range want.RespJSONHas {
		var value any
		if err := json.Unmarshal(p.reply.body, &value); err != nil {
			errs = append(errs, fmt.Errorf("the answer is no JSON: %w in %.200q", err, p.reply.body))
			continue
		}
		for _, name := range strings.Split(path, ".") {
			object, _ := value.(map[string]any)
			value = object[name]
		}
		if value == nil {
			errs = append(errs, fmt.Errorf("the answer has no %s: %.200s", path, p.reply.body))
		}
	}
	return errors.Join(errs...)
}

// prompt checks that each piece of an answer is with the client in time.
func prompt(x *exchange, a *reply, within time.Duration) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	i := 0
	for n, w := range x.writes {
		for i < len(a.reads) && a.reads[i].end < w.end {
			i++
		}
		if i == len(a.reads) {
			return fmt.Errorf("piece %d of the answer did not come", n)
		}
		if late := a.reads[i].at.Sub(w.at) - pauses.within(w.at, a.reads[i].at); late > within {
			return fmt.Errorf("piece %d of the answer came after %v, want at most %v", n, late, within)
		}
	}
	return nil
}

func (p *played) checkHeaders() error {
	want, got := &p.step.Expected, p.reply.header
	var errs []error
	for name, value := range want.RespHeaders {
		have := got.values(name)
		prefix, isPrefix := strings.CutSuffix(value, "*")
		if len(have) != 1 || (have[0] != value && !(isPrefix && strings.HasPrefix(have[0], prefix))) {
			errs = append(errs, fmt.Errorf("%s of the answer = %q, want %q", name, have, value))
		}
	}
	for name, values := range want.RespHeadersMulti {
		if have := got.values(name); !sameSet(have, values) {
			errs = append(errs, fmt.Errorf("%s of the answer = %q, want %q", name, have, values))
		}
	}
	for _, name := range want.RespHeadersPresent {
		if len(got.values(name)) == 0 {
			errs = append(errs, fmt.Errorf("the answer has no %s", name))
		}
	}
	for _, name := range want.RespHeadersAbsent {
		if have := got.values(name); len(have) > 0 {
			errs = append(errs, fmt.Errorf("%s of the answer = %q, want none", name, have))
		}
	}
	if name := want.RespHeaderIsPeer; name != "" {
		if have := got.values(name); len(p.hits) == 0 || len(have) != 1 || have[0] != p.hits[len(p.hits)-1].replica.url() {
			errs = append(errs, fmt.Errorf("%s of the answer = %q, want the replica, once", name, have))
		}
	}
	return errors.Join(errs...)
}

func sameSet(a, b []string) bool {
	if len(a) != len(b) {
		return false
	}
	left := map[string]int{}
	for _, v := range a {
		left[v]++
	}
	for _, v := range b {
		if left[v]--; left[v] < 0 {
			return false
		}
	}
	return true
}

func (p *played) checkAfter(i int) error {
	want := &p.step.Expected
	var errs []error
	if ref := want.SamePeerAsStep; ref != nil && p.peers[i] != p.peers[*ref] {
		errs = append(errs, fmt.Errorf("it went to another replica than step %d (%s)", *ref, p.reply.header.get("x-cart-reason")))
	}
	if want.LoadAfter != nil {
		errs = append(errs, poll(slack*time.Second, func() error {
			s, err := p.readState()
			if err == nil && s.load() != 0 {
				err = fmt.Errorf("loads in /workers = %v, want 0", s.loads())
			}
			return err
		}))
	}
	return errors.Join(errs...)
}

// TestFormIsStrict: what the machine form says and the runner does not know is an error.
func TestFormIsStrict(t *testing.T) {
	const good = `{"count":1,"cases":[{"id":"X","steps":[{"request":{"method":"GET","path":"/"},"expected":{"status":200}}]}]}`
	if _, err := parseForm([]byte(good)); err != nil {
		t.Fatalf("parseForm(%s) = %v, want nil", good, err)
	}
	for what, change := range map[string][2]string{
		"an expectation":         {`"status":200`, `"status":200,"trailers":1`},
		"a request":              {`"path":"/"`, `"path":"/","proto":"h3"`},
		"an upstream":            {`"expected"`, `"upstream":{"cut":1},"expected"`},
		"a step":                 {`"expected"`, `"repeat":2,"expected"`},
		"an option":              {`"steps"`, `"config":{"limit":1},"steps"`},
		"a placeholder":          {`"path":"/"`, `"path":"/","body":"@LONG9K@"`},
		"a text for the status":  {`"status":200`, `"status":"any"`},
		"a text for the body":    {`"status":200`, `"status":200,"client_body":"similar"`},
		"a step that comes late": {`"status":200`, `"status":200,"same_peer_as_step":0`},
		"no expectation at all":  {`"status":200`, ``},
		"a wrong count":          {`"count":1`, `"count":2`},
	} {
		text := strings.Replace(good, change[0], change[1], 1)
		if text == good {
			t.Fatalf("%s changes nothing", what)
		}
		if _, err := parseForm([]byte(text)); err == nil {
			t.Errorf("parseForm with %s that is not known = nil, want an error", what)
		}
	}
}
