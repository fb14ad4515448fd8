// Package openai owns what the client API looks like on the wire: the one scan
// of a request's body and what is spliced into it, errors and ends of streams
// in the dialect of each route, what engines say when they fail, and what is
// seen of an answer while its bytes pass: events, usage, repetition. It moves
// no bytes itself and knows no replica.
//
// What looks at each event of a stream searches bytes and decodes nothing. What
// it tells does not depend on how reads were cut, unless its comment says so.
//
// Its folders translate APIs that an engine lacks to chat completions and back.
package openai
