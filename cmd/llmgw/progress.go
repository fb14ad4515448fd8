package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"llmgw/ui"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// reporter shows progress on stderr: a bar on a terminal, else a line at each
// new phase and each tenth of the bytes.
func reporter(w *os.File, what string) (func(ui.Progress), func()) {
	if term.IsTerminal(int(w.Fd())) && os.Getenv("TERM") != "dumb" {
		return barReporter(w, what)
	}
	return lineReporter(w, what, time.Now), func() {}
}

func barReporter(w io.Writer, what string) (func(ui.Progress), func()) {
	var bar *progressbar.ProgressBar
	var total int64
	step := func(p ui.Progress) {
		if bar == nil || p.Total != total {
			total = p.Total
			length := total
			if length == 0 {
				length = -1 // a spinner with a byte count
			}
			bar = progressbar.NewOptions64(length, progressbar.OptionSetWriter(w), progressbar.OptionShowBytes(true),
				progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionFullWidth(), progressbar.OptionClearOnFinish())
		}
		bar.Describe(what + " " + p.Phase)
		_ = bar.Set64(p.Done)
	}
	return step, func() {
		if bar != nil {
			_ = bar.Clear()
		}
	}
}

func lineReporter(w io.Writer, what string, now func() time.Time) func(ui.Progress) {
	var last ui.Progress
	var at time.Time
	return func(p ui.Progress) {
		tenth := p.Total > 0 && p.Done*10/p.Total > last.Done*10/p.Total
		if p.Phase == last.Phase && !tenth && now().Sub(at) < 10*time.Second {
			return
		}
		last, at = p, now()
		fmt.Fprintf(w, "%s: %s", what, p.Phase)
		if p.Done > 0 || p.Total > 0 {
			fmt.Fprintf(w, " %s", bytesText(&p.Done))
		}
		if p.Total > 0 {
			fmt.Fprintf(w, " of %s", bytesText(&p.Total))
		}
		fmt.Fprintln(w)
	}
}
