package main

import (
	"fmt"
	"strings"
)

// table compares the outcomes, one row for each of ways.
func (t *terminal) table(outcomes []*outcome, replicas []string) {
	t.headline("Result")
	perReplica := 5 * len(replicas)
	head := fmt.Sprintf("  %-12s %9s %11s %9s %9s   %*s %8s", "policy", "hit ratio", "TTFT mean", "p50", "p99",
		perReplica, "requests per replica", "errors")
	t.printf("%s\n", t.paint(dim, head))
	for i, o := range outcomes {
		var counts strings.Builder
		for _, url := range replicas {
			fmt.Fprintf(&counts, "%5d", o.requestsOf(url))
		}
		row := fmt.Sprintf("  %-12s %8.1f%% %11s %9s %9s   %*s %8d", ways[i].policy, 100*o.hitRatio(), duration(o.mean()),
			duration(o.quantile(0.5)), duration(o.quantile(0.99)), perReplica, counts.String(), o.failed())
		if i == len(outcomes)-1 {
			row = t.paint(bold, row)
		}
		t.printf("%s\n", row)
	}
	t.printf("\n%s\n", t.paint(dim, "  hit ratio: prompt tokens the replicas found in their caches, from the usage in their answers\n"+
		"  TTFT: time to first token, from sending the request to the first event with text"))
}

// verdict is the one line to remember, or why there is none.
func (t *terminal) verdict(plain, cart *outcome, failure error) {
	if failure != nil {
		t.printf("\n%s\n", t.paint(red, "CART did not show what it should, see the error below."))
		return
	}
	line := fmt.Sprintf("With CART the mean time to first token is %.1f times lower: %s instead of %s.",
		float64(plain.mean())/float64(cart.mean()), duration(cart.mean()), duration(plain.mean()))
	t.printf("\n%s\n", t.paint(bold+";"+green, line))
}

// addresses tells where to look.
func (t *terminal) addresses(s *stage, keep bool) {
	if !keep {
		t.printf("\nThe dashboard was at %s, CART's page at %s.\nKEEP=1 make demo leaves them up to look around.\n",
			s.dashboard(), s.workersPage())
		return
	}
	t.headline("Still running, until Ctrl-C")
	t.printf("  %-12s %s\n", "dashboard", s.dashboard())
	t.printf("  %-12s %s\n", "CART's page", s.workersPage())
	t.printf("  %-12s curl -i %s/v1/chat/completions \\\n"+
		"  %-12s   -d '{\"messages\":[{\"role\":\"user\",\"content\":\"hello\"}]}'   # see x-routed-peer\n", "try", s.traefik.URL(), "")
}
