package responses

import (
	"fmt"

	"llmgw/router/openai"
	"llmgw/router/openai/chat"
)

// Answer turns the answer of a chat completion into a response, as it comes or
// whole.
type Answer struct {
	chat.Stream
	r        *Request
	id       string
	created  int64 // seconds since 1970
	calls    chat.Calls
	callsOf  []*output // by number of the call; nil: its name has not come
	items    []*output
	current  *output // a message or reasoning that is open
	usage    *chat.Usage
	pieces   int64
	reason   string
	sequence int
	begun    bool
	complete bool // in order
}

// NewAnswer begins an answer to r; id goes behind "resp_", created is in
// seconds since 1970.
func NewAnswer(r *Request, id string, created int64) *Answer {
	a := &Answer{r: r, id: "resp_" + id, created: created}
	a.Into(chat.Form{
		Chunk: a.chunk, End: a.finish,
		Error: func(e *openai.Error, o openai.Origin) []byte {
			return openai.Responses.StreamError(e, o, &openai.ResponseState{ID: a.id, Sequence: a.sequence})
		},
		Alive: func() []byte { return []byte(openai.Responses.KeepAlive()) },
	})
	return a
}

// ID is the response's.
func (a *Answer) ID() string { return a.id }

// Complete reports that it has come to its end in order: Document and Output are
// what is to be stored.
func (a *Answer) Complete() bool { return a.complete }

// next numbers an event.
func (a *Answer) next(kind string) head {
	a.sequence++
	return head{kind, a.sequence - 1}
}

func (a *Answer) emit(h head, event any) {
	a.Out = append(a.Out, openai.EventFrame(h.Type, chat.Encode(event))...)
}

func (a *Answer) begin() {
	if a.begun {
		return
	}
	a.begun = true
	for _, kind := range []string{"response.created", "response.in_progress"} {
		h := a.next(kind)
		a.emit(h, responseEvent{h, a.document("in_progress")})
	}
}

func (a *Answer) chunk(c *chat.Answer) {
	if a.Broke(c) {
		return
	}
	a.begin()
	if c.Usage != nil {
		a.usage = c.Usage
	}
	for i := range c.Choices {
		choice := &c.Choices[i]
		if choice.Index != 0 {
			continue
		}
		a.piece(&choice.Delta)
		if choice.FinishReason != "" {
			a.reason = string(choice.FinishReason)
		}
	}
}

func (a *Answer) piece(d *chat.Delta) {
	if thought := d.Thinking(); thought != "" {
		a.pieces++
		a.say(kindReasoning, thought)
	}
	if text := string(d.Content) + string(d.Refusal); text != "" {
		a.pieces++
		a.say(kindMessage, text)
	}
	for i := range d.ToolCalls {
		a.pieces++
		a.call(&d.ToolCalls[i])
	}
}

// names of the events of texts.
var textEvents = map[string]string{kindReasoning: "response.reasoning_text", kindMessage: "response.output_text"}

// say passes on a piece of a message or of reasoning.
func (a *Answer) say(kind, text string) {
	if a.current == nil || a.current.kind != kind {
		a.closeText()
		a.current = a.open(kind, 0)
		h := a.next("response.content_part.added")
		a.emit(h, partEvent{h, a.current.place(), a.current.content()})
	}
	a.current.text = append(a.current.text, text...)
	h := a.next(textEvents[kind] + ".delta")
	a.emit(h, deltaEvent{h, a.current.place(), text, []any{}})
}

func (o *output) place() place { return place{ItemID: o.id, Index: o.index} }

// prefixes of items' IDs.
var prefixes = map[string]string{kindReasoning: "rs", kindMessage: "msg", kindCall: "fc", kindCustom: "ctc"}

func (a *Answer) open(kind string, call int) *output {
	o := a.add(kind, call)
	o.open = true
	h := a.next("response.output_item.added")
	a.emit(h, itemEvent{h, o.index, a.item(o, "in_progress")})
	return o
}

func (a *Answer) add(kind string, call int) *output {
	o := &output{kind: kind, index: len(a.items), call: call}
	o.id = fmt.Sprintf("%s_%s_%d", prefixes[kind], a.id[len("resp_"):], o.index)
	a.items = append(a.items, o)
	return o
}

