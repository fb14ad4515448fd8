package fetch

import (
	"context"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"llmgw/fetch/gguf/gguftest"
	"llmgw/mesh/catalog"
)

func TestFileIsCopiedAndDescribed(t *testing.T) {
	s := openStore(t, Options{})
	name, content := modelFile(t, 9<<20)
	var r recorder
	got, err := s.Pull(t.Context(), "file:"+name, r.see)
	if err != nil {
		t.Fatal(err)
	}
	want := catalog.Source{
		URI: "file:" + name, Digest: digestOf(content), SizeBytes: int64(len(content)), Format: catalog.FormatGGUF,
		Architecture: "llama", ContextTrain: 512, KVBytesPerToken: 2 * 2 * (16 + 16) * 2,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	r.wantRising(t, Progress{PhaseReady, want.SizeBytes, want.SizeBytes})
	path, ok := s.Path(want.Digest)
	if !ok {
		t.Fatal("the file has no path")
	}
	stored, err := os.ReadFile(path)
	if err != nil || string(stored) != string(content) {
		t.Errorf("stored %d bytes, %v; want the %d of the file", len(stored), err, len(content))
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o444 {
		t.Errorf("got %v, %v; want a file that nobody changes", info.Mode(), err)
	}
	wantClean(t, s, want.Digest)
}

func TestSourceOfFileIsAbsolute(t *testing.T) {
	s := openStore(t, Options{})
	name, _ := modelFile(t, 64)
	t.Chdir(filepath.Dir(name))
	got, err := s.Pull(t.Context(), "file:m.gguf", nil)
	if err != nil || got.URI != "file:"+name {
		t.Errorf("got %q, %v; want the absolute path", got.URI, err)
	}
}

func TestLinkToFileIsFollowed(t *testing.T) {
	s := openStore(t, Options{})
	name, content := modelFile(t, 64)
	link := filepath.Join(t.TempDir(), "link.gguf")
	if err := os.Symlink(name, link); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Pull(t.Context(), "file:"+link, nil); err != nil {
		t.Error(err)
	}
	wantClean(t, s, digestOf(content))
}

func TestSameContentTwiceIsOneBlob(t *testing.T) {
	s := openStore(t, Options{})
	a, content := modelFile(t, 64)
	b := writeFile(t, filepath.Join(t.TempDir(), "other.gguf"), content)
	for _, name := range []string{a, b, a} {
		if _, err := s.Pull(t.Context(), "file:"+name, nil); err != nil {
			t.Fatal(err)
		}
	}
	wantClean(t, s, digestOf(content))
}

func TestChangedFileIsPulledAnew(t *testing.T) {
	s := openStore(t, Options{})
	name, _ := modelFile(t, 64)
	if _, err := s.Pull(t.Context(), "file:"+name, nil); err != nil {
		t.Fatal(err)
	}
	changed := gguftest.Model("changed", 64)
	writeFile(t, name, changed)
	got, err := s.Pull(t.Context(), "file:"+name, nil)
	if err != nil || got.Digest != digestOf(changed) {
		t.Errorf("got %s, %v; want the new content", got.Digest, err)
	}
}

func TestSimulatedModel(t *testing.T) {
	s := openStore(t, Options{})
	content := []byte(`{"llmgw_sim": 1, "tokens": 64}`)
	name := writeFile(t, filepath.Join(t.TempDir(), "sim.json"), content)
	got, err := s.Pull(t.Context(), "file:"+name, nil)
	if err != nil || got.Format != catalog.FormatSim || got.SizeBytes != int64(len(content)) {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestPinnedDigest(t *testing.T) {
	name, content := modelFile(t, 64)
	right := strings.Replace(digestOf(content), ":", "=", 1)
	wrong := "sha256=" + strings.Repeat("0", 64)
	t.Run("right", func(t *testing.T) {
		s := openStore(t, Options{})
		got, err := s.Pull(t.Context(), "file:"+name+"#"+right, nil)
		if err != nil || got.Digest != digestOf(content) || got.URI != "file:"+name {
			t.Errorf("got %+v, %v", got, err)
		}
	})
	t.Run("right and here: the source is not asked", func(t *testing.T) {
		s := openStore(t, Options{})
		gone := writeFile(t, filepath.Join(t.TempDir(), "gone.gguf"), content)
		if _, err := s.Pull(t.Context(), "file:"+gone, nil); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(gone); err != nil {
			t.Fatal(err)
		}
		got, err := s.Pull(t.Context(), "file:"+gone+"#"+right, nil)
		if err != nil || got.Architecture != "llama" {
			t.Errorf("got %+v, %v", got, err)
		}
	})
	t.Run("wrong", func(t *testing.T) {
		s := openStore(t, Options{})
		_, err := s.Pull(t.Context(), "file:"+name+"#"+wrong, nil)
		wantKind(t, err, KindChecksum, digestOf(content), strings.Replace(wrong, "=", ":", 1))
		wantClean(t, s)
	})
}

func TestUnusableFiles(t *testing.T) {
	dir := t.TempDir()
	file := func(name string, content []byte) string {
		return "file:" + writeFile(t, filepath.Join(dir, name), content)
	}
	whole := gguftest.Model("whole", 4096)
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		source string
		kind   Kind
		word   string
	}{
		"missing":             {"file:" + filepath.Join(dir, "nowhere.gguf"), KindNotFound, "no such file"},
		"a folder":            {"file:" + dir, KindBadFile, "folder"},
		"a pipe":              {"file:" + filepath.Join(dir, "pipe"), KindBadFile, "device"},
		"empty":               {file("empty", nil), KindUnknownFormat, "not a GGUF"},
		"a zip":               {file("zip", []byte("PK\x03\x04....")), KindUnknownFormat, "not a GGUF"},
		"no JSON":             {file("brace", []byte("{ not JSON")), KindUnknownFormat, "JSON"},
		"other JSON":          {file("json", []byte(`{"model_type":"llama"}`)), KindUnknownFormat, "llmgw_sim"},
		"much JSON":           {file("long", []byte(`{"llmgw_sim":1}`+strings.Repeat(" ", maxSim))), KindUnknownFormat, "text file"},
		"GGUF of version 1":   {file("v1", []byte("GGUF\x01\x00\x00\x00")), KindBadFile, "version"},
		"header cut":          {file("cut", whole[:60]), KindBadFile, "ends inside"},
		"tensors cut":         {file("short", whole[:len(whole)-1]), KindBadFile, "the end is missing"},
		"no architecture":     {file("bare", gguftest.File{}.Bytes()), KindBadFile, "architecture"},
		"of other byte order": {file("big", gguftest.File{Order: binary.BigEndian}.Bytes()), KindBadFile, "big-endian"},
	} {
		t.Run(name, func(t *testing.T) {
			s := openStore(t, Options{})
			_, err := s.Pull(t.Context(), c.source, nil)
			e := wantKind(t, err, c.kind, c.word)
			if e.Source != c.source || e.Hint == "" {
				t.Errorf("got source %q, hint %q", e.Source, e.Hint)
			}
			wantClean(t, s)
		})
	}
}

func TestFileThatGrowsIsRefused(t *testing.T) {
	s := openStore(t, Options{})
	name, _ := modelFile(t, 2*copyBuffer)
	grow := func(p Progress) {
		if p.Phase == PhaseDownloading {
			f, err := os.OpenFile(name, os.O_APPEND|os.O_WRONLY, 0)
			if err != nil {
				t.Error(err)
				return
			}
			defer f.Close()
			if _, err := f.Write([]byte("more")); err != nil {
				t.Error(err)
			}
		}
	}
	// The callback runs beside the copy, so growth may come too late; it is
	// enough that the outcome is always one of the two right ones.
	src, err := s.Pull(t.Context(), "file:"+name, grow)
	if err != nil {
		wantKind(t, err, KindBadFile, "more bytes")
		wantClean(t, s)
		return
	}
	wantClean(t, s, src.Digest)
}

func TestNoSpace(t *testing.T) {
	name, content := modelFile(t, 3<<20)
	t.Run("known before the first byte", func(t *testing.T) {
		s := openStore(t, Options{DiskFree: func(string) (int64, error) { return keepFree + 1000, nil }})
		var r recorder
		_, err := s.Pull(t.Context(), "file:"+name, r.see)
		wantKind(t, err, KindNoSpace, "3.1 MB", "1.0 kB", s.Dir())
		for _, p := range r.all() {
			if p.Done > 0 {
				t.Errorf("wrote before it knew: %v", p)
			}
		}
		wantClean(t, s)
	})
	t.Run("others fill the disk meanwhile", func(t *testing.T) {
		looks := 0
		s := openStore(t, Options{DiskFree: func(string) (int64, error) {
			if looks++; looks > 1 {
				return keepFree, nil
			}
			return roomy, nil
		}})
		s.recheck = copyBuffer
		big, _ := modelFile(t, 3*copyBuffer)
		_, err := s.Pull(t.Context(), "file:"+big, nil)
		wantKind(t, err, KindNoSpace)
		wantClean(t, s)
	})
	t.Run("space that cannot be measured is not none", func(t *testing.T) {
		s := openStore(t, Options{DiskFree: func(string) (int64, error) { return 0, errors.New("no statfs") }})
		if _, err := s.Pull(t.Context(), "file:"+name, nil); err != nil {
			t.Error(err)
		}
		if s.DiskFree() != nil {
			t.Error("unknown space has a number")
		}
		wantClean(t, s, digestOf(content))
	})
	t.Run("the kernel's own word", func(t *testing.T) {
		s := openStore(t, Options{})
		err := s.writeError(reference{text: "file:x"}, 5000, &os.PathError{Op: "write", Err: syscall.ENOSPC})
		wantKind(t, err, KindNoSpace, "5.0 kB")
		if !errors.Is(err, syscall.ENOSPC) {
			t.Error("the cause is lost")
		}
	})
}

func TestCancelledCopyLeavesNothing(t *testing.T) {
	s := openStore(t, Options{})
	name, _ := modelFile(t, 64<<20)
	ctx, cancel := context.WithCancel(t.Context())
	_, err := s.Pull(ctx, "file:"+name, func(p Progress) {
		if p.Phase == PhaseDownloading {
			cancel()
		}
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	// The copy may have won the race to the end; a whole blob is no half one.
	wantClean(t, s, s.Digests()...)
}
