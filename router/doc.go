// Package router owns the client API of a node: each request from its first
// byte to its last, and the holder's side of requests that other nodes relay.
//
// A request at its entry node goes one way through these steps; each can end
// it with an error object, and what a step holds is given back by the one
// function that took it:
//
//	route         path and method           404, 405
//	authenticate  key and scope             401, 403
//	read          whole body, counted       408, 413, 415, 503
//	scan          model and stream          400
//	resolve       name to model             404, 503
//	pick          a replica                 503, 429
//	relay         to the engine or a holder 502, 504; a refusal goes back to pick
//	answer        bytes unchanged           error frame once the head is out
//
// The entry node decides; a holder checks what it is asked for, refuses or
// serves, and never routes on. Up to the first byte for the client a request
// can be sent again, within one budget of attempts; afterwards never.
package router
