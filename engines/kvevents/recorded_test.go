package kvevents

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-zeromq/zmq4"
)

// recorded are the messages of a file, one a line, their frames in hexadecimal; "-"
// is an empty one. They are of vLLM 0.32 with 64 blocks of 32 tokens, of which it
// keeps one for itself: prompts that do not fit all, a reset, prompts again.
func recorded(t *testing.T, file string) (all []zmq4.Msg) {
	t.Helper()
	f, err := os.Open("testdata/" + file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var msg zmq4.Msg
		for _, field := range strings.Fields(lines.Text()) {
			frame, err := hex.DecodeString(strings.TrimPrefix(field, "-"))
			if err != nil {
				t.Fatal(err)
			}
			msg.Frames = append(msg.Frames, frame)
		}
		all = append(all, msg)
	}
	return all
}

func TestEventsOfVLLM(t *testing.T) {
	const blocks, size = 63, 32
	now := time.Unix(1_800_000_000, 0)
	var k Tracker
	var states []State
	for _, msg := range recorded(t, "vllm-0.32-live.txt") {
		number, events, err := batchOf(msg)
		if err != nil || len(events) == 0 {
			t.Fatalf("batch %d: %v, %d events", number, err, len(events))
		}
		if from := k.Live(number, events, now); from >= 0 {
			t.Fatalf("it asks for %d", from)
		}
		states = append(states, k.State(now))
	}
	full := states[len(states)-3]
	if full.Held < (blocks-2)*size || full.Held > blocks*size || full.Room < (blocks-4)*size || full.Room > blocks*size || !full.Complete {
		t.Errorf("a full cache: %+v", full)
	}
	if last := states[len(states)-1]; last.Cleared != 1 || last.Room != 0 || last.Held == 0 || last.Held > full.Held/2 {
		t.Errorf("after a reset and a prompt: %+v", last)
	}
}

func TestReplayOfVLLM(t *testing.T) {
	msgs := recorded(t, "vllm-0.32-replay.txt")
	for i, msg := range msgs {
		number, events, err := batchOf(msg)
		switch last := i == len(msgs)-1; {
		case err != nil:
			t.Fatal(err)
		case last && number != -1:
			t.Errorf("it ends with %d", number)
		case !last && (number != int64(8+i) || len(events) == 0):
			t.Errorf("batch %d has number %d and %d events", i, number, len(events))
		}
	}
}

func TestMessagesOfAnotherForm(t *testing.T) {
	number := func(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }
	for name, frames := range map[string][][]byte{
		"two frames": {number(1), {0x90}}, "five": {nil, nil, nil, number(1), {0x90}}, "no number": {nil, {1, 2}, {0x90}},
		"a negative one": {nil, number(1 << 63), {0x90}}, "no batch": {nil, number(1), []byte("x")}, "none": {},
	} {
		if n, events, err := batchOf(zmq4.NewMsgFrom(frames...)); err == nil {
			t.Errorf("%s: batch %d, %v", name, n, events)
		}
	}
}
