package crdt

import "testing"

func TestMonthOfAPeriod(t *testing.T) {
	for period, want := range map[string]string{
		"2026-11": "2026-11", "2026-11-30": "2026-11", "total": "", "": "", "2026-13": "", "2026-11-31": "", "2026-1": "", "12026-11": "",
	} {
		got, ok := Account{Budget: "b", Period: period}.MonthOf()
		if got != want || ok != (want != "") {
			t.Errorf("%q lies in %q, %v; want %q", period, got, ok, want)
		}
	}
}
