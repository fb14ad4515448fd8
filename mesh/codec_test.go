package mesh

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/fxamacker/cbor/v2"
	"github.com/libp2p/go-libp2p/core/peer"
	"pgregory.net/rapid"
)

func TestFramesThatAreRefused(t *testing.T) {
	head := func(n uint32, body ...byte) []byte { return append(binary.BigEndian.AppendUint32(nil, n), body...) }
	for name, c := range map[string]struct {
		data []byte
		want error // of those that a reader tells apart
		text string
	}{
		"nothing":                {nil, io.EOF, "read frame: EOF"},
		"half a head":            {[]byte{0, 0}, io.ErrUnexpectedEOF, "read frame: unexpected EOF"},
		"a head alone":           {head(3), io.ErrUnexpectedEOF, "read frame: unexpected EOF"},
		"half a body":            {head(3, 0x82, 1), io.ErrUnexpectedEOF, "read frame: unexpected EOF"},
		"one byte too large":     {head(maxHello + 1), errFrame, fmt.Sprintf("read frame of %d bytes, at most %d: malformed frame", maxHello+1, maxHello)},
		"as large as can be":     {head(math.MaxUint32), errFrame, "malformed frame"},
		"of no bytes":            {head(0), errFrame, "decode frame: malformed frame: EOF"},
		"no CBOR":                {head(2, 0xff, 0xff), errFrame, "decode frame: malformed frame"},
		"bytes after the value":  {head(2, 0xa0, 0), errFrame, "malformed frame"},
		"another type":           {head(2, 0x61, 'x'), errFrame, "malformed frame"},
		"a key twice":            {head(5, 0xa2, 1, 1, 1, 2), errFrame, "malformed frame"},
		"of indefinite length":   {head(4, 0xbf, 1, 1, 0xff), errFrame, "malformed frame"},
		"with a tag":             {head(4, 0xa1, 1, 0xc1, 1), errFrame, "malformed frame"},
		"a number that is wider": {head(7, 0xa1, 1, 0x1a, 0, 1, 0, 0), errFrame, "malformed frame"},
		"a negative version":     {head(3, 0xa1, 1, 0x20), errFrame, "malformed frame"},
	} {
		var h hello
		err := readFrame(bytes.NewReader(c.data), maxHello, &h)
		if !errors.Is(err, c.want) || !strings.Contains(fmt.Sprint(err), c.text) {
			t.Errorf("%s: %v, want %q", name, err, c.text)
		}
	}
	deep := append(bytes.Repeat([]byte{0x81}, 40), 0)
	if err := readFrame(bytes.NewReader(head(uint32(len(deep)), deep...)), maxHello, new(any)); !errors.Is(err, errFrame) {
		t.Errorf("nested 40 deep: %v", err)
	}
	broken := errors.New("cable")
	if err := readFrame(iotest.ErrReader(broken), maxHello, new(hello)); !errors.Is(err, broken) || errors.Is(err, errFrame) {
		t.Errorf("a broken stream: %v", err)
	}
	if err := readFrame(io.MultiReader(bytes.NewReader(head(9, 1)), iotest.ErrReader(broken)), maxHello, new(hello)); !errors.Is(err, broken) {
		t.Errorf("broken within a body: %v", err)
	}
}

// TestFramesCome: each frame that is written is read again as it was, however the bytes
// arrive, and nothing of what follows is taken.
func TestFramesCome(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		in := syncPage{
			Index: rapid.Uint64().Draw(rt, "index"), Next: rapid.Uint64().Draw(rt, "next"), More: rapid.Bool().Draw(rt, "more"),
			Items: bytes.Repeat([]byte{7}, rapid.IntRange(0, 5*frameStep).Draw(rt, "bytes")),
		}
		var wire bytes.Buffer
		for range 2 {
			if err := writeFrame(&wire, in); err != nil {
				rt.Fatal(err)
			}
		}
		wire.WriteString("rest")
		var r io.Reader = &wire
		switch rapid.IntRange(0, 2).Draw(rt, "arrival") {
		case 0:
			r = iotest.OneByteReader(r)
		case 1:
			r = iotest.HalfReader(r)
		}
		for range 2 {
			var out syncPage
			if err := readFrame(r, maxSync, &out); err != nil {
				rt.Fatal(err)
			}
			if out.Index != in.Index || out.Next != in.Next || out.More != in.More || !bytes.Equal(out.Items, in.Items) {
				rt.Fatalf("%d bytes came as %d", len(in.Items), len(out.Items))
			}
		}
		if wire.String() != "rest" {
			rt.Fatalf("%q is left", wire.String())
		}
	})
}

