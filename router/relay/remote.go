package relay

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"llmgw/mesh"
)

// Stream is one request's connection to another node; Peer is the other side's
// proved identity.
type Stream = mesh.Stream

// Hop is what the entry node tells the holder beside the request.
type Hop struct {
	Model     string
	Slot      int
	Epoch     uint64
	Digest    string
	Key       string // ID of the API key
	RequestID string
	Session   uint64 // the conversation, as the entry node tells them apart; 0: unknown
}

func (h Hop) fields() []string {
	return []string{
		HeaderModel, h.Model,
		HeaderSlot, strconv.Itoa(h.Slot),
		HeaderEpoch, strconv.FormatUint(h.Epoch, 10),
		HeaderDigest, h.Digest,
		HeaderKey, h.Key,
		HeaderRequestID, h.RequestID,
		HeaderSession, strconv.FormatUint(h.Session, 16),
	}
}

func readHop(h http.Header) (Hop, error) {
	epoch, err := strconv.ParseUint(h.Get(HeaderEpoch), 10, 64)
	if err != nil {
		return Hop{}, fmt.Errorf("read epoch: %w", err)
	}
	slot, err := strconv.Atoi(h.Get(HeaderSlot))
	if err != nil {
		return Hop{}, fmt.Errorf("read slot: %w", err)
	}
	hop := Hop{
		Model: h.Get(HeaderModel), Slot: slot, Epoch: epoch, Digest: h.Get(HeaderDigest),
		Key: h.Get(HeaderKey), RequestID: h.Get(HeaderRequestID),
	}
	// Heads of an earlier version do not tell it.
	hop.Session, _ = strconv.ParseUint(h.Get(HeaderSession), 16, 64)
	if hop.Model == "" {
		return Hop{}, errors.New("no model is named")
	}
	return hop, nil
}

// remoteHost is the Host of requests between nodes: no name that resolves.
const remoteHost = "llmgw"

// StartRemote sends call to the holder at the other end of s. A refusal is
// returned as *Refusal with s reset; the other errors are those of Start.
func StartRemote(ctx context.Context, s Stream, call *Call, hop Hop, limits Limits, wait Wait) (*Exchange, error) {
	own := *call
	own.Host, own.Extra = remoteHost, hop.fields()
	x, err := Start(ctx, s, &own, limits, wait)
	if err != nil {
		return nil, err
	}
	kind := x.Header.Get(HeaderRefusal)
	if kind == "" {
		return x, nil
	}
	refusal := &Refusal{Kind: RefusalKind(kind), Detail: x.refusalDetail()}
	x.Close()
	return nil, refusal
}

// refusalBytes bounds a holder's words.
const refusalBytes = 1024

// refusalDetail reads the text of a refusal as far as it comes.
func (x *Exchange) refusalDetail() string {
	buf := make([]byte, refusalBytes)
	n := 0
	for n < len(buf) {
		m, err := x.Next(buf[n:], nil)
		n += m
		if err != nil {
			break
		}
	}
	return string(buf[:n])
}
