package token

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// typed are the characters that a hand may leave in a token: those of tokens, those
// that look like them, and a few that text editors put there.
const typed = "abcdefghijklmnopqrstuvwxyz234567" + "0189.-_=+/"

// passes says whether a changed text is taken for a token.
func passes(text string) bool {
	_, err := Parse(text)
	return err == nil
}

func TestEveryTypoOfOneCharacterIsCaught(t *testing.T) {
	good := text(t, fixed(t))
	for i := range len(good) {
		for _, c := range []byte(typed) {
			if c == good[i] {
				continue
			}
			if bad := good[:i] + string(c) + good[i+1:]; passes(bad) {
				t.Errorf("character %d as %q is taken: %s", i, c, bad)
			}
		}
	}
}

func TestEveryCharacterThatIsMissingOrTooMuchIsCaught(t *testing.T) {
	good := text(t, fixed(t))
	for i := range len(good) {
		if passes(good[:i] + good[i+1:]) {
			t.Errorf("without character %d it is taken", i)
		}
		for _, c := range []byte(typed) {
			if bad := good[:i] + string(c) + good[i:]; passes(bad) {
				t.Errorf("with %q before character %d it is taken", c, i)
			}
		}
	}
}

func TestEveryExchangeOfTwoCharactersIsCaught(t *testing.T) {
	good := text(t, fixed(t))
	for i := range len(good) {
		for j := i + 1; j < len(good); j++ {
			if good[i] == good[j] {
				continue
			}
			bad := []byte(good)
			bad[i], bad[j] = bad[j], bad[i]
			if passes(string(bad)) {
				t.Errorf("characters %d and %d exchanged are taken", i, j)
			}
		}
	}
}

func TestEveryCutIsCaught(t *testing.T) {
	good := text(t, fixed(t))
	for i := range len(good) {
		if passes(good[:i]) {
			t.Errorf("the first %d characters are taken", i)
		}
		if i > 0 && passes(good[i:]) {
			t.Errorf("without the first %d characters it is taken", i)
		}
	}
	if passes(good + good) {
		t.Error("pasted twice it is taken")
	}
}

// TestWholeLinesThatAreLostAreCaught: a text that a mail broke into lines, one of which
// was not marked.
func TestWholeLinesThatAreLostAreCaught(t *testing.T) {
	good := text(t, fixed(t))
	const width = 40
	var lines []string
	for rest := good; rest != ""; rest = rest[min(width, len(rest)):] {
		lines = append(lines, rest[:min(width, len(rest))])
	}
	if !passes(strings.Join(lines, "\n")) {
		t.Fatal("all lines are not taken")
	}
	for i := range lines {
		var some []string
		some = append(append(some, lines[:i]...), lines[i+1:]...)
		if passes(strings.Join(some, "\n")) {
			t.Errorf("without line %d it is taken", i)
		}
	}
}