// largest is a reader that gives what it has, and remembers the most that was asked.
type largest struct {
	data []byte
	most int
}

func (r *largest) Read(b []byte) (int, error) {
	r.most = max(r.most, len(b))
	if len(r.data) == 0 {
		return 0, io.EOF
	}
	n := copy(b, r.data)
	r.data = r.data[n:]
	return n, nil
}

// TestAnnouncedBytesTakeNoMemory: who announces a large frame and sends little of it makes
// this box hold no more than a few times what it sent.
func TestAnnouncedBytesTakeNoMemory(t *testing.T) {
	for _, sent := range []int{0, 1, frameStep, 3 * frameStep} {
		r := &largest{data: append(binary.BigEndian.AppendUint32(nil, maxSync), make([]byte, sent)...)}
		if err := readFrame(r, maxSync, new(syncPage)); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%d bytes of a frame: %v", sent, err)
		}
		if most := 3 * max(sent, frameStep); r.most > most {
			t.Errorf("after %d bytes there is room for %d more, want %d at most", sent, r.most, most)
		}
	}
}

// TestFramesAreDeterministic: the same value is the same bytes, which signatures and
// digests need; and a value of a later version is read for what is known of it.
func TestFramesAreDeterministic(t *testing.T) {
	first, err := marshal(map[string]int{"b": 1, "a": 2, "cc": 3})
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		if again, err := marshal(map[string]int{"cc": 3, "a": 2, "b": 1}); err != nil || !bytes.Equal(first, again) {
			t.Fatalf("%x, then %x, %v", first, again, err)
		}
	}
	later, err := encodeFrame(map[int]any{1: 1, 2: 9, 4: 7, 99: "news"})
	if err != nil {
		t.Fatal(err)
	}
	h, err := readHello(bytes.NewReader(later), spoken)
	if err != nil || h.Store != 7 || h.Max != 9 {
		t.Errorf("%+v, %v", h, err)
	}
	if _, err := encodeFrame(make(chan int)); err == nil {
		t.Error("a channel was encoded")
	}
	if err := writeFrame(io.Discard, func() {}); err == nil {
		t.Error("a function was sent")
	}
	if _, err := marshal(cbor.Tag{Number: 1, Content: 1}); err == nil {
		t.Error("a tag was encoded")
	}
}

func TestVersionRanges(t *testing.T) {
	for name, c := range map[string]struct {
		min, max uint16
		ok       bool
	}{
		"the same":              {spoken.min, spoken.max, true},
		"older and this":        {0, spoken.max, true},
		"this and newer":        {spoken.min, 9, true},
		"all that will ever be": {0, math.MaxUint16, true},
		"newer":                 {spoken.max + 1, spoken.max + 3, false},
		"older":                 {0, spoken.min - 1, false},
		"none told":             {0, 0, false},
		"the wrong way round":   {spoken.max + 1, spoken.min - 1, false},
		"newest":                {math.MaxUint16, math.MaxUint16, false},
	} {
		frame, err := encodeFrame(hello{Min: c.min, Max: c.max, Store: 5})
		if err != nil {
			t.Fatal(err)
		}
		h, err := readHello(bytes.NewReader(frame), spoken)
		if (err == nil) != c.ok || err != nil && !errors.Is(err, ErrVersion) {
			t.Errorf("%s: %v", name, err)
		}
		if errors.Is(err, errFrame) {
			t.Errorf("%s: another version is taken for nonsense: %v", name, err)
		}
		if h.Min != c.min || h.Max != c.max {
			t.Errorf("%s: read as %+v", name, h)
		}
	}
	_, err := readHello(bytes.NewReader(mustFrame(t, hello{Min: 7, Max: 9})), spoken)
	wantText(t, "a newer box", err, "peer speaks versions 7 to 9, this box version 1: no common protocol version")
	_, err = readHello(strings.NewReader("\xff\xff\xff\xff"), spoken)
	wantText(t, "a huge hello", err, "read hello: read frame of 4294967295 bytes, at most 4096: malformed frame")
	// Versions agree for both or for none: no side goes on where the other does not.
	rapid.Check(t, func(rt *rapid.T) {
		draw := func(label string) uint16 { return uint16(rapid.IntRange(0, 4).Draw(rt, label)) }
		h := hello{Min: draw("min"), Max: draw("max")}
		meets := h.Min <= spoken.max && h.Max >= spoken.min
		if got := h.check(spoken) == nil; got != meets {
			rt.Fatalf("%d to %d: %v", h.Min, h.Max, got)
		}
	})
}

