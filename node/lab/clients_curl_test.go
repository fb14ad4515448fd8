package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"time"
)

// curlCells asks by curl, as the documentation tells people.
func curlCells(s *clientStage, c *column) (finish func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.curlAtLimit(c)
	}()
	for _, box := range []*Box{s.a, s.b} {
		for feature, ask := range curlAsks {
			c.found(feature, box.Name, timed(func() (string, error) { return ask.fill(s, c, box) }))
		}
		c.found("cancel", box.Name, timed(func() (string, error) { return s.curlCancel(c, box) }))
		c.found("413", box.Name, timed(func() (string, error) { return s.curlTooLarge(c, box) }))
	}
	return func() { <-done }
}

func timed(fill func() (string, error)) finding {
	began := time.Now()
	outcome, err := fill()
	if err != nil {
		return finding{Outcome: "failed", Detail: err.Error(), Seconds: time.Since(began).Seconds()}
	}
	return finding{Outcome: outcome, Seconds: time.Since(began).Seconds()}
}

// curlAsk is a request and what its answer has to hold.
type curlAsk struct {
	path   string
	body   string   // empty: a GET
	status string   // "200" unless given
	key    string   // "may" unless given: "narrow", "wrong"
	holds  []string // of the answer without white space, that in text included
	lacks  string
}

const (
	curlHello = `"messages":[{"role":"user","content":"Say hello in five words."}]`
	curlShort = `"model":"smollm2","temperature":0,"max_tokens":12,` + curlHello
	curlCity  = `{"type":"object","properties":{"city":{"type":"string","enum":["Paris","Rome"]}},"required":["city"],"additionalProperties":false}`
	curlAsked = `"model":"smollm2","temperature":0,"max_tokens":60,"messages":[{"role":"user","content":"How is the weather in Rome?"}]`
	curlTool  = curlAsked + `,"tools":[{"type":"function","function":{"name":"weather","parameters":` + curlCity + `}}]`
	curlImage = `"model":"smollm2","messages":[{"role":"user","content":[{"type":"text","text":"What is it?"},{"type":"image_url","image_url":{"url":"data:image/png;base64,iVBORw0KGgo="}}]}]`
)

