package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/options"
	"github.com/dgraph-io/badger/v4/pb"
	"github.com/dgraph-io/badger/v4/table"
	"github.com/dgraph-io/badger/v4/y"
)

// checkFiles looks at what badger would take for its own without a word: over a list of tables that is cut short it
// deletes the tables that are not on it any more, and without a list all of them.
func checkFiles(dir string) error {
	tables, err := filepath.Glob(filepath.Join(dir, "*.sst"))
	if err != nil {
		return err
	}
	list, err := os.ReadFile(filepath.Join(dir, badger.ManifestFilename))
	switch {
	case errors.Is(err, os.ErrNotExist) && len(tables) == 0:
		return nil // a new store
	case errors.Is(err, os.ErrNotExist):
		return &CorruptError{Dir: dir, Err: errors.New("the list of tables is missing")}
	case err != nil:
		return fmt.Errorf("open store: %w", err)
	case !wholeList(list):
		return &CorruptError{Dir: dir, Err: errors.New("the list of tables is cut short")}
	}
	return checkTables(dir)
}

// wholeList says whether the list ends where an entry ends. It begins with 8 bytes of magic; an entry is its length (4), its
// checksum (4), which badger compares, and its content.
func wholeList(data []byte) bool {
	const head = 8
	if len(data) < head {
		return false
	}
	for data = data[head:]; len(data) > 0; {
		if len(data) < head {
			return false
		}
		n := uint64(binary.BigEndian.Uint32(data))
		if n > uint64(len(data)-head) {
			return false
		}
		data = data[head+n:]
	}
	return true
}

// checkTables looks at each listed table before badger does: over a broken index, or a block that does not unpack, it panics, in a
// goroutine of its own. One that is not listed was being made when the process was killed, and goes. The layout at the end of
// a table is
//
//	index | its length (4) | checksum of the index | its length (4)
//
// with lengths in big endian.
func checkTables(dir string) error {
	file, err := os.Open(filepath.Join(dir, badger.ManifestFilename))
	if err != nil {
		return fmt.Errorf("open store: %w", err)
	}
	defer file.Close()
	manifest, _, err := badger.ReplayManifestFile(file, 0, badger.DefaultOptions(dir))
	if err != nil {
		return &CorruptError{Dir: dir, Err: fmt.Errorf("list of tables: %w", err)}
	}
	for id, is := range manifest.Tables {
		name := table.IDToFilename(id)
		data, err := os.ReadFile(filepath.Join(dir, name))
		if errors.Is(err, os.ErrNotExist) {
			return &CorruptError{Dir: dir, Err: fmt.Errorf("table %s is missing", name)}
		}
		if err != nil {
			return fmt.Errorf("open store: %w", err)
		}
		err = checkIndex(data)
		if err == nil {
			err = checkBlocks(data, is.Compression)
		}
		if err != nil {
			return &CorruptError{Dir: dir, Err: fmt.Errorf("table %s: %w", name, err)}
		}
	}
	return nil
}

var (
	errTableIndex = errors.New("its index is cut short or changed")
	errTableBlock = errors.New("a block of it is changed")
)

// checkBlocks reads all blocks of a table whose index is whole.
func checkBlocks(data []byte, packed options.CompressionType) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = errTableBlock
		}
	}()
	t, err := table.OpenInMemoryTable(data, 0, &table.Options{Compression: packed})
	if err != nil {
		return err
	}
	return t.VerifyChecksum()
}

func checkIndex(data []byte) error {
	sum, rest, ok := cutEnd(data)
	if !ok {
		return errTableIndex
	}
	index, _, ok := cutEnd(rest)
	if !ok {
		return errTableIndex
	}
	want, ok := parseChecksum(sum)
	if !ok || y.VerifyChecksum(index, want) != nil {
		return errTableIndex
	}
	return nil
}

// parseChecksum reads the two fields of the protobuf message: 1 the algorithm, left out when it is 0, and 2 the sum.
func parseChecksum(data []byte) (*pb.Checksum, bool) {
	var sum pb.Checksum
	for len(data) > 0 {
		tag := data[0]
		n, size := binary.Uvarint(data[1:])
		if size <= 0 {
			return nil, false
		}
		switch tag {
		case 1 << 3:
			sum.Algo = pb.Checksum_Algorithm(n)
		case 2 << 3:
			sum.Sum = n
		default:
			return nil, false
		}
		data = data[1+size:]
	}
	return &sum, true
}

// cutEnd takes a part off the end that is followed by its length. No part is empty.
func cutEnd(data []byte) (part, rest []byte, ok bool) {
	if len(data) < 4 {
		return nil, nil, false
	}
	body := data[:len(data)-4]
	n := binary.BigEndian.Uint32(data[len(body):])
	if n == 0 || uint64(n) > uint64(len(body)) {
		return nil, nil, false
	}
	at := len(body) - int(n)
	return body[at:], body[:at], true
}
