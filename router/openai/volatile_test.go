package openai

import (
	"encoding/json"
	"testing"
)

func TestVolatileLinesAreFoundAtTheBeginningAlone(t *testing.T) {
	cases := map[string]struct{ element, left string }{
		"a block of its own":      {`[{"type":"text","text":"x-anthropic-billing-header: cc_version=2; cch=a1b2;"},{"type":"text","text":"You are"}]`, `[{"type":"text","text":""},{"type":"text","text":"You are"}]`},
		"a line":                  {`"x-anthropic-billing-header: cch=1;\nYou are"`, `"You are"`},
		"a second line":           {`"Hello\nx-anthropic-billing-header: cch=1;\nYou are"`, `"Hello\nYou are"`},
		"with escapes":            {`"x-anthropic-billing-header: a=\"b\" \\n c;\nYou are"`, `"You are"`},
		"none":                    {`"You are"`, ""},
		"in the middle of a line": {`"see x-anthropic-billing-header: x\nYou"`, ""},
		"cut off":                 {`"x-anthropic-billing-header: cch=`, `"`},
		"at the very start":       {`x-anthropic-billing-header: cch=1`, ""},
	}
	for name, c := range cases {
		from, to := Volatile([]byte(c.element))
		left := ""
		if from >= 0 {
			left = c.element[:from] + c.element[to:]
		}
		if left != c.left {
			t.Errorf("%s: left %q", name, left)
		}
		if json.Valid([]byte(c.element)) && left != "" && !json.Valid([]byte(left)) {
			t.Errorf("%s: what is left is no JSON", name)
		}
	}
}

func FuzzVolatile(f *testing.F) {
	f.Add(`{"role":"system","content":"x-anthropic-billing-header: cch=1;\nYou are"}`)
	f.Fuzz(func(t *testing.T, element string) {
		from, to := Volatile([]byte(element))
		if from < 0 {
			return
		}
		if left := element[:from] + element[to:]; json.Valid([]byte(element)) != json.Valid([]byte(left)) && json.Valid([]byte(element)) {
			t.Fatalf("%q becomes %q", element, left)
		}
	})
}
