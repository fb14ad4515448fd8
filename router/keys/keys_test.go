package keys

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"llmgw/mesh/catalog"

	"github.com/google/go-cmp/cmp"
)

// rows is a catalog in memory that tells of its changes.
type rows struct {
	mu      sync.Mutex
	keys    []catalog.APIKey
	reads   int
	err     error
	changed chan struct{}
}

func (r *rows) PutAPIKey(k catalog.APIKey) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.keys = append(r.keys, k)
	r.tell()
	return r.err
}

func (r *rows) APIKeys() ([]catalog.APIKey, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reads++
	return slices.Clone(r.keys), r.err
}

func (r *rows) UpdateAPIKey(id string, fn func(*catalog.APIKey) error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := slices.IndexFunc(r.keys, func(k catalog.APIKey) bool { return k.ID == id })
	if i < 0 {
		return catalog.ErrNotFound
	}
	r.tell()
	return fn(&r.keys[i])
}

func (r *rows) RevokeAPIKey(id string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.keys = slices.DeleteFunc(r.keys, func(k catalog.APIKey) bool { return k.ID == id })
	r.tell()
	return r.err
}

func (r *rows) tell() {
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

func newTest() (*Keys, *rows) {
	r := &rows{changed: make(chan struct{}, 1)}
	return newKeys(r, r.changed, Options{Creator: "peer", Now: func() time.Time { return time.Unix(1000, 0) }}), r
}

func mustCreate(t *testing.T, k *Keys, name string, scopes ...string) (string, Info) {
	t.Helper()
	text, info, err := k.Create(name, scopes, false)
	if err != nil {
		t.Fatalf("create %q: %v", name, err)
	}
	return text, info
}

func TestKeyIsCheckedAndTold(t *testing.T) {
	k, _ := newTest()
	text, made := mustCreate(t, k, "laptop")
	if !strings.HasPrefix(text, Prefix+made.ID) || len(text) != len(Prefix)+idChars+secretChars {
		t.Errorf("key is %q, ID %q", text, made.ID)
	}
	got, err := k.Check(text)
	if err != nil {
		t.Fatalf("check: %v", err)
	}
	want := Info{ID: made.ID, Name: "laptop", Scopes: []string{ScopeInfer}, Created: time.Unix(1000, 0), Creator: "peer"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("info (-want +got):\n%s", diff)
	}
}

func TestSecretIsNotStored(t *testing.T) {
	k, r := newTest()
	text, info := mustCreate(t, k, "a")
	secret := strings.TrimPrefix(text, Prefix+info.ID)
	if row := r.keys[0]; bytes.Contains(row.Hash, []byte(secret)) || len(row.Hash) != 32 || row.ID == "" {
		t.Errorf("row is %+v", row)
	}
}

func TestWrongKeysAreRefused(t *testing.T) {
	k, _ := newTest()
	text, info := mustCreate(t, k, "a")
	other, _ := mustCreate(t, k, "b")
	_, otherSecret, _ := split(other)
	cases := map[string]struct {
		text string
		want error
	}{
		"empty":               {"", ErrMalformed},
		"of OpenAI":           {"sk-proj-abc", ErrMalformed},
		"short by one":        {text[:len(text)-1], ErrMalformed},
		"long by one":         {text + "a", ErrMalformed},
		"in capitals":         {strings.ToUpper(text), ErrMalformed},
		"with a line end":     {text[:len(text)-1] + "\n", ErrMalformed},
		"unknown ID":          {Prefix + strings.Repeat("a", idChars+secretChars), ErrUnknown},
		"another's secret":    {Prefix + info.ID + otherSecret, ErrUnknown},
		"last character off":  {text[:len(text)-1] + otherThan(text[len(text)-1]), ErrUnknown},
		"secret of one digit": {Prefix + info.ID + strings.Repeat("2", secretChars), ErrUnknown},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if info, err := k.Check(c.text); !errors.Is(err, c.want) || info.ID != "" {
				t.Errorf("info %+v, error %v, want %v", info, err, c.want)
			}
		})
	}
}

// otherThan gives another character. A secret's last one has spare bits; the
// text is what is hashed, so that no second spelling of a key exists.
func otherThan(c byte) string {
	if c == 'a' {
		return "b"
	}
	return "a"
}

func TestRevokedKeyIsRefusedFromTheNextCheckOn(t *testing.T) {
	k, _ := newTest()
	text, info := mustCreate(t, k, "a")
	if _, err := k.Check(text); err != nil {
		t.Fatalf("check: %v", err)
	}
	if _, err := k.Revoke("a"); err != nil {
		t.Fatalf("revoke: %v", err)
	}
	if _, err := k.Check(text); !errors.Is(err, ErrUnknown) {
		t.Errorf("check of %s after revoke: %v", info.ID, err)
	}
}

