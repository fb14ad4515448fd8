// Package kvevents owns what engines publish of their KV caches: it reads the
// events that vLLM and SGLang send over ZeroMQ, in both of their forms, and
// keeps the count of what a cache holds.
//
// Heads know prompts by their bytes, events know them by hashes of tokens. So
// events do not say which prompt is warm; they say how much a cache holds when
// it has to drop something, and when it was emptied.
//
// The events of one engine are numbered. A Tracker is the state of one stream of
// them, without I/O and without a clock; Follow feeds one from an engine's
// sockets. What a batch holds besides hashes and lengths, tokens of prompts
// above all, is skipped and never kept.
package kvevents
