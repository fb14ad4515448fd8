package openai

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func raw(text string) []byte { return []byte(text) }

func TestSpliceChangesOnlyWhatItIsToldTo(t *testing.T) {
	cases := map[string]struct {
		body  string
		edits []Edit
		want  string
	}{
		"nothing":             {`{"a":1}`, nil, `{"a":1}`},
		"set":                 {`{ "a" : 1 , "b":2 }`, []Edit{Set("a", raw("7"))}, `{ "a" : 7 , "b":2 }`},
		"set the last":        {`{"a":1,"a":2}`, []Edit{Set("a", raw("7"))}, `{"a":1,"a":7}`},
		"set an escaped name": {`{"\u0061":1}`, []Edit{Set("a", raw("7"))}, `{"\u0061":7}`},
		"set a null":          {`{"a":null}`, []Edit{Set("a", raw("7"))}, `{"a":7}`},
		"insert":              {`{"a":1 }`, []Edit{Set("b", raw("7"))}, `{"a":1,"b":7 }`},
		"insert into nothing": {` { } `, []Edit{Set("b", raw("7"))}, ` {"b":7 } `},
		"insert two":          {`{}`, []Edit{Set("b", raw("7")), Set("c", raw("8"))}, `{"b":7,"c":8}`},
		"remove first":        {`{ "a":1 , "b":2}`, []Edit{Remove("a")}, `{"b":2}`},
		"remove middle":       {`{"a":1 , "b":2 , "c":3}`, []Edit{Remove("b")}, `{"a":1 , "c":3}`},
		"remove last":         {`{"a":1 , "b":2 }`, []Edit{Remove("b")}, `{"a":1 }`},
		"remove all":          {`{"a":1,"b":2 }`, []Edit{Remove("a"), Remove("b")}, `{ }`},
		"remove doubled":      {`{"a":1,"b":2,"a":3}`, []Edit{Remove("a")}, `{"b":2}`},
		"remove two first":    {`{"a":1,"b":2,"c":3}`, []Edit{Remove("a"), Remove("b")}, `{"c":3}`},
		"remove what is not":  {`{"a":1}`, []Edit{Remove("b")}, `{"a":1}`},
		"replace all":         {`{"a":1}`, []Edit{Remove("a"), Set("b", raw("7"))}, `{"b":7}`},
		"default, there":      {`{"a":1}`, []Edit{Default("a", raw("7"))}, `{"a":1}`},
		"default, null":       {`{"a":null}`, []Edit{Default("a", raw("7"))}, `{"a":7}`},
		"default, absent":     {`{}`, []Edit{Default("a", raw("7")), Default("a", raw("8"))}, `{"a":7}`},
		"set, then default":   {`{}`, []Edit{Set("a", raw("7")), Default("a", raw("8"))}, `{"a":7}`},
		"set, then remove":    {`{"b":1}`, []Edit{Set("a", raw("7")), Remove("a")}, `{"b":1}`},
		"remove, then set":    {`{"a":1,"b":2}`, []Edit{Remove("a"), Set("a", raw("7"))}, `{"b":2,"a":7}`},
		"set twice":           {`{"a":1}`, []Edit{Set("a", raw("7")), Set("a", raw("8"))}, `{"a":8}`},
		"odd names":           {`{}`, []Edit{Set("a\"\n", raw("7"))}, `{"a\"\n":7}`},
		"the rest verbatim":   {"{\"n\":1e400,\"s\":\"\\ud800\xff\\/\",\"a\":1,\"n\":2}", []Edit{Set("a", raw("[]"))}, "{\"n\":1e400,\"s\":\"\\ud800\xff\\/\",\"a\":[],\"n\":2}"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var p Prompt
			// n is spelled so that no engine could read it either.
			r, err := ScanPrompt([]byte(strings.ReplaceAll(c.body, `"n":1e400`, `"m":1e400`)), &p)
			if err != nil {
				t.Fatal(err)
			}
			before := string(r.body)
			got := string(Splice(&r, c.edits...))
			if want := strings.ReplaceAll(c.want, `"n":1e400`, `"m":1e400`); got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
			if string(r.body) != before {
				t.Error("the body itself was changed")
			}
		})
	}
}