func TestRowsAreReadAgainOnlyAfterAChange(t *testing.T) {
	k, r := newTest()
	text, _ := mustCreate(t, k, "a")
	before := r.reads
	for range 10 {
		if _, err := k.Check(text); err != nil {
			t.Fatalf("check: %v", err)
		}
	}
	if r.reads != before+1 {
		t.Errorf("%d reads for 10 checks", r.reads-before)
	}
}

func TestStoreErrorsAreNoVerdict(t *testing.T) {
	k, r := newTest()
	text, _ := mustCreate(t, k, "a")
	r.err = errors.New("disk gone")
	if _, err := k.Check(text); err == nil || errors.Is(err, ErrUnknown) || errors.Is(err, ErrMalformed) {
		t.Errorf("check with a broken store: %v", err)
	}
	r.err = nil
	if _, err := k.Check(text); err != nil {
		t.Errorf("check after the store came back: %v", err)
	}
}

func TestCreateRefusesBadNamesAndScopes(t *testing.T) {
	k, r := newTest()
	mustCreate(t, k, "taken")
	cases := map[string]struct {
		name   string
		scopes []string
	}{
		"empty":         {"", nil},
		"blank":         {"  ", nil},
		"long":          {strings.Repeat("x", maxName+1), nil},
		"control":       {"a\x1b[31m", nil},
		"ill-formed":    {"a\xff", nil},
		"taken":         {"taken", nil},
		"taken, spaced": {" taken ", nil},
		"unknown scope": {"x", []string{"root"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var bad *NameError
			if _, _, err := k.Create(c.name, c.scopes, false); !errors.As(err, &bad) {
				t.Errorf("error is %v", err)
			}
		})
	}
	if len(r.keys) != 1 {
		t.Errorf("%d rows", len(r.keys))
	}
}

func TestCreateNeedsEntropy(t *testing.T) {
	r := &rows{changed: make(chan struct{}, 1)}
	k := newKeys(r, r.changed, Options{Entropy: strings.NewReader("too little")})
	if _, _, err := k.Create("a", nil, false); err == nil || len(r.keys) != 0 {
		t.Errorf("error %v, %d rows", err, len(r.keys))
	}
}

func TestRevokePrefersTheIDAndNamesDoubles(t *testing.T) {
	k, r := newTest()
	_, a := mustCreate(t, k, "a")
	// Two nodes can make keys of one name at the same time.
	r.keys = append(r.keys, catalog.APIKey{ID: "other", Name: "a"}, catalog.APIKey{ID: "named-as-id", Name: a.ID})
	var ambiguous *AmbiguousError
	if _, err := k.Revoke("a"); !errors.As(err, &ambiguous) || len(ambiguous.IDs) != 2 {
		t.Errorf("revoke by a double name: %v", err)
	}
	if _, err := k.Revoke("nobody"); !errors.Is(err, ErrNotFound) {
		t.Errorf("revoke of nobody: %v", err)
	}
	if got, err := k.Revoke(a.ID); err != nil || got.Name != "a" {
		t.Errorf("revoke by ID: %+v, %v", got, err)
	}
}

func TestAdminIncludesTheOtherScopes(t *testing.T) {
	cases := map[string]struct {
		scopes  []string
		allowed []string
	}{
		"infer":   {[]string{ScopeInfer}, []string{ScopeInfer}},
		"metrics": {[]string{ScopeMetrics}, []string{ScopeMetrics}},
		"admin":   {[]string{ScopeAdmin}, []string{ScopeInfer, ScopeMetrics, ScopeAdmin}},
		"none":    {nil, nil},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			for _, scope := range []string{ScopeInfer, ScopeMetrics, ScopeAdmin} {
				if got := (Info{Scopes: c.scopes}).Allows(scope); got != slices.Contains(c.allowed, scope) {
					t.Errorf("%s allows %s: %v", name, scope, got)
				}
			}
		})
	}
}

func TestRedactShowsNoSecret(t *testing.T) {
	k, _ := newTest()
	text, info := mustCreate(t, k, "a")
	if got := Redact(text); got != Prefix+info.ID+"..." {
		t.Errorf("redacted key is %q", got)
	}
	if got := Redact("hunter2"); strings.Contains(got, "hunter") {
		t.Errorf("redacted password is %q", got)
	}
}

func FuzzCheck(f *testing.F) {
	k, _ := newTest()
	text, _, err := k.Create("a", nil, false)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add(Prefix)
	f.Fuzz(func(t *testing.T, s string) {
		if _, err := k.Check(s); (err == nil) != (s == text) {
			t.Errorf("check of %q: %v", s, err)
		}
	})
}

func BenchmarkCheck(b *testing.B) {
	k, _ := newTest()
	text, _, err := k.Create("a", nil, false)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := k.Check(text); err != nil {
			b.Fatal(err)
		}
	}
}
