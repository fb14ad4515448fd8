// Package ollama translates Ollama's API to chat completions and embeddings
// and back, for the tools that speak only it. What would load, reload or evict
// a model in Ollama (keep_alive, num_ctx) changes nothing here and is reported.
package ollama
