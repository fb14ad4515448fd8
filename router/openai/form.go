package openai

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime"
	"strings"
)

const (
	// maxPartHeader bounds the headers of one part; file names are the longest.
	maxPartHeader = 8 << 10
	// maxParts bounds the parts of one body.
	maxParts = 256
	// maxFormField bounds the fields that are kept; a longer one is the
	// engine's to read.
	maxFormField = 4 << 10
	// formWindow is read at once while the end of a part is looked for.
	formWindow = 64 << 10
)

// Form is what the head needs to know of a multipart body.
type Form struct {
	Model  string // empty: absent
	Stream bool
	// Fields are all that are no files and at most 4 KiB long; of doubled ones
	// the last counts.
	Fields map[string]string
	// ModelStart and ModelEnd are where the model's name stands in the body,
	// FormatStart and FormatEnd where the last response_format does; 0: absent.
	ModelStart, ModelEnd   int64
	FormatStart, FormatEnd int64
	Doubled                bool // several parts name one
	Files                  int
	FileBytes              int64
}

// FormError says what is wrong with a multipart body, and where.
type FormError struct {
	Offset int64
	Detail string
}

func (e *FormError) Error() string {
	return fmt.Sprintf("multipart body, byte %d: %s", e.Offset, e.Detail)
}

// ScanForm finds the small fields of a multipart body wherever they stand, the
// file before them included, and holds no more of it than a window. The body
// stays as it is. Errors are *FormError, or those of body.
func ScanForm(body io.ReaderAt, size int64, contentType string) (Form, error) {
	kind, params, err := mime.ParseMediaType(contentType)
	switch boundary := params["boundary"]; {
	case err != nil || !strings.HasPrefix(kind, "multipart/"):
		return Form{}, &FormError{0, "the Content-Type is not multipart/form-data"}
	case boundary == "" || len(boundary) > 70:
		return Form{}, &FormError{0, "the Content-Type has no boundary of 1 to 70 characters"}
	default:
		s := formScan{body: body, size: size, delimiter: []byte("\r\n--" + boundary), window: make([]byte, formWindow)}
		s.form.Fields = make(map[string]string)
		err := s.run()
		return s.form, err
	}
}

type formScan struct {
	body      io.ReaderAt
	size      int64
	delimiter []byte // with the line end before it
	window    []byte
	form      Form
}

func (s *formScan) run() error {
	at, err := s.first()
	if err != nil {
		return err
	}
	for range maxParts {
		last, next, err := s.lineEnd(at)
		if err != nil || last {
			return err
		}
		if at, err = s.part(next); err != nil {
			return err
		}
	}
	return &FormError{at, fmt.Sprintf("more than %d parts", maxParts)}
}

// first finds the end of the first delimiter, which may stand at the beginning.
func (s *formScan) first() (int64, error) {
	line := s.delimiter[len("\r\n"):]
	head, err := s.read(0, len(line))
	if err != nil {
		return 0, err
	}
	if bytes.Equal(head, line) {
		return int64(len(line)), nil
	}
	at, err := s.find(0)
	if err != nil {
		return 0, err
	}
	if at < 0 {
		return 0, &FormError{0, "the boundary of the Content-Type is not in the body"}
	}
	return at + int64(len(s.delimiter)), nil
}

// lineEnd reads what follows a delimiter: the end of all, or a line end.
func (s *formScan) lineEnd(at int64) (last bool, next int64, err error) {
	rest, err := s.read(at, 80)
	if err != nil {
		return false, 0, err
	}
	if bytes.HasPrefix(rest, []byte("--")) {
		return true, 0, nil
	}
	trimmed := bytes.TrimLeft(rest, " \t")
	if !bytes.HasPrefix(trimmed, []byte("\r\n")) {
		return false, 0, &FormError{at, "a line end is missing behind the boundary"}
	}
	return false, at + int64(len(rest)-len(trimmed)+len("\r\n")), nil
}