func TestPastedAsPeopleDo(t *testing.T) {
	want := fixed(t)
	good := text(t, want)
	every := func(n int, with string) string {
		var b strings.Builder
		for i, c := range good {
			if i > 0 && i%n == 0 {
				b.WriteString(with)
			}
			b.WriteRune(c)
		}
		return b.String()
	}
	for name, in := range map[string]string{
		"capitals":              strings.ToUpper(good),
		"a capital at the head": strings.ToUpper(good[:1]) + good[1:],
		"lines of a terminal":   every(80, "\n"),
		"lines of Windows":      every(76, "\r\n") + "\r\n",
		"indented lines":        "    " + every(60, "\n    "),
		"groups of four":        every(4, " "),
		"a tab before it":       "\t" + good,
		"no-break spaces":       every(8, "\u00a0"),
		"form feeds":            "\f" + good + "\v",
		"between two of all":    every(1, " \t\r\n"),
		"ideographic spaces":    every(16, "\u3000"),
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Parse(in)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(raw(t, want), raw(t, got)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestPastedWithMoreThanTheToken says what is wrong, since it is nothing that a space
// is.
func TestPastedWithMoreThanTheToken(t *testing.T) {
	good := text(t, fixed(t))
	const odd = "the token is mistyped: it is cut short or holds a character that no token has"
	const sum = "the token is mistyped: its check characters do not match"
	const foreign = "the token is mistyped: it does not start with llmgw1."
	for name, c := range map[string]struct{ in, want string }{
		"in quotes":          {`"` + good + `"`, foreign},
		"in backquotes":      {"`" + good + "`", foreign},
		"after a command":    {"llmgw join " + good, foreign},
		"after a label":      {"token: " + good, foreign},
		"a full stop behind": {good + ".", sum},
		"a zero-width space": {good[:50] + "\u200b" + good[50:], odd},
		"a soft hyphen":      {good[:50] + "\u00ad" + good[50:], odd},
		"a byte order mark":  {"\ufeff" + good, foreign},
		"an ellipsis":        {good[:50] + "…", sum},
		"quoted in a mail":   {good[:50] + "\n> " + good[50:], odd},
		"bytes of no text":   {good[:50] + "\xff\xfe" + good[50:], odd},
		"a nul":              {good + "\x00", sum},
	} {
		t.Run(name, func(t *testing.T) { refusedAs(t, c.in, Mistyped, c.want) })
	}
}

func TestForeignTexts(t *testing.T) {
	body := strings.TrimPrefix(text(t, fixed(t)), Prefix)
	const foreign = "the token is mistyped: it does not start with llmgw1."
	for name, c := range map[string]struct {
		in   string
		kind Kind
		want string
	}{
		"nothing":                {"", Mistyped, "the token is mistyped: it is empty"},
		"only spaces":            {" \t\n", Mistyped, "the token is mistyped: it is empty"},
		"the prefix alone":       {Prefix, Mistyped, "the token is mistyped: it is cut short"},
		"check characters alone": {Prefix + "abcd", Mistyped, "the token is mistyped: it is cut short"},
		"a key of the API":       {"llmgw-sk-abcdefghijklmnop", Mistyped, foreign},
		"a key of another API":   {"sk-" + body, Mistyped, foreign},
		"no prefix":              {body, Mistyped, foreign},
		"another product":        {"k3s1." + body, Mistyped, foreign},
		"a prefix of version 0":  {"llmgw0." + body, Mistyped, foreign},
		"a prefix in words":      {"llmgwone." + body, Mistyped, foreign},
		"a prefix without a dot": {"llmgw1" + body, Mistyped, foreign},
		"no version":             {"llmgw." + body, Mistyped, foreign},
		"a version below zero":   {"llmgw-1." + body, Mistyped, foreign},
		"an endless version":     {"llmgw" + strings.Repeat("9", 40) + "." + body, Mistyped, foreign},
		"the next version":       {"llmgw2." + body, Unsupported, "the token was made by a newer llmgw: the text of the token has version 2, this llmgw knows 1"},
		"a far version":          {"LLMGW17.x", Unsupported, "the token was made by a newer llmgw: the text of the token has version 17, this llmgw knows 1"},
		"an endless text":        {Prefix + strings.Repeat("a", maxText), Mistyped, "the token is mistyped: it is far too long"},
	} {
		t.Run(name, func(t *testing.T) { refusedAs(t, c.in, c.kind, c.want) })
	}
}

// TestOneTextForOneToken: base32 of a form whose length is no multiple of five has
// spare bits, which must not make a second text.
func TestOneTextForOneToken(t *testing.T) {
	seen := map[int]bool{}
	for n := range 5 {
		tok := fixed(t, fmt.Sprintf("%s:1", longName(n+1)))
		good := text(t, tok)
		b := raw(t, tok)
		seen[len(b)%5] = true
		last := len(good) - checkChars - 1
		for _, c := range typed {
			if bad := good[:last] + string(c) + good[last+1:]; bad != good && passes(bad) {
				t.Errorf("%d bytes: the last character may be %q too", len(b), c)
			}
		}
	}
	if len(seen) != 5 {
		t.Fatalf("lengths seen: %v", seen)
	}
}
