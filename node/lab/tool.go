package lab

import (
	"fmt"
	"os/exec"
	"strings"
)

// tool runs a program of the machine and returns its output; the error carries
// what it said.
func tool(argv ...string) (string, error) {
	out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err, strings.TrimSpace(string(out)))
	}
	return string(out), nil
}

// tools runs several command lines, given as words separated by spaces, and
// stops at the first that fails.
func tools(lines ...string) error {
	for _, l := range lines {
		if _, err := tool(strings.Fields(l)...); err != nil {
			return err
		}
	}
	return nil
}
