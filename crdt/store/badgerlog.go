package store

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
)

// badgerLog passes badger's messages on. What it calls info is of use only when badger itself is looked into.
type badgerLog struct {
	log  *slog.Logger
	lost *atomic.Bool // set when badger goes on without a damaged table, of which it tells in its log alone
}

func (b badgerLog) Errorf(format string, args ...any) {
	if b.lost != nil && strings.HasPrefix(format, "Ignoring table") {
		b.lost.Store(true)
	}
	b.print(slog.LevelError, format, args)
}

func (b badgerLog) Warningf(format string, args ...any) { b.print(slog.LevelWarn, format, args) }

func (b badgerLog) Infof(format string, args ...any) { b.print(slog.LevelDebug, format, args) }

func (b badgerLog) Debugf(format string, args ...any) { b.print(slog.LevelDebug, format, args) }

func (b badgerLog) print(level slog.Level, format string, args []any) {
	if ctx := context.Background(); b.log.Enabled(ctx, level) {
		b.log.Log(ctx, level, "badger", slog.String("text", strings.TrimSpace(fmt.Sprintf(format, args...))))
	}
}
