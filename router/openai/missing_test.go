package openai

import "testing"

func TestMissingNamesWhatAReplicaLacks(t *testing.T) {
	const image = `{"model":"m","messages":[{"role":"user","content":[{"type":"image_url"}]}]}`
	const tools = `"tools":[{"type":"function","function":{"name":"f"}}]`
	cases := map[string]struct {
		body  string
		lacks []string
		param string // empty: nothing is missing
	}{
		"images":               {image, []string{"images"}, "messages"},
		"images, there":        {image, []string{"audio"}, ""},
		"nothing known":        {image, nil, ""},
		"images of Responses":  {`{"input":[{"role":"user","content":[{"type":"input_image"}]}]}`, []string{"images"}, "input"},
		"audio":                {`{"messages":[{"content":[{"type":"input_audio"}]}]}`, []string{"audio"}, "messages"},
		"n":                    {`{"n":2}`, []string{"choices"}, "n"},
		"n of 1":               {`{"n":1,"best_of":1}`, []string{"choices"}, ""},
		"best_of":              {`{"best_of":2}`, []string{"choices"}, "best_of"},
		"logprobs":             {`{"logprobs":true}`, []string{"logprobs"}, "logprobs"},
		"top_logprobs of 0":    {`{"logprobs":false,"top_logprobs":0}`, []string{"logprobs"}, ""},
		"schema":               {`{"response_format":{"type":"json_schema"}}`, []string{"schema"}, "response_format"},
		"text":                 {`{"response_format":{"type":"text"}}`, []string{"schema"}, ""},
		"tools":                {`{` + tools + `}`, []string{"tools"}, "tools"},
		"tools, none wanted":   {`{` + tools + `,"tool_choice":"none"}`, []string{"tools"}, ""},
		"no tools":             {`{"tools":[],"tool_choice":"required"}`, []string{"tools"}, ""},
		"required, by schema":  {`{` + tools + `,"tool_choice":"required"}`, []string{"tools"}, ""},
		"required, not at all": {`{` + tools + `,"tool_choice":"required"}`, []string{"tools", "schema"}, "tools"},
		"named, by schema":     {`{` + tools + `,"tool_choice":{"type":"function","function":{"name":"f"}}}`, []string{"tools"}, ""},
		"auto, not by schema":  {`{` + tools + `,"tool_choice":"auto"}`, []string{"tools"}, "tools"},
	}
	for name, c := range cases {
		r := scanOf(t, c.body)
		e := Missing(&r, c.lacks)
		switch {
		case (e != nil) != (c.param != ""):
			t.Errorf("%s: %v", name, e)
		case e != nil && (e.Param != c.param || e.Status != 400 || e.Code != CodeUnsupported):
			t.Errorf("%s: %+v", name, e)
		}
	}
}
