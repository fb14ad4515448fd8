package process

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func appendTo(t *testing.T, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err == nil {
		_, err = f.WriteString(text)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestTailFollowsAGrowingFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	tl := newTail(path, "s3cret", false)
	poll := func() int64 {
		t.Helper()
		n, err := tl.poll()
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if poll() != 0 {
		t.Error("a missing file has grown")
	}
	appendTo(t, path, "one\n\ntw")
	poll()
	appendTo(t, path, "o\nkey s3cret\x1b[31m\x00 red\r\n10%\r20%\nhalf")
	if n := poll(); n != int64(len("one\n\ntwo\nkey s3cret\x1b[31m\x00 red\r\n10%\r20%\nhalf")) {
		t.Errorf("%d bytes", n)
	}
	if diff := cmp.Diff([]string{"one", "two", "key ***[31m red", "20%", "half"}, tl.last()); diff != "" {
		t.Error(diff)
	}
	before := poll()
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	appendTo(t, path, "\nanew\n")
	if after := poll(); after <= before || tl.last()[len(tl.last())-1] != "anew" {
		t.Errorf("after truncation: %d then %d, %q", before, after, tl.last())
	}
}

func TestTailIsBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	tl := newTail(path, "", false)
	for i := range 100 {
		appendTo(t, path, fmt.Sprintf("line %d %s\n", i, strings.Repeat("ä", i*10)))
	}
	appendTo(t, path, strings.Repeat("no end ", 10_000))
	if _, err := tl.poll(); err != nil {
		t.Fatal(err)
	}
	lines := tl.last()
	if len(lines) != tailLines+1 || !strings.HasPrefix(lines[0], "line 80 ") {
		t.Errorf("%d lines from %.10q", len(lines), lines[0])
	}
	for _, l := range lines {
		if len(l) > lineCap+3 {
			t.Errorf("line of %d bytes", len(l))
		}
	}
	big := filepath.Join(t.TempDir(), "big")
	appendTo(t, big, strings.Repeat("x", 3*tailStart)+"\nlast\n")
	adopted := newTail(big, "", true)
	if n, err := adopted.poll(); err != nil || n != tailStart || !slices.Contains(adopted.last(), "last") {
		t.Errorf("an adopted log was read for %d bytes: %v", n, err)
	}
}

func TestLogIsCut(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	appendTo(t, path, "begin\n")
	if err := os.Truncate(path, logCap); err != nil {
		t.Fatal(err)
	}
	writer, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	tl := newTail(path, "", false)
	if err := tl.cap(); err != nil {
		t.Fatal(err)
	}
	if _, err := writer.WriteString("after\n"); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != "after\n" {
		t.Errorf("log is %d bytes: %v", len(b), err)
	}
	if info, err := os.Stat(path + ".1"); err != nil || info.Size() != logCap {
		t.Errorf("kept: %v, %v", info, err)
	}
}
