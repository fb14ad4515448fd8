package token

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

// spellings are the ways in which a secret shows in a text.
func spellings(tok Token) map[string]string {
	secret := tok.Secret[:]
	decimal := strings.Trim(fmt.Sprint(secret), "[]")
	var goSyntax []string
	for _, b := range secret[4:8] {
		goSyntax = append(goSyntax, fmt.Sprintf("0x%x", b))
	}
	return map[string]string{
		"hex":               hex.EncodeToString(secret),
		"hex capitals":      strings.ToUpper(hex.EncodeToString(secret)),
		"hex with spaces":   fmt.Sprintf("% x", secret[2:8]),
		"decimal":           decimal,
		"JSON numbers":      strings.ReplaceAll(decimal, " ", ","),
		"Go syntax":         strings.Join(goSyntax, ", "),
		"base64":            base64.StdEncoding.EncodeToString(secret)[:12],
		"bytes":             string(secret),
		"quoted":            strings.Trim(fmt.Sprintf("%q", secret[2:8]), `"`),
		"binary":            strings.Trim(fmt.Sprintf("%b", secret[2:5]), "[]"),
		"octal":             strings.Trim(fmt.Sprintf("%o", secret[2:6]), "[]"),
		"the token's text":  encoding.EncodeToString(mustRaw(tok))[56:70],
		"the key it seeds":  hex.EncodeToString(tok.Key().Seed()),
		"that key, decimal": strings.Trim(fmt.Sprint([]byte(tok.Key().Seed())), "[]"),
	}
}

func mustRaw(tok Token) []byte { b, _ := tok.marshal(); return b }

func showsNoSecret(t *testing.T, where, shown string, tok Token) {
	t.Helper()
	for how, secret := range spellings(tok) {
		if strings.Contains(shown, secret) {
			t.Errorf("%s shows the secret (%s): %s", where, how, shown)
		}
	}
}

func TestNoVerbShowsTheSecret(t *testing.T) {
	tok := fixed(t)
	kept := struct {
		Name  string
		Token Token
	}{"box", tok}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "% x", "%#x", "%d", "%b", "%o", "%O", "%c", "%U", "%e", "%t", "%T", "%z", "%10.3v"} {
		for what, v := range map[string]any{
			"a token": tok, "a pointer": &tok, "a list": []Token{tok}, "a field": kept, "a pointer to a field": &kept,
			"a map": map[string]Token{"t": tok}, "an any": []any{tok}, "a wrapped list": [1]*Token{&tok},
		} {
			showsNoSecret(t, verb+" of "+what, fmt.Sprintf(verb, v), tok)
		}
	}
	for _, s := range []string{tok.String(), fmt.Sprint(tok), fmt.Sprintf("%v", &tok), fmt.Sprintf("%#v", tok)} {
		if s != "token "+tok.ID.String() {
			t.Errorf("got %q", s)
		}
	}
}

func TestNoEncoderShowsTheSecret(t *testing.T) {
	tok := fixed(t)
	for what, v := range map[string]any{
		"a token": tok, "a pointer": &tok, "a list": []Token{tok}, "a field": struct{ T Token }{tok}, "a map": map[string]any{"t": tok},
	} {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		showsNoSecret(t, "JSON of "+what, string(b), tok)
		if !strings.Contains(string(b), `"token `+tok.ID.String()+`"`) {
			t.Errorf("JSON of %s does not name the token: %s", what, b)
		}
	}
}

func TestNoLogShowsTheSecret(t *testing.T) {
	tok := fixed(t)
	var out bytes.Buffer
	for name, h := range map[string]slog.Handler{"text": slog.NewTextHandler(&out, nil), "JSON": slog.NewJSONHandler(&out, nil)} {
		log := slog.New(h)
		out.Reset()
		log.Info("made", "token", tok, "pointer", &tok, "list", []Token{tok}, slog.Group("g", "t", tok), "field", struct{ T Token }{tok})
		log.With("token", tok).WithGroup("g").Error("failed", "err", fmt.Errorf("use %v: %w", tok, &Error{Kind: Used}))
		showsNoSecret(t, "the "+name+" log", out.String(), tok)
		if !strings.Contains(out.String(), tok.ID.String()) {
			t.Errorf("the %s log does not name the token: %s", name, &out)
		}
	}
}

