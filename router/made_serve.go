package router

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"llmgw/mesh"
	"llmgw/router/files"
	"llmgw/router/keys"
	"llmgw/router/openai"
)

// ProtocolFiles is the stream by which a head asks another for a file that it keeps.
const ProtocolFiles = "/llmgw/files/1"

const (
	filesPath, contentPath = "files/", "content"
	// filePrefix begins the ID of a file; the peer ID of the node that keeps it follows,
	// so that any head finds it.
	filePrefix = "file-"
	// fileTime bounds the wait for another head's word on a file, and for each piece.
	fileTime = 10 * time.Second
	// maxFacts bounds what one head tells another of a file.
	maxFacts = 4 << 10
)

// FileOwner begins the IDs of files that a node keeps.
func FileOwner(peer string) string { return filePrefix + peer }

// fileRoute is a file that was made, by its ID, or its bytes.
func fileRoute(rest string) (route, bool) {
	id, ok := strings.CutPrefix(rest, filesPath)
	if !ok {
		return route{}, false
	}
	if of, content := strings.CutSuffix(id, "/"+contentPath); content && of != "" && !strings.Contains(of, "/") {
		return route{name: "file_content", method: http.MethodGet, scope: keys.ScopeInfer, dialect: openai.Plain, model: of, serve: (*Router).fileContent}, true
	}
	if id == "" || strings.Contains(id, "/") {
		return route{}, false
	}
	return route{
		name: "file", method: http.MethodGet, also: http.MethodDelete, scope: keys.ScopeInfer, dialect: openai.Plain, model: id,
		serve: (*Router).file,
	}, true
}

// fileQuestion is what one head asks another.
type fileQuestion struct {
	ID     string `json:"id"`
	Key    string `json:"key"`
	Delete bool   `json:"delete,omitempty"`
	// Content asks for the bytes from From on, behind the answer's line.
	Content bool  `json:"content,omitempty"`
	From    int64 `json:"from,omitempty"`
}

// fileAnswer is a line of JSON; no File: there is none, or not for this key.
type fileAnswer struct {
	File *files.File `json:"file,omitempty"`
}

// file tells of a file, or deletes it.
func (r *Router) file(t *request) {
	q := fileQuestion{ID: t.route.model, Key: t.key.ID, Delete: t.req.Method == http.MethodDelete}
	f, e := r.findFile(t.req.Context(), q)
	switch {
	case e != nil:
		t.fail(e)
	case q.Delete:
		t.json(map[string]any{"id": f.ID, "object": "file", "deleted": true})
	default:
		t.json(map[string]any{
			"id": f.ID, "object": "file", "bytes": f.Size, "created_at": f.Created.Unix(), "expires_at": f.Expires.Unix(),
			"filename": f.Name, "purpose": "assistants_output", "status": "processed",
		})
	}
}

// fileContent sends a file, or the part of it that is asked for.
func (r *Router) fileContent(t *request) {
	q := fileQuestion{ID: t.route.model, Key: t.key.ID}
	f, e := r.findFile(t.req.Context(), q)
	if e != nil {
		t.fail(e)
		return
	}
	content, err := r.contentOf(t.req.Context(), q, f)
	if err != nil {
		t.fail(fileAway())
		return
	}
	defer func() { _ = content.Close() }() // it was only read
	h := t.out.Header()
	h.Set("Content-Type", f.Type)
	h.Set("Content-Disposition", fmt.Sprintf("inline; filename=%q", f.Name))
	h.Set("ETag", `"`+f.ID+`"`)
	h.Set("Cache-Control", "private, max-age="+fmt.Sprint(max(int64(f.Expires.Sub(r.now()).Seconds()), 0)))
	// It may come from anywhere: no page of this box's own runs what is in it.
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", "default-src 'none'; sandbox")
	http.ServeContent(plain{t.out}, t.req, "", f.Created, content)
}

// plain is an answer as the standard library writes to it.
type plain struct{ *answer }

func (p plain) Write(b []byte) (int, error) {
	p.WriteHeader(http.StatusOK)
	if err := p.answer.Write(b); err != nil {
		return 0, err
	}
	return len(b), nil
}

// findFile asks the owner of a file for it, or has it deleted there.
func (r *Router) findFile(ctx context.Context, q fileQuestion) (files.File, *openai.Error) {
	owner, ok := ownerOf(q.ID, filePrefix)
	var answer fileAnswer
	switch {
	case !ok:
		return files.File{}, noFile(q.ID)
	case owner == r.cfg.Peer:
		answer = r.ownFile(q)
	default:
		var err error
		if answer, err = r.askFile(ctx, owner, q); err != nil {
			r.cfg.Log.Debug("the owner of a file was not reached", "owner", owner, "error", err)
			return files.File{}, fileAway()
		}
	}
	if answer.File == nil {
		return files.File{}, noFile(q.ID)
	}
	return *answer.File, nil
}

// ownFile answers for a file that would be kept here.
func (r *Router) ownFile(q fileQuestion) fileAnswer {
	f, err := r.cfg.Files.Stat(q.ID, q.Key)
	if err == nil && q.Delete {
		err = r.cfg.Files.Remove(q.ID, q.Key)
	}
	if err != nil {
		return fileAnswer{}
	}
	return fileAnswer{&f}
}

func (r *Router) askFile(ctx context.Context, owner string, q fileQuestion) (fileAnswer, error) {
	s, br, answer, err := r.openFile(ctx, owner, q)
	if err != nil {
		return answer, err
	}
	if _, err = br.ReadByte(); !errors.Is(err, io.EOF) {
		_ = s.Reset()
		return answer, errors.New("more than an answer came")
	}
	return answer, s.Close()
}

