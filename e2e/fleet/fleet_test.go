package main

import (
	"fmt"
	"testing"

	"github.com/cart-llm/cart/e2e/chats"
	"github.com/cart-llm/cart/e2e/engine"
	"github.com/cart-llm/cart/e2e/replica"
)

// TestFewClientsReachEveryReplica is about a weakness of routers that look at load only when there is much of it: with few
// clients, one replica can stay without any request while the others compute.
func TestFewClientsReachEveryReplica(t *testing.T) {
	engine.Each(t, func(t *testing.T, kind engine.Kind) {
		for _, policy := range []string{"threshold", "cost"} {
			t.Run(policy, func(t *testing.T) { fewClients(t, kind, policy) })
		}
	})
}

func fewClients(t *testing.T, kind engine.Kind, policy string) {
	var replicas []*replica.Replica
	var workers []any
	for range 3 {
		// A prompt takes 8 ms, an answer 8 ms: one client's request is under way when the other's comes.
		one, err := replica.Start(replica.Options{PrefillRate: 100000, DecodeRate: 2000, BlockTokens: 64})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = one.Close() })
		replicas = append(replicas, one)
		workers = append(workers, engine.Config{"url": one.URL()})
	}
	e := engine.Start(t, kind, engine.Setup{
		Middlewares: map[string]engine.Config{"cart": {"workers": workers, "policy": policy}},
		Routers:     map[string]engine.Router{"all": {Middleware: "cart"}},
	})
	w := chats.Workload{Name: "few", Tenants: 36, FewestWords: 600, MostWords: 600, Talks: 36, AtOnce: 2, Turns: 3}
	tally := &chats.Tally{}
	tally.Add(chats.Drive(t.Context(), chats.Target{URL: e.URL()}, w.Conversations(1), w.AtOnce))
	if tally.Errors != 0 || len(tally.First) != w.Talks*w.Turns {
		t.Fatalf("%d answers, %d errors: %v", len(tally.First), tally.Errors, tally.FirstErr)
	}
	spread := ""
	fewest := int64(w.Talks * w.Turns)
	for _, one := range replicas {
		n := one.Stats().Requests
		spread += fmt.Sprintf(" %d", n)
		fewest = min(fewest, n)
	}
	// A new conversation goes to one of the replicas without a request, drawn at random: that all 36 miss one of three has a
	// chance of about (2/3)^36, one in two millions.
	if fewest == 0 {
		t.Errorf("requests by replica:%s; one had none", spread)
	}
	if share := tally.Share(); share < 50 {
		t.Errorf("%.1f %% of the tokens were cached, want 50 or more: two of three prompts are known but for their end", share)
	}
}
