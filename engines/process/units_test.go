package process

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"llmgw/engines"
	"llmgw/mesh/catalog"
)

var epoch = time.Unix(1_700_000_000, 0)

func TestPolicy(t *testing.T) {
	p := Policy{Base: time.Second, Max: 3 * time.Second, Window: time.Minute, Limit: 5, EarlyLimit: 3}
	for _, tc := range []struct {
		name  string
		ready bool
		at    []time.Duration
		want  []Decision
	}{
		{"delay doubles to the limit", true, []time.Duration{0, 1, 2, 3, 4},
			[]Decision{{Delay: time.Second, Count: 1}, {Delay: 2 * time.Second, Count: 2}, {Delay: 3 * time.Second, Count: 3},
				{Delay: 3 * time.Second, Count: 4}, {Quarantine: true, Count: 5}}},
		{"never ready is given up earlier", false, []time.Duration{0, 1, 2},
			[]Decision{{Delay: time.Second, Count: 1}, {Delay: 2 * time.Second, Count: 2}, {Quarantine: true, Count: 3}}},
		{"old crashes are forgotten", true, []time.Duration{0, 30 * time.Second, 70 * time.Second, 200 * time.Second},
			[]Decision{{Delay: time.Second, Count: 1}, {Delay: 2 * time.Second, Count: 2}, {Delay: 2 * time.Second, Count: 2},
				{Delay: time.Second, Count: 1}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := History{Ready: tc.ready}
			var got []Decision
			for _, at := range tc.at {
				var d Decision
				h, d = p.Crashed(h, epoch.Add(at))
				got = append(got, d)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestPolicyLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := Policy{
			Base: time.Duration(rapid.Int64Range(1, 1e9).Draw(t, "base")), Max: time.Duration(rapid.Int64Range(1, 1e12).Draw(t, "max")),
			Window: time.Minute, Limit: rapid.IntRange(1, 100).Draw(t, "limit"), EarlyLimit: rapid.IntRange(1, 100).Draw(t, "early"),
		}
		h := History{Ready: rapid.Bool().Draw(t, "ready")}
		now, last := epoch, time.Duration(0)
		for range 120 {
			var d Decision
			before := len(h.Crashes)
			h, d = p.Crashed(h, now)
			if d.Delay < 0 || d.Delay > p.Max || len(h.Crashes) != before+1 {
				t.Fatalf("decision %+v with %d crashes", d, len(h.Crashes))
			}
			if d.Quarantine {
				return
			}
			if d.Delay < last {
				t.Fatalf("delay fell from %s to %s", last, d.Delay)
			}
			last, now = d.Delay, now.Add(time.Millisecond)
		}
		t.Fatal("a crash loop was never given up")
	})
}

func TestProgressCountsWhatMoves(t *testing.T) {
	base := sight{logBytes: 10, rssBytes: 50 << 20, answers: true, health: engines.HealthLoading}
	for name, tc := range map[string]struct {
		next  sight
		moved bool
	}{
		"nothing":         {base, false},
		"log line":        {sight{11, base.rssBytes, true, base.health}, true},
		"memory":          {sight{10, 51 << 20, true, base.health}, true},
		"a few pages":     {sight{10, 50<<20 + 4096, true, base.health}, false},
		"memory shrinks":  {sight{10, 20 << 20, true, base.health}, false},
		"health":          {sight{10, base.rssBytes, true, engines.HealthOK}, true},
		"no answer":       {sight{10, base.rssBytes, false, base.health}, true},
		"memory is given": {sight{10, 0, true, base.health}, false},
	} {
		p := newProgress(epoch)
		p.see(base, epoch)
		later := epoch.Add(time.Minute)
		if moved := p.see(tc.next, later); moved != tc.moved {
			t.Errorf("%s: moved %v", name, moved)
		}
		if idle := p.idle(later); (idle == 0) != tc.moved {
			t.Errorf("%s: idle for %s", name, idle)
		}
	}
	p := newProgress(epoch)
	for i := range 10 {
		p.see(sight{rssBytes: 100<<20 + int64(i%2)*(64<<20)}, epoch.Add(time.Duration(i)*time.Second))
	}
	if idle := p.idle(epoch.Add(9 * time.Second)); idle != 8*time.Second {
		t.Errorf("memory that goes up and down counts as progress: idle %s", idle)
	}
}

func TestPortsAreLeasedOnce(t *testing.T) {
	p, err := newPorts([2]int{100, 103}, func(port int) bool { return port != 102 })
	if err != nil {
		t.Fatal(err)
	}
	var got []int
	for range 3 {
		port, err := p.lease(epoch)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, port)
	}
	if diff := cmp.Diff([]int{100, 101, 103}, got); diff != "" {
		t.Error(diff)
	}
	if _, err := p.lease(epoch); !errors.Is(err, errNoPort) {
		t.Errorf("a fourth port: %v", err)
	}
	p.release(100, epoch)
	p.release(100, epoch) // twice is once
	if port, err := p.lease(epoch); err != nil || port != 100 {
		t.Errorf("only the port in quarantine is left, got %d, %v", port, err)
	}
	p.release(101, epoch)
	p.release(103, epoch.Add(-time.Hour))
	if port, err := p.lease(epoch); err != nil || port != 103 {
		t.Errorf("a port in quarantine went before a rested one: %d, %v", port, err)
	}
	p.hold(101)
	if _, err := p.lease(epoch); err == nil {
		t.Error("a held port was leased")
	}
}

func TestPortLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, err := newPorts([2]int{1000, 1000 + rapid.IntRange(0, 8).Draw(t, "size")}, func(int) bool { return true })
		if err != nil {
			t.Fatal(err)
		}
		held := map[int]bool{}
		now := epoch
		for range 60 {
			now = now.Add(time.Duration(rapid.IntRange(0, 20).Draw(t, "wait")) * time.Second)
			if len(held) > 0 && rapid.Bool().Draw(t, "release") {
				for port := range held {
					p.release(port, now)
					delete(held, port)
					break
				}
				continue
			}
			port, err := p.lease(now)
			if full := len(held) == p.last-p.first+1; full != (err != nil) {
				t.Fatalf("%d held, lease says %v", len(held), err)
			}
			if err == nil && (held[port] || port < p.first || port > p.last) {
				t.Fatalf("port %d was given twice or is outside", port)
			}
			if err == nil {
				held[port] = true
			}
		}
	})
}

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

