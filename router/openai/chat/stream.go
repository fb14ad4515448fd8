package chat

import "llmgw/router/openai"

// Stream reads an engine's event stream and collects what the client gets in its
// place. What turns chat completions into another form embeds it, and begins it
// with Into.
type Stream struct {
	Out    []byte // for the client, since bytes were fed last
	Closed bool   // the client's stream has its last event
	into   Form
	reader Reader
}

// Form is what a stream is turned into. All of it appends to Out, or gives what
// is to be appended.
type Form struct {
	// Chunk takes the next chunk, while the client's stream is open.
	Chunk func(*Answer)
	// End writes what is left once the engine's stream has ended in order.
	End func()
	// Error makes the event that ends the client's stream instead.
	Error func(*openai.Error, openai.Origin) []byte
	// Alive makes what says that the stream lives.
	Alive func() []byte
}

// Into begins the stream.
func (s *Stream) Into(f Form) {
	s.into = f
	s.reader.Comment = func() {
		if !s.Closed {
			s.Out = append(s.Out, f.Alive()...)
		}
	}
}

// Feed takes bytes of the engine's event stream and gives those for the client.
// They are valid until the next call.
func (s *Stream) Feed(p []byte) []byte {
	s.Out = s.Out[:0]
	if s.Closed {
		return nil
	}
	s.reader.Feed(p, s.chunk)
	s.endIfDone()
	return s.Out
}

// Finish gives what ends the client's stream when the engine's has ended in
// order: nothing where it did with its terminator, else an error.
func (s *Stream) Finish() []byte {
	s.Out = s.Out[:0]
	if s.Closed {
		return nil
	}
	s.reader.End(s.chunk)
	if s.endIfDone() {
		return s.Out
	}
	return append(s.Out, s.Fail(s.reader.Cut(), openai.Origin{})...)
}

// Fail gives what ends a stream with an error.
func (s *Stream) Fail(e *openai.Error, o openai.Origin) []byte {
	if s.Closed {
		return nil
	}
	s.Closed = true
	return s.into.Error(e, o)
}

// Ended reports that the client's stream has its last event.
func (s *Stream) Ended() bool { return s.Closed }

// Broke ends the stream when a chunk is an error, and reports that it was one.
func (s *Stream) Broke(c *Answer) bool {
	e, bad := c.Failed()
	if bad {
		s.Out = append(s.Out, s.Fail(e, openai.Origin{})...)
	}
	return bad
}

func (s *Stream) chunk(c *Answer) {
	if !s.Closed {
		s.into.Chunk(c)
	}
}

// endIfDone ends the client's stream once the terminator came, and reports that
// it did.
func (s *Stream) endIfDone() bool {
	done := s.reader.Done()
	if done && !s.Closed {
		s.into.End()
		s.Closed = true
	}
	return done
}
