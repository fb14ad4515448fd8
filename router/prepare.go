package router

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"

	"llmgw/mesh/catalog"
	"llmgw/router/openai"
	"llmgw/router/relay"
)

// prepare reads and scans the request.
func (t *request) prepare() (*inference, *openai.Error) {
	if e := t.read(); e != nil {
		return nil, e
	}
	i := &inference{t: t, asked: make(map[tried]bool), needs: t.route.needs}
	i.own.form = form{path: t.route.path, dialect: t.route.dialect}
	if t.route.form {
		return i, i.prepareForm()
	}
	if t.route.translate != nil {
		if e := t.route.translate(i); e != nil {
			return nil, e
		}
	}
	if t.r.strip.Load() {
		t.body = withoutVolatile(t.body)
	}
	if e := i.scan(); e != nil {
		return nil, e
	}
	if i.own.req.Model == "" {
		return nil, noModel()
	}
	if i.own.req.Doubled("model") {
		return nil, doubledModel()
	}
	if i.own.req.Background.On {
		// Nobody would count it, and nobody could ask for it again.
		return nil, noBackground()
	}
	i.means = t.r.meaningOf(i.own.req.Model)
	if p := i.means.params; !p.IsZero() {
		t.body = openai.Splice(&i.own.req, paramEdits(p)...)
		if e := i.scan(); e != nil {
			return nil, e
		}
	}
	if e := i.asAnother(); e != nil {
		return nil, e
	}
	i.band = t.bandOf(string(i.own.req.Field("service_tier")))
	i.stream = i.own.req.Stream && t.route.streams
	i.header = jsonHeader(relay.CleanRequest(t.req.Header), t.id)
	return i, nil
}

// asAnother translates a request at once where nobody takes it as it is: engines
// have warm what they computed, not what the client sent.
func (i *inference) asAnother() *openai.Error {
	if i.t.route.instead == nil {
		return nil
	}
	if view, ok := i.t.r.cfg.Catalog.Resolve(i.means.targets[0]); i.own.req.PreviousResponse == "" && (!ok || !view.lacks(i.needs)) {
		return nil
	}
	other, e := i.t.route.instead(i)
	if e != nil {
		return e
	}
	i.other = other
	var prompt openai.Prompt
	body := openai.Splice(&other.req)
	if _, err := openai.ScanPrompt(body, &prompt); err != nil {
		return badJSON(err)
	}
	i.query = i.t.query(i.own.req.Stream, &prompt)
	return nil
}

// prepareForm finds the model in a body that is a form. Its bytes go on as they
// are; parameters of a route are for JSON alone.
func (i *inference) prepareForm() *openai.Error {
	t := i.t
	scanned, err := openai.ScanForm(bytes.NewReader(t.body), int64(len(t.body)), t.req.Header.Get("Content-Type"))
	if err != nil {
		return badForm(err)
	}
	switch {
	case scanned.Model == "":
		return noModel()
	case scanned.Doubled:
		return doubledModel()
	}
	i.multipart = &scanned
	i.own.req.Model, i.own.req.Stream = scanned.Model, scanned.Stream
	i.query = t.query(scanned.Stream, new(openai.Prompt))
	i.means = t.r.meaningOf(scanned.Model)
	i.band = t.bandOf("")
	i.stream = scanned.Stream && t.route.streams
	i.header = relay.CleanRequest(t.req.Header)
	i.header.Set("X-Request-Id", t.id)
	return nil
}

func (i *inference) scan() *openai.Error {
	var prompt openai.Prompt
	scanned, err := openai.ScanPrompt(i.t.body, &prompt)
	if err != nil {
		return badJSON(err)
	}
	i.own.req, i.query = scanned, i.t.query(scanned.Stream, &prompt)
	return nil
}

// withoutVolatile takes the line that changes with each turn out of a body; one
// that is no JSON is left for the scan to refuse.
func withoutVolatile(body []byte) []byte {
	var p openai.Prompt
	if _, err := openai.ScanPrompt(body, &p); err != nil {
		return body
	}
	first := true
	p.Elements(func(raw []byte) {
		if !first {
			return
		}
		first = false
		at := bytes.Index(body, raw)
		if from, to := openai.Volatile(raw); at >= 0 && from >= 0 {
			body = slices.Concat(body[:at+from], body[at+to:])
		}
	})
	return body
}

// paramEdits are what a route does to a body, in an order that does not change.
func paramEdits(p catalog.Params) []openai.Edit {
	var edits []openai.Edit
	for _, name := range p.Strip {
		edits = append(edits, openai.Remove(name))
	}
	for _, name := range slices.Sorted(maps.Keys(p.Default)) {
		edits = append(edits, openai.Default(name, p.Default[name]))
	}
	for _, name := range slices.Sorted(maps.Keys(p.Force)) {
		edits = append(edits, openai.Set(name, p.Force[name]))
	}
	return edits
}

// callFor is the request as the engine of a model gets it: the bytes received,
// but for a name that the engine does not know, and the usage that accounting
// asks for.
func (i *inference) callFor(model catalog.Model, replica Replica, shape *shaped) *relay.Call {
	if i.multipart != nil {
		return &relay.Call{Path: shape.path, Header: i.header, Body: i.formBody(model)}
	}
	var edits []openai.Edit
	if catalog.FoldName(shape.req.Model) != model.ID {
		edits = append(edits, openai.Set("model", []byte(quoted(model.Name))))
	}
	if i.generates() && model.Limits.MaxOutput > 0 {
		// Without a bound of the model's own the engine ends it at its context.
		edits = append(edits, openai.CapEdits(&shape.req, shape.dialect, int64(model.Limits.MaxOutput))...)
	}
	if edit, ok := i.pictureEdit(replica); ok {
		edits = append(edits, edit)
	}
	i.filter = nil
	if edit, ok := openai.UsageEdit(&shape.req); ok && shape.dialect == openai.Chat {
		edits = append(edits, edit)
		if shape.into == nil {
			i.filter = new(openai.UsageFilter)
		}
	}
	return &relay.Call{Path: shape.path, Header: i.header, Body: openai.Splice(&shape.req, edits...)}
}

func quoted(text string) string {
	b, err := json.Marshal(text)
	if err != nil {
		panic(err) // a string cannot fail to encode
	}
	return string(b)
}
