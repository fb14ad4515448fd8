// Package openai owns what the client API looks like on the wire: the one scan
// of a request's body, error objects, model lists and the framing of event
// streams. It moves no bytes itself and knows no replica.
package openai
