package cart

import (
	"context"
	"time"
)

func waits(ctx context.Context, c chan int) bool {
	select { // bad
	case <-c:
	case <-ctx.Done():
	}
	waited, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	<-waited.Done()
	return ctx.Err() == nil
}
