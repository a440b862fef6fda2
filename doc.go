// Package cart is a Traefik middleware plugin that routes LLM requests to the replica whose prefix cache already holds the
// beginning of their prompt.
//
// A request's path, each step in the file of its name:
//
//	ServeHTTP     plugin.go   tells CART's own endpoints, routed requests and all others apart; reads the body of a routed one
//	keyLoop       extract.go  makes the request to the replica and cuts the prompt out of the body, as raw bytes
//	decideLoop    decide.go   under one lock: find the prompt in the tree, choose by the policy, take a place, teach the tree
//	threshold     balance.go  the default policy: candidates in, one of them and a reason out; the other one is in cost.go
//	ReverseProxy  hooks.go    sends it; replicaTransport judges the answer and takes another replica if it is worth one
//	tryOthers     proxy.go    goes on with that
//	decideLoop    decide.go   gives the place back, tells the breaker, forgets what did not come true
//
// Beside it, in the background: healthLoop (health.go) probes the replicas, engineLoop (engine.go) asks for their metrics and
// models, feedbackLoop (feedback.go) learns from the ends of their answers, discoverLoop (discovery.go) follows their source,
// janitor (pool.go) tidies the tree.
//
// Words: a replica is one inference server; its load is the number of requests in flight to it; the prompt of a request is
// known by its key; a match is the longest known prefix of a key; a claim says that a replica was sent a prefix.
//
// Locks: registryMu, then a pool's mu. A logger's own is taken last. None is held during I/O.
//
// The package is interpreted by Yaegi inside Traefik and keeps to the part of Go that Yaegi runs right: subset_test.go
// lists what is left out and why. An interpreted call allocates every variable of the called function, so the decision runs
// in loops that never return, and work on bytes is left to single calls of the standard library.
package cart