// TestSpellingsAreFound keeps the tests above able to fail.
func TestSpellingsAreFound(t *testing.T) {
	tok := fixed(t)
	type bare struct {
		Mesh   [32]byte
		ID     ID
		Secret [SecretSize]byte
	}
	b := bare{tok.Mesh, tok.ID, tok.Secret}
	encoded, err := json.Marshal(b)
	if err != nil {
		t.Fatal(err)
	}
	for _, shown := range []string{fmt.Sprintf("%v", b), fmt.Sprintf("%#v", b), fmt.Sprintf("%x", b), fmt.Sprintf("%d", b), fmt.Sprintf("%b", b), fmt.Sprintf("%o", b), string(encoded), text(t, tok)} {
		found := false
		for _, secret := range spellings(tok) {
			found = found || strings.Contains(shown, secret)
		}
		if !found {
			t.Errorf("not found in %s", shown)
		}
	}
}

// TestNoRefusalShowsTheSecret: whatever is wrong with a text, its parts are not
// repeated, for what was pasted may be nearly right.
func TestNoRefusalShowsTheSecret(t *testing.T) {
	tok := fixed(t)
	good := text(t, tok)
	b := raw(t, tok)
	refused := map[string]string{"the ID of a whole token": good, "the ID of a token cut short": good[:90]}
	for what, in := range refused {
		_, err := ParseID(in)
		showsNoSecret(t, what, fmt.Sprint(err), tok)
	}
	for i := range good {
		for _, bad := range []string{good[:i], good[i:], good[:i] + "1" + good[i:], good[:i] + "é" + good[i:], "x" + good} {
			_, err := Parse(bad)
			if err != nil {
				showsNoSecret(t, fmt.Sprintf("a typo at %d", i), fmt.Sprintf("%v %+v %#v", err, err, err), tok)
			}
		}
	}
	for i := range b {
		_, err := Parse(framed(b[:i]))
		if err == nil {
			t.Fatalf("%d bytes are a token", i)
		}
		showsNoSecret(t, fmt.Sprintf("a form of %d bytes", i), fmt.Sprintf("%v %#v", err, err), tok)
	}
	tok.Seeds[0].Addrs = []string{"no port"}
	_, err := tok.Text()
	if err == nil {
		t.Fatal("it was encoded")
	}
	tok.Seeds = fixed(t).Seeds
	showsNoSecret(t, "a token that cannot be encoded", fmt.Sprintf("%v %#v", err, err), tok)
}

// TestTheRowsHalfGivesNothingAway: what stands in shared state proves nothing.
func TestTheRowsHalfGivesNothingAway(t *testing.T) {
	tok := fixed(t)
	pub := tok.Key().Public().(ed25519.PublicKey)
	showsNoSecret(t, "the public key", hex.EncodeToString(pub)+string(pub), tok)
	if bytes.Contains(tok.Key().Seed(), tok.Secret[:]) {
		t.Error("the key is the secret itself")
	}
}

func TestKeyIsFixed(t *testing.T) {
	got := hex.EncodeToString(fixed(t).Key().Public().(ed25519.PublicKey))
	if want := "549d100f6b1dc46f3d629a27d2ca2723b37cb7e3277a4dd0c2fa262ee109f6ec"; got != want {
		t.Errorf("rows of issued tokens hold another key than %s", got)
	}
}

func TestWrappedErrorsKeepTheirKind(t *testing.T) {
	_, err := Parse("nonsense")
	wrapped := fmt.Errorf("join: %w", err)
	var typed *Error
	if !errors.As(wrapped, &typed) || typed.Kind != Mistyped || !errors.Is(wrapped, &Error{Kind: Mistyped}) {
		t.Errorf("got %v", wrapped)
	}
}
