package hardware

import (
	"runtime"
	"strconv"
	"strings"
)

type cpuInfo struct {
	model      string
	processors int // 0: unknown
}

// readCPU reads /proc/cpuinfo. ARM kernels give no model name there; boards
// tell it in the device tree.
func (h *Hardware) readCPU() cpuInfo {
	text, _ := h.read("proc/cpuinfo")
	info := cpuInfo{model: runtime.GOARCH + " CPU"}
	for line := range strings.Lines(text) {
		if key, _, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "processor" {
			info.processors++
		}
	}
	if name, ok := field(text, "model name", ":"); ok && name != "" {
		info.model = strings.Join(strings.Fields(name), " ")
	} else if board, ok := h.read("proc/device-tree/model"); ok {
		if board = strings.Trim(board, "\x00 \n"); board != "" {
			info.model = board
		}
	}
	return info
}

// threads is how many threads can run at once: what the box has, what this
// process may use of it, and what its control groups pay for.
func (h *Hardware) threads(processors int, groups []string) int {
	n := h.affinity()
	if processors > 0 {
		n = min(n, processors)
	}
	for _, g := range groups {
		if quota, ok := h.cpuQuota(g); ok {
			n = min(n, quota)
		}
	}
	return max(n, 1)
}

// cpuQuota reads "quota period" of a group in whole threads, rounded up:
// half a thread still needs one to run on.
func (h *Hardware) cpuQuota(group string) (int, bool) {
	text, ok := h.read(group + "/cpu.max")
	if !ok {
		return 0, false
	}
	quotaText, periodText, _ := strings.Cut(text, " ")
	quota, err := strconv.ParseInt(quotaText, 10, 64) // "max" is no number: no limit
	period, err2 := strconv.ParseInt(periodText, 10, 64)
	if err != nil || err2 != nil || quota <= 0 || period <= 0 {
		return 0, false
	}
	n := (quota-1)/period + 1
	return int(min(n, 1<<20)), true
}
