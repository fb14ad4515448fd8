package engines

import (
	"regexp"
	"strings"
)

// Flags are the flags that a binary prints in its help. The zero value means
// that nobody asked: then every flag counts as known.
type Flags struct {
	known map[string]bool
}

// helpFlag finds flags where help text lists them. Words inside a description
// may match too; that only makes a removed flag look present if the help still
// talks about it, and then the engine names it in its error.
var helpFlag = regexp.MustCompile(`(?m)(?:^|[\s,(\[])(--?[A-Za-z][A-Za-z0-9_-]*)`)

// ParseHelp reads what a binary printed for --help. Text without any flag is
// taken as no answer.
func ParseHelp(text string) Flags {
	var f Flags
	for _, m := range helpFlag.FindAllStringSubmatch(text, -1) {
		if f.known == nil {
			f.known = make(map[string]bool)
		}
		f.known[m[1]] = true
	}
	return f
}

// Asked is false for the zero value.
func (f Flags) Asked() bool { return f.known != nil }

// Has tells whether the binary knows flag (with its dashes).
func (f Flags) Has(flag string) bool { return f.known == nil || f.known[flag] }

// First is the first of some spellings of one flag that the binary knows.
func (f Flags) First(spellings ...string) (string, bool) {
	for _, s := range spellings {
		if f.Has(s) {
			return s, true
		}
	}
	return "", false
}

// canonical is the form in which a flag is compared: lower case, dashes.
func canonical(flag string) string {
	return strings.ReplaceAll(strings.ToLower(flag), "_", "-")
}
