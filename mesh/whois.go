package mesh

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/p2p/security/noise"
	"github.com/multiformats/go-multistream"
)

// whoIs asks an address for its peer ID: libp2p dials identities, and a person
// gives an address. It shakes hands and hangs up; what it learns is proved.
func (m *Mesh) whoIs(ctx context.Context, addr string) (peer.ID, error) {
	ctx, cancel := context.WithTimeout(ctx, dialWait)
	defer cancel()
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return "", fmt.Errorf("ask %s who it is: %w", addr, err)
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return "", fmt.Errorf("ask %s who it is: %w", addr, err)
		}
	}
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	id, err := m.shakeHands(ctx, conn)
	if err != nil {
		return "", fmt.Errorf("ask %s who it is: %w", addr, err)
	}
	return id, nil
}

func (m *Mesh) shakeHands(ctx context.Context, conn net.Conn) (peer.ID, error) {
	if err := multistream.SelectProtoOrFail(noise.ID, conn); err != nil {
		return "", err
	}
	key, err := crypto.UnmarshalEd25519PrivateKey(m.cfg.Key)
	if err != nil {
		return "", err
	}
	transport, err := noise.New(noise.ID, key, nil)
	if err != nil {
		return "", err
	}
	session, err := transport.WithSessionOptions(noise.DisablePeerIDCheck())
	if err != nil {
		return "", err
	}
	secured, err := session.SecureOutbound(ctx, conn, "")
	if err != nil {
		return "", err
	}
	if secured.RemotePeer() == "" {
		return "", errors.New("it did not say who it is")
	}
	return secured.RemotePeer(), nil
}
