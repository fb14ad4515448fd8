// Package limits owns what keys, their projects and their tenants may use: rate
// limits of a minute, requests at once, and budgets. It counts over all heads of the
// mesh and answers for each request whether it may run.
//
// What is counted in minutes lies in memory alone, as windows of package crdt: each
// head writes its own counts and tells them to the others by small messages, which
// may be lost. A request is counted in the minute that it is admitted in: its
// estimate is held there at first and replaced by what was used when it ends; what
// was used beyond the estimate counts in the minute in which that is known. A limit
// is compared with this minute's count plus the part of the last one's that a minute
// back from now covers.
//
// A request passes all limits and budgets that bind it or leaves no trace in any.
// A Grant ends once, by Settle or Release, on every path.
//
//	policy  when a limit is over 80 % used
//	share   a head admits its share of what remains, see share.go
//	owner   the head that hashing picks decides; share without its answer
//	loose   the heads' common estimate alone decides
package limits
