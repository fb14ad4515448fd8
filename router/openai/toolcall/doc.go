// Package toolcall makes an engine that keeps to JSON schemas, but whose chat
// template knows no tools, call one: the request asks for a document that is
// the call, and the document becomes tool_calls again, streams included.
package toolcall
