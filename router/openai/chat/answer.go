package chat

import (
	"encoding/json"
	"strconv"
	"strings"
)

// Answer is a chat completion or a chunk of one, of which an engine may have
// chosen other types than the API's: what does not fit is left empty.
type Answer struct {
	ID      Text            `json:"id"`
	Created Number          `json:"created"`
	Model   Text            `json:"model"`
	Choices []Choice        `json:"choices"`
	Usage   *Usage          `json:"usage"`
	Timings *Timings        `json:"timings"`
	Error   json.RawMessage `json:"error"`

	// Raw is the document as it came, valid as long as what it was read from.
	Raw []byte `json:"-"`
}

// Choice is one answer, whole or the next piece of it.
type Choice struct {
	Index        Number `json:"index"`
	Message      Delta  `json:"message"`
	Delta        Delta  `json:"delta"`
	FinishReason Text   `json:"finish_reason"`
	StopReason   Text   `json:"stop_reason"` // vLLM: the stop sequence that was met
}

// Delta is a message or a piece of one.
type Delta struct {
	Content   Text        `json:"content"`
	Refusal   Text        `json:"refusal"`
	Reasoning Text        `json:"reasoning_content"` // SGLang, llama.cpp, vLLM before 0.12
	Thoughts  Text        `json:"reasoning"`         // vLLM
	ToolCalls []CallDelta `json:"tool_calls"`
}

// Thinking gives the reasoning under either name.
func (d *Delta) Thinking() string {
	if d.Reasoning != "" {
		return string(d.Reasoning)
	}
	return string(d.Thoughts)
}

// CallDelta is a tool call or a piece of one.
type CallDelta struct {
	Index    *Number `json:"index"`
	ID       Text    `json:"id"`
	Function struct {
		Name      Text      `json:"name"`
		Arguments Arguments `json:"arguments"`
	} `json:"function"`
}

// Usage is what the engine counted.
type Usage struct {
	Prompt     Number  `json:"prompt_tokens"`
	Completion Number  `json:"completion_tokens"`
	Details    Details `json:"prompt_tokens_details"`
	Out        Details `json:"completion_tokens_details"`
}

// Details of a usage.
type Details struct {
	Cached    Number `json:"cached_tokens"`
	Reasoning Number `json:"reasoning_tokens"`
}

// UnmarshalJSON takes anything but an object for empty.
func (d *Details) UnmarshalJSON(raw []byte) error {
	type plain Details
	if len(raw) > 0 && raw[0] == '{' {
		// A field of an odd type stays empty.
		_ = json.Unmarshal(raw, (*plain)(d))
	}
	return nil
}

// Timings are llama.cpp's, in milliseconds.
type Timings struct {
	CacheN      Number  `json:"cache_n"`
	PromptN     Number  `json:"prompt_n"`
	PromptMS    float64 `json:"prompt_ms"`
	PredictedN  Number  `json:"predicted_n"`
	PredictedMS float64 `json:"predicted_ms"`
}

// Text is a string; null and values of other types are empty, a list of parts
// is the text of those.
type Text string

// UnmarshalJSON never fails.
func (t *Text) UnmarshalJSON(raw []byte) error {
	*t = ""
	switch {
	case len(raw) == 0:
	case raw[0] == '"':
		var s string
		if json.Unmarshal(raw, &s) == nil {
			*t = Text(s)
		}
	case raw[0] == '[':
		var parts []struct {
			Text Text `json:"text"`
		}
		if json.Unmarshal(raw, &parts) == nil {
			for _, p := range parts {
				*t += p.Text
			}
		}
	}
	return nil
}

// Number is a whole number; what is none is 0.
type Number int64

// UnmarshalJSON never fails.
func (n *Number) UnmarshalJSON(raw []byte) error {
	*n = 0
	f, err := strconv.ParseFloat(string(raw), 64)
	if err == nil && f > -1<<53 && f < 1<<53 {
		*n = Number(f)
	}
	return nil
}

// Arguments are JSON as text; some engines send the JSON itself.
type Arguments string

// UnmarshalJSON never fails.
func (a *Arguments) UnmarshalJSON(raw []byte) error {
	var s string
	switch {
	case json.Unmarshal(raw, &s) == nil:
		*a = Arguments(s)
	case len(raw) > 0 && raw[0] == '{':
		*a = Arguments(raw)
	}
	return nil
}

// Object gives a call's arguments as a JSON object; what the model wrote that
// is none is kept under "_raw", so that it is not lost.
func Object(arguments string) json.RawMessage {
	arguments = strings.TrimSpace(arguments)
	if arguments == "" {
		return json.RawMessage("{}")
	}
	var object map[string]json.RawMessage
	if json.Unmarshal([]byte(arguments), &object) == nil && object != nil {
		return json.RawMessage(arguments)
	}
	kept, err := json.Marshal(map[string]string{"_raw": arguments})
	if err != nil {
		return json.RawMessage("{}")
	}
	return kept
}