func FuzzParsePidfile(f *testing.F) {
	f.Add([]byte(`{"version":1,"run":"ab","pid":5,"port":8780,"shard":{"Model":{"id":"m"}}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := parsePidfile(b)
		if err == nil && (r.PID < 0 || r.PID == 1 || r.Run == "" || r.Port < 0 || r.Port > 65535) {
			t.Errorf("took %+v", r)
		}
	})
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

func TestPidfileRoundTrip(t *testing.T) {
	dir := t.TempDir()
	want := record{
		Version: pidfileVersion, Boot: "b", Run: "r", PID: 42, Start: 1 << 60, ArgvHash: "h", Port: 8780, Key: "k",
		Epoch: 3, Fingerprint: "f", Cgroup: "/sys/fs/cgroup/llmgw-engine-r", Ready: true, Shard: simShard("/w"),
	}
	for range 2 {
		if err := writePidfile(dir, want); err != nil {
			t.Fatal(err)
		}
	}
	got, err := readPidfile(dir)
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Error(err, diff)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("left beside the pidfile: %v, %v", entries, err)
	}
	if g := got.group(); g.cgroup == "" {
		t.Error("own cgroup was not taken")
	}
	got.Cgroup = "/sys/fs/cgroup/llmgw-engine-other"
	if g := got.group(); g.cgroup != "" {
		t.Error("another run's cgroup was taken")
	}
}

func TestFingerprintCoversWhatAProcessCannotChange(t *testing.T) {
	base, err := fingerprint(simShard("/w"))
	if err != nil {
		t.Fatal(err)
	}
	free := int64(5)
	for name, tc := range map[string]struct {
		edit func(*catalog.Shard)
		same bool
	}{
		"epoch":          {func(s *catalog.Shard) { s.Epoch++ }, true},
		"measured":       {func(s *catalog.Shard) { s.Devices = []catalog.Device{{ID: "cpu", MemoryFree: &free}} }, true},
		"alias":          {func(s *catalog.Shard) { s.Model.Aliases = []string{"x"} }, true},
		"weights' path":  {func(s *catalog.Shard) { s.Weights = "/elsewhere" }, true},
		"digest":         {func(s *catalog.Shard) { s.Model.Source.Digest = "sha256:cd" }, false},
		"name":           {func(s *catalog.Shard) { s.Model.Name = "org/sim:1" }, false},
		"flags":          {func(s *catalog.Shard) { s.Profile.Args = []string{"-b", "1"} }, false},
		"embeddings":     {func(s *catalog.Shard) { s.Profile.Embeddings = true }, false},
		"context limit":  {func(s *catalog.Shard) { s.Model.Limits.Context = 100 }, false},
		"another device": {func(s *catalog.Shard) { s.Devices = []catalog.Device{{ID: "GPU-1"}} }, false},
	} {
		s := simShard("/w")
		tc.edit(&s)
		if got, err := fingerprint(s); err != nil || (got == base) != tc.same {
			t.Errorf("%s: same %v, %v", name, got == base, err)
		}
	}
}

func TestDirectoryNamesAreShortAndApart(t *testing.T) {
	seen := map[string]replicaID{}
	for _, id := range []replicaID{
		{"a/b", 0}, {"a_b", 0}, {"a:b", 0}, {"a/b", 1}, {"..", 0}, {"../..", 0}, {".", 0}, {"", 0},
		{strings.Repeat("x", 300), 0}, {strings.Repeat("x", 301), 0}, {"a", 10}, {"a-1", 0},
	} {
		name := dirName(id)
		if len(name) > 48 || strings.ContainsAny(name, "/:") || strings.HasPrefix(name, ".") {
			t.Errorf("%v: %q", id, name)
		}
		if other, ok := seen[name]; ok {
			t.Errorf("%v and %v share %q", id, other, name)
		}
		seen[name] = id
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

func TestEngineThatEndsAtOnceIsACrash(t *testing.T) {
	r := newRig(t, `{"llmgw_sim":1}`, func(c *Config) {
		c.Binary = func(string, string) (string, bool) { return "/bin/false", true }
	})
	r.ensure(r.shard())
	if s := r.state(catalog.ReplicaQuarantined); !strings.Contains(s.Reason, "exit status 1") {
		t.Errorf("reason %q", s.Reason)
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

func script(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestHelpIsAskedOncePerBinary(t *testing.T) {
	count := filepath.Join(t.TempDir(), "count")
	path := script(t, `echo x >> `+count+`; [ "$1" = --help ] && echo "  --metrics  on"`)
	c := newHelpCache()
	for range 3 {
		f, err := c.ask(t.Context(), path, []string{"--help"}, nil, t.TempDir())
		if err != nil || !f.Has("--metrics") || f.Has("--other") {
			t.Fatalf("%+v, %v", f, err)
		}
	}
	if b, err := os.ReadFile(count); err != nil || string(b) != "x\n" {
		t.Errorf("asked %q, %v", b, err)
	}
	if err := os.WriteFile(path, []byte("#!/bin/sh\necho '  --other  on, longer'\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	if f, err := c.ask(t.Context(), path, []string{"--help"}, nil, t.TempDir()); err != nil || !f.Has("--other") {
		t.Errorf("a new binary was not asked: %v", err)
	}
}

func TestHelpSaysWhatIsWrongWithABinary(t *testing.T) {
	c := newHelpCache()
	plain := filepath.Join(t.TempDir(), "plain")
	appendTo(t, plain, "text")
	for name, tc := range map[string]struct{ path, says string }{
		"missing":        {filepath.Join(t.TempDir(), "none"), "no such file"},
		"not executable": {plain, "permission denied"},
		"library":        {script(t, `echo "error while loading shared libraries: libx.so" >&2; exit 127`), "libx.so"},
		"silent":         {script(t, `exit 0`), "no output"},
	} {
		if _, err := c.ask(t.Context(), tc.path, []string{"--help"}, nil, t.TempDir()); err == nil || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
