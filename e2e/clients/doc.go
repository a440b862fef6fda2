// Package clients tests the official OpenAI and Anthropic SDKs for Python and for Node against CART in the official
// Traefik. The tests themselves are in python/ and node/, in the SDKs' own languages; those of this package run them, count
// them, and compare what the SDKs sent with what the replicas received.
package clients
