// Package chat owns the chat completions API as other APIs are translated to
// it and back: requests to encode, answers and chunks to decode whatever types
// an engine chose, and event streams read from bytes of any cuts.
//
// A translation decodes and encodes every event, which costs more than relaying
// bytes does: it is for engines that lack the client's API.
package chat
