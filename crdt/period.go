package crdt

import "time"

// MonthOf returns the month that the account's period is, or that the day lies in which it is, such as "2026-11". It returns
// false for periods of any other shape: they do not end.
func (a Account) MonthOf() (string, bool) {
	const month, day = "2006-01", "2006-01-02"
	layout := month
	if len(a.Period) == len(day) {
		layout = day
	}
	if _, err := time.Parse(layout, a.Period); err != nil {
		return "", false
	}
	return a.Period[:len(month)], true
}
