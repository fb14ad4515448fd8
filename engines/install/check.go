package install

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"llmgw/fetch"
)

// checkTime bounds a program that is asked for its version or help. Loading
// its libraries from a slow disk is the longest part.
const checkTime = 30 * time.Second

// check is what a program said of itself while its file was as in state.
type check struct {
	state   fileState
	version string
	build   string
	err     error
}

// fileState tells one content of a path from another without reading it.
type fileState struct {
	size    int64
	changed time.Time
}

// isProgram tells whether a path leads to a file that may be run.
func isProgram(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0
}

// check runs a llama-server's --help and --version, once for each state of
// its file, and refuses one that we could not drive.
func (i *Installer) check(ctx context.Context, path string) (check, error) {
	if !filepath.IsAbs(path) {
		return check{}, errors.New("the path is not absolute")
	}
	info, err := os.Stat(path)
	if err != nil {
		return check{}, err
	}
	if !isProgram(path) {
		return check{}, errors.New("it is no program that may be run")
	}
	state := fileState{info.Size(), info.ModTime()}
	i.mu.Lock()
	known, ok := i.checks[path]
	i.mu.Unlock()
	if ok && known.state == state {
		return known, known.err
	}
	c := i.ask(ctx, path)
	if ctx.Err() != nil {
		return check{}, ctx.Err() // says nothing of the program
	}
	c.state = state
	i.mu.Lock()
	i.checks[path] = c
	i.mu.Unlock()
	return c, c.err
}

func (i *Installer) ask(ctx context.Context, path string) check {
	help, err := i.run(ctx, path, "--help")
	if err != nil {
		return check{err: fmt.Errorf("%s --help: %w", filepath.Base(path), err)}
	}
	if missing := missingFlags(help); len(missing) > 0 {
		return check{err: fmt.Errorf("it is too old or something else: its --help does not know %s", strings.Join(missing, " "))}
	}
	said, err := i.run(ctx, path, "--version")
	if err != nil {
		return check{err: fmt.Errorf("%s --version: %w", filepath.Base(path), err)}
	}
	build, err := buildOf(path)
	return check{version: versionLine(said), build: build, err: err}
}

// versionLine takes what follows "version:", in the program's own words.
func versionLine(said string) string {
	for line := range strings.Lines(said) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), "version:"); ok {
			return strings.TrimSpace(v)
		}
	}
	return "unknown"
}

// maxOutput bounds what a program may say; the help is 60 KiB long.
const maxOutput = 1 << 20

// run starts a program in an empty folder, because llama.cpp loads backends
// from where it is started, with an environment of ours and a time limit.
func (i *Installer) run(ctx context.Context, path string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	empty := filepath.Join(i.dir, partialDir, i.partialName())
	if err := os.Mkdir(empty, 0o700); err != nil {
		return "", err
	}
	defer os.RemoveAll(empty)
	for {
		out := &capped{}
		err := command(ctx, path, empty, out, args).Run()
		switch {
		case err == nil:
			return string(out.text), nil
		case !errors.Is(err, syscall.ETXTBSY):
			return "", fmt.Errorf("%w%s", err, out.lastLine())
		}
		// A child that another goroutine is just starting still holds the
		// descriptor by which the program was written (golang/go#22315).
		select {
		case <-time.After(busyWait):
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
}

// busyWait is a few times as long as a fork takes.
const busyWait = 20 * time.Millisecond

func command(ctx context.Context, path, dir string, out io.Writer, args []string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, out, out
	cmd.Env = []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=" + dir, "TMPDIR=" + dir, "LC_ALL=C.UTF-8"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	return cmd
}

// capped keeps the first bytes of a program's output and drops the rest.
type capped struct{ text []byte }

// Write never fails: the program must end by itself.
func (c *capped) Write(p []byte) (int, error) {
	c.text = append(c.text, p[:min(len(p), maxOutput-len(c.text))]...)
	return len(p), nil
}

// lastLine is why most programs end.
func (c *capped) lastLine() string {
	lines := strings.FieldsFunc(string(c.text), func(r rune) bool { return r == '\n' })
	if len(lines) == 0 {
		return ""
	}
	last := lines[len(lines)-1]
	return ": " + strings.ToValidUTF8(last[:min(len(last), 300)], "")
}

// maxLibraries bounds the libraries that count as part of a program.
const maxLibraries = 64

// buildOf tells one build of an engine from another: the SHA-256 of the
// program or, where its libraries lie beside it, of all their SHA-256 in the
// order of their names. Packaged builds have programs of a few kilobytes that
// are alike in every version, and the code is in the libraries.
func buildOf(path string) (string, error) {
	files, err := filepath.Glob(filepath.Join(filepath.Dir(path), "lib*.so"))
	if err != nil || len(files) > maxLibraries {
		files = nil // a folder of the system: its libraries are not the program's
	}
	own, err := fetch.HashFile(path)
	if err != nil || len(files) == 0 {
		return own, err
	}
	slices.Sort(files)
	all := sha256.New()
	fmt.Fprintf(all, "%s  %s\n", own, filepath.Base(path))
	for _, f := range files {
		sum, err := fetch.HashFile(f)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(all, "%s  %s\n", sum, filepath.Base(f))
	}
	return hex.EncodeToString(all.Sum(nil)), nil
}
