// Package relay owns one request's way to an engine and the answer's way back:
// an HTTP/1.1 exchange over a connection, be it TCP to an engine of this node
// or a mesh stream to another node, and the copy of the answer with its bytes
// unchanged. It chooses no replica and retries nothing that a byte came back
// for.
//
// One goroutine runs a whole exchange; large bodies are sent by a second one
// that has ended when the exchange is closed. An exchange is in one of these
// states:
//
//	sending   Start          request on its way; a refusal may already come
//	waiting   Start          head of the answer awaited; wait hook each second
//	answering Next           body is copied; idle hook each KeepAlive
//	finished  Close          read to the end: the connection is closed in order
//	                         or kept for the next request
//	aborted   Close, cancel  anything else: the connection is reset at once, so
//	                         that the other side notices
//
// The end of the context aborts in each state.
package relay
