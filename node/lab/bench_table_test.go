package lab

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"text/tabwriter"
)

// benchTableVariable names a file that the tables of all benchmarks are added
// to, for whoever wants them in one piece.
const benchTableVariable = "LLMGW_BENCH_TABLE"

// benchTable is what one benchmark has to say, as people read it.
type benchTable struct {
	title string
	text  strings.Builder
	w     *tabwriter.Writer
}

func newBenchTable(title string, columns ...string) *benchTable {
	t := &benchTable{title: title}
	t.w = tabwriter.NewWriter(&t.text, 0, 0, 2, ' ', 0)
	t.row(columns...)
	return t
}

func (t *benchTable) row(cells ...string) { fmt.Fprintln(t.w, strings.Join(cells, "\t")) }

// print shows the table with how busy the machine was: on a busy one all
// figures are worse, and the ratios too.
func (t *benchTable) print(b *testing.B, notes ...string) {
	b.Helper()
	if err := t.w.Flush(); err != nil {
		b.Fatal(err)
	}
	load, _ := os.ReadFile("/proc/loadavg")
	busy, _, _ := strings.Cut(string(load), " ")
	text := fmt.Sprintf("%s (load average %s)\n%s", t.title, busy, t.text.String())
	for _, n := range notes {
		text += n + "\n"
	}
	// Not by b.Log: it cuts what a benchmark says after ten lines.
	fmt.Fprintf(os.Stderr, "\n%s", text)
	path := os.Getenv(benchTableVariable)
	if path == "" {
		return
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(text + "\n"); err != nil {
		b.Fatal(err)
	}
}

// verdict sets a figure beside the most that it should be.
func verdict(got, most float64) string {
	if got <= most {
		return fmt.Sprintf("<= %g: holds", most)
	}
	return fmt.Sprintf("<= %g: missed", most)
}

func ms(v float64) string { return fmt.Sprintf("%.2f", v) }

// times prints a ratio; 0 is none.
func times(v float64) string {
	if v == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", v)
}
