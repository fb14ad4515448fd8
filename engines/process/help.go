package process

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"sync"
	"time"

	"llmgw/engines"
)

const (
	helpLimit = 20 * time.Second // a binary on a cold disk, with its libraries
	helpCap   = 1 << 20          // bytes of help text that are read
)

// helpCache asks a binary once for its flags, and again when the file changed.
type helpCache struct {
	mu      sync.Mutex
	digests map[string]fileDigest    // by path
	flags   map[string]engines.Flags // by digest
}

type fileDigest struct {
	size   int64
	mtime  time.Time
	digest string
}

func newHelpCache() *helpCache {
	return &helpCache{digests: make(map[string]fileDigest), flags: make(map[string]engines.Flags)}
}

// ask gives the flags of the program at path. It runs the program in dir with
// an empty environment beside env. Calls are serialised: two replicas of one
// engine ask once.
func (c *helpCache) ask(ctx context.Context, path string, args, env []string, dir string) (engines.Flags, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	digest, err := c.digest(path)
	if err != nil {
		return engines.Flags{}, err
	}
	if f, ok := c.flags[digest]; ok {
		return f, nil
	}
	ctx, cancel := context.WithTimeout(ctx, helpLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env, cmd.Dir = env, dir
	cmd.WaitDelay = time.Second
	out := &capped{left: helpCap}
	cmd.Stdout, cmd.Stderr = out, out
	err = cmd.Run()
	f := engines.ParseHelp(string(out.bytes))
	if !f.Asked() {
		if err == nil {
			err = fmt.Errorf("it printed no flags")
		}
		return engines.Flags{}, fmt.Errorf("ask %s for its flags: %w: %s", path, err, firstLine(out.bytes))
	}
	c.flags[digest] = f
	return f, nil
}

// digest is the SHA-256 of a file, computed again when size or time changed.
func (c *helpCache) digest(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("open engine: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", fmt.Errorf("open engine: %w", err)
	}
	if !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
		return "", fmt.Errorf("open engine: %s: %w", path, fs.ErrPermission)
	}
	if d := c.digests[path]; d.digest != "" && d.size == info.Size() && d.mtime.Equal(info.ModTime()) {
		return d.digest, nil
	}
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", fmt.Errorf("read engine: %w", err)
	}
	d := fileDigest{size: info.Size(), mtime: info.ModTime(), digest: hex.EncodeToString(h.Sum(nil))}
	c.digests[path] = d
	return d.digest, nil
}

// capped keeps the first bytes of an output and swallows the rest.
type capped struct {
	bytes []byte
	left  int
}

func (c *capped) Write(p []byte) (int, error) {
	n := min(len(p), c.left)
	c.bytes = append(c.bytes, p[:n]...)
	c.left -= n
	return len(p), nil
}

func firstLine(b []byte) string {
	t := tail{}
	t.feed(append(b[:min(len(b), 4096):min(len(b), 4096)], '\n'))
	if len(t.lines) == 0 {
		return "no output"
	}
	return t.lines[0]
}
