package relay

import (
	"fmt"
	"net/http"
)

// RefusalKind says why a holder does not take a request. No client sees one:
// the entry node picks again.
type RefusalKind string

// Kinds of refusal.
const (
	RefusedStale    RefusalKind = "stale_epoch" // the replica is of another epoch or other weights
	RefusedNotHere  RefusalKind = "not_here"    // no such replica on this node
	RefusedBusy     RefusalKind = "busy"        // no slot or no memory for it now
	RefusedStopping RefusalKind = "stopping"    // the replica or the node drains
	RefusedEngine   RefusalKind = "engine"      // the engine broke before its first byte
	RefusedInvalid  RefusalKind = "invalid"     // no request of ours; tells of a bug or of another version
)

// Refusal is an answer of a holder, or of this node's own engines, before the
// first byte.
type Refusal struct {
	Kind   RefusalKind
	Detail string
}

func (r *Refusal) Error() string {
	if r.Detail == "" {
		return fmt.Sprintf("refused: %s", r.Kind)
	}
	return fmt.Sprintf("refused: %s: %s", r.Kind, r.Detail)
}

// Status is how the refusal travels between nodes.
func (r *Refusal) Status() int {
	switch r.Kind {
	case RefusedStale:
		return http.StatusConflict
	case RefusedNotHere:
		return http.StatusMisdirectedRequest
	case RefusedBusy:
		return http.StatusTooManyRequests
	case RefusedStopping:
		return http.StatusServiceUnavailable
	case RefusedInvalid:
		return http.StatusBadRequest
	}
	return http.StatusBadGateway
}
