// Package lab runs real daemons as boxes on one machine: each box is a network
// namespace with its own loopback, addresses and processes, plugged into a
// switch (a bridge in a namespace of its own). Tests start, stop, kill, pause,
// cut and heal boxes and speak to them as people do: by the command line, by
// HTTP, by a client program that runs inside a box.
//
// It owns nothing of the product and is imported by tests alone. What it owns
// on the machine carries its name: every namespace and every directory begins
// with "llmgwlab-<pid>-<start time>-". Nothing is ever put into the machine's
// own namespace, so nothing there can be disturbed, and boxes of two test
// processes may use the same addresses.
//
// Cleaning up is one operation: end the processes found inside our namespaces,
// each by its pid, unmount what lies under our directory, remove both. It runs
// when a test ends, in a child process when the test process itself dies, and
// at the start of the next lab for whatever a former run still left.
//
// Box states:
//
//	new      -> Start                  -> running
//	running  -> Stop (SIGTERM) or Kill -> stopped (state directory and engines stay)
//	stopped  -> Start                  -> running, on the same state directory
//	running  -> Pause                  -> frozen: every process of the box is stopped by SIGSTOP
//	frozen   -> Resume                 -> running
//
// A Lab and its boxes are used from one test goroutine; Client, Dial, Run and
// Processes may be used from many.
package lab
