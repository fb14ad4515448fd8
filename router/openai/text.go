package openai

import "encoding/json"

// appendText appends a JSON string. What is no UTF-8 becomes U+FFFD.
func appendText(out []byte, text string) []byte {
	quoted, err := json.Marshal(text)
	if err != nil {
		// Strings cannot fail to encode.
		panic(err)
	}
	return append(out, quoted...)
}