// part reads a part and gives the end of the delimiter behind it.
func (s *formScan) part(at int64) (int64, error) {
	header, start, err := s.header(at)
	if err != nil {
		return 0, err
	}
	end, err := s.find(start - int64(len("\r\n"))) // an empty part shares its line end
	if err != nil {
		return 0, err
	}
	if end < 0 {
		return 0, &FormError{s.size, "the body ends within a part"}
	}
	next := end + int64(len(s.delimiter))
	if end < start {
		end = start
	}
	name, file, ok := disposition(header)
	switch {
	case !ok:
		return 0, &FormError{at, "a part has no Content-Disposition: form-data with a name"}
	case file:
		s.form.Files++
		s.form.FileBytes += end - start
	case end-start <= maxFormField:
		value, err := s.read(start, int(end-start))
		if err != nil {
			return 0, err
		}
		if err := s.field(name, string(value), start); err != nil {
			return 0, err
		}
	case name == "model":
		return 0, &FormError{start, fmt.Sprintf("the model's name is longer than %d bytes", maxModelBytes)}
	}
	return next, nil
}

func (s *formScan) field(name, value string, start int64) error {
	switch f := &s.form; name {
	case "model":
		if len(value) > maxModelBytes {
			return &FormError{start, fmt.Sprintf("the model's name is longer than %d bytes", maxModelBytes)}
		}
		f.Doubled = f.ModelEnd > 0
		f.Model, f.ModelStart, f.ModelEnd = value, start, start+int64(len(value))
	case "response_format":
		f.FormatStart, f.FormatEnd = start, start+int64(len(value))
	case "stream":
		switch strings.ToLower(strings.TrimSpace(value)) {
		case "true", "1", "on", "yes":
			f.Stream = true
		case "false", "0", "off", "no", "":
			f.Stream = false
		default:
			return &FormError{start, "stream must be true or false"}
		}
	}
	s.form.Fields[name] = value
	return nil
}

// header gives a part's headers and where its value begins.
func (s *formScan) header(at int64) (header []byte, start int64, err error) {
	head, err := s.read(at, maxPartHeader)
	if err != nil {
		return nil, 0, err
	}
	if bytes.HasPrefix(head, []byte("\r\n")) {
		return nil, at + int64(len("\r\n")), nil
	}
	end := bytes.Index(head, []byte("\r\n\r\n"))
	switch {
	case end >= 0:
		return bytes.Clone(head[:end]), at + int64(end+len("\r\n\r\n")), nil
	case len(head) < maxPartHeader:
		return nil, 0, &FormError{s.size, "the body ends within the headers of a part"}
	}
	return nil, 0, &FormError{at, fmt.Sprintf("the headers of a part are longer than %d bytes", maxPartHeader)}
}

// disposition reads the name of a part and whether it is a file.
func disposition(header []byte) (name string, file, ok bool) {
	for line := range bytes.SplitSeq(header, []byte("\r\n")) {
		key, value, found := bytes.Cut(line, []byte(":"))
		if !found || !strings.EqualFold(string(bytes.TrimSpace(key)), "Content-Disposition") {
			continue
		}
		kind, params, err := mime.ParseMediaType(string(value))
		if err != nil || kind != "form-data" {
			return "", false, false
		}
		_, file = params["filename"]
		name, ok = params["name"]
		return name, file, ok
	}
	return "", false, false
}

// read gives up to n bytes at an offset, fewer at the body's end; they are
// valid until the next read.
func (s *formScan) read(at int64, n int) ([]byte, error) {
	n = int(min(int64(n), s.size-at))
	if n <= 0 {
		return nil, nil
	}
	got, err := s.body.ReadAt(s.window[:n], at)
	if got < n {
		if err == nil || errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, fmt.Errorf("read the multipart body: %w", err)
	}
	return s.window[:n], nil
}

// find looks for the delimiter from an offset on; -1: it does not come.
func (s *formScan) find(at int64) (int64, error) {
	for {
		window, err := s.read(at, len(s.window))
		if err != nil {
			return 0, err
		}
		if i := bytes.Index(window, s.delimiter); i >= 0 {
			return at + int64(i), nil
		}
		if len(window) < len(s.window) {
			return -1, nil
		}
		at += int64(len(window) - len(s.delimiter) + 1)
	}
}
