package cart

import (
	"io"
	"log"
	"log/slog"
)

func logNew(h slog.Handler) {
	_ = log.New(io.Discard, "", 0) // bad
	_ = slog.NewLogLogger(h, slog.LevelWarn)
	_ = slog.New(h)
}
