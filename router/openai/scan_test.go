package openai

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// named are the two fields that every API has.
type named struct {
	Model  string
	Stream bool
}

func TestScanFindsModelAndStream(t *testing.T) {
	cases := map[string]struct {
		body string
		want named
	}{
		"plain":                  {`{"model":"m","stream":true}`, named{"m", true}},
		"space everywhere":       {" \n{ \"model\" :\t\"m\" , \"stream\" : true } \r\n", named{"m", true}},
		"absent":                 {`{}`, named{}},
		"null equals absent":     {`{"model":null,"stream":null}`, named{}},
		"last of doubled counts": {`{"model":"a","stream":true,"model":"b","stream":false}`, named{"b", false}},
		"null undoes":            {`{"model":"a","model":null}`, named{}},
		"escaped key":            {`{"mod\u0065l":"m"}`, named{"m", false}},
		"escaped value":          {`{"model":"org\/m\u00fc"}`, named{"org/mü", false}},
		"nested are not ours":    {`{"metadata":{"model":"x","stream":true},"a":[{"model":"y"}],"model":"m"}`, named{"m", false}},
		"key case counts":        {`{"Model":"x","model":"m"}`, named{"m", false}},
		"number spellings":       {`{"temperature":1e400,"k":-0.0E-7,"seed":9223372036854775807,"model":"m"}`, named{"m", false}},
		"lone surrogate":         {`{"a":"\ud800","model":"m"}`, named{"m", false}},
		"ill-formed UTF-8":       {"{\"a\":\"\xff\xfe\",\"model\":\"m\"}", named{"m", false}},
		"text at all lengths":    {`{"a":"1234567","b":"12345678","c":"123456789\"","model":"m"}`, named{"m", false}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := Scan([]byte(c.body))
			if err != nil {
				t.Fatalf("scan: %v", err)
			}
			if diff := cmp.Diff(c.want, named{got.Model, got.Stream}); diff != "" {
				t.Errorf("request (-want +got):\n%s", diff)
			}
		})
	}
}

