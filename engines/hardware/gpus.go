package hardware

import (
	"path"
	"strings"
)

// unusedGPUs says which GPUs the box seems to have although no prober gave
// any, or what was looked for.
func (h *Hardware) unusedGPUs() string {
	var seen []string
	for _, dev := range h.glob("sys/bus/pci/devices/*") {
		class, _ := h.read(dev + "/class")
		if !strings.HasPrefix(class, "0x03") { // PCI class 3: display controllers
			continue
		}
		vendor, _ := h.read(dev + "/vendor")
		if name := vendorName(vendor); name != "" {
			seen = append(seen, name+" at PCI "+path.Base(dev))
		}
	}
	if len(seen) > 0 {
		return "GPU present but not used: " + strings.Join(seen, ", ") + " (" + h.drivers() + ")"
	}
	return "no GPU found: looked for NVIDIA, AMD and Intel display devices on the PCI bus (" + h.drivers() + ")"
}

// vendorName knows the makers of cards that compute; the virtual displays of
// servers and virtual machines are none.
func vendorName(id string) string {
	switch id {
	case "0x10de":
		return "NVIDIA GPU"
	case "0x1002":
		return "AMD GPU"
	case "0x8086":
		return "Intel GPU"
	default:
		return ""
	}
}

// drivers says which compute drivers have left their marks.
func (h *Hardware) drivers() string {
	var all []string
	for _, d := range []struct{ mark, name string }{
		{"proc/driver/nvidia/version", "/proc/driver/nvidia"},
		{"dev/nvidiactl", "/dev/nvidiactl"},
		{"dev/kfd", "/dev/kfd"},
		{"dev/dri", "/dev/dri"},
	} {
		there := " missing"
		if h.exists(d.mark) {
			there = " there"
		}
		all = append(all, d.name+there)
	}
	return strings.Join(all, ", ")
}
