package lab

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
)

// failedCell is what the table shows for a cell that is not as wanted.
const failedCell = "FAILED"

// render prints the columns as a table, below which stands what came in each cell
// that is not as wanted; the same as faults.
func render(columns []*column, wanted [][]string, boxes []string) (table string, faults []string) {
	var out strings.Builder
	out.WriteString("Clients and features, asked at box a and at box b; b serves SmolLM2 by llama-server.\n\n")
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	line := func(first string, rest func(n int, c *column) string) {
		fmt.Fprint(w, first)
		for n, c := range columns {
			fmt.Fprint(w, "\t", rest(n, c))
		}
		fmt.Fprintln(w)
	}
	line("", func(_ int, c *column) string { return c.name })
	line("version", func(_ int, c *column) string { return c.version })
	for _, row := range wanted {
		line(row[0], func(n int, c *column) string {
			wrong := c.judge(row[0], row[n+1], boxes)
			faults = append(faults, wrong...)
			if len(wrong) > 0 {
				return failedCell
			}
			return row[n+1]
		})
	}
	_ = w.Flush() // into memory
	fmt.Fprintf(&out, "\nok: works. refused: by the client's own exception, as it should be. -: the client has no such feature.\n")
	for _, c := range columns {
		if c.ended != "" {
			faults = append(faults, c.name+": "+c.ended)
		}
	}
	for _, fault := range faults {
		fmt.Fprintf(&out, "%s %s\n", failedCell, fault)
	}
	return out.String(), faults
}

// judge says what is wrong with a cell of the table, which is one at each box.
func (c *column) judge(feature, want string, boxes []string) (faults []string) {
	if slices.Contains(limitedCells, feature) {
		boxes = []string{c.home.Name}
	}
	for _, box := range boxes {
		got, filled := c.cells[cell{feature, box}]
		where := fmt.Sprintf("%s, %s, box %s: ", c.name, feature, box)
		switch {
		case want == "-" && filled:
			faults = append(faults, where+"it was not to be asked for")
		case want == "-":
		case !filled:
			faults = append(faults, where+"no answer came")
		case got.Outcome == "failed":
			faults = append(faults, where+got.Detail)
		case got.Outcome != want:
			faults = append(faults, fmt.Sprintf("%swant %s, it is %s", where, want, got.Outcome))
		}
	}
	return faults
}

// slowest says what each client took, and which cell most of it.
func slowest(columns []*column) string {
	var out strings.Builder
	for _, c := range columns {
		sum, most, at := 0.0, 0.0, cell{}
		for where, f := range c.cells {
			if slices.Contains(limitedCells, where.feature) {
				continue
			}
			if sum += f.Seconds; f.Seconds > most {
				most, at = f.Seconds, where
			}
		}
		fmt.Fprintf(&out, "\n%-9s %5.1f s, of them %s at box %s %.1f s; a retry %.1f s",
			c.name, sum, at.feature, at.box, most, c.cells[cell{"retry", c.home.Name}].Seconds)
	}
	return out.String()
}

func TestTableOfClientsTellsWhatIsWrong(t *testing.T) {
	box := &Box{Name: "b"}
	for name, tc := range map[string]struct {
		feature, want string
		cells         map[cell]finding
		fault         string // empty: none
	}{
		"as wanted":           {"chat", "ok", map[cell]finding{{"chat", "a"}: {Outcome: "ok"}, {"chat", "b"}: {Outcome: "ok"}}, ""},
		"no such feature":     {"chat", "-", nil, ""},
		"home only":           {"429", "refused", map[cell]finding{{"429", "b"}: {Outcome: "refused"}}, ""},
		"one box only":        {"chat", "ok", map[cell]finding{{"chat", "a"}: {Outcome: "ok"}}, "c, chat, box b: no answer came"},
		"not to be there":     {"chat", "-", map[cell]finding{{"chat", "a"}: {Outcome: "ok"}}, "c, chat, box a: it was not to be asked for"},
		"answered":            {"403", "refused", map[cell]finding{{"403", "a"}: {Outcome: "ok"}, {"403", "b"}: {Outcome: "refused"}}, "c, 403, box a: want refused, it is ok"},
		"something else came": {"retry", "ok", map[cell]finding{{"retry", "b"}: {Outcome: "failed", Detail: "500"}}, "c, retry, box b: 500"},
	} {
		t.Run(name, func(t *testing.T) {
			c := &column{name: "c", home: box, cells: tc.cells}
			table, faults := render([]*column{c}, [][]string{{tc.feature, tc.want}}, []string{"a", "b"})
			if got := strings.Join(faults, "; "); got != tc.fault {
				t.Errorf("faults %q, want %q", got, tc.fault)
			}
			if strings.Contains(table, failedCell) != (tc.fault != "") || !strings.Contains(table, tc.fault) {
				t.Errorf("the table shows\n%s", table)
			}
		})
	}
}
