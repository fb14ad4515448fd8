package hardware

import (
	"errors"
	"io"
	"io/fs"
	"strconv"
	"strings"
)

// maxFile bounds a kernel file; the longest, cpuinfo of a box with a thousand
// threads, stays below 2 MiB.
const maxFile = 4 << 20

// read returns a kernel file's text without surrounding space; false when it
// cannot be read.
func (h *Hardware) read(name string) (string, bool) {
	f, err := h.fsys.Open(name)
	if err != nil {
		return "", false
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxFile))
	if err != nil {
		return "", false
	}
	return strings.TrimSpace(string(b)), true
}

// readInt reads a file that holds one number.
func (h *Hardware) readInt(name string) (int64, bool) {
	text, ok := h.read(name)
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseInt(text, 10, 64)
	return n, err == nil
}

// exists tells whether a path is there, whatever it is.
func (h *Hardware) exists(name string) bool {
	_, err := fs.Stat(h.fsys, name)
	return err == nil || errors.Is(err, fs.ErrPermission)
}

// glob lists what matches; a folder that is not there gives nothing.
func (h *Hardware) glob(pattern string) []string {
	names, err := fs.Glob(h.fsys, pattern)
	if err != nil {
		return nil
	}
	return names
}

// field finds "name<sep>value" among a text's lines.
func field(text, name, sep string) (string, bool) {
	for line := range strings.Lines(text) {
		key, value, ok := strings.Cut(line, sep)
		if ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value), true
		}
	}
	return "", false
}
