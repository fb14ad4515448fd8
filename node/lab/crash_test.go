package lab

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// crashingLab is a test process that dies in the middle of its work, with a
// process on a box, one that left its session, and a mount.
func crashingLab() int {
	tb := &fakeTB{}
	l := New(tb)
	b := l.Box("b")
	_ = os.Mkdir(filepath.Join(l.Dir(), "small"), 0o755)
	if err := unix.Mount("tmpfs", filepath.Join(l.Dir(), "small"), "tmpfs", 0, "size=1m"); err != nil {
		fmt.Println("mount:", err)
	}
	for _, argv := range [][]string{{"sleep", "1000"}, {"setsid", "-f", "sleep", "1001"}} {
		go func() { _, _ = b.Run(context.Background(), argv...) }()
	}
	b.Await("1001", 10*time.Second)
	b.Await("1000", 10*time.Second)
	fmt.Println(l.id)
	if os.Getenv("CRASH") == "panic" {
		go func() { panic("on purpose") }()
	}
	select {}
}

// fakeTB lets a helper process, which is no test, use the lab.
type fakeTB struct{ testing.TB }

func (*fakeTB) Helper()                   {}
func (*fakeTB) Cleanup(func())            {}
func (*fakeTB) Logf(f string, a ...any)   { fmt.Printf(f+"\n", a...) }
func (*fakeTB) Fatalf(f string, a ...any) { fmt.Printf("fatal: "+f+"\n", a...); os.Exit(3) }
func (*fakeTB) Skipf(f string, a ...any)  { fmt.Printf("skip: "+f+"\n", a...); os.Exit(0) }

// traces lists what of a lab is still on the machine.
func traces(id string) []string {
	ours := func(name string) bool { return strings.HasPrefix(name, id) }
	found := slices.Concat(namesIn(namespaceDir, ours), namesIn(os.TempDir(), ours))
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	if bytes.Contains(mounts, []byte(id)) {
		found = append(found, "a mount")
	}
	for _, pid := range pids() {
		if p, err := ReadProcess(pid); err == nil && len(p.Args) == 2 && p.Program() == "sleep" &&
			(p.Args[1] == "1000" || p.Args[1] == "1001") {
			found = append(found, strings.Join(p.Args, " "))
		}
	}
	return found
}

// crash runs crashingLab until it is set up and returns its name and its end.
func crash(t *testing.T, how string) (id string, end func()) {
	t.Helper()
	New(t) // skips where no lab can be
	cmd, err := Helper("crash")
	if err != nil {
		t.Fatal(err)
	}
	cmd.Env = append(cmd.Env, "CRASH="+how)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if id = strings.TrimSpace(line); err != nil || !strings.HasPrefix(id, namePrefix) {
		t.Fatalf("the helper said %q, %v", line, err)
	}
	return id, func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }
}

func TestACrashedTestLeavesNothing(t *testing.T) {
	for _, how := range []string{"panic", "kill"} {
		t.Run(how, func(t *testing.T) {
			id, end := crash(t, how)
			if how == "kill" {
				Eventually(t, 20*time.Second, "two namespaces, a directory, a mount and two processes are there", func() (bool, string) {
					there := traces(id)
					return len(there) >= 6, fmt.Sprint(there)
				})
			}
			end()
			Eventually(t, 10*time.Second, "everything is removed", func() (bool, string) {
				left := traces(id)
				return len(left) == 0, fmt.Sprint(left)
			})
		})
	}
}

// TestSweepRemovesWhatIsDead plays a crash in which even the reaper died.
func TestSweepRemovesWhatIsDead(t *testing.T) {
	New(t)
	dead := owner{pid: 1 << 22, start: 1}.prefix() + "abc-" // above any pid
	living, err := self()
	if err != nil {
		t.Fatal(err)
	}
	names := []string{dead + "switch", living.prefix() + "abc-keep", "other-keep", namePrefix + "keep"}
	for _, n := range names {
		ns, err := newNamespace(n)
		if err != nil {
			t.Fatal(err)
		}
		defer os.Remove(filepath.Join(namespaceDir, n))
		defer unix.Unmount(filepath.Join(namespaceDir, n), unix.MNT_DETACH)
		ns.close()
	}
	dir := filepath.Join(os.TempDir(), dead+"1")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	New(t)
	if _, err := os.Stat(dir); err == nil {
		t.Error("the dead run's directory is still there")
	}
	for i, n := range names {
		_, err := os.Stat(filepath.Join(namespaceDir, n))
		if exists := err == nil; exists != (i > 0) {
			t.Errorf("namespace %s: exists %v", n, exists)
		}
	}
}

func TestSweepRefusesForeignNames(t *testing.T) {
	for _, name := range []string{"", "llmgwlab-", "llmgwlab-1-", "llmgwlab-x-1-a", "llmgwlab--1-1-a", "eth0", "/"} {
		if err := sweepPrefix(name); err == nil {
			t.Errorf("%q was swept", name)
		}
	}
}

func TestMountsAreUndoneFromTheDeepest(t *testing.T) {
	info := "1 2 0:3 / /x/a rw - tmpfs t rw\n1 2 0:3 / /x/a/b/c rw - tmpfs t rw\n1 2 0:3 / /x/ab rw - tmpfs t rw\n"
	if got := mountsUnder(info, "/x/a"); !slices.Equal(got, []string{"/x/a/b/c"}) {
		t.Errorf("under /x/a: %v", got)
	}
	if got := mountsUnder(info, "/x"); !slices.Equal(got, []string{"/x/a/b/c", "/x/ab", "/x/a"}) {
		t.Errorf("under /x: %v", got)
	}
}

func TestStatWithOddName(t *testing.T) {
	p, err := parseStat([]byte("42 (a) b (c) S 1 1 1 0 -1 4194560 1 2 3 4 150 50 0 0 20 0 1 0 777 1 2"))
	if err != nil || p.PID != 42 || p.State != 'S' || p.CPU != 2*time.Second || p.Start != 777 {
		t.Errorf("got %+v, %v", p, err)
	}
	for name, bad := range map[string]string{"empty": "", "no name": "42 S 1", "short": "42 (a) S 1 1", "words": "42 (a) S 1 1 1 0 -1 4194560 1 2 3 4 x y 0 0 20 0 1 0 z 1 2"} {
		if _, err := parseStat([]byte(bad)); err == nil {
			t.Errorf("%s: %q was read", name, bad)
		}
	}
}
