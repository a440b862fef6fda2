package report

import (
	"testing"
	"time"
)

func TestQuantile(t *testing.T) {
	if got := Quantile([]time.Duration{5, 1, 3, 2, 4}, 0.5); got != 3 {
		t.Errorf("Quantile() = %d, want 3", got)
	}
	if got := Quantile(nil, 0.5); got != 0 {
		t.Errorf("Quantile() of nothing = %d, want 0", got)
	}
}
