package openai

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

const formType = `multipart/form-data; boundary="xx"`

// formOf writes a body by the standard library, so that its form is another's.
func formOf(t interface{ Fatal(...any) }, boundary string, parts ...[2]string) []byte {
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	if err := w.SetBoundary(boundary); err != nil {
		t.Fatal(err)
	}
	for _, p := range parts {
		var to io.Writer
		var err error
		if name, ok := strings.CutPrefix(p[0], "@"); ok {
			to, err = w.CreateFormFile(name, `a "b".wav`)
		} else {
			to, err = w.CreateFormField(p[0])
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(to, p[1]); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func scanForm(body []byte) (Form, error) {
	return ScanForm(bytes.NewReader(body), int64(len(body)), formType)
}

func TestScanFormFindsFieldsWhereverTheyStand(t *testing.T) {
	audio := strings.Repeat("\x00RIFF\r\n--x\r\n--", 20000)
	cases := map[string]struct {
		body []byte
		want Form
	}{
		"before the file":      {formOf(t, "xx", [2]string{"model", "w"}, [2]string{"@file", audio}), Form{Model: "w", Files: 1, FileBytes: int64(len(audio)), Fields: map[string]string{"model": "w"}}},
		"behind the file":      {formOf(t, "xx", [2]string{"@file", audio}, [2]string{"stream", "true"}, [2]string{"model", "org/w"}), Form{Model: "org/w", Stream: true, Files: 1, FileBytes: int64(len(audio)), Fields: map[string]string{"model": "org/w", "stream": "true"}}},
		"doubled":              {formOf(t, "xx", [2]string{"model", "a"}, [2]string{"model", "b"}), Form{Model: "b", Doubled: true, Fields: map[string]string{"model": "b"}}},
		"others":               {formOf(t, "xx", [2]string{"language", "en"}, [2]string{"prompt", strings.Repeat("p", maxFormField+1)}, [2]string{"response_format", "json"}), Form{Fields: map[string]string{"language": "en", "response_format": "json"}}},
		"an empty field":       {formOf(t, "xx", [2]string{"model", ""}, [2]string{"stream", "0"}), Form{Fields: map[string]string{"model": "", "stream": "0"}}},
		"no parts":             {[]byte("--xx--\r\n"), Form{Fields: map[string]string{}}},
		"a model in a file":    {formOf(t, "xx", [2]string{"@model", "no"}, [2]string{"model", "yes"}), Form{Model: "yes", Files: 1, FileBytes: 2, Fields: map[string]string{"model": "yes"}}},
		"a preamble":           {append([]byte("hello\r\n"), formOf(t, "xx", [2]string{"model", "w"})...), Form{Model: "w", Fields: map[string]string{"model": "w"}}},
		"an epilogue":          {append(formOf(t, "xx", [2]string{"model", "w"}), "--xx\r\nmore"...), Form{Model: "w", Fields: map[string]string{"model": "w"}}},
		"headers as they like": {[]byte("--xx  \r\ncontent-type: text/plain\r\nCONTENT-DISPOSITION:form-data;name=model\r\n\r\nw\r\n--xx--"), Form{Model: "w", Fields: map[string]string{"model": "w"}}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := scanForm(c.body)
			if err != nil {
				t.Fatal(err)
			}
			if at := string(c.body[got.ModelStart:got.ModelEnd]); at != got.Model {
				t.Errorf("at the model's place stands %q", at)
			}
			if at := string(c.body[got.FormatStart:got.FormatEnd]); at != c.want.Fields["response_format"] {
				t.Errorf("at the format's place stands %q", at)
			}
			got.ModelStart, got.ModelEnd, got.FormatStart, got.FormatEnd = 0, 0, 0, 0
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("form (-want +got):\n%s", diff)
			}
		})
	}
}

func TestScanFormSaysWhatIsWrong(t *testing.T) {
	good := string(formOf(t, "xx", [2]string{"@file", "audio"}, [2]string{"model", "w"}))
	cases := map[string]struct{ contentType, body, detail string }{
		"no multipart":      {"application/json", good, "not multipart"},
		"no boundary":       {"multipart/form-data", good, "no boundary"},
		"a long boundary":   {"multipart/form-data; boundary=" + strings.Repeat("x", 71), good, "no boundary"},
		"another boundary":  {"multipart/form-data; boundary=yy", good, "not in the body"},
		"empty":             {formType, "", "not in the body"},
		"cut in a value":    {formType, good[:len(good)-9], "ends within a part"},
		"cut in headers":    {formType, good[:20], "ends within the headers"},
		"no line end":       {formType, "--xxy\r\n", "line end is missing"},
		"no disposition":    {formType, "--xx\r\nX: y\r\n\r\nz\r\n--xx--", "no Content-Disposition"},
		"no headers":        {formType, "--xx\r\n\r\nz\r\n--xx--", "no Content-Disposition"},
		"no name":           {formType, "--xx\r\nContent-Disposition: form-data\r\n\r\nz\r\n--xx--", "no Content-Disposition"},
		"long headers":      {formType, "--xx\r\nX: " + strings.Repeat("y", maxPartHeader) + "\r\n\r\nz\r\n--xx--", "headers of a part are longer"},
		"many parts":        {formType, strings.Repeat("--xx\r\nContent-Disposition: form-data; name=a\r\n\r\n\r\n", maxParts+1) + "--xx--", "more than"},
		"a long model":      {formType, string(formOf(t, "xx", [2]string{"model", strings.Repeat("m", maxModelBytes+1)})), "model's name"},
		"a very long model": {formType, string(formOf(t, "xx", [2]string{"model", strings.Repeat("m", maxFormField+1)})), "model's name"},
		"stream is a word":  {formType, string(formOf(t, "xx", [2]string{"stream", "maybe"})), "stream must be"},
	}
	for name, c := range cases {
		_, err := ScanForm(strings.NewReader(c.body), int64(len(c.body)), c.contentType)
		var form *FormError
		if !errors.As(err, &form) || !strings.Contains(form.Detail, c.detail) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := ScanForm(strings.NewReader(good), int64(len(good))+5, formType); err == nil {
		t.Error("a body that is shorter than it says is no error")
	}
}

func TestScanFormAgreesWithTheStandardLibrary(t *testing.T) {
	piece := rapid.SampledFrom([]string{"", "a", "\r\n", "--xx", "\r\n--x", "--", strings.Repeat("z", formWindow-20), "\x00\xff"})
	rapid.Check(t, func(t *rapid.T) {
		want, parts := map[string]string{}, [][2]string{}
		for i := range rapid.IntRange(0, 5).Draw(t, "parts") {
			value := strings.Join(rapid.SliceOfN(piece, 0, 4).Draw(t, "value"), "")
			if strings.Contains("\r\n"+value+"\r\n", "\r\n--xx") {
				continue // the boundary must not be in a value
			}
			name := fmt.Sprintf("f%d", i)
			if parts = append(parts, [2]string{name, value}); len(value) <= maxFormField {
				want[name] = value
			}
		}
		got, err := scanForm(formOf(t, "xx", parts...))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got.Fields); diff != "" {
			t.Fatalf("fields (-want +got):\n%s", diff)
		}
	})
}

func FuzzScanForm(f *testing.F) {
	f.Add(formOf(f, "xx", [2]string{"@file", "audio"}, [2]string{"model", "w"}))
	f.Add([]byte("--xx\r\n\r\n\r\n--xx--"))
	f.Fuzz(func(t *testing.T, body []byte) {
		got, err := scanForm(body)
		if err != nil {
			return
		}
		if at := string(body[got.ModelStart:got.ModelEnd]); at != got.Model || got.FileBytes > int64(len(body)) {
			t.Fatalf("%+v of %q", got, body)
		}
	})
}
