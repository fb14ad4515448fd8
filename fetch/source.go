package fetch

import (
	"path"
	"path/filepath"
	"regexp"
	"strings"
)

// reference is a source's text, understood.
type reference struct {
	text   string // as given, without the pin
	digest string // pinned sha256:<hex>; empty: none
	file   string // absolute path, for file:
	wheel  wheelRef
}

// wheelRef names a file in one released wheel.
type wheelRef struct {
	name, version string
	path          string // slash-separated, inside the archive
}

var (
	packageName    = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,126}[A-Za-z0-9])?$`)
	packageVersion = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9.+_-]{0,63}$`)
	pinPattern     = regexp.MustCompile(`^sha256=[0-9a-f]{64}$`)
)

const sourceForms = "a source is file:PATH or wheel:NAME==VERSION!PATH, with #sha256=HEX behind it to pin its content"

// maxSource bounds a source's text; paths are at most 4096 bytes.
const maxSource = 4096 + 512

// parse understands a source or says what is wrong with it.
func parse(source string) (reference, error) {
	if len(source) > maxSource || strings.ContainsRune(source, 0) {
		return reference{}, badSource(source[:min(len(source), 64)], "it is too long or holds a NUL byte")
	}
	ref := reference{text: source}
	// The pin is the last # of the text: file names may hold others.
	if i := strings.LastIndex(source, "#sha256="); i >= 0 {
		if !pinPattern.MatchString(source[i+1:]) {
			return ref, badSource(source, "the pinned SHA-256 is not 64 lower-case hex digits")
		}
		ref.text, ref.digest = source[:i], strings.Replace(source[i+1:], "=", ":", 1)
	}
	scheme, rest, _ := strings.Cut(ref.text, ":")
	switch {
	case scheme == "file" && rest != "":
		return ref.parseFile(rest)
	case scheme == "wheel":
		return ref.parseWheel(rest)
	default:
		return ref, badSource(source, "it is of no known kind")
	}
}

func badSource(source, detail string) *Error {
	return &Error{Kind: KindBadSource, Source: source, Detail: detail, Hint: sourceForms}
}

// parseFile makes the path absolute, so that the source means the same to
// every reader on this box.
func (r reference) parseFile(name string) (reference, error) {
	abs, err := filepath.Abs(name)
	if err != nil {
		return r, badSource(r.text, err.Error())
	}
	r.file, r.text = abs, "file:"+abs
	return r, nil
}

func (r reference) parseWheel(text string) (reference, error) {
	pkg, inside, found := strings.Cut(text, "!")
	name, version, pinned := strings.Cut(pkg, "==")
	switch {
	case !packageName.MatchString(name):
		return r, badSource(r.text, "the package's name is missing or holds other than letters, digits, dot, dash and underscore")
	case !pinned || !packageVersion.MatchString(version):
		return r, badSource(r.text, "an exact version is needed: NAME==VERSION")
	case !found || !insideArchive(inside):
		return r, badSource(r.text, "the path inside the wheel is missing or leaves the archive")
	}
	r.wheel = wheelRef{name: name, version: version, path: inside}
	return r, nil
}

// insideArchive tells whether a path is relative, clean and stays below its start.
func insideArchive(p string) bool {
	return p != "" && p == path.Clean(p) && !path.IsAbs(p) && p != "." && p != ".." &&
		!strings.HasPrefix(p, "../") && !strings.Contains(p, `\`)
}
