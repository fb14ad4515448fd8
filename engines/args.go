package engines

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// kind is the type of an allowed flag's value.
type kind int

const (
	kindBool  kind = iota // no value
	kindInt               // min..max
	kindFloat             // min..max
	kindEnum              // one of values
)

// flagRule is one allowed flag. Its value is parsed, never passed through:
// what reaches the engine is what we print.
type flagRule struct {
	long    string   // the spelling that is emitted
	aliases []string // other spellings that are taken
	kind    kind
	min     float64
	max     float64
	values  []string
	negated string // kindBool: the spelling that turns it off, if it has one
}

// flagSet is an engine's allow-list. A flag that is not in it is refused, so a
// new flag of an engine that runs code, reads files or opens ports is refused
// until someone has read what it does.
type flagSet struct {
	engine string
	rules  []flagRule
}

// parsedFlag is an allowed flag in its emitted form.
type parsedFlag struct {
	rule  flagRule
	flag  string // spelling to emit
	value string // empty for kindBool
}

// parse checks args against the allow-list and gives them in canonical form.
func (s flagSet) parse(args []string) ([]parsedFlag, error) {
	var out []parsedFlag
	for i := 0; i < len(args); i++ {
		token := args[i]
		if err := s.checkText(token); err != nil {
			return nil, err
		}
		if !strings.HasPrefix(token, "-") {
			return nil, s.refuse(token, "a value without its flag")
		}
		name, value, inline := strings.Cut(token, "=")
		rule, negated, ok := s.find(canonical(name))
		if !ok {
			return nil, s.refuse(name, "not in the list of allowed flags")
		}
		if slices.ContainsFunc(out, func(p parsedFlag) bool { return p.rule.long == rule.long }) {
			return nil, s.refuse(name, "given twice")
		}
		if rule.kind == kindBool {
			if inline {
				return nil, s.refuse(name, "takes no value")
			}
			out = append(out, parsedFlag{rule: rule, flag: pickSpelling(rule, negated)})
			continue
		}
		if !inline {
			if i++; i >= len(args) {
				return nil, s.refuse(name, "value is missing")
			}
			value = args[i]
		}
		if err := s.checkText(value); err != nil {
			return nil, err
		}
		value, err := s.value(rule, value)
		if err != nil {
			return nil, err
		}
		out = append(out, parsedFlag{rule: rule, flag: rule.long, value: value})
	}
	return out, nil
}

func pickSpelling(rule flagRule, negated bool) string {
	if negated {
		return rule.negated
	}
	return rule.long
}

func (s flagSet) find(name string) (rule flagRule, negated, ok bool) {
	for _, r := range s.rules {
		if name == r.long || slices.Contains(r.aliases, name) {
			return r, false, true
		}
		if r.negated != "" && name == r.negated {
			return r, true, true
		}
	}
	return flagRule{}, false, false
}

// value parses v by the rule's type and prints it again.
func (s flagSet) value(r flagRule, v string) (string, error) {
	switch r.kind {
	case kindInt:
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil || float64(n) < r.min || float64(n) > r.max {
			return "", s.refuse(r.long, fmt.Sprintf("wants a whole number from %g to %g", r.min, r.max))
		}
		return strconv.FormatInt(n, 10), nil
	case kindFloat:
		n, err := strconv.ParseFloat(v, 64)
		// The comparison is written so that NaN fails it.
		if err != nil || !(n >= r.min && n <= r.max) {
			return "", s.refuse(r.long, fmt.Sprintf("wants a number from %g to %g", r.min, r.max))
		}
		return strconv.FormatFloat(n, 'g', -1, 64), nil
	case kindEnum:
		if !slices.Contains(r.values, strings.ToLower(v)) {
			return "", s.refuse(r.long, "wants one of "+strings.Join(r.values, ", "))
		}
		return strings.ToLower(v), nil
	}
	return "", s.refuse(r.long, "takes no value")
}

// checkText refuses what no argument of a process may hold.
func (s flagSet) checkText(token string) error {
	if token == "" || len(token) > 256 || strings.ContainsAny(token, "\x00\n\r") {
		return s.refuse("", fmt.Sprintf("argument %.40q is empty, too long or has a control character", token))
	}
	return nil
}

func (s flagSet) refuse(arg, reason string) error {
	return &ProfileError{Engine: s.engine, Arg: arg, Reason: reason}
}

// argv prints parsed flags for a process.
func argv(flags []parsedFlag) []string {
	var out []string
	for _, f := range flags {
		out = append(out, f.flag)
		if f.rule.kind != kindBool {
			out = append(out, f.value)
		}
	}
	return out
}
