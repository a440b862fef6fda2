// Command churn changes the servers of a Traefik service ten times a second while clients send chats through CART, and
// ends with a verdict. DUR is how long, 100s by default. Exit status: 0 if all is well, 1 if not, 130 after Ctrl-C.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/cart-llm/cart/e2e/churn"
	"github.com/cart-llm/cart/e2e/process"
)

const every = 100 * time.Millisecond

func main() {
	process.RunMain("churn", run)
}

func run(ctx context.Context) error {
	lasts, err := duration(os.Getenv("DUR"))
	if err != nil {
		return err
	}
	report, err := churn.Run(ctx, churn.Options{
		Changes: int(lasts / every), Every: every, Clients: 8, Settle: 12 * time.Second, Out: os.Stdout,
	})
	if err != nil {
		return err
	}
	fmt.Println(report)
	if wrong := report.Wrong(); len(wrong) > 0 {
		return errors.New(strings.Join(wrong, "\n"))
	}
	fmt.Println("All is well.")
	return nil
}

func duration(text string) (time.Duration, error) {
	if text == "" {
		return 100 * time.Second, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < time.Second {
		return 0, fmt.Errorf("DUR = %q, want a duration of at least 1s, such as 10s or 2m", text)
	}
	return d, nil
}
