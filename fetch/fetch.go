// Package fetch owns the weight files of a box: it gets them from their
// sources, checks them, and keeps them by what they are.
//
// A store is one directory:
//
//	blobs/sha256-<64 hex digits>   whole, verified, read-only files
//	origins/<64 hex digits>.json   which blob a source that never changes gave
//	partial/                       work in progress; emptied by Open
//
// A file comes under blobs by one rename, after its bytes were hashed, its
// format was recognised and its content reached the disk. Whatever ends a
// pull before that leaves nothing.
//
// A pull of one source is one job however many callers wait for it:
//
//	state        next          when
//	queued       resolving     fewer than maxPulls others run
//	resolving    downloading   the source is found
//	downloading  verifying     all bytes are here
//	verifying    ready         hash and format are right, file renamed
//	any          (gone)        an error, or the last waiter left
//
// The job runs in a goroutine of its own under the waiters' joint lifetime: a
// waiter that leaves takes nothing from the others. Progress callbacks run in
// the waiter's own goroutine. All methods are safe for concurrent use. One
// process owns a store; who starts two on one directory has to prevent it.
package fetch

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// Phases of a pull, in their order.
const (
	PhaseQueued      = "queued"
	PhaseResolving   = "resolving"
	PhaseDownloading = "downloading"
	PhaseVerifying   = "verifying"
	PhaseReady       = "ready"
)

// Progress is how far a pull is. Done never falls within a pull: where a
// phase counts from its start again (a wheel is unpacked after it was
// downloaded), the former number stands until it is passed.
type Progress struct {
	Phase string `json:"phase"`
	Done  int64  `json:"done"`  // bytes
	Total int64  `json:"total"` // bytes; 0: unknown
}

// after makes p follow before: Done does not fall, and Total, when known, is
// not below it.
func (p Progress) after(before Progress) Progress {
	p.Done = max(p.Done, before.Done)
	if p.Total > 0 {
		p.Total = max(p.Total, p.Done)
	}
	return p
}

// maxPulls bounds the pulls that run at once: more would only share the same
// disk and line. Others are queued.
const maxPulls = 4

// Options are a store's seams. The zero value is what a daemon uses.
type Options struct {
	Log *slog.Logger // nil: silent
	// DiskFree measures the bytes free for this user where path is; nil asks the kernel.
	DiskFree func(path string) (int64, error)
	// Pip is the command that is followed by pip's own arguments; nil looks
	// for pip, then python3 -m pip, then uv's way to run pip.
	Pip []string
	// CacheDir keeps downloaded wheels over the life of a store, and is looked
	// into before anything is downloaded; empty keeps none.
	CacheDir string
	// Environ is the environment from which pip gets its own part; nil: the process's.
	Environ []string
}

// Store is the weight files of this box.
type Store struct {
	dir     string
	root    *os.Root
	wheels  *Wheels
	log     *slog.Logger
	free    func(string) (int64, error)
	slots   chan struct{} // one for each running pull
	recheck int64         // bytes written between two looks at the free space

	mu    sync.Mutex
	jobs  map[string]*job // by source; guarded by mu, as is:
	count int             // names work in progress
}

const (
	blobDir    = "blobs"
	originDir  = "origins"
	partialDir = "partial"
)

// Open makes or opens the store in dir and removes what a crash left half done.
func Open(dir string, o Options) (*Store, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("open weight store: %w", err)
	}
	if err := os.MkdirAll(abs, 0o755); err != nil {
		return nil, fmt.Errorf("open weight store: %w", err)
	}
	root, err := os.OpenRoot(abs)
	if err != nil {
		return nil, fmt.Errorf("open weight store: %w", err)
	}
	if err := lay(root); err != nil {
		root.Close()
		return nil, fmt.Errorf("open weight store: %w", err)
	}
	w := NewWheels(o)
	return &Store{
		dir: abs, root: root, wheels: w, log: w.log, free: w.free,
		slots: make(chan struct{}, maxPulls), recheck: recheckBytes, jobs: map[string]*job{},
	}, nil
}

// lay makes the folders and empties the one for work in progress.
func lay(root *os.Root) error {
	if err := root.RemoveAll(partialDir); err != nil {
		return err
	}
	for _, d := range []string{blobDir, originDir, partialDir} {
		if err := root.Mkdir(d, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return nil
}

// Dir is the store's absolute directory.
func (s *Store) Dir() string { return s.dir }

// Close ends the use of the store. Running pulls must have been left before.
func (s *Store) Close() error { return s.root.Close() }

// DiskFree is the number of bytes free where weights go; nil when it cannot
// be measured.
func (s *Store) DiskFree() *int64 {
	n, err := s.free(s.dir)
	if err != nil {
		return nil
	}
	return &n
}

var digestPattern = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

// blobName turns a digest into its file's name within the store.
func blobName(digest string) (string, bool) {
	if !digestPattern.MatchString(digest) {
		return "", false
	}
	return blobDir + "/" + strings.Replace(digest, ":", "-", 1), true
}

// Path is the absolute path of a whole, verified file.
func (s *Store) Path(digest string) (string, bool) {
	name, ok := blobName(digest)
	if !ok {
		return "", false
	}
	info, err := s.root.Lstat(name)
	if err != nil || !info.Mode().IsRegular() {
		return "", false
	}
	return filepath.Join(s.dir, filepath.FromSlash(name)), true
}

// Digests lists the files that are here, sorted.
func (s *Store) Digests() []string {
	entries, err := fs.ReadDir(s.root.FS(), blobDir)
	if err != nil {
		return nil
	}
	var all []string
	for _, e := range entries {
		digest := strings.Replace(e.Name(), "-", ":", 1)
		if digestPattern.MatchString(digest) && e.Type().IsRegular() {
			all = append(all, digest)
		}
	}
	slices.Sort(all)
	return all
}

// Remove deletes a file. An engine that has it open keeps its bytes. It is no
// error when the file is not there.
func (s *Store) Remove(digest string) error {
	name, ok := blobName(digest)
	if !ok {
		return fmt.Errorf("remove weights: %q is no digest", digest)
	}
	if err := s.root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove weights: %w", err)
	}
	return nil
}
