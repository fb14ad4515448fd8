// Package affinity decides which replica answers a request. It owns what this
// head believes of each replica: which prompts it has computed (the warm-prefix
// index), how many tokens wait there, how fast it computes; and the form in
// which heads tell each other of that.
//
// It does no I/O and has no clock: each call is given the time. A Picker's
// methods may be called at once. What is here is lossy on purpose: a wrong
// belief costs a slower answer, never a wrong one, so nothing is acknowledged,
// all of it is bounded, and none of it is on disk.
//
// A request goes through these states, each left once:
//
//	chosen    Pick: its new tokens wait at the replica, one more is in flight,
//	          its prefix counts as warm there
//	computed  First: the tokens wait no longer; the rate is measured
//	ended     Done: no longer in flight. Without First before it the replica
//	          computed nothing: the tokens wait no longer, what was believed
//	          warm because of it is forgotten
package affinity
