package sim

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"log"
	"os"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/go-zeromq/zmq4"
	"github.com/vmihailenco/msgpack/v5"
)

const (
	blockTokens = 16
	blockBytes  = blockTokens * bytesPerToken
	// keptBatches bounds what a replay can bring.
	keptBatches = 10_000
)

// publisher tells what the cache holds as vLLM does. A block is known by the hash
// of the prompt up to its end; prompts that begin alike share blocks.
type publisher struct {
	array bool // events are arrays, as vLLM sent them before 0.26

	mu     sync.Mutex
	shared map[uint64]int // prompts that have a block
	kept   [][]byte       // payloads, the last one's number being next-1
	next   uint64
	live   zmq4.Socket // nil: nobody can listen
	replay zmq4.Socket
}

// storedEvent is BlockStored as a map; removedEvent and clearedEvent likewise.
type storedEvent struct {
	Type   string   `msgpack:"type"`
	Hashes []uint64 `msgpack:"block_hashes"`
	Parent *uint64  `msgpack:"parent_block_hash"`
	Tokens []int    `msgpack:"token_ids"`
	Size   int      `msgpack:"block_size"`
	Medium string   `msgpack:"medium"`
}

type removedEvent struct {
	Type   string   `msgpack:"type"`
	Hashes []uint64 `msgpack:"block_hashes"`
	Medium string   `msgpack:"medium"`
}

type clearedEvent struct {
	Type string `msgpack:"type"`
}

const (
	typeStored  = "BlockStored"
	typeRemoved = "BlockRemoved"
	typeCleared = "AllBlocksCleared"
	mediumGPU   = "GPU"
)

// blocks are the hashes of a prompt's whole blocks, each of all up to its end.
func blocks(text []byte) []uint64 {
	var out []uint64
	d := xxhash.New()
	for ; len(text) >= blockBytes; text = text[blockBytes:] {
		_, _ = d.Write(text[:blockBytes]) // a hash cannot fail
		out = append(out, d.Sum64())
	}
	return out
}

// stored tells of the blocks that no other prompt has.
func (p *publisher) stored(text []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var fresh []uint64
	var parent *uint64
	for _, h := range blocks(text) {
		if p.shared[h]++; p.shared[h] > 1 {
			parent = &h
			continue
		}
		fresh = append(fresh, h)
	}
	if len(fresh) == 0 {
		return
	}
	tokens := make([]int, len(fresh)*blockTokens)
	if p.array {
		p.publish([]any{typeStored, fresh, parent, tokens, blockTokens, nil, mediumGPU})
		return
	}
	p.publish(storedEvent{typeStored, fresh, parent, tokens, blockTokens, mediumGPU})
}

// removed tells of the blocks that no prompt has any more.
func (p *publisher) removed(text []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var gone []uint64
	for _, h := range blocks(text) {
		if p.shared[h]--; p.shared[h] == 0 {
			delete(p.shared, h)
			gone = append(gone, h)
		}
	}
	switch {
	case len(gone) == 0:
	case p.array:
		p.publish([]any{typeRemoved, gone, mediumGPU})
	default:
		p.publish(removedEvent{typeRemoved, gone, mediumGPU})
	}
}

func (p *publisher) cleared() {
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.shared)
	if p.array {
		p.publish([]any{typeCleared})
		return
	}
	p.publish(clearedEvent{typeCleared})
}

// publish numbers a batch of one event, keeps it and sends it. The caller holds
// mu.
func (p *publisher) publish(event any) {
	var b bytes.Buffer
	// Numbers and text into memory: it cannot fail.
	_ = msgpack.NewEncoder(&b).Encode([]any{float64(time.Now().UnixMicro()) / 1e6, []any{event}, 0})
	p.kept = append(p.kept, b.Bytes())
	if len(p.kept) > keptBatches {
		p.kept = p.kept[1:]
	}
	p.next++
	if p.live != nil {
		_ = p.live.SendMulti(zmq4.NewMsgFrom(nil, number(p.next-1), b.Bytes())) // who does not listen asks again
	}
}

func number(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

// listen opens the two unix sockets, in the place of those of an earlier run.
func (p *publisher) listen(ctx context.Context, live, replay string) error {
	quiet := zmq4.WithLogger(log.New(io.Discard, "", 0))
	pub, router := zmq4.NewPub(ctx, quiet), zmq4.NewRouter(ctx, quiet)
	for path, s := range map[string]zmq4.Socket{live: pub, replay: router} {
		if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
			return err
		}
		if err := s.Listen("ipc://" + path); err != nil {
			return err
		}
	}
	p.mu.Lock()
	p.live, p.replay = pub, router
	p.mu.Unlock()
	go p.serveReplays(router)
	return nil
}

// serveReplays answers each request with what is kept from its number on.
func (p *publisher) serveReplays(router zmq4.Socket) {
	for {
		msg, err := router.Recv()
		if err != nil {
			return
		}
		if len(msg.Frames) != 3 || len(msg.Frames[2]) != 8 {
			continue
		}
		from := binary.BigEndian.Uint64(msg.Frames[2])
		p.mu.Lock()
		kept, first := p.kept, p.next-uint64(len(p.kept))
		p.mu.Unlock()
		send := func(n uint64, payload []byte) {
			_ = router.Send(zmq4.NewMsgFrom(msg.Frames[0], nil, number(n), payload)) // who is gone needs none
		}
		for i, payload := range kept {
			if n := first + uint64(i); n >= from {
				send(n, payload)
			}
		}
		send(^uint64(0), nil)
	}
}

func (p *publisher) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range []zmq4.Socket{p.live, p.replay} {
		if s != nil {
			_ = s.Close() // its process ends
		}
	}
	p.live, p.replay = nil, nil
}
