package fetch

import (
	"archive/zip"
	"cmp"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
)

// openEntry opens a wheel, which is a zip archive, and finds one regular file in it.
func openEntry(file, name string) (*zip.ReadCloser, *zip.File, error) {
	archive, err := zip.OpenReader(file)
	if err != nil {
		return nil, nil, badArchive(err)
	}
	for _, f := range archive.File {
		if f.Name == name && f.Mode().IsRegular() {
			return archive, f, nil
		}
	}
	defer archive.Close()
	return nil, nil, &Error{
		Kind: KindNotFound, Detail: fmt.Sprintf("the wheel has no file %s", name),
		Hint: nearHint(archive.File, name),
	}
}

// badArchive words an archive or entry that cannot be read. Its checksum is
// the archive's own (CRC-32), checked while it is unpacked.
func badArchive(err error) error {
	detail := "it cannot be read: " + err.Error()
	if errors.Is(err, zip.ErrChecksum) || errors.Is(err, zip.ErrFormat) || errors.Is(err, io.ErrUnexpectedEOF) {
		detail = "the archive is damaged: " + err.Error()
	}
	return &Error{Kind: KindBadFile, Detail: detail, Hint: "pull again; if it stays, the source itself is damaged", Err: err}
}

// nearNames is how many names of an archive an error shows.
const nearNames = 5

// nearHint lists the archive's names that are most like the wanted one.
func nearHint(files []*zip.File, name string) string {
	var names []string
	for _, f := range files {
		if f.Mode().IsRegular() && len(f.Name) <= maxLine {
			names = append(names, f.Name)
		}
	}
	slices.SortStableFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(distance(a, name), distance(b, name)), cmp.Compare(a, b))
	})
	if len(names) == 0 {
		return "the wheel holds no files"
	}
	more := ""
	if len(names) > nearNames {
		more = fmt.Sprintf(" and %d others", len(names)-nearNames)
	}
	return "it has " + strings.Join(names[:min(nearNames, len(names))], ", ") + more
}

// distance says how unlike a name is the wanted one: another kind of file is
// further away than any misspelling.
func distance(name, wanted string) int {
	d := 0
	if path.Ext(name) != path.Ext(wanted) {
		d = 1000
	}
	// Both sides are cut: this only sorts a hint, and the work grows with both.
	a, b := path.Base(name), path.Base(wanted)
	return d + edits(a[:min(len(a), 100)], b[:min(len(b), 100)])
}

// edits is the Levenshtein distance in bytes.
func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
