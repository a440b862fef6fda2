package cart

import (
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"strconv"
	"strings"
)

// The page of GET /workers is the same for everybody: a script in it asks the same address for JSON, every second, and
// writes what it gets as text, never as markup. Nothing is loaded from elsewhere, and the browser is told to refuse it.
var (
	workersPage   = pageHead + pageStyle + pageBody + pageScript + pageEnd
	workersPolicy = "default-src 'none'; script-src '" + hashOf(pageScript) + "'; style-src '" + hashOf(pageStyle) +
		"'; img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

// wantsPage says whether a browser asks, and not a program.
func wantsPage(req *http.Request) bool {
	accept := strings.Join(req.Header["Accept"], ",")
	return strings.Contains(accept, "text/html") && !strings.Contains(accept, "application/json")
}

func servePage(rw http.ResponseWriter, req *http.Request) {
	head := rw.Header()
	head.Set("Content-Type", "text/html; charset=utf-8")
	head.Set("Content-Length", strconv.Itoa(len(workersPage)))
	head.Set("Content-Security-Policy", workersPolicy)
	head.Set("Cache-Control", "no-store")
	head.Set("Vary", "Accept")
	head.Set("X-Content-Type-Options", "nosniff")
	head.Set("Referrer-Policy", "no-referrer")
	rw.WriteHeader(http.StatusOK)
	if req.Method != http.MethodHead {
		rw.Write([]byte(workersPage))
	}
}

// hashOf names a script or style in a Content-Security-Policy.
func hashOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}

const pageHead = `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="robots" content="noindex">
<title>CART</title>
<link rel="icon" href="data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E%3Crect width='16' ` +
	`height='16' rx='4' fill='%230d7d74'/%3E%3Cpath d='M3 8h5M8 8l4-4M8 8h5M8 8l4 4' stroke='white' stroke-width='1.6' ` +
	`fill='none' stroke-linecap='round'/%3E%3C/svg%3E">
<style>`

const pageBody = `</style>
</head>
<body>
<header>
  <h1><svg viewBox="0 0 16 16" aria-hidden="true"><path d="M2 8h6M8 8l5-5M8 8h6M8 8l5 5"/></svg>CART</h1>
  <p id="pool" class="chip"></p>
  <p id="policy" class="chip"></p>
  <p id="usable" class="chip"></p>
  <span class="gap"></span>
  <p id="age"></p>
  <button id="span" type="button" aria-pressed="false">since start</button>
  <button id="pause" type="button" aria-pressed="false">pause</button>
</header>
<main>
  <noscript><p class="verdict bad">This page keeps itself up to date with JavaScript. The same as JSON:
    <code>curl -H 'Accept: application/json'</code> at this address.</p></noscript>
  <div id="verdict" class="verdict" role="status"></div>
  <section id="tiles" aria-label="Figures"></section>
  <section>
    <h2>Replicas</h2>
    <table id="replicas">
      <thead><tr>
        <th scope="col">replica</th><th scope="col">health</th><th scope="col">breaker</th><th scope="col">load</th>
        <th scope="col">share of requests</th><th scope="col" class="n">hits</th>
        <th scope="col" class="n">first byte</th><th scope="col" class="n">claims</th>
      </tr></thead>
      <tbody></tbody>
    </table>
    <p id="none" hidden>No replica is known: every request gets 503.</p>
  </section>
  <div class="three">
    <section>
      <h2>Why requests went where they went</h2>
      <ul id="reasons" class="bars"></ul>
    </section>
    <section>
      <h2>How much of each prompt was known</h2>
      <div id="known" aria-hidden="true"></div>
      <p id="knownText" class="note"></p>
    </section>
    <section>
      <h2>Latest decisions</h2>
      <ol id="last"></ol>
    </section>
  </div>
</main>
<footer><kbd>p</kbd> pause <kbd>s</kbd> since start or last minute &middot; the same as JSON:
  <code>curl -H 'Accept: application/json'</code></footer>
<script>`

const pageEnd = `</script>
</body>
</html>
`
