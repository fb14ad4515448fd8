// Command llmgw is the daemon and its command line: verbs and flags, one file
// a verb, no logic. Verbs other than up talk to the daemon of a state
// directory over its unix socket.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// version is set by the linker at release builds.
var version = "0.1.0-dev"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := newRoot().ExecuteContext(ctx)
	code := exitCode(ctx, err)
	stop()
	if err != nil {
		explain(os.Stderr, err)
	}
	os.Exit(code)
}

// usageError is a command line that cannot be meant.
type usageError struct{ error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }
