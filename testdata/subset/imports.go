package cart

import (
	_ "embed"    // bad
	_ "net/http" // fine
	_ "os/exec"  // bad
	_ "unsafe"   // bad

	_ "github.com/traefik/genconf/dynamic"
	_ "github.com/traefik/genconf/dynamic/tls" // bad
	_ "github.com/traefik/paerser/types"
)
