// Package check tries what deploy/ and examples/ hold: image, Compose files, Helm chart, release archive and examples, in the
// official Traefik where they can be started, against the schemas and tools of their own worlds where not.
package check
