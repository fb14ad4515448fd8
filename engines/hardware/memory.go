package hardware

import (
	"path"
	"strconv"
	"strings"
)

// memory returns total and free bytes of RAM for a new process. The kernel's
// own estimate (MemAvailable) counts page cache that can be dropped as free;
// each control group with a limit may leave less, counted in the same way.
func (h *Hardware) memory(groups []string) (total, free *int64) {
	text, ok := h.read("proc/meminfo")
	if !ok {
		return nil, nil
	}
	total, free = kilobytes(text, "MemTotal"), kilobytes(text, "MemAvailable")
	for _, g := range groups {
		limit, left, ok := h.groupMemory(g)
		if !ok {
			continue
		}
		total, free = lower(total, limit), lower(free, left)
	}
	return total, free
}

// lower keeps unknown unknown: a group's limit says nothing of a box that
// could not be measured.
func lower(n *int64, bound int64) *int64 {
	if n == nil || *n <= bound {
		return n
	}
	return &bound
}

func kilobytes(meminfo, name string) *int64 {
	text, ok := field(meminfo, name, ":")
	if !ok {
		return nil
	}
	n, err := strconv.ParseInt(strings.TrimSuffix(text, " kB"), 10, 64)
	if err != nil || n < 0 || n > 1<<50 {
		return nil
	}
	n *= 1024
	return &n
}

// cgroupRoot is where version 2 of the control groups is mounted.
const cgroupRoot = "sys/fs/cgroup"

// cgroups lists the folders of this process's control group and all above it,
// nearest first; none where version 2 is not used.
func (h *Hardware) cgroups() []string {
	text, ok := h.read("proc/self/cgroup")
	if !ok {
		return nil
	}
	own, ok := field(text, "0", "::") // version 2's line is 0::PATH
	if !ok {
		return nil
	}
	var all []string
	// A path may start with /../ inside a namespace; cleaning it ends at the root.
	for p := path.Clean("/" + own); ; p = path.Dir(p) {
		all = append(all, path.Join(cgroupRoot, p))
		if p == "/" {
			return all
		}
	}
}

// groupMemory is a group's limit and what it leaves; false when it has none.
func (h *Hardware) groupMemory(group string) (limit, left int64, ok bool) {
	limit, ok = h.readInt(group + "/memory.max") // "max" is no number: no limit
	if !ok || limit < 0 {
		return 0, 0, false
	}
	used, ok := h.readInt(group + "/memory.current")
	if !ok {
		return limit, limit, true
	}
	stat, _ := h.read(group + "/memory.stat")
	for _, name := range []string{"active_file", "inactive_file"} {
		used -= statValue(stat, name)
	}
	return limit, max(limit-max(used, 0), 0), true
}

func statValue(stat, name string) int64 {
	text, ok := field(stat, name, " ")
	if !ok {
		return 0
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return 0
	}
	return n
}
