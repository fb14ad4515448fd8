package router

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"syscall"

	"llmgw/mesh/catalog"
	"llmgw/router/files"
	"llmgw/router/keys"
	"llmgw/router/openai"
)

// answerHeader asks for a link to what is made, on routes whose own API has no word
// for it.
const answerHeader = "X-Llmgw-Answer"

// Forms in which pictures are answered.
const formatURL, formatBase64 = "url", "b64_json"

// wantsLink says that the client asks for links to what is made: pictures by their
// response_format, speech by a header.
func (i *inference) wantsLink() bool {
	switch i.needs {
	case catalog.AbilityPictures:
		if i.multipart != nil {
			return i.multipart.Fields["response_format"] == formatURL
		}
		return string(i.own.req.Field("response_format")) == quoted(formatURL)
	case catalog.AbilitySpeech:
		return strings.EqualFold(i.t.req.Header.Get(answerHeader), formatURL)
	}
	return false
}

// linked is a request whose answer is kept here, and linked to, where the client wants
// that.
func (i *inference) linked(shape *shaped) *shaped {
	if !i.wantsLink() {
		return shape
	}
	l := links{files: i.t.r.cfg.Files, key: i.t.key.ID, base: i.t.url() + "/v1/" + filesPath, model: i.view.Model.Name}
	form := shape.form
	if form.into = translation(&pictureLinks{l}); i.needs == catalog.AbilitySpeech {
		form.into = &speechLink{l}
	}
	return &shaped{form, shape.req}
}

// pictureEdit has engines give pictures in the answer itself. A link of theirs would be
// to an address that clients cannot reach; what a provider makes of silence is its own.
func (i *inference) pictureEdit(replica Replica) (openai.Edit, bool) {
	format := []byte(quoted(formatBase64))
	switch {
	case i.needs != catalog.AbilityPictures:
		return openai.Edit{}, false
	case i.wantsLink():
		return openai.Set("response_format", format), true
	case replica.Provider == nil || replica.Provider.Sponsor != "":
		return openai.Default("response_format", format), true
	}
	return openai.Edit{}, false
}

// url is where the client reached this box.
func (t *request) url() string {
	if t.r.cfg.Trusted == nil {
		return keys.ClientURL(t.req, nil)
	}
	return keys.ClientURL(t.req, t.r.cfg.Trusted())
}

// links keeps files for a key and makes links to them.
type links struct {
	files      *files.Store
	key, model string
	base       string // of the links, with a slash at its end
}

func (l *links) keep(data []byte) (files.File, string, *openai.Error) {
	mime, ending := files.TypeOf(data)
	kind, _, _ := strings.Cut(mime, "/")
	if kind == "application" {
		kind = "file"
	}
	f, err := l.files.Put(l.key, kind+"."+ending, mime, data)
	if err != nil {
		return f, "", notKept(err)
	}
	return f, l.base + url.PathEscape(f.ID) + "/" + contentPath, nil
}

// Feed passes a stream of events on: what is in it is no link.
func (l *links) Feed(p []byte) []byte { return p }

// Finish adds nothing.
func (l *links) Finish() []byte { return nil }

// pictureLinks puts links in place of pictures.
type pictureLinks struct{ links }

func (l *pictureLinks) Whole(body []byte) ([]byte, *openai.Error) {
	var answer map[string]json.RawMessage
	var data []map[string]json.RawMessage
	err := json.Unmarshal(body, &answer)
	if err == nil {
		err = json.Unmarshal(answer["data"], &data)
	}
	if err != nil {
		return nil, notLinked(l.model, "its answer is no list of pictures")
	}
	for _, one := range data {
		if e := l.link(one); e != nil {
			return nil, e
		}
	}
	if answer["data"], err = json.Marshal(data); err == nil {
		body, err = json.Marshal(answer)
	}
	if err != nil {
		return nil, notLinked(l.model, "its answer cannot be written anew")
	}
	return body, nil
}

func (l *pictureLinks) link(one map[string]json.RawMessage) *openai.Error {
	raw, why := inlined(one)
	if why != "" {
		return notLinked(l.model, why)
	}
	_, link, e := l.keep(raw)
	if e != nil {
		return e
	}
	delete(one, formatBase64)
	one[formatURL] = []byte(quoted(link))
	return nil
}

// inlined gives the bytes of a picture that is in the answer, or says why there are none.
func inlined(one map[string]json.RawMessage) (raw []byte, why string) {
	var text, link string
	_ = json.Unmarshal(one[formatBase64], &text) // what is absent or odd stays empty
	_ = json.Unmarshal(one[formatURL], &link)
	if text == "" {
		var inline bool
		if _, text, inline = strings.Cut(link, ";base64,"); !inline || !strings.HasPrefix(link, "data:") {
			return nil, "it answers with a link of its own, or with nothing"
		}
	}
	raw, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(raw) == 0 {
		return nil, "a picture in its answer is not base64"
	}
	return raw, ""
}

// speechLink answers with a link to speech in place of its bytes.
type speechLink struct{ links }

func (l *speechLink) Whole(body []byte) ([]byte, *openai.Error) {
	if len(bytes.TrimSpace(body)) == 0 {
		return nil, notLinked(l.model, "its speech is empty")
	}
	f, link, e := l.keep(body)
	if e != nil {
		return nil, e
	}
	out, err := json.Marshal(struct {
		URL     string `json:"url"`
		Type    string `json:"content_type"`
		Bytes   int64  `json:"bytes"`
		Expires int64  `json:"expires_at"`
	}{link, f.Type, f.Size, f.Expires.Unix()})
	if err != nil {
		return nil, notLinked(l.model, "its speech cannot be described")
	}
	return out, nil
}

// formBody is a form with the model's name that the engine knows, and pictures in the
// answer itself.
func (i *inference) formBody(model catalog.Model) []byte {
	at := i.multipart
	body := i.t.body
	type edit struct {
		from, to int64
		text     string
	}
	var edits []edit
	if catalog.FoldName(at.Model) != model.ID {
		edits = append(edits, edit{at.ModelStart, at.ModelEnd, model.Name})
	}
	if i.wantsLink() {
		edits = append(edits, edit{at.FormatStart, at.FormatEnd, formatBase64})
	}
	// From the end on, so that what is before an edit stays where it is.
	slices.SortFunc(edits, func(a, b edit) int { return cmp.Compare(b.from, a.from) })
	for _, e := range edits {
		body = slices.Concat(body[:e.from], []byte(e.text), body[e.to:])
	}
	return body
}

func notKept(err error) *openai.Error {
	e := &openai.Error{
		Status: http.StatusInternalServerError, Type: openai.TypeServer, Code: "file_not_kept",
		Message: "what the model made could not be kept on this box for a link: ask for it in the answer itself (response_format b64_json)",
	}
	switch {
	case errors.Is(err, syscall.ENOSPC):
		e.Status, e.Code = http.StatusInsufficientStorage, "no_space"
		e.Message = "the disk of this box is full, so that it keeps no file for a link: ask for it in the answer itself (response_format b64_json)"
	case errors.Is(err, files.ErrTooLarge):
		e.Message = "what the model made is larger than all room for files on this box: ask for it in the answer itself"
	}
	return e
}

func notLinked(model, why string) *openai.Error {
	return &openai.Error{
		Status: http.StatusBadGateway, Type: openai.TypeServer, Code: "engine_error",
		Message: fmt.Sprintf("the engine of %q gives no file to link to: %s", clip(model), why),
		Hint:    "llmgw logs " + clip(model),
	}
}