func TestScanSaysWhereAndWhat(t *testing.T) {
	cases := map[string]struct {
		body string
		want SyntaxError
	}{
		"empty":             {``, SyntaxError{0, "a JSON object", "the end of the body"}},
		"no object":         {`[1]`, SyntaxError{0, "a JSON object", `"["`}},
		"cut":               {`{"model":"m"`, SyntaxError{12, `"," or "}"`, "the end of the body"}},
		"cut in text":       {`{"model":"m`, SyntaxError{11, "the closing quote of a string", "the end of the body"}},
		"comma missing":     {`{"a":1 "b":2}`, SyntaxError{7, `"," or "}"`, `"\""`}},
		"comma too many":    {`{"a":1,}`, SyntaxError{7, "a key in quotes", `"}"`}},
		"comma in list":     {`{"a":[1,]}`, SyntaxError{8, "a value", `"]"`}},
		"wrong closing":     {`{"a":[1}}`, SyntaxError{7, `"," or "]"`, `"}"`}},
		"colon missing":     {`{"a" 1}`, SyntaxError{5, `":"`, `"1"`}},
		"value missing":     {`{"a":}`, SyntaxError{5, "a value", `"}"`}},
		"bad word":          {`{"a":nul}`, SyntaxError{8, "null", `"}"`}},
		"python's True":     {`{"stream":True}`, SyntaxError{10, "a value", `"T"`}},
		"single quotes":     {`{'a':1}`, SyntaxError{1, "a key in quotes", `"'"`}},
		"leading zero":      {`{"a":01}`, SyntaxError{6, `"," or "}"`, `"1"`}},
		"bare minus":        {`{"a":-}`, SyntaxError{6, "a digit", `"}"`}},
		"bare exponent":     {`{"a":1e}`, SyntaxError{7, "a digit", `"}"`}},
		"bare point":        {`{"a":1.}`, SyntaxError{7, "a digit", `"}"`}},
		"bad escape":        {`{"a":"\x"}`, SyntaxError{7, "an escape", `"x"`}},
		"bad hex":           {`{"a":"\u12g4"}`, SyntaxError{10, "four hex digits", `"g"`}},
		"escape at the end": {`{"a":"\`, SyntaxError{7, "an escape", "the end of the body"}},
		"line end in text":  {"{\"a\":\"x\ny\"}", SyntaxError{7, `an escape such as \n in place of a control character`, `"\n"`}},
		"two objects":       {`{}{}`, SyntaxError{2, "the end of the body", `"{"`}},
		"byte order mark":   {"\ufeff{}", SyntaxError{0, "a JSON object", `"\xef"`}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := Scan([]byte(c.body))
			var got *SyntaxError
			if !errors.As(err, &got) {
				t.Fatalf("error is %v, not a SyntaxError", err)
			}
			if diff := cmp.Diff(c.want, *got); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
		})
	}
}

func TestScanNamesTheFieldOfWrongType(t *testing.T) {
	cases := map[string]struct{ body, param string }{
		"model is a number": {`{"model":7}`, "model"},
		"model is a list":   {`{"model":["a"]}`, "model"},
		"model is too long": {`{"model":"` + strings.Repeat("x", maxModelBytes) + `"}`, "model"},
		"stream is a word":  {`{"stream":"true"}`, "stream"},
		"stream is 1":       {`{"stream":1}`, "stream"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := Scan([]byte(c.body))
			var got *FieldError
			if !errors.As(err, &got) || got.Param != c.param {
				t.Fatalf("error is %v, not about %q", err, c.param)
			}
		})
	}
}

func TestScanBoundsNesting(t *testing.T) {
	nested := func(depth int) []byte {
		return []byte(`{"a":` + strings.Repeat("[", depth) + strings.Repeat("]", depth) + `}`)
	}
	if _, err := Scan(nested(maxDepth)); err != nil {
		t.Errorf("%d levels: %v", maxDepth, err)
	}
	var tooDeep *SyntaxError
	if _, err := Scan(nested(maxDepth + 2)); !errors.As(err, &tooDeep) {
		t.Errorf("%d levels: %v, not a SyntaxError", maxDepth+2, err)
	}
	mixed := []byte(`{"a":` + strings.Repeat(`[{"b":`, 200) + `1` + strings.Repeat(`}]`, 200) + `,"model":"m"}`)
	if got, err := Scan(mixed); err != nil || got.Model != "m" {
		t.Errorf("mixed nesting: %v, %v", got, err)
	}
}

// oracle is the standard library's view of the same body.
func oracle(body []byte) (named, bool) {
	var fields map[string]json.RawMessage
	if json.Unmarshal(body, &fields) != nil || fields == nil {
		return named{}, false
	}
	var req named
	if json.Unmarshal(fields["model"], &req.Model) != nil && fields["model"] != nil {
		return named{}, false
	}
	if json.Unmarshal(fields["stream"], &req.Stream) != nil && fields["stream"] != nil {
		return named{}, false
	}
	return req, true
}

// checkAgainstOracle holds for bodies of moderate depth and names.
func checkAgainstOracle(t interface{ Fatalf(string, ...any) }, body []byte) {
	want, valid := oracle(body)
	got, err := Scan(body)
	if len(body) > maxDepth {
		return // nesting and names may be over our bounds
	}
	var field *FieldError
	if errors.As(err, &field) && field.Param != "model" && field.Param != "stream" {
		return // the oracle reads no other fields
	}
	if valid != (err == nil) {
		t.Fatalf("%q: scan says %v, encoding/json says valid: %v", body, err, valid)
	}
	if !utf8.Valid(body) {
		return // the oracle mends what is no UTF-8
	}
	if valid && (named{got.Model, got.Stream}) != want {
		t.Fatalf("%q: scan says %+v, encoding/json %+v", body, got, want)
	}
	var syntax *SyntaxError
	if errors.As(err, &syntax) && (syntax.Offset < 0 || syntax.Offset > len(body)) {
		t.Fatalf("%q: offset %d is outside", body, syntax.Offset)
	}
}

func FuzzScan(f *testing.F) {
	for _, seed := range []string{
		`{"model":"m","stream":true,"messages":[{"role":"user","content":"hi \u00e9 \\ \""}]}`,
		`{"model":null,"n":-1.5e+7,"a":[[],{},{"b":[null,false]}]}`,
		`{"model":"a","model":"b"`, "{\"a\":\"\xff\"}", `{"mod\u0065l":"x"}`, `[`, ``, `{"a":1}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) { checkAgainstOracle(t, body) })
}

func TestScanAgreesWithTheStandardLibrary(t *testing.T) {
	piece := rapid.SampledFrom([]string{
		"{", "}", "[", "]", ",", ":", `"`, `\`, `\u00`, "41", "1", "0", "-", ".", "e", "true", "null", " ",
		`"model"`, `"stream"`, `:"m"`, `"a":`, "\x00", "\xff", "é", "12345678",
	})
	rapid.Check(t, func(t *rapid.T) {
		parts := rapid.SliceOfN(piece, 0, 24).Draw(t, "parts")
		checkAgainstOracle(t, []byte("{"+strings.Join(parts, "")))
		checkAgainstOracle(t, []byte(`{"model":"m",`+strings.Join(parts, "")+"}"))
	})
}

func TestScanAgreesOnWholeDocuments(t *testing.T) {
	value := rapid.Custom(func(t *rapid.T) any {
		switch rapid.IntRange(0, 4).Draw(t, "kind") {
		case 0:
			return rapid.String().Draw(t, "text")
		case 1:
			return rapid.Float64().Draw(t, "number")
		case 2:
			return rapid.SliceOf(rapid.String()).Draw(t, "list")
		case 3:
			return rapid.MapOf(rapid.String(), rapid.Int()).Draw(t, "object")
		}
		return nil
	})
	rapid.Check(t, func(t *rapid.T) {
		doc := map[string]any{"model": rapid.String().Draw(t, "model"), "stream": rapid.Bool().Draw(t, "stream")}
		for key, v := range rapid.MapOf(rapid.String(), value).Draw(t, "others") {
			if _, ours := doc[key]; !ours {
				doc[key] = v
			}
		}
		body, err := json.Marshal(doc)
		if err != nil {
			t.Fatalf("encode: %v", err)
		}
		got, err := Scan(body)
		if err != nil || got.Model != doc["model"] || got.Stream != doc["stream"] {
			t.Fatalf("%s: %+v, %v", body, got, err)
		}
	})
}

func TestScanDoesNotAllocateByBody(t *testing.T) {
	body := largeBody(1 << 16)
	allocs := testing.AllocsPerRun(20, func() {
		if _, err := Scan(body); err != nil {
			t.Fatalf("scan: %v", err)
		}
	})
	if allocs > 6 { // the model's name, the fields' places
		t.Errorf("%.0f allocations", allocs)
	}
}

func largeBody(size int) []byte {
	var b bytes.Buffer
	b.WriteString(`{"model":"m","stream":true,"messages":[`)
	for b.Len() < size {
		b.WriteString(`{"role":"user","content":"The quick brown fox\njumps over \"the\" lazy dog, again and again and again."},`)
	}
	b.WriteString(`{"role":"user","content":"end"}]}`)
	return b.Bytes()
}

func BenchmarkScan(b *testing.B) {
	for name, size := range map[string]int{"4KiB": 4 << 10, "4MiB": 4 << 20} {
		body := largeBody(size)
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Scan(body); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