var curlAsks = map[string]curlAsk{
	"chat":             {path: "/v1/chat/completions", body: `{` + curlShort + `}`, holds: []string{`"object":"chat.completion"`, `"content":"`, `"usage"`}},
	"stream":           {path: "/v1/chat/completions", body: `{"stream":true,` + curlShort + `}`, holds: []string{`"chat.completion.chunk"`, `data:[DONE]`}, lacks: `"usage":{`},
	"stream+usage":     {path: "/v1/chat/completions", body: `{"stream":true,"stream_options":{"include_usage":true},` + curlShort + `}`, holds: []string{`"usage":{`, `"choices":[]`, `data:[DONE]`}},
	"tools-auto":       {path: "/v1/chat/completions", body: `{` + curlTool + `}`, status: "400", holds: []string{`"unsupported_by_model"`, `"param":"tools"`}},
	"tool-required":    {path: "/v1/chat/completions", body: `{"tool_choice":"required",` + curlTool + `}`, holds: []string{`"tool_calls":[{`, `"finish_reason":"tool_calls"`, `\"city\":`}},
	"tool-stream":      {path: "/v1/chat/completions", body: `{"stream":true,"tool_choice":"required",` + curlTool + `}`, holds: []string{`"tool_calls":[{`, `"finish_reason":"tool_calls"`, `data:[DONE]`}},
	"schema":           {path: "/v1/chat/completions", body: `{"response_format":{"type":"json_schema","json_schema":{"name":"city","schema":` + curlCity + `}},` + curlAsked + `}`, holds: []string{`\"city\":`}},
	"vision":           {path: "/v1/chat/completions", body: `{` + curlImage + `}`, status: "400", holds: []string{`"unsupported_by_model"`, `images`}},
	"embeddings":       {path: "/v1/embeddings", body: `{"model":"smollm2","input":["a"],"encoding_format":"base64"}`, holds: []string{`"embedding":"`}},
	"embeddings-float": {path: "/v1/embeddings", body: `{"model":"smollm2","input":"a"}`, holds: []string{`"embedding":[`}},
	"embeddings-old":   {path: "/api/embeddings", body: `{"model":"smollm2","prompt":"a"}`, holds: []string{`{"embedding":[`}},
	"responses":        {path: "/v1/responses", body: `{"model":"smollm2","max_output_tokens":12,"input":"Say hello."}`, holds: []string{`"object":"response"`, `"output_text"`, `"output_tokens":`}},
	"responses-stream": {path: "/v1/responses", body: `{"stream":true,"model":"smollm2","max_output_tokens":12,"input":"Say hello."}`, holds: []string{`event:response.created`, `response.output_text.delta`, `"sequence_number":`}, lacks: `[DONE]`},
	"responses-schema": {path: "/v1/responses", body: `{"model":"smollm2","temperature":0,"max_output_tokens":60,"input":"How is the weather in Rome?","text":{"format":{"type":"json_schema","name":"city","schema":` + curlCity + `}}}`, holds: []string{`\"city\":`}},
	"messages":         {path: "/v1/messages", body: `{` + curlShort + `}`, holds: []string{`"type":"message"`, `"type":"text"`, `"output_tokens":`}},
	"messages-stream":  {path: "/v1/messages", body: `{"stream":true,` + curlShort + `}`, holds: []string{`event:message_start`, `event:content_block_delta`, `event:message_stop`}, lacks: `[DONE]`},
	"count-tokens":     {path: "/v1/messages/count_tokens", body: `{"model":"smollm2",` + curlHello + `}`, holds: []string{`"input_tokens":`}},
	"generate":         {path: "/api/generate", body: `{"model":"smollm2","prompt":"Say hello.","options":{"num_predict":12}}`, holds: []string{`"response":"`, `"done":true`}},
	"models":           {path: "/v1/models", holds: []string{`"object":"list"`, `"id":"smollm2"`}},
	"model":            {path: "/v1/models/smollm2", holds: []string{`"object":"model"`, `"id":"smollm2"`}},
	"running":          {path: "/api/ps", holds: []string{`"name":"smollm2"`}},
	"401":              {path: "/v1/chat/completions", body: `{` + curlShort + `}`, status: "401", key: "wrong", holds: []string{`"invalid_api_key"`}},
	"403":              {path: "/v1/chat/completions", body: `{` + curlShort + `}`, status: "403", key: "narrow", holds: []string{`"model_not_allowed"`}},
	"404":              {path: "/v1/chat/completions", body: `{"model":"no-such-model",` + curlHello + `}`, status: "404", holds: []string{`"model_not_found"`, `smollm2`}},
	"too-long":         {path: "/v1/chat/completions", body: `{"model":"smollm2","messages":[{"role":"user","content":"` + strings.Repeat("word ", 6000) + `"}]}`, status: "400", holds: []string{`"context_length_exceeded"`}},
}

// fill asks and says what became of it: ok for a 200, else refused.
func (a curlAsk) fill(s *clientStage, c *column, box *Box) (string, error) {
	key := map[string]string{"": c.keys.may, "narrow": c.keys.narrow, "wrong": c.keys.may + "x"}[a.key]
	want := a.status
	if want == "" {
		want = "200"
	}
	status, text, err := s.curl(box, key, a.path, a.body)
	if err != nil || status != want {
		return "", fmt.Errorf("%s, want %s: %.500s %v", status, want, text, err)
	}
	plain := strings.NewReplacer(" ", "", "\n", "", `\n`, "", `\t`, "").Replace(text)
	for _, part := range a.holds {
		if !strings.Contains(plain, part) {
			return "", fmt.Errorf("lacks %s: %.1000s", part, text)
		}
	}
	if a.lacks != "" && strings.Contains(plain, a.lacks) {
		return "", fmt.Errorf("holds %s: %.1000s", a.lacks, text)
	}
	if status == "200" {
		return "ok", nil
	}
	return "refused", nil
}

