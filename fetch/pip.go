package fetch

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// pipCommands are the ways to a pip, in order. uv has no download command of
// its own, but runs pip for us.
func pipCommands() [][]string {
	return [][]string{{"pip"}, {"pip3"}, {"python3", "-m", "pip"}, {"uv", "tool", "run", "pip"}}
}

const (
	pipProbeTime = 60 * time.Second // uv may have to get pip first
	pipStopTime  = 5 * time.Second  // for output after the end of the process
)

// findPip returns the command that runs pip.
func (w *Wheels) findPip(ctx context.Context, work string) ([]string, error) {
	if w.pip != nil {
		if _, err := exec.LookPath(w.pip[0]); err != nil {
			return nil, noPip(fmt.Sprintf("the configured pip cannot be run: %v", err))
		}
		return w.pip, nil
	}
	var tried []string
	for _, c := range pipCommands() {
		tried = append(tried, strings.Join(c, " "))
		if _, err := exec.LookPath(c[0]); err == nil && w.isPip(ctx, work, c) {
			return c, nil
		}
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return nil, noPip("wheels are fetched by pip, and this node has none (tried " + strings.Join(tried, ", ") + ")")
}

func noPip(detail string) *Error {
	return &Error{
		Kind: KindNoPip, Detail: detail,
		Hint: "install pip or uv on this node (Debian, Ubuntu: apt install python3-pip), or take the file from elsewhere and pull file:PATH",
	}
}

// isPip runs a candidate: a name on PATH may be a stub without Python behind it.
func (w *Wheels) isPip(ctx context.Context, work string, command []string) bool {
	ctx, cancel := context.WithTimeout(ctx, pipProbeTime)
	defer cancel()
	out := &tail{}
	cmd := w.command(ctx, work, command, "--version")
	cmd.Stdout = out
	return cmd.Run() == nil && strings.HasPrefix(out.String(), "pip ")
}

// command prepares pip in a process group of its own, with no shell, no input
// and an environment of our choice.
func (w *Wheels) command(ctx context.Context, work string, command []string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, command[0], slices.Concat(command[1:], args)...)
	cmd.Dir = work
	cmd.Env = pipEnv(w.environ, work)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = pipStopTime
	return cmd
}

// pipEnv keeps what finds pip and configures its network, and nothing that
// could carry secrets of the daemon or change how Python runs.
func pipEnv(environ []string, work string) []string {
	env := []string{"TMPDIR=" + work, "PYTHONUNBUFFERED=1", "LC_ALL=C.UTF-8"}
	for _, kv := range environ {
		name, _, _ := strings.Cut(kv, "=")
		if keptVariable(name) {
			env = append(env, kv)
		}
	}
	return env
}

func keptVariable(name string) bool {
	switch strings.ToUpper(name) {
	case "PATH", "HOME", "USER", "LOGNAME", "XDG_CONFIG_HOME", "XDG_CONFIG_DIRS", "XDG_DATA_HOME", "XDG_CACHE_HOME",
		"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "NETRC",
		"SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE":
		return true
	}
	for _, prefix := range []string{"PIP_", "UV_", "PYENV_"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// download runs pip and returns the wheel that it left in work.
func (w *Wheels) download(ctx context.Context, work, name, version string, report func(Progress)) (string, error) {
	pip, err := w.findPip(ctx, work)
	if err != nil {
		return "", err
	}
	dest, temp := filepath.Join(work, "wheel"), filepath.Join(work, "tmp")
	if err := errors.Join(os.Mkdir(dest, 0o700), os.Mkdir(temp, 0o700)); err != nil {
		return "", fmt.Errorf("get wheel: %w", err)
	}
	run := pipRun{w: w, work: work, report: report, out: &tail{}, errs: &tail{}}
	err = run.do(ctx, w.command, pip, temp,
		"download", "--no-deps", "--only-binary=:all:", "--no-cache-dir", "--no-input",
		"--disable-pip-version-check", "--progress-bar=off", "--dest="+dest, name+"=="+version)
	switch {
	case err == nil:
		return theWheel(dest, name, version)
	case ctx.Err() != nil:
		return "", ctx.Err()
	default:
		return "", explain(err, run.errs.String(), name, version)
	}
}

// theWheel finds the one file that pip must have left.
func theWheel(dest, name, version string) (string, error) {
	entries, err := os.ReadDir(dest)
	if err != nil {
		return "", fmt.Errorf("get wheel: %w", err)
	}
	i := slices.IndexFunc(entries, func(e fs.DirEntry) bool {
		return e.Type().IsRegular() && isWheelOf(e.Name(), name, version)
	})
	if i < 0 {
		return "", &Error{
			Kind: KindPip, Detail: fmt.Sprintf("pip ended well but left no wheel of %s %s", name, version),
			Hint: "try the same by hand: pip download --no-deps " + name + "==" + version,
		}
	}
	return filepath.Join(dest, entries[i].Name()), nil
}