func TestHelloNumbersAreBounded(t *testing.T) {
	for told, want := range map[int64]time.Duration{
		-1: 0, 0: 0, 60: time.Minute, math.MaxInt64: maxUptime * time.Second, math.MinInt64: 0,
	} {
		if got := (hello{Uptime: told}).uptime(); got != want {
			t.Errorf("uptime of %d is %s, want %s", told, got, want)
		}
	}
	now := time.UnixMilli(1_000_000)
	for wall, want := range map[int64]time.Duration{
		1_000_000: 0, 1_060_000: time.Minute, 940_000: -time.Minute, math.MaxInt64: math.MaxInt64, math.MinInt64: math.MinInt64,
	} {
		if got := (hello{Wall: wall}).skew(now); got != want {
			t.Errorf("skew of %d is %s, want %s", wall, got, want)
		}
	}
	// Whatever a clock says there are words for it.
	for skew, want := range map[time.Duration]string{
		0: "the same as", time.Minute: "1m0s ahead of", -2 * time.Second: "2s behind", time.Millisecond: "the same as",
		math.MaxInt64: "2562047h47m16.854775807s ahead of", math.MinInt64: "2562047h47m16.854775807s behind",
	} {
		if got := skewText(skew, time.Second); got != want {
			t.Errorf("%d: %q, want %q", skew, got, want)
		}
	}
}

func TestAuthors(t *testing.T) {
	var a authorMap
	p, q := peer.ID("p"), peer.ID("q")
	if _, ok := a.store(p); ok {
		t.Error("a store is known of nobody")
	}
	if a.doubt(p) {
		t.Error("doubted before it said anything")
	}
	if _, ok := a.store(p); ok {
		t.Error("a doubt made its store known")
	}
	a.learn(p, 7)
	a.learn(q, 8)
	if a.doubt(p) || !a.doubt(p) || !a.doubt(p) {
		t.Error("want the first doubt of a hello to be forgiven, and no other")
	}
	if a.doubt(q) {
		t.Error("q pays for p")
	}
	a.learn(p, 7) // the same hello again clears nothing
	if !a.doubt(p) {
		t.Error("the same store told once more is believed anew")
	}
	a.learn(p, 9)
	if id, _ := a.store(p); id != 9 || a.doubt(p) {
		t.Error("a new store is not believed")
	}
	a.forget(p)
	if _, ok := a.store(p); ok || a.doubt(p) {
		t.Error("it is remembered")
	}
	if id, ok := a.store(q); !ok || id != 8 {
		t.Error("q was forgotten with p")
	}
}

// TestRefusalsArriveAsTheyAre: a joiner sees the kind, and of a fault of the other box only
// that there was one.
func TestRefusalsArriveAsTheyAre(t *testing.T) {
	if got := refusalOf(fmt.Errorf("open /secret/path: %w", io.EOF)); got.Kind != "refused" || strings.Contains(got.Detail, "secret") {
		t.Errorf("%+v", got)
	}
	for name, c := range map[string]struct {
		in   refusal
		want string
	}{
		"in words":         {refusal{Kind: "expired", Ago: 60}, "the token expired 1m0s ago by the issuer's clock"},
		"an unknown kind":  {refusal{Kind: "bored", Detail: "go away"}, "the join was refused: go away"},
		"control bytes":    {refusal{Kind: "used", Detail: "a\x1b[31m\u009bb\u202ec\n"}, "the token has been used: a[31mbc"},
		"long":             {refusal{Kind: "used", Detail: strings.Repeat("é", 9*maxDetail)}, "the token has been used: " + strings.Repeat("é", maxDetail)},
		"in the future":    {refusal{Kind: "expired", Ago: -5}, "the token expired 0s ago by the issuer's clock"},
		"since the origin": {refusal{Kind: "expired", Ago: math.MaxInt64}, "the token expired 1756800h0m0s ago by the issuer's clock"},
	} {
		if got := c.in.err().Error(); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
