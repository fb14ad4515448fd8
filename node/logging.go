package node

import (
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/lmittmann/tint"
	"golang.org/x/term"
)

// NewLogger writes for a person when w is a terminal, else JSON for a machine;
// format, if not auto, overrides the guess. level may change later.
func NewLogger(w io.Writer, format string, level slog.Leveler) *slog.Logger {
	tty := isTerminal(w)
	if format == "json" || format == "auto" && !tty {
		return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level}))
	}
	plain := !tty || os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb"
	return slog.New(tint.NewTextHandler(w, &tint.Options{Level: level, TimeFormat: time.TimeOnly, NoColor: plain}))
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
