package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"llmgw/ui"
)

// Exit codes; root.go's help documents them.
const (
	exitFailed      = 1
	exitUsage       = 2
	exitUnreachable = 3
	exitNotFound    = 4
	exitForbidden   = 5
	exitConflict    = 6
	exitDegraded    = 7
	exitTemporary   = 75
	exitInterrupted = 130
)

// errDegraded ends `status --exit-code` of a mesh with problems; the problems
// are printed already.
var errDegraded = errors.New("degraded")

func exitCode(ctx context.Context, err error) int {
	var usage usageError
	var api *ui.APIError
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errDegraded):
		return exitDegraded
	case errors.As(err, &usage):
		return exitUsage
	case errors.Is(err, ui.ErrUnreachable):
		return exitUnreachable
	case errors.As(err, &api):
		return apiExitCode(api)
	case ctx.Err() != nil:
		return exitInterrupted
	}
	return exitFailed
}

// apiExitCode maps a refusal by its type and code, since the end of a progress
// stream carries no status.
func apiExitCode(e *ui.APIError) int {
	switch {
	case e.Status == http.StatusNotFound || e.Code == "not_found":
		return exitNotFound
	case e.Type == "authentication_error" || e.Type == "permission_error":
		return exitForbidden
	case e.Type == "conflict_error":
		return exitConflict
	case e.Status == http.StatusBadRequest:
		return exitUsage
	case e.Status == http.StatusServiceUnavailable:
		return exitTemporary
	}
	return exitFailed
}

// explain prints what failed and what to do about it.
func explain(w io.Writer, err error) {
	if errors.Is(err, errDegraded) {
		return
	}
	fmt.Fprintf(w, "llmgw: %v\n", err)
	var api *ui.APIError
	var none *noDaemonError
	switch {
	case errors.As(err, &none):
		fmt.Fprintf(w, "  start it with: llmgw up --state-dir %s\n", none.stateDir)
	case errors.As(err, &api) && api.Hint != "":
		fmt.Fprintf(w, "  %s\n", api.Hint)
	}
}
