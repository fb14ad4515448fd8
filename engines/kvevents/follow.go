package kvevents

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/go-zeromq/zmq4"
	"github.com/go-zeromq/zmq4/security/null"
)

// Source is where an engine publishes, as paths of unix sockets: what it sends
// holds the tokens of prompts, so no port is opened for it.
type Source struct {
	Live   string // PUB
	Replay string // ROUTER that sends again what it has kept
}

const (
	againAfter   = time.Second // until a lost publisher is dialled again
	dialTime     = 2 * time.Second
	replayTime   = 2 * time.Minute // bounds a replay
	replaySilent = 5 * time.Second // and a silence in it
)

// Follow tells on each batch what is known of the cache, until ctx ends. Engines
// that publish nothing are dialled again and again: they may be starting.
func Follow(ctx context.Context, src Source, tell func(State)) {
	var t Tracker
	for ctx.Err() == nil {
		// Whatever ended it, what is counted stays: numbers show what is missing.
		_ = follow(ctx, src, &t, tell)
		select {
		case <-ctx.Done():
		case <-time.After(againAfter):
		}
	}
}

func follow(ctx context.Context, src Source, t *Tracker, tell func(State)) error {
	c, err := open(ctx, src.Live, zmq4.Sub)
	if err != nil {
		return err
	}
	defer c.close()
	if err := c.SendMsg(zmq4.NewMsg([]byte{1})); err != nil { // subscribe to all topics
		return err
	}
	for {
		number, events, err := c.batch()
		if err != nil {
			return err
		}
		if from := t.Live(number, events, time.Now()); from >= 0 {
			if err := replay(ctx, src.Replay, from, t); err != nil || t.Live(number, events, time.Now()) >= 0 {
				t.Failed(time.Now())
				t.Live(number, events, time.Now())
			}
		}
		tell(t.State(time.Now()))
	}
}

// replay asks for the batches from a number on and takes them in.
func replay(ctx context.Context, path string, from int64, t *Tracker) error {
	ctx, cancel := context.WithTimeout(ctx, replayTime)
	defer cancel()
	c, err := open(ctx, path, zmq4.Dealer)
	if err != nil {
		return err
	}
	defer c.close()
	if err := c.SendMsg(zmq4.NewMsgFrom(nil, binary.BigEndian.AppendUint64(nil, uint64(from)))); err != nil {
		return err
	}
	for {
		if err := c.raw.SetReadDeadline(time.Now().Add(replaySilent)); err != nil {
			return err
		}
		number, events, err := c.batch()
		if err != nil {
			return err
		}
		if number == -1 {
			return nil
		}
		if err := t.Replay(number, events, time.Now()); err != nil {
			return err
		}
	}
}

// connection is one to a socket of an engine.
type connection struct {
	*zmq4.Conn
	raw   net.Conn
	close func()
}

// open connects; the connection ends with ctx.
func open(ctx context.Context, path string, as zmq4.SocketType) (*connection, error) {
	raw, err := (&net.Dialer{Timeout: dialTime}).DialContext(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { raw.Close() })
	c := &connection{raw: raw, close: func() { stop(); raw.Close() }}
	_ = raw.SetDeadline(time.Now().Add(dialTime)) // of the handshake; a socket that takes none fails in it
	if c.Conn, err = zmq4.Open(&guarded{Conn: raw}, null.Security(), as, nil, false, nil); err == nil {
		err = raw.SetDeadline(time.Time{})
	}
	if err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

var errFrames = errors.New("message of KV events has other frames than engines send")

// batch reads the next one.
func (c *connection) batch() (number int64, events []Event, err error) {
	for {
		msg, err := c.RecvMsg()
		if err != nil {
			return 0, nil, err
		}
		if msg.Type != zmq4.CmdMsg {
			return batchOf(msg)
		}
	}
}

// batchOf reads topic, number and payload; in a replay an empty frame comes first,
// and of some engines no topic. The number -1 ends a replay.
func batchOf(msg zmq4.Msg) (number int64, events []Event, err error) {
	n := len(msg.Frames)
	if n < 3 || n > 4 || len(msg.Frames[n-2]) != 8 {
		return 0, nil, fmt.Errorf("%w: %d of them", errFrames, n)
	}
	number = int64(binary.BigEndian.Uint64(msg.Frames[n-2]))
	if number == -1 {
		return number, nil, nil
	}
	if number < 0 {
		return 0, nil, fmt.Errorf("%w: the number is %d", errFrames, number)
	}
	events, err = Decode(msg.Frames[n-1])
	return number, events, err
}
