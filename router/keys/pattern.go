package keys

import "strings"

// matches says whether name is as pattern says, in which '*' stands for any
// characters, '/' among them. It takes time in proportion to both lengths at
// most: patterns are an admin's, names a client's.
func matches(pattern, name string) bool {
	parts := strings.Split(pattern, "*")
	if len(parts) == 1 {
		return pattern == name
	}
	first, last := parts[0], parts[len(parts)-1]
	if len(name) < len(first)+len(last) || !strings.HasPrefix(name, first) || !strings.HasSuffix(name, last) {
		return false
	}
	rest := name[len(first) : len(name)-len(last)]
	for _, part := range parts[1 : len(parts)-1] {
		_, after, ok := strings.Cut(rest, part)
		if !ok {
			return false
		}
		rest = after
	}
	return true
}
