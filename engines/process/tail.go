package process

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"strings"
)

const (
	tailLines = 20       // shown of an engine that ended
	lineCap   = 400      // bytes of one shown line
	tailStart = 16 << 10 // bytes read back from the end of an adopted engine's log
	readCap   = 1 << 20  // bytes read in one go: a flood is skipped, not followed
	logCap    = 32 << 20 // bytes of one log file
)

// tail follows an engine's log file. The engine writes to the file whether or
// not anybody reads, so a slow reader cannot block it.
type tail struct {
	path   string
	secret string // never shown
	offset int64
	total  int64 // bytes seen or skipped, over truncations
	part   []byte
	lines  []string
}

func newTail(path, secret string, fromEnd bool) *tail {
	t := &tail{path: path, secret: secret}
	if info, err := os.Stat(path); fromEnd && err == nil && info.Size() > tailStart {
		t.offset = info.Size() - tailStart
	}
	return t
}

// poll reads what was written since the last poll and gives the number of
// bytes that the log has grown by over its life. A file that is missing has
// not grown.
func (t *tail) poll() (int64, error) {
	f, err := os.Open(t.path)
	if errors.Is(err, fs.ErrNotExist) {
		return t.total, nil
	}
	if err != nil {
		return t.total, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return t.total, err
	}
	if info.Size() < t.offset { // truncated by cap
		t.offset, t.part = 0, nil
	}
	if behind := info.Size() - t.offset; behind > readCap {
		t.total += behind - readCap
		t.offset, t.part = info.Size()-readCap, nil
	}
	b, err := io.ReadAll(io.NewSectionReader(f, t.offset, info.Size()-t.offset))
	t.offset += int64(len(b))
	t.total += int64(len(b))
	t.feed(b)
	return t.total, err
}

func (t *tail) feed(b []byte) {
	t.part = append(t.part, b...)
	for {
		i := bytes.IndexByte(t.part, '\n')
		if i < 0 {
			break
		}
		t.keep(string(t.part[:i]))
		t.part = t.part[i+1:]
	}
	// A progress bar without line ends must not pile up.
	if len(t.part) > lineCap*4 {
		t.part = append([]byte(nil), t.part[len(t.part)-lineCap:]...)
	}
}

func (t *tail) keep(line string) {
	if line = t.clean(line); line == "" {
		return
	}
	t.lines = append(t.lines, line)
	if len(t.lines) > tailLines {
		t.lines = append([]string(nil), t.lines[len(t.lines)-tailLines:]...)
	}
}

// clean makes a line fit for a terminal and a page.
func (t *tail) clean(line string) string {
	line = strings.TrimRight(line, " \t\r\n")
	if i := strings.LastIndexByte(line, '\r'); i >= 0 {
		line = line[i+1:]
	}
	line = strings.Map(func(r rune) rune {
		if r < ' ' && r != '\t' || r == 0x7f {
			return -1
		}
		return r
	}, strings.ToValidUTF8(line, "?"))
	if t.secret != "" {
		line = strings.ReplaceAll(line, t.secret, "***")
	}
	if len(line) > lineCap {
		line = strings.ToValidUTF8(line[:lineCap], "") + "..."
	}
	return line
}

// last gives the newest lines, an unfinished one included.
func (t *tail) last() []string {
	out := append([]string(nil), t.lines...)
	if line := t.clean(string(t.part)); line != "" {
		out = append(out, line)
	}
	return out
}

// cap cuts a log that has grown too large. The engine appends, so its next
// line goes to the start of the emptied file; lines written between copy and
// cut are lost, which is the price of a file that never needs the engine's help
// to rotate.
func (t *tail) cap() error {
	info, err := os.Stat(t.path)
	if err != nil || info.Size() < logCap {
		return err
	}
	src, err := os.Open(t.path)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := os.OpenFile(t.path+".1", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(dst, src)
	if err := errors.Join(err, dst.Close()); err != nil {
		return err
	}
	return os.Truncate(t.path, 0)
}