func (a *Answer) closeText() {
	o := a.current
	if o == nil {
		return
	}
	h := a.next(textEvents[o.kind] + ".done")
	a.emit(h, textEvent{h, o.place(), string(o.text), []any{}})
	h = a.next("response.content_part.done")
	a.emit(h, partEvent{h, o.place(), o.content()})
	a.done(o)
	a.current = nil
}

func (a *Answer) done(o *output) {
	o.open = false
	h := a.next("response.output_item.done")
	a.emit(h, itemEvent{h, o.index, a.item(o, "completed")})
}

// call passes on a piece of a tool call. Its item begins when its name is
// known.
func (a *Answer) call(d *chat.CallDelta) {
	at, fresh := a.calls.Add(d)
	if fresh {
		a.callsOf = append(a.callsOf, nil)
	}
	o, arguments := a.callsOf[at], string(d.Function.Arguments)
	if o == nil {
		call := a.calls.Call(at)
		if call.Function.Name == "" {
			return
		}
		o = a.openCall(at, call.Function.Name)
		arguments = call.Function.Arguments
	}
	if o.kind == kindCall && arguments != "" {
		h := a.next("response.function_call_arguments.delta")
		a.emit(h, callEvent{head: h, ItemID: o.id, Index: o.index, Delta: &arguments})
	}
}

func (a *Answer) openCall(at int, name string) *output {
	a.closeText()
	kind := kindCall
	if a.r.custom[name] {
		kind = kindCustom
	}
	a.callsOf[at] = a.open(kind, at)
	return a.callsOf[at]
}

// closeCalls ends all calls: pieces of any may come until the answer's end.
func (a *Answer) closeCalls() {
	for at, o := range a.callsOf {
		if o == nil {
			o = a.openCall(at, "")
		}
		call := a.calls.Call(at)
		if o.kind == kindCustom {
			input := freeInput(call.Function.Arguments)
			h := a.next("response.custom_tool_call_input.delta")
			a.emit(h, callEvent{head: h, ItemID: o.id, Index: o.index, Delta: &input})
			h = a.next("response.custom_tool_call_input.done")
			a.emit(h, callEvent{head: h, ItemID: o.id, Index: o.index, Input: &input})
		} else {
			h := a.next("response.function_call_arguments.done")
			a.emit(h, callEvent{head: h, ItemID: o.id, Index: o.index, Name: &call.Function.Name, Arguments: &call.Function.Arguments})
		}
		a.done(o)
	}
}

func (a *Answer) finish() {
	a.begin()
	a.closeText()
	a.closeCalls()
	d := a.final()
	h := a.next("response." + d.Status)
	a.emit(h, responseEvent{h, d})
	a.complete = true
}

// final is the response when nothing more comes.
func (a *Answer) final() *document {
	d := a.document("completed")
	d.Usage = usageOf(a.usage, a.pieces)
	switch a.reason {
	case "length":
		d.Status, d.Incomplete = "incomplete", &incomplete{"max_output_tokens"}
	case "content_filter":
		d.Status, d.Incomplete = "incomplete", &incomplete{"content_filter"}
	}
	return d
}

// Document gives the response once its stream has ended in order, to be stored.
func (a *Answer) Document() []byte { return chat.Encode(a.final()) }

// Output gives the response's items as a JSON list, for what goes on from it.
func (a *Answer) Output() []byte { return chat.Encode(a.final().Output) }

// Whole turns a whole chat completion into a response.
func (a *Answer) Whole(body []byte) ([]byte, *openai.Error) {
	c, e := chat.Decode(body)
	if e != nil {
		return nil, e
	}
	choice := &c.Choices[0]
	m := &choice.Message
	a.usage, a.reason, a.Closed = c.Usage, string(choice.FinishReason), true
	if thought := m.Thinking(); thought != "" {
		a.add(kindReasoning, 0).text = []byte(thought)
	}
	if text := string(m.Content) + string(m.Refusal); text != "" {
		a.add(kindMessage, 0).text = []byte(text)
	}
	for i := range m.ToolCalls {
		n := chat.Number(i) // they are whole and in order
		m.ToolCalls[i].Index = &n
		at, _ := a.calls.Add(&m.ToolCalls[i])
		kind := kindCall
		if a.r.custom[string(m.ToolCalls[i].Function.Name)] {
			kind = kindCustom
		}
		a.add(kind, at)
	}
	return a.Document(), nil
}
