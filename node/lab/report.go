package lab

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Lines of a log that a failed test prints.
const (
	daemonLines = 150
	engineLines = 40
)

func (b *Box) logFile() string { return filepath.Join(b.Dir, "daemon.log") }

// Logs is what the daemon printed, of all its runs.
func (b *Box) Logs() string {
	raw, err := os.ReadFile(b.logFile())
	if err != nil {
		return ""
	}
	return string(raw)
}

// outcryLines follow the word: the cause and the top of the stack, which the
// end of a long log no longer shows.
const outcryLines = 20

// outcry finds what no daemon may ever print, whatever its test looked at, and
// returns it with what follows.
func (b *Box) outcry() string {
	logs := b.Logs()
	for _, word := range []string{"\npanic: ", "\nfatal error: ", "WARNING: DATA RACE"} {
		if at := strings.Index(logs, word); at >= 0 {
			lines := strings.SplitN(strings.TrimSpace(logs[at:]), "\n", outcryLines+1)
			return strings.Join(lines[:min(len(lines), outcryLines)], "\n")
		}
	}
	return ""
}

// Report is what a person wants to see of a box when a test failed.
func (b *Box) Report() string {
	var out strings.Builder
	fmt.Fprintf(&out, "\n=== box %s (%s) ===\n", b.Name, b.IP())
	for _, p := range b.Processes("") {
		fmt.Fprintf(&out, "pid %d %c %s\n", p.PID, p.State, strings.Join(p.Args, " "))
	}
	fmt.Fprintf(&out, "--- daemon ---\n%s\n", lastLines(b.Logs(), daemonLines))
	for _, path := range b.engineLogs() {
		raw, _ := os.ReadFile(path)
		fmt.Fprintf(&out, "--- %s ---\n%s\n", filepath.Base(path), lastLines(string(raw), engineLines))
	}
	return out.String()
}

func (b *Box) engineLogs() []string {
	var logs []string
	_ = filepath.WalkDir(b.StateDir(), func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && strings.HasSuffix(path, ".log") {
			logs = append(logs, path)
		}
		return nil // a file that went away meanwhile is no news
	})
	return logs
}

func lastLines(s string, n int) string {
	lines := strings.Split(strings.TrimRight(s, "\n"), "\n")
	if len(lines) <= n {
		return strings.Join(lines, "\n")
	}
	return fmt.Sprintf("(%d lines before)\n", len(lines)-n) + strings.Join(lines[len(lines)-n:], "\n")
}
