package process

import (
	"crypto/sha256"
	"encoding/hex"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestStatIsParsedBehindAnyName(t *testing.T) {
	rest := " S 5 77 78 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 123456 1000 200 18446744073709551615"
	for _, name := range []string{"sim", "a b", ") R 1 2 3", "((", "x\n)"} {
		s, err := parseStat(9, []byte("9 ("+name+")"+rest))
		want := procStat{pid: 9, state: 'S', pgrp: 77, session: 78, threads: 1, start: 123456}
		if err != nil || s != want {
			t.Errorf("%q: %+v, %v", name, s, err)
		}
	}
	for _, bad := range []string{"", "9 (x", "9 (x)", "9 (x) S 1 2", "9 (x) S 5 a" + rest[7:], "9 (x) SS" + rest[2:]} {
		if s, err := parseStat(9, []byte(bad)); err == nil {
			t.Errorf("%q was taken: %+v", bad, s)
		}
	}
}

func TestProcessLivesUntilItsLastThread(t *testing.T) {
	for _, tc := range []struct {
		stat procStat
		want bool
	}{
		{procStat{state: 'S', threads: 1}, true}, {procStat{state: 'D', threads: 9}, true}, {procStat{state: 'T', threads: 1}, true},
		{procStat{state: 'Z', threads: 1}, false}, {procStat{state: 'X', threads: 0}, false}, {procStat{state: 'Z', threads: 4}, true},
	} {
		if got := tc.stat.alive(); got != tc.want {
			t.Errorf("%c with %d threads: %v", tc.stat.state, tc.stat.threads, got)
		}
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add([]byte("9 (x) S 5 77 78 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 123456 1000"))
	f.Fuzz(func(t *testing.T, b []byte) { _, _ = parseStat(1, b) })
}

func TestOwnerOfAPortIsKnown(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	port := l.Addr().(*net.TCPAddr).Port
	self, err := readStat(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if g := (group{leader: self.pid, start: self.start}); !g.owns(port) {
		t.Error("we do not own our port")
	}
	pid, start := bystander(t)
	if g := (group{leader: pid, start: start}); g.owns(port) {
		t.Error("a stranger owns our port")
	}
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if g := (group{leader: self.pid, start: self.start}); g.owns(c.LocalAddr().(*net.TCPAddr).Port) {
		t.Error("a connection counts as a listener")
	}
}

func TestListeningLines(t *testing.T) {
	line := "   0: 0100007F:2AF8 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1 0000"
	for name, tc := range map[string]struct {
		line string
		want string
	}{
		"listener":   {line, "4711"},
		"IPv6":       {strings.Replace(line, "0100007F", "00000000000000000000000001000000", 1), "4711"},
		"other port": {strings.Replace(line, "2AF8", "2AF9", 1), ""},
		"connected":  {strings.Replace(line, " 0A ", " 01 ", 1), ""},
		"heading":    {"  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode", ""},
		"short":      {"0: 0100007F:2AF8", ""},
		"no port":    {strings.Replace(line, ":2AF8", "", 1), ""},
	} {
		inode, ok := listening(tc.line, 11000)
		if inode != tc.want || ok != (tc.want != "") {
			t.Errorf("%s: %q, %v", name, inode, ok)
		}
	}
}

func TestCommandLineOfANewProcessIsWhole(t *testing.T) {
	want := sha256.Sum256([]byte("/bin/sleep\x001000\x00"))
	for range 40 {
		cmd := exec.Command("/bin/sleep", "1000")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		got, err := argvHashOfNew(cmd.Process.Pid, nil)
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // killed
		if err != nil || got != hex.EncodeToString(want[:]) {
			t.Fatalf("hash %q: %v", got, err)
		}
	}
}

func TestSweepTakesOldEmptyCgroupsOnly(t *testing.T) {
	base := t.TempDir()
	for _, name := range []string{"llmgw-engine-old", "llmgw-engine-used/child", "llmgw-engine-new", "other-old"} {
		if err := os.MkdirAll(filepath.Join(base, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"llmgw-engine-old", "llmgw-engine-used", "other-old"} {
		if err := os.Chtimes(filepath.Join(base, name), epoch, epoch); err != nil {
			t.Fatal(err)
		}
	}
	cgroups{base: base}.sweep(time.Now())
	var left []string
	entries, err := os.ReadDir(base)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		left = append(left, e.Name())
	}
	if diff := cmp.Diff([]string{"llmgw-engine-new", "llmgw-engine-used", "other-old"}, left); diff != "" {
		t.Error(diff)
	}
}