func TestSpliceLeavesEveryOtherByte(t *testing.T) {
	name := rapid.SampledFrom([]string{"a", "b", "c", "mode", "x y"})
	value := rapid.SampledFrom([]string{"1", " null", `"t\u00e9\n"`, "[1, {\"a\":2}]\t", "{\"a\":1}", "1e400", "\"\xff\""})
	rapid.Check(t, func(t *rapid.T) {
		var members []string
		var names []string
		for range rapid.IntRange(0, 6).Draw(t, "members") {
			n := name.Draw(t, "name")
			names = append(names, n)
			members = append(members, fmt.Sprintf("%q:%s", n, value.Draw(t, "value")))
		}
		target := name.Draw(t, "target")
		body := "{" + strings.Join(members, ",") + "}"
		r, err := Scan([]byte(body))
		if err != nil {
			t.Fatalf("%s: %v", body, err)
		}
		var kept []string
		for i, m := range members {
			if names[i] != target {
				kept = append(kept, m)
			}
		}
		if got, want := string(Splice(&r, Remove(target))), "{"+strings.Join(kept, ",")+"}"; strings.Join(strings.Fields(got), "") != strings.Join(strings.Fields(want), "") {
			t.Fatalf("%s without %s: %s, want %s", body, target, got, want)
		}
		set := Splice(&r, Set(target, []byte("777")))
		again, err := Scan(set)
		if err != nil || string(again.Field(target)) != "777" {
			t.Fatalf("%s with %s: %s, %v", body, target, set, err)
		}
		if old := r.find(target); old != nil {
			want := body[:old.value] + "777" + body[old.end:]
			if string(set) != want {
				t.Fatalf("set gave %s, want %s", set, want)
			}
		} else if !bytes.HasPrefix(set, bytes.TrimRight([]byte(body[:len(body)-1]), "\t ")) {
			t.Fatalf("insert gave %s of %s", set, body)
		}
	})
}

func TestAskUsage(t *testing.T) {
	cases := map[string]struct{ body, want string }{
		"no stream":       {`{"a":1}`, `{"a":1}`},
		"absent":          {`{"stream":true}`, `{"stream":true,"stream_options":{"include_usage":true}}`},
		"null":            {`{"stream_options":null,"stream":true}`, `{"stream_options":{"include_usage":true},"stream":true}`},
		"empty":           {`{"stream":true,"stream_options":{}}`, `{"stream":true,"stream_options":{"include_usage":true}}`},
		"others kept":     {`{"stream":true,"stream_options":{ "x" : 1 }}`, `{"stream":true,"stream_options":{ "x" : 1,"include_usage":true }}`},
		"false":           {`{"stream":true,"stream_options":{"include_usage":false,"x":1}}`, `{"stream":true,"stream_options":{"include_usage":true,"x":1}}`},
		"asked":           {`{"stream":true,"stream_options":{"include_usage":true}}`, `{"stream":true,"stream_options":{"include_usage":true}}`},
		"of an odd type":  {`{"stream":true,"stream_options":7}`, `{"stream":true,"stream_options":7}`},
		"of an odd value": {`{"stream":true,"stream_options":{"include_usage":"yes"}}`, `{"stream":true,"stream_options":{"include_usage":true}}`},
	}
	for name, c := range cases {
		r := scanOf(t, c.body)
		if got := string(AskUsage(&r)); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

func FuzzSplice(f *testing.F) {
	f.Add([]byte(`{"a":1, "b":[{"c":"d"}] , "a":null}`), "a", []byte(`{"x":1}`))
	f.Add([]byte(`{}`), "stream_options", []byte(`true`))
	f.Fuzz(func(t *testing.T, body []byte, name string, value []byte) {
		r, err := Scan(body)
		if err != nil || !json.Valid(value) || !json.Valid(body) || name == "model" || name == "stream" {
			return
		}
		for _, e := range []Edit{Set(name, value), Default(name, value), Remove(name)} {
			got := Splice(&r, e)
			if !json.Valid(got) {
				t.Fatalf("%s with %q: %s", body, name, got)
			}
		}
		if got := AskUsage(&r); !json.Valid(got) {
			t.Fatalf("%s asked for usage: %s", body, got)
		}
	})
}
