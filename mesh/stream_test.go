package mesh

import (
	"errors"
	"io"
	"os"
	"testing"
	"time"
)

// TestReadDeadlineDoesNotSpoilAStream: one that strikes before the peer has answered
// at all, as over a link that is cut for a moment, ends that read and nothing else.
func TestReadDeadlineDoesNotSpoilAStream(t *testing.T) {
	t.Parallel()
	boxes := newBoxes(t, 2)
	a, b := boxes[0], boxes[1]
	b.mesh.Handle(ProtocolInfer, func(s Stream) {
		io.Copy(s, s)
		s.Close()
	})
	early := 0
	for range 50 { // whether the deadline or the answer is first is chance
		s := openTo(t, a, b)
		if err := s.SetReadDeadline(time.Now().Add(-time.Second)); err != nil {
			t.Fatal(err)
		}
		if err := writeAll(s, "hello"); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
			early++
		}
		if err := s.SetReadDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(s)
		if err != nil || string(got) != "hello" {
			t.Fatalf("after the deadline: %q, %v", got, err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if early == 0 {
		t.Error("no deadline struck")
	}
}

// TestReadDeadlineMoves: one that is set, moved or lifted counts for a read that waits
// already, before and after the peer's first word.
func TestReadDeadlineMoves(t *testing.T) {
	t.Parallel()
	boxes := newBoxes(t, 2)
	a, b := boxes[0], boxes[1]
	b.mesh.Handle(ProtocolInfer, func(s Stream) { <-b.done }) // says no more than hello
	s := openTo(t, a, b)
	defer s.Reset()
	for name, before := range map[string]time.Time{"never": {}, "late": time.Now().Add(patience)} {
		if err := s.SetReadDeadline(before); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() {
			_, err := s.Read(make([]byte, 1))
			ended <- err
		}()
		time.Sleep(20 * time.Millisecond)
		if err := s.SetDeadline(time.Now()); err != nil {
			t.Fatal(err)
		}
		var timeout interface{ Timeout() bool }
		if err := <-ended; !errors.As(err, &timeout) || !timeout.Timeout() {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestCloseOfASilentStreamReturns: closing must not wait for a peer that never answers.
func TestCloseOfASilentStreamReturns(t *testing.T) {
	t.Parallel()
	boxes := newBoxes(t, 2)
	a, b := boxes[0], boxes[1]
	b.mesh.Handle(ProtocolInfer, func(s Stream) { s.Reset() })
	s := openTo(t, a, b)
	closed := make(chan struct{})
	go func() { s.Close(); close(closed) }()
	select {
	case <-closed:
	case <-time.After(patience):
		t.Fatal("Close waits for ever")
	}
	if _, err := s.Read(make([]byte, 1)); err == nil {
		t.Error("a closed stream can be read")
	}
}

func openTo(t *testing.T, from, to *box) Stream {
	t.Helper()
	s, err := from.mesh.Open(t.Context(), to.id(), ProtocolInfer)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func writeAll(s Stream, text string) error {
	_, err := s.Write([]byte(text))
	return errors.Join(err, s.CloseWrite())
}
