// Package process owns the engine processes of this node: it starts them,
// decides when they are ready, restarts, stops and adopts them, and says how
// they are.
//
// # States
//
// One goroutine per replica owns the replica's state; everybody else sends it
// wishes (a shard, a release, a detach) and reads a copy. Wishes are levels,
// not events: the goroutine compares the newest one with what runs, so nothing
// is lost or done twice when several arrive at once.
//
//	state        entered when                         left to
//	starting     process was started or adopted       loading (it answers), warming (it is healthy),
//	                                                  backoff (ended or stalled), stopping (wish)
//	loading      engine says that it loads            warming, backoff, stopping
//	warming      engine is healthy; port, name, key   ready, backoff, stopping
//	             and one token are being checked
//	ready        one token came back                  backoff (ended or hung), stopping
//	stopping     released, changed or daemon stops    gone, or starting when wanted again
//	backoff      ended by itself                      starting (delay over), gone
//	quarantined  ended too often                      starting (shard or epoch changed, Retry), gone
//	failed       nothing could be started             starting (cause gone), gone
//
//	             +--------------------- backoff <----------------+
//	             v                         |  (too often)        |
//	failed -> starting -> loading -> warming -> ready -----------+
//	             ^            \         \        \               |
//	             |             +---------+--------+-> stopping   +-> quarantined
//	             +----------------------------------------+-> gone
//
// Only ready is routed to. Ready means: a process of ours owns the listening
// port, the health answer says so in its body, the engine serves the model
// under its name, takes this run's key, and gave one token. A load has no
// absolute deadline: it fails when nothing moves (log, resident memory, health
// answer) for Timing.Stall.
//
// # Processes
//
// An engine runs in its own session and process group, and in a cgroup where
// this process may make one; its environment is built from empty; its output
// goes straight to a file, because a pipe would die with the daemon. A pidfile
// says enough to find the process again: a daemon that comes back adopts it, or
// ends it when it is not what the pidfile says. A process is signalled only
// after its start time, and for members of its group the run's marker in their
// environment, have been compared: a number that the kernel gave to somebody
// else meanwhile is never signalled.
//
// The directory belongs to one Supervisor at a time; the caller holds the lock.
package process
