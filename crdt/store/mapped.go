package store

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	_ "unsafe" // for the linkname below

	"golang.org/x/sys/unix"
)

// Badger writes its logs and tables through memory maps of files that it has only made long, not filled. The disk
// gives out their blocks when a page is touched first, and when it has none left then, the kernel answers by SIGBUS, in a
// goroutine of badger's where nobody can recover: the process ends. Free space that was looked up before is no
// help, because others write to the disk too, at any moment.
//
// So every file gets all its blocks before badger sees the map: the call that maps it is intercepted and allocates
// them (fallocate). Where the disk is full the call waits until it is not. It gives no error, because badger has no use for
// one: it loses the rows of a table that it could not make during a compaction, and has no memtable at all after one that
// it could not make. Tables are made in badger's background, where waiting holds up nobody: what they are made of stays
// readable until they are there. The log of a new memtable is made with badger's lock held, where waiting would
// stop all reads, so a spare one is kept for it, fully allocated, and put in its place.
//
// What remains: file systems without fallocate behave as before, and so do those that write a changed block to a new place
// (btrfs, unless the directory has the attribute C).

// mmapper begins as the type of the same name in golang.org/x/sys/unix does, through which badger maps.
type mmapper struct {
	sync.Mutex
	_    map[*byte][]byte
	mmap func(addr, length uintptr, prot, flags, fd int, offset int64) (uintptr, error)
}

//go:linkname mapper golang.org/x/sys/unix.mapper
var mapper *mmapper

// mappings is the part that is one for the process, as the intercepted call is.
var mappings struct {
	hook sync.Once
	mu   sync.Mutex
	dirs map[string]*mappedDir
}

// mappedDir is a directory in which badger maps files.
type mappedDir struct {
	path    string
	log     *slog.Logger
	users   int // guarded by mappings.mu
	waiting atomic.Int64
	filled  chan struct{} // capacity 1: a memtable was full

	compactor *compactor // of the open database

	logMu  sync.Mutex
	newest *os.File    // log of the memtable that is written to, by a descriptor of our own
	spare  atomic.Bool // the spare is there, or the file system has no use for one
}

const (
	spareName = "SPARE"
	// logBytes is what badger makes the log of a memtable long, and logTouched what it writes of it at most: a memtable is
	// full at its size, and one transaction of 15 % of it is added to one that is not full, with some 30 bytes for each of its
	// at most 26,000 entries.
	logBytes, logTouched = 2 * memTableBytes, memTableBytes + memTableBytes*15/100 + 2<<20
	// waitStep is how often a full disk is asked again.
	waitStep = 50 * time.Millisecond
)

// watchMaps has the files that are mapped in dir allocated from now on. Each call is ended by one of leave.
func watchMaps(dir string, log *slog.Logger) (*mappedDir, error) {
	path, err := filepath.Abs(dir)
	if err == nil {
		path, err = filepath.EvalSymlinks(path)
	}
	if err != nil {
		return nil, err
	}
	mappings.hook.Do(interceptMaps)
	mappings.mu.Lock()
	defer mappings.mu.Unlock()
	if mappings.dirs == nil {
		mappings.dirs = map[string]*mappedDir{}
	}
	if mappings.dirs[path] == nil {
		mappings.dirs[path] = &mappedDir{path: path, log: log, filled: make(chan struct{}, 1)}
	}
	mappings.dirs[path].users++
	return mappings.dirs[path], nil
}

func (d *mappedDir) leave() {
	mappings.mu.Lock()
	defer mappings.mu.Unlock()
	if d.users--; d.users == 0 {
		delete(mappings.dirs, d.path)
		d.noteLog(-1)
	}
}

func interceptMaps() {
	mmap := mapper.mmap
	mapper.mmap = func(addr, length uintptr, prot, flags, fd int, offset int64) (uintptr, error) {
		if prot&unix.PROT_WRITE != 0 && flags&unix.MAP_SHARED != 0 && fd >= 0 {
			allocateMapped(fd, offset+int64(length))
		}
		return mmap(addr, length, prot, flags, fd, offset)
	}
}

