package fetch

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// networkSigns are words of pip and of the libraries in it when an index or
// file cannot be reached.
func networkSigns() []string {
	return []string{
		"connection broken by", "NewConnectionError", "Failed to establish a new connection",
		"name resolution", "Max retries exceeded", "ConnectTimeout", "ReadTimeout", "Read timed out",
		"ProxyError", "SSLError", "CERTIFICATE_VERIFY_FAILED", "Network is unreachable",
		"Could not fetch URL", "HTTPError: 5", "HTTP error 5", "IncompleteRead",
	}
}

// explain turns pip's end into one of our errors. The kind is for programs;
// pip's last lines go along, as they know more.
func explain(err error, stderr, name, version string) error {
	var ours *Error
	if errors.As(err, &ours) {
		return err
	}
	e := &Error{Kind: KindPip, Detail: "pip failed", Hint: byHand(name, version), Err: err}
	has := func(sign string) bool { return strings.Contains(stderr, sign) }
	switch {
	case has("No module named pip"):
		e = noPip("Python is here, but its pip is not")
	case has("No space left on device") || has("Errno 28"):
		e.Kind, e.Detail, e.Hint = KindNoSpace, "the disk is full", "free some space, or choose another state directory"
	case has("DO NOT MATCH THE HASHES"):
		e.Kind, e.Detail = KindChecksum, "the wheel that came is not the one that the index announced"
	case len(versions(stderr)) > 0:
		return noVersion(stderr, name, version, err)
	case slices.ContainsFunc(networkSigns(), has):
		e.Kind, e.Detail = KindNetwork, "pip cannot reach the package index"
		e.Hint = "check this node's network and pip's settings (pip config list), then pull again"
	case has("No matching distribution found"):
		return unknownPackage(name, version, err)
	}
	if said := lastLines(stderr, pipLines); said != "" {
		e.Detail += ": " + said
	} else {
		e.Detail += ": " + err.Error()
	}
	return e
}

// pipLines is how many of pip's last lines an error carries.
const pipLines = 4

func byHand(name, version string) string {
	return "try the same by hand: pip download --no-deps " + name + "==" + version
}

var fromVersions = regexp.MustCompile(`\(from versions: ([^)]*)\)`)

// versions lists what pip says there is instead of the wanted version.
func versions(stderr string) []string {
	m := fromVersions.FindStringSubmatch(stderr)
	if m == nil || m[1] == "none" || m[1] == "" {
		return nil
	}
	return strings.Split(m[1], ", ")
}

// shownVersions is how many of the newest versions an error names.
const shownVersions = 8

func noVersion(stderr, name, version string, err error) error {
	there := versions(stderr)
	there = there[max(0, len(there)-shownVersions):]
	return &Error{
		Kind: KindNotFound, Err: err,
		Detail: fmt.Sprintf("there is no wheel of %s %s for this node", name, version),
		Hint:   "there are " + strings.Join(there, ", "),
	}
}

func unknownPackage(name, version string, err error) error {
	return &Error{
		Kind: KindNotFound, Err: err,
		Detail: fmt.Sprintf("the package index has no wheel of %s (version %s or any other) for this node", name, version),
		Hint:   "check the name and this node's network; pip's own settings say which index is asked (pip config list)",
	}
}
