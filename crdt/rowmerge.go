package crdt

import "fmt"

// MergeEncoded joins a row into one given by its encoding, nil for a row that was never made. It returns had's Length, and what
// EncodeRow gives for the Merge of both, after so many bytes of room, or nil when that is what was there. Of what is there only
// the cells that change are taken apart. Errors are those of EncodeRow, and of DecodeRow when had is not canonical; whether the
// names of its cells are UTF-8 is not looked at.
func MergeEncoded(room int, had []byte, row Row) (length uint64, merged []byte, err error) {
	var r reader
	if had != nil {
		r = readerOf(had)
		r.array(2)
		length = r.head(cborUint)
	}
	switch {
	case r.err != nil:
		return 0, nil, fmt.Errorf("decode row: %w", r.err)
	case row.Length > length:
		row = row.settled()
		if err := row.validate(); err != nil {
			return length, nil, fmt.Errorf("encode row: %w", err)
		}
		return length, appendEncoded(make([]byte, room, room+row.maxEncoded()), row), nil
	case row.Length < length || !row.Present() || len(row.Cells) == 0:
		return length, nil, nil
	}
	merged, err = r.mergeCells(room, row)
	return length, merged, err
}

// edit is a cell that takes the place of had[from:to], which is empty for a new cell.
type edit struct {
	from, to int
	name     string
}

// mergeCells joins cells into a row that was read up to its map.
func (r *reader) mergeCells(room int, row Row) ([]byte, error) {
	n := r.count(cborMap, 6)
	begin := r.at
	var few [16]edit
	edits, fresh, err := r.edits(few[:0], n, row)
	if err != nil || len(edits) == 0 {
		return nil, err
	}
	size := len(r.data) + MessageOverhead
	for _, e := range edits {
		size += cellSize(e.name, row.Cells[e.name]) - (e.to - e.from)
	}
	buf := appendHead(append(make([]byte, room, room+size), encodingVersion), cborArray, 2)
	buf = appendHead(buf, cborUint, row.Length)
	buf = appendHead(buf, cborMap, uint64(n+fresh))
	for _, e := range edits {
		buf = appendCell(append(buf, r.data[begin:e.from]...), e.name, row.Cells[e.name])
		begin = e.to
	}
	return append(buf, r.data[begin:]...), nil
}

// edits goes through n encoded cells and those of a row side by side. fresh is how many cells are new.
func (r *reader) edits(edits []edit, n int, row Row) (_ []edit, fresh int, err error) {
	var few [16]string
	names := sortedNames(few[:0], row)
	var last []byte
	for i := 0; i < n && r.err == nil; i++ {
		from := r.at
		name, had := r.cut(cborText), r.cell()
		if i > 0 && compareNames(string(last), string(name)) >= 0 {
			r.fail("names out of order")
		}
		last = name
		for len(names) > 0 && compareNames(names[0], string(name)) < 0 {
			edits, names, fresh = append(edits, edit{from, from, names[0]}), names[1:], fresh+1
		}
		if len(names) > 0 && names[0] == string(name) {
			if row.Cells[names[0]].Compare(had) > 0 {
				edits = append(edits, edit{from, r.at, names[0]})
			}
			names = names[1:]
		}
	}
	for _, name := range names {
		edits, fresh = append(edits, edit{r.at, r.at, name}), fresh+1
	}
	if err := r.end(); err != nil {
		return nil, 0, fmt.Errorf("decode row: %w", err)
	}
	for _, e := range edits {
		if err := ValidateName(e.name); err != nil {
			return nil, 0, fmt.Errorf("encode row: %w", err)
		}
	}
	return edits, fresh, nil
}