// openFile asks another head; behind the answer come the bytes that were asked for.
func (r *Router) openFile(ctx context.Context, owner string, q fileQuestion) (mesh.Stream, *bufio.Reader, fileAnswer, error) {
	var answer fileAnswer
	ctx, cancel := context.WithTimeout(ctx, fileTime)
	defer cancel()
	s, err := r.askHead(ctx, owner, ProtocolFiles, q)
	if err != nil {
		return nil, nil, answer, err
	}
	br := bufio.NewReaderSize(s, 32<<10)
	if err := readLine(br, &answer); err != nil {
		_ = s.Reset()
		return nil, nil, answer, err
	}
	return s, br, answer, nil
}

// readLine reads a line of JSON and no byte more.
func readLine(br *bufio.Reader, into any) error {
	line, err := br.ReadSlice('\n')
	if err == nil && len(line) > maxFacts {
		err = bufio.ErrBufferFull
	}
	if err != nil {
		return fmt.Errorf("read a line of %d bytes: %w", len(line), err)
	}
	return json.Unmarshal(line, into)
}

// contentOf opens the bytes of a file, here or at its owner.
func (r *Router) contentOf(ctx context.Context, q fileQuestion, f files.File) (io.ReadSeekCloser, error) {
	owner, _ := ownerOf(q.ID, filePrefix)
	if owner == r.cfg.Peer {
		content, _, err := r.cfg.Files.Open(q.ID, q.Key)
		return content, err
	}
	q.Content = true
	return &distant{r: r, ctx: ctx, owner: owner, q: q, size: f.Size}, nil
}

// distant reads a file at its owner from wherever it was sought to.
type distant struct {
	r     *Router
	ctx   context.Context
	owner string
	q     fileQuestion
	size  int64
	at    int64
	s     mesh.Stream // nil: not opened there yet
	br    *bufio.Reader
}

func (d *distant) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += d.at
	case io.SeekEnd:
		offset += d.size
	}
	if offset < 0 {
		return 0, errors.New("seek before the beginning of a file")
	}
	if offset != d.at {
		_ = d.Close()
		d.at = offset
	}
	return offset, nil
}

func (d *distant) Read(p []byte) (int, error) {
	if d.at >= d.size {
		return 0, io.EOF
	}
	if d.s == nil {
		if err := d.open(); err != nil {
			return 0, err
		}
	}
	_ = d.s.SetReadDeadline(time.Now().Add(fileTime)) // as above
	n, err := d.br.Read(p)
	d.at += int64(n)
	if errors.Is(err, io.EOF) && d.at < d.size {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

func (d *distant) open() error {
	d.q.From = d.at
	s, br, answer, err := d.r.openFile(d.ctx, d.owner, d.q)
	if err != nil {
		return err
	}
	d.s, d.br = s, br
	if answer.File == nil {
		return errors.Join(files.ErrNone, d.Close())
	}
	return nil
}

// Close gives the way to the owner up.
func (d *distant) Close() error {
	if d.s == nil {
		return nil
	}
	s := d.s
	d.s, d.br = nil, nil
	return s.Reset()
}

// ServeFile answers one stream of ProtocolFiles; s is closed or reset.
func (r *Router) ServeFile(s mesh.Stream) {
	if err := r.serveFile(s); err != nil {
		r.cfg.Log.Debug("a file was not given to another head", "peer", s.Peer(), "error", err)
		_ = s.Reset()
		return
	}
	_ = s.Close() // the asker may be gone: it is its loss
}

func (r *Router) serveFile(s mesh.Stream) error {
	_ = s.SetDeadline(time.Now().Add(fileTime)) // a stream that takes none fails in Read
	var q fileQuestion
	if err := json.NewDecoder(io.LimitReader(s, maxFacts)).Decode(&q); err != nil {
		return err
	}
	if !q.Content {
		return json.NewEncoder(s).Encode(r.ownFile(q))
	}
	content, f, err := r.cfg.Files.Open(q.ID, q.Key)
	if errors.Is(err, files.ErrNone) {
		return json.NewEncoder(s).Encode(fileAnswer{})
	}
	if err != nil {
		return err
	}
	defer func() { _ = content.Close() }() // it was only read
	if _, err := content.Seek(q.From, io.SeekStart); err != nil {
		return err
	}
	if err := json.NewEncoder(s).Encode(fileAnswer{&f}); err != nil {
		return err
	}
	_, err = io.Copy(unhurried{s, r.cfg.Limits.Write}, content)
	return err
}

// unhurried renews the deadline for each piece: a slow link is not a dead one.
type unhurried struct {
	mesh.Stream
	wait time.Duration
}

func (w unhurried) Write(p []byte) (int, error) {
	if err := w.SetWriteDeadline(time.Now().Add(w.wait)); err != nil {
		return 0, err
	}
	return w.Stream.Write(p)
}

func noFile(id string) *openai.Error {
	return &openai.Error{
		Status: http.StatusNotFound, Type: openai.TypeInvalidRequest, Code: "file_not_found",
		Message: fmt.Sprintf("no file %q is kept for this API key: what a model makes is kept for %s, for the key that asked for it", clip(id), keepText),
		Hint:    "ask the model again, and fetch what it makes sooner",
	}
}

// keepText is files.DefaultKeep for people.
const keepText = "an hour"

func fileAway() *openai.Error {
	return &openai.Error{
		Status: http.StatusServiceUnavailable, Type: openai.TypeUnavailable, Code: "node_unreachable",
		Message: "the box that keeps this file does not answer: try again",
		Hint:    "llmgw nodes", RetryAfter: time.Second,
	}
}