// allocateMapped returns when a file that is about to be mapped has all its blocks. Files elsewhere are left alone.
func allocateMapped(fd int, size int64) {
	path, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
	if err != nil {
		return
	}
	mappings.mu.Lock()
	dir := mappings.dirs[filepath.Dir(path)]
	mappings.mu.Unlock()
	if dir == nil {
		return
	}
	isLog, touched := strings.HasSuffix(path, ".mem"), size
	if isLog {
		touched = min(size, logTouched)
	}
	for waiting := false; fullDisk(allocate(fd, touched)) && !(isLog && dir.useSpare(fd, path, size)); {
		if !waiting {
			waiting = true
			dir.waiting.Add(1)
			defer dir.waiting.Add(-1)
			dir.log.Warn("the disk is full; the store takes no writes until there is space", slog.String("dir", dir.path))
		}
		time.Sleep(waitStep)
	}
	if isLog {
		dir.noteLog(fd)
		select {
		case dir.filled <- struct{}{}:
		default:
		}
	}
}

// noteLog remembers the log that is written to from now on: the one that badger mapped last.
func (d *mappedDir) noteLog(fd int) {
	d.logMu.Lock()
	defer d.logMu.Unlock()
	if d.newest != nil {
		// Nothing is written through it, so that nothing is lost with an error.
		_ = d.newest.Close()
		d.newest = nil
	}
	if own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0); err == nil {
		d.newest = os.NewFile(uintptr(own), "log of the memtable")
	}
}

// syncLog makes durable what the newest memtable holds; false when its log is not known. db.Sync does the same, and then flushes
// the value log too, which costs a second flush of the disk although nothing is in it.
func (d *mappedDir) syncLog() (known bool, err error) {
	d.logMu.Lock()
	defer d.logMu.Unlock()
	if d.newest == nil {
		return false, nil
	}
	for {
		if err := unix.Fdatasync(int(d.newest.Fd())); !errors.Is(err, unix.EINTR) {
			return true, err
		}
	}
}

// allocate gives the file all its blocks without changing what it holds.
func allocate(fd int, size int64) error {
	for {
		err := unix.Fallocate(fd, 0, 0, size)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// fullDisk tells a full disk from a file system that cannot allocate beforehand.
func fullDisk(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }

// useSpare puts the spare log in the place of a new one: under its name, and behind the descriptor that badger opened.
func (d *mappedDir) useSpare(fd int, path string, size int64) bool {
	if _, err := unix.Seek(fd, 0, unix.SEEK_DATA); size != logBytes || !errors.Is(err, unix.ENXIO) {
		return false // not a new one
	}
	name := filepath.Join(d.path, spareName)
	spare, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return false
	}
	defer spare.Close()
	if !allocated(spare) || os.Rename(name, path) != nil {
		return false
	}
	d.spare.Store(false)
	// Behind the renamed file there is no way back; what dup3 may fail by passes.
	for unix.Dup3(int(spare.Fd()), fd, unix.O_CLOEXEC) != nil {
		time.Sleep(time.Millisecond)
	}
	return true
}

// allocated says whether the spare is whole.
func allocated(spare *os.File) bool {
	var is unix.Stat_t
	return unix.Fstat(int(spare.Fd()), &is) == nil && is.Size == logBytes && is.Blocks*512 >= logTouched
}

// keepSpare makes the spare log unless it is there. It fails with ENOSPC on a full disk.
func (d *mappedDir) keepSpare() error {
	if d.spare.Load() {
		return nil
	}
	name := filepath.Join(d.path, spareName)
	spare, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer spare.Close()
	if err := spare.Truncate(logBytes); err != nil {
		return err
	}
	if err := allocate(int(spare.Fd()), logTouched); fullDisk(err) {
		// A part of it would only be missing elsewhere.
		return errors.Join(err, os.Remove(name))
	} else if err != nil {
		d.spare.Store(true)
		return os.Remove(name)
	}
	d.spare.Store(true)
	return nil
}

// dropSpare gives the space of the spare to what is written when the store is closed.
func (d *mappedDir) dropSpare() error {
	d.spare.Store(false)
	if err := os.Remove(filepath.Join(d.path, spareName)); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}
