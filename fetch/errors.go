package fetch

import (
	"fmt"
	"strings"
)

// Kind tells why a pull failed, for programs.
type Kind string

// Kinds of failure. Only a network failure is worth an unchanged second try.
const (
	KindBadSource     Kind = "bad_source"     // the source's text cannot be understood
	KindNotFound      Kind = "not_found"      // no such file, package, version or path in the wheel
	KindNoPip         Kind = "no_pip"         // a wheel is wanted and nothing here can fetch it
	KindPip           Kind = "pip_failed"     // pip ended with an error of another kind
	KindNoSpace       Kind = "no_space"       // the disk has no room
	KindChecksum      Kind = "checksum"       // the bytes are not the pinned ones
	KindNetwork       Kind = "network"        // the package index cannot be reached
	KindUnknownFormat Kind = "unknown_format" // the file is no weight file we know
	KindBadFile       Kind = "bad_file"       // the file or archive is damaged or not usable
)

// Error says what failed with a source, why, and what to do about it.
type Error struct {
	Kind   Kind
	Source string
	Detail string // the cause, in the words of whoever said it
	Hint   string // what a person can do; may be empty
	Err    error  // underlying error; may be nil
}

// Error is one line; the hint is kept apart for whoever shows it.
func (e *Error) Error() string { return fmt.Sprintf("pull %s: %s", e.Source, e.Detail) }

// Unwrap gives the underlying error.
func (e *Error) Unwrap() error { return e.Err }

// NoSpace words a full disk, with figures.
func NoSpace(source, where string, need, free int64) *Error {
	return &Error{
		Kind: KindNoSpace, Source: source,
		Detail: fmt.Sprintf("needs %s of disk at %s, %s is free", size(need), where, size(max(free, 0))),
		Hint:   "free some space there, or choose another state directory",
	}
}

// size is a byte count as people read disk sizes.
func size(n int64) string {
	const units = "kMGTPE"
	if n < 1000 {
		return fmt.Sprintf("%d bytes", n)
	}
	f, i := float64(n)/1000, 0
	for f >= 999.95 && i < len(units)-1 {
		f, i = f/1000, i+1
	}
	return fmt.Sprintf("%.1f %cB", f, units[i])
}

// lastLines keeps the end of a program's output: at most n lines of bounded length.
func lastLines(out string, n int) string {
	lines := strings.FieldsFunc(out, func(r rune) bool { return r == '\n' || r == '\r' })
	lines = lines[max(0, len(lines)-n):]
	for i, l := range lines {
		l = strings.TrimSpace(l)
		if len(l) > maxLine {
			l = strings.ToValidUTF8(l[:maxLine], "") + "..."
		}
		lines[i] = l
	}
	return strings.Join(lines, "; ")
}

// maxLine bounds a foreign program's line in our errors.
const maxLine = 400
