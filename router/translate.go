package router

import (
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"llmgw/mesh/catalog"
	"llmgw/router/openai"
	"llmgw/router/openai/anthropic"
	"llmgw/router/openai/responses"
	"llmgw/router/openai/toolcall"
	"llmgw/router/relay"
)

// form is how a request goes to an engine: as it came, or as another API has
// it.
type form struct {
	path    string
	dialect openai.Dialect // of what the engine answers
	into    translation    // of the answer; nil: its bytes stay as they are
}

// shaped is a form with the body that is in it.
type shaped struct {
	form
	req openai.Request
}

// shapeFor gives the request as a replica takes it: in another API where it
// lacks the client's own, and with a call of a tool as a document where it
// keeps to schemas but knows no tools. Nil and no error: there is no such way.
func (i *inference) shapeFor(lacks []catalog.Ability) (*shaped, *openai.Error) {
	has := func(a catalog.Ability) bool { return a == "" || !slices.Contains(lacks, a) }
	callBySchema := i.own.req.MustCall() && !has(catalog.AbilityTools) && has(catalog.AbilitySchema)
	shape := &i.own
	// Engines keep to a schema in chat completions alone, whatever else they
	// speak.
	chatOnly := (callBySchema || i.own.req.Format != "" || i.own.req.PreviousResponse != "") && shape.dialect != openai.Chat && i.t.route.streams
	if !has(i.needs) || chatOnly {
		if i.t.route.instead == nil {
			return nil, nil
		}
		if i.other == nil {
			other, e := i.t.route.instead(i)
			if e != nil {
				return nil, e
			}
			i.other = other
		}
		shape = i.other
	}
	if !callBySchema {
		return shape, nil
	}
	if i.called == nil {
		called, e := bySchema(shape, i.t.id)
		if e != nil {
			return nil, e
		}
		i.called = called
	}
	return i.called, nil
}

// bySchema has a tool called by an answer in the form of the call.
func bySchema(shape *shaped, id string) (*shaped, *openai.Error) {
	body, call, e := toolcall.BySchema(&shape.req, id)
	if e != nil {
		return nil, e
	}
	into := translation(toolcall.NewAnswer(call))
	if shape.into != nil {
		into = chain{into, shape.into}
	}
	return byChat(body, into)
}

// chain is two translations, one after the other.
type chain struct{ first, then translation }

func (c chain) Feed(p []byte) []byte {
	if out := c.first.Feed(p); len(out) > 0 {
		return c.then.Feed(out)
	}
	return nil
}

func (c chain) Finish() []byte {
	// What is given is valid until the next call.
	out := slices.Clone(c.then.Feed(c.first.Finish()))
	return append(out, c.then.Finish()...)
}

func (c chain) Whole(body []byte) ([]byte, *openai.Error) {
	out, e := c.first.Whole(body)
	if e != nil {
		return nil, e
	}
	return c.then.Whole(out)
}

// byChat is a request as a chat completion.
func byChat(body []byte, into translation) (*shaped, *openai.Error) {
	req, err := openai.Scan(body)
	if err != nil {
		return nil, badJSON(err)
	}
	return &shaped{form{path: "/v1/chat/completions", dialect: openai.Chat, into: into}, req}, nil
}

// responsesByChat serves the Responses API where an engine lacks it, and where a
// request goes on from a response that is stored here.
func (i *inference) responsesByChat() (*shaped, *openai.Error) {
	earlier, e := i.earlier()
	if e != nil {
		return nil, e
	}
	r, e := responses.Translate(i.t.body, earlier)
	if e != nil {
		return nil, e
	}
	i.notes(r.Notes)
	answer := responses.NewAnswer(r, i.t.r.newResponseID(), i.t.r.now().Unix())
	if !r.Store {
		return byChat(r.Body, answer)
	}
	return byChat(r.Body, &keeping{Answer: answer, i: i, items: r.Items})
}

// messagesByChat serves the Messages API where an engine lacks it.
func (i *inference) messagesByChat() (*shaped, *openai.Error) {
	r, e := anthropic.Translate(i.t.body, false)
	if e != nil {
		return nil, e
	}
	i.notes(r.Notes)
	return byChat(r.Body, anthropic.NewAnswer(r, "msg_"+i.t.id))
}

// noteHeader says what of a request has no effect here.
const noteHeader = "X-Llmgw-Note"

func (i *inference) notes(notes []string) {
	if len(notes) > 0 {
		i.t.out.Header().Set(noteHeader, strings.Join(notes, "; "))
	}
}

// translation turns what an engine answers into what the client's API has. Of
// one request it takes a stream or a whole answer, not both.
type translation interface {
	// Feed takes bytes of the engine's stream and gives bytes for the client,
	// valid until the next call.
	Feed(p []byte) []byte
	// Finish gives what ends the client's stream after the engine's.
	Finish() []byte
	// Whole takes an answer in one piece.
	Whole(body []byte) ([]byte, *openai.Error)
}

// maxWhole bounds an answer that is held to be translated.
const maxWhole = 64 << 20

// translated passes an answer on to the client in its own API. What an engine
// refuses was put into the client's form before it comes here.
type translated struct {
	*answer
	into    translation
	dialect openai.Dialect // the client's

	stream, whole bool
	header        http.Header
	body          []byte
}

var _ relay.Sink = (*translated)(nil)

// Begin implements relay.Sink.
func (s *translated) Begin(status int, header http.Header, length int64) error {
	s.stream = status == http.StatusOK && relay.IsEventStream(header)
	s.whole = status == http.StatusOK && !s.stream
	switch {
	case s.stream:
		header.Set("Content-Type", s.dialect.ContentType())
	case s.whole:
		header.Set("Content-Type", "application/json")
		s.header = header
		return nil
	}
	return s.answer.Begin(status, header, length)
}

// Committed implements relay.Sink.
func (s *translated) Committed() bool {
	// After blanks or comments there is no Begin any more.
	if s.answer.committed && !s.stream && !s.whole && s.answer.status == http.StatusOK {
		s.stream = relay.IsEventStream(s.answer.w.Header()) || s.dialect == openai.Ollama && s.answer.w.Header().Get("Content-Type") == s.dialect.ContentType()
		s.whole = !s.stream
	}
	return s.answer.committed
}

// Write implements relay.Sink.
func (s *translated) Write(p []byte) error {
	switch {
	case s.stream:
		if out := s.into.Feed(p); len(out) > 0 {
			return s.answer.Write(out)
		}
		return nil
	case s.whole:
		if len(s.body)+len(p) > maxWhole {
			return errors.New("the answer is too long to be translated")
		}
		s.body = append(s.body, p...)
		return nil
	}
	return s.answer.Write(p)
}

// heldBack says that nothing of an answer in one piece has reached the client.
func (s *translated) heldBack() bool { return s.whole && !s.answer.committed }

// finish ends an answer of which all is here. An error was not told to the
// client yet.
func (s *translated) finish() *openai.Error {
	if s.stream {
		if out := s.into.Finish(); len(out) > 0 {
			// A client that left needs no end.
			_ = s.answer.Write(out)
		}
		return nil
	}
	if !s.whole {
		return nil
	}
	body, e := s.into.Whole(s.body)
	if e != nil {
		return e
	}
	if !s.answer.committed {
		s.header.Set("Content-Length", strconv.Itoa(len(body)))
		if err := s.answer.Begin(http.StatusOK, s.header, int64(len(body))); err != nil {
			return nil
		}
	}
	_ = s.answer.Write(body)
	return nil
}