// curlArgs begins a command line; the body comes from standard input.
func curlArgs(box *Box, key, path, body string, more ...string) []string {
	args := append([]string{"curl", "-sS", "-N", "-H", "Authorization: Bearer " + key}, more...)
	if body != "" {
		args = append(args, "-H", "Content-Type: application/json", "--data-binary", "@-")
	}
	return append(args, box.URL()+path)
}

// curl asks on the laptop; an error is one of curl's own.
func (s *clientStage) curl(box *Box, key, path, body string, more ...string) (status, text string, err error) {
	args := curlArgs(box, key, path, body, append(more, "-w", "\n%{http_code}")...)
	ctx, cancel := context.WithTimeout(context.Background(), clientLimit)
	defer cancel()
	r, err := s.laptop.RunInput(ctx, body, args...)
	if err != nil || r.Code != 0 {
		return "", "", fmt.Errorf("curl ended with %d: %s %v", r.Code, r.Stderr, err)
	}
	at := strings.LastIndexByte(r.Stdout, '\n')
	return r.Stdout[at+1:], r.Stdout[:at], nil
}

func (s *clientStage) curlTooLarge(c *column, box *Box) (string, error) {
	body := `{"model":"smollm2","messages":[{"role":"user","content":"` + strings.Repeat("x", largeBody) + `"}]}`
	status, text, err := s.curl(box, c.keys.may, "/v1/chat/completions", body)
	if err != nil || status != "413" || !json.Valid([]byte(text)) || !strings.Contains(text, "request_too_large") {
		return "", fmt.Errorf("%s: %.500s %v", status, text, err)
	}
	return "refused", nil
}

// curlCancel ends curl in the middle of a stream, as Ctrl-C does.
func (s *clientStage) curlCancel(c *column, box *Box) (string, error) {
	const body = `{"stream":true,"model":"smollm2","temperature":0,"max_tokens":3000,"messages":[{"role":"user","content":"Write the numbers from 1 to 2000, one a line."}]}`
	args := curlArgs(box, c.keys.may, "/v1/chat/completions", body)
	path, err := exec.LookPath(args[0])
	if err != nil {
		return "", err
	}
	cmd := exec.Command(path, args[1:]...)
	cmd.Stdin = strings.NewReader(body)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", err
	}
	if err := s.laptop.start(cmd); err != nil {
		return "", err
	}
	some := make([]byte, 1000)
	_, err = io.ReadFull(out, some)
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if err != nil {
		return "", fmt.Errorf("the stream ended with %w: %s", err, some)
	}
	if word := s.idle(c, box.Name); word != "idle" {
		return "", errors.New(word)
	}
	return "ok", nil
}

// curlAtLimit has the limited key refused, and curl retry by itself.
func (s *clientStage) curlAtLimit(c *column) {
	const body = `{"model":"smollm2","max_tokens":1,` + curlHello + `}`
	once := func(more ...string) (string, string, error) {
		return s.curl(c.home, c.keys.limited, "/v1/chat/completions", body, more...)
	}
	// As the other clients do, which obey a Retry-After up to 60 s.
	for time.Now().Unix()%60 < 16 {
		time.Sleep(500 * time.Millisecond)
	}
	c.found("429", c.home.Name, timed(func() (string, error) {
		status, text, err := once()
		for range meanwhile {
			if err == nil && status == "200" {
				status, text, err = once()
			}
		}
		if err != nil || status != "429" || !strings.Contains(text, "try again in") {
			return "", fmt.Errorf("%s: %s %v", status, text, err)
		}
		return "refused", nil
	}))
	c.found("retry", c.home.Name, timed(func() (string, error) {
		status, text, err := once("--retry", "2")
		if err != nil || status != "200" {
			return "", fmt.Errorf("%s: %s %v", status, text, err)
		}
		return "ok", nil
	}))
}
