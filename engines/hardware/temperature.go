package hardware

import (
	"path"
	"strings"
)

// reading is one temperature of a sensor chip.
type reading struct {
	label   string
	celsius float64
}

// cpuCelsius is the CPU's temperature: of several sockets the hottest; nil
// when no sensor that is known to be the CPU's can be read.
func (h *Hardware) cpuCelsius() *float64 {
	var hottest *float64
	for _, chip := range h.glob("sys/class/hwmon/hwmon*") { // numbered anew at each boot
		name, _ := h.read(chip + "/name")
		hottest = hotter(hottest, choose(name, h.readings(chip)))
	}
	if hottest != nil {
		return hottest
	}
	for _, zone := range h.glob("sys/class/thermal/thermal_zone*") {
		// Only this type is the CPU's own; acpitz is often a constant.
		if kind, _ := h.read(zone + "/type"); kind == "x86_pkg_temp" {
			if c, ok := h.millidegrees(zone + "/temp"); ok {
				hottest = hotter(hottest, &c)
			}
		}
	}
	return hottest
}

// choose picks the readings of a chip that are the CPU's temperature.
func choose(chip string, all []reading) *float64 {
	switch chip {
	case "k10temp", "zenpower":
		// Tctl is a value for fan control and may lie above the truth, so it
		// is only taken when the chip gives no other.
		return first(all, is("Tdie"), startsWith("Tccd"), is("Tctl"), is(""))
	case "coretemp":
		return first(all, startsWith("Package id"), startsWith("Physical id"), startsWith("Core"))
	case "cpu_thermal":
		return first(all, func(string) bool { return true })
	default:
		return nil
	}
}

func is(label string) func(string) bool { return func(l string) bool { return l == label } }

func startsWith(prefix string) func(string) bool {
	return func(l string) bool { return strings.HasPrefix(l, prefix) }
}

// first is the hottest reading of the first kind that there is any of.
func first(all []reading, kinds ...func(label string) bool) *float64 {
	for _, of := range kinds {
		var hottest *float64
		for _, r := range all {
			if of(r.label) {
				hottest = hotter(hottest, &r.celsius)
			}
		}
		if hottest != nil {
			return hottest
		}
	}
	return nil
}

func hotter(a, b *float64) *float64 {
	if a == nil || b != nil && *b > *a {
		return b
	}
	return a
}

func (h *Hardware) readings(chip string) []reading {
	var all []reading
	for _, input := range h.glob(chip + "/temp*_input") {
		c, ok := h.millidegrees(input)
		if !ok {
			continue
		}
		label, _ := h.read(strings.TrimSuffix(input, "_input") + "_label")
		all = append(all, reading{label: label, celsius: c})
	}
	return all
}

// millidegrees reads a sensor. What no running CPU can have is a broken
// sensor, not a temperature.
func (h *Hardware) millidegrees(name string) (float64, bool) {
	n, ok := h.readInt(path.Clean(name))
	c := float64(n) / 1000
	return c, ok && c > -40 && c < 150
}
