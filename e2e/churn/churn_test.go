package churn

import (
	"context"
	"testing"
	"time"
)

// TestChurn is make churn in a twentieth of the time.
func TestChurn(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	defer cancel()
	report, err := Run(ctx, Options{Changes: 50, Every: 100 * time.Millisecond, Clients: 4})
	if err != nil {
		t.Fatal(err)
	}
	for _, wrong := range report.Wrong() {
		t.Error(wrong)
	}
	t.Log(report)
}
