package mesh

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/libp2p/go-libp2p"
	"github.com/libp2p/go-libp2p/core/network"
	rcmgr "github.com/libp2p/go-libp2p/p2p/host/resource-manager"
	"github.com/libp2p/go-libp2p/x/rate"
	"github.com/prometheus/client_golang/prometheus"
)

// serviceRelay accounts the streams that carry requests.
const serviceRelay = "llmgw.relay"

const (
	// maxStreamsPeer is for one router box with all its relays at one holder:
	// twice the requests that any engine takes at once, with room.
	maxStreamsPeer = 4096
	// maxStreamsProtocol is for all peers together.
	maxStreamsProtocol = 8192
	// peerMemory: each yamux stream reserves 256 KiB.
	peerMemory = 2 << 30
	// connsPerPeer allows for both sides dialling at once on several addresses.
	connsPerPeer = 16
	// connsPerSubnet allows for boxes behind one gateway; over IPv6 a whole LAN
	// lies in one /56.
	connsPerSubnet = 64
	// connRate and connBurst let a whole LAN reconnect after a power cut.
	connRate, connBurst = 20, 100
)

// newResourceManager takes libp2p's limits scaled to this box and raises those
// that a small private mesh of busy boxes runs into.
func newResourceManager(metrics prometheus.Registerer) (network.ResourceManager, error) {
	if metrics != nil {
		rcmgr.MustRegisterWith(metrics)
	}
	defaults := rcmgr.DefaultLimits
	libp2p.SetDefaultServiceLimits(&defaults)
	busy := rcmgr.ResourceLimits{
		Streams: 2 * maxStreamsPeer, StreamsInbound: maxStreamsPeer, StreamsOutbound: maxStreamsPeer, Memory: peerMemory,
	}
	all := rcmgr.ResourceLimits{
		Streams: 2 * maxStreamsProtocol, StreamsInbound: maxStreamsProtocol, StreamsOutbound: maxStreamsProtocol,
		Memory: 2 * peerMemory,
	}
	peerLimit := busy
	peerLimit.Conns, peerLimit.ConnsInbound, peerLimit.ConnsOutbound = connsPerPeer, connsPerPeer, connsPerPeer
	peerLimit.FD = connsPerPeer
	limits := rcmgr.PartialLimitConfig{
		System: rcmgr.ResourceLimits{
			Streams: 4 * maxStreamsProtocol, StreamsInbound: 2 * maxStreamsProtocol, StreamsOutbound: 2 * maxStreamsProtocol,
			Memory: 2 * peerMemory,
		},
		PeerDefault:         peerLimit,
		ProtocolDefault:     all,
		ProtocolPeerDefault: busy,
		Service:             map[string]rcmgr.ResourceLimits{serviceRelay: all},
		ServicePeer:         map[string]rcmgr.ResourceLimits{serviceRelay: busy},
	}.Build(defaults.AutoScale())
	rm, err := rcmgr.NewResourceManager(rcmgr.NewFixedLimiter(limits),
		// Per subnet, not per prefix: a prefix limit would take the place of the
		// exemption for loopback.
		rcmgr.WithLimitPerSubnet(
			[]rcmgr.ConnLimitPerSubnet{{PrefixLength: 32, ConnCount: connsPerSubnet}},
			[]rcmgr.ConnLimitPerSubnet{{PrefixLength: 56, ConnCount: connsPerSubnet}, {PrefixLength: 48, ConnCount: 4 * connsPerSubnet}},
		),
		rcmgr.WithConnRateLimiters(newConnRate()),
	)
	if err != nil {
		return nil, fmt.Errorf("make resource manager: %w", err)
	}
	return rm, nil
}

// newConnRate bounds new connections per address. It replaces libp2p's own
// limiter whole, so loopback has to be exempted again.
func newConnRate() *rate.Limiter {
	each := rate.Limit{RPS: connRate, Burst: connBurst}
	return &rate.Limiter{
		NetworkPrefixLimits: []rate.PrefixLimit{
			{Prefix: netip.MustParsePrefix("127.0.0.0/8")},
			{Prefix: netip.MustParsePrefix("::1/128")},
		},
		SubnetRateLimiter: rate.SubnetLimiter{
			IPv4SubnetLimits: []rate.SubnetLimit{{PrefixLength: 32, Limit: each}},
			IPv6SubnetLimits: []rate.SubnetLimit{{PrefixLength: 56, Limit: each}},
			GracePeriod:      time.Minute,
		},
	}
}

// newGuestRate bounds how often strangers are let in at all, loopback included.
func newGuestRate() *rate.Limiter {
	each := rate.Limit{RPS: guestRate, Burst: guestBurst}
	return &rate.Limiter{
		GlobalLimit: rate.Limit{RPS: 10 * guestRate, Burst: 10 * guestBurst},
		SubnetRateLimiter: rate.SubnetLimiter{
			IPv4SubnetLimits: []rate.SubnetLimit{{PrefixLength: 32, Limit: each}},
			IPv6SubnetLimits: []rate.SubnetLimit{{PrefixLength: 64, Limit: each}},
			GracePeriod:      time.Minute,
		},
	}
}
