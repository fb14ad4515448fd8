package hardware

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"llmgw/mesh/catalog"
)

// tree is a fake system: paths and contents. A content of "->x" makes a link.
type tree map[string]string

func (files tree) plant(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	for name, content := range files {
		p := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		target, isLink := strings.CutPrefix(content, "->")
		err := error(nil)
		if isLink {
			err = os.Symlink(target, p)
		} else {
			err = os.WriteFile(p, []byte(content), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func (files tree) with(more tree) tree {
	all := tree{}
	for _, m := range []tree{files, more} {
		for k, v := range m {
			all[k] = v
		}
	}
	return all
}

const meminfo = "MemTotal:       32000000 kB\nMemFree:         1000000 kB\nMemAvailable:   30000000 kB\nBuffers: 1 kB\n"

func machine() tree {
	return tree{
		"proc/cpuinfo": "processor\t: 0\nmodel name\t: Some  CPU\t8-Core\nflags: x\n\nprocessor\t: 1\nmodel name\t: Some  CPU\t8-Core\n\n" +
			"processor : 2\n\nprocessor : 3\n",
		"proc/meminfo":     meminfo,
		"proc/self/cgroup": "0::/\n",
	}
}

func inventory(t *testing.T, files tree, o Options) catalog.Inventory {
	t.Helper()
	o.Root = files.plant(t)
	if o.Affinity == nil {
		o.Affinity = func() int { return 64 }
	}
	return New(o).Inventory(t.Context())
}

func cpu(t *testing.T, inv catalog.Inventory) catalog.Device {
	t.Helper()
	if len(inv.Devices) == 0 {
		t.Fatal("there is no CPU")
	}
	return inv.Devices[len(inv.Devices)-1]
}

func number[T any](p *T) any {
	if p == nil {
		return "unknown"
	}
	return *p
}

func TestCPUAndMemory(t *testing.T) {
	inv := inventory(t, machine(), Options{})
	c := cpu(t, inv)
	if c.ID != "cpu" || c.Kind != catalog.DeviceCPU || c.Name != "Some CPU 8-Core" {
		t.Errorf("got %+v", c)
	}
	if inv.Threads != 4 || inv.Arch != runtime.GOARCH || inv.OS != runtime.GOOS {
		t.Errorf("got %d threads, %s, %s", inv.Threads, inv.Arch, inv.OS)
	}
	const kB = 1024
	if got := []any{number(inv.RAMTotal), number(inv.RAMFree), number(c.MemoryTotal), number(c.MemoryFree)}; !slices.Equal(got,
		[]any{any(int64(32000000 * kB)), any(int64(30000000 * kB)), any(int64(32000000 * kB)), any(int64(30000000 * kB))}) {
		t.Errorf("got %v", got)
	}
	if c.Celsius != nil || c.BusyPercent != nil {
		t.Errorf("what was not measured has a number: %+v", c)
	}
}

func TestNothingReadableIsUnknown(t *testing.T) {
	for name, files := range map[string]tree{
		"empty":   {},
		"garbage": {"proc/cpuinfo": "\x00\xff", "proc/meminfo": "MemTotal: many kB\nMemAvailable: -5 kB\n", "proc/self/cgroup": "nonsense"},
	} {
		t.Run(name, func(t *testing.T) {
			inv := inventory(t, files, Options{})
			if inv.RAMTotal != nil || inv.RAMFree != nil || cpu(t, inv).Celsius != nil {
				t.Errorf("got %+v", inv)
			}
			if inv.Threads != 64 || cpu(t, inv).Name == "" {
				t.Errorf("got %d threads of %q", inv.Threads, cpu(t, inv).Name)
			}
		})
	}
}

func TestBoardNameWhereTheCPUHasNone(t *testing.T) {
	inv := inventory(t, tree{"proc/cpuinfo": "processor : 0\n", "proc/device-tree/model": "Some Board Rev 5\x00"}, Options{})
	if got := cpu(t, inv).Name; got != "Some Board Rev 5" {
		t.Errorf("got %q", got)
	}
}

func TestThreads(t *testing.T) {
	group := tree{"proc/self/cgroup": "0::/a/b\n"}
	for name, c := range map[string]struct {
		more     tree
		affinity int
		want     int
	}{
		"all":                        {tree{}, 64, 4},
		"fewer may be used":          {tree{}, 3, 3},
		"quota of one and a half":    {tree{"sys/fs/cgroup/a/b/cpu.max": "150000 100000\n"}, 64, 2},
		"quota of less than one":     {tree{"sys/fs/cgroup/a/cpu.max": "50000 100000"}, 64, 1},
		"no quota":                   {tree{"sys/fs/cgroup/a/cpu.max": "max 100000"}, 64, 4},
		"broken quota":               {tree{"sys/fs/cgroup/a/cpu.max": "5"}, 64, 4},
		"quota larger than the box":  {tree{"sys/fs/cgroup/a/cpu.max": "9223372036854775807 1"}, 64, 4},
		"the parent's quota is less": {tree{"sys/fs/cgroup/a/b/cpu.max": "400000 100000", "sys/fs/cgroup/a/cpu.max": "200000 100000"}, 64, 2},
	} {
		t.Run(name, func(t *testing.T) {
			inv := inventory(t, machine().with(group).with(c.more), Options{Affinity: func() int { return c.affinity }})
			if inv.Threads != c.want {
				t.Errorf("got %d, want %d", inv.Threads, c.want)
			}
		})
	}
}

func TestMemoryLimits(t *testing.T) {
	const total, available = int64(32000000 * 1024), int64(30000000 * 1024)
	const gib = int64(1) << 30
	for name, c := range map[string]struct {
		cgroup      string
		more        tree
		total, free any
	}{
		"no limit: current does not count": {"0::/a\n", tree{
			"sys/fs/cgroup/a/memory.max": "max\n", "sys/fs/cgroup/a/memory.current": "27584000000\n",
			"sys/fs/cgroup/a/memory.stat": "anon 1\nfile 26876000000\n",
		}, total, available},
		"page cache can go": {"0::/a\n", tree{
			"sys/fs/cgroup/a/memory.max": "8589934592", "sys/fs/cgroup/a/memory.current": "7516192768",
			"sys/fs/cgroup/a/memory.stat": "anon 1073741824\nfile 9\ninactive_file 2147483648\nactive_file 3221225472\n",
		}, 8 * gib, 6 * gib},
		"without stat nothing can go": {"0::/a\n", tree{
			"sys/fs/cgroup/a/memory.max": "8589934592", "sys/fs/cgroup/a/memory.current": "7516192768",
		}, 8 * gib, gib},
		"the limit of an ancestor": {"0::/a/b/c\n", tree{
			"sys/fs/cgroup/a/b/c/memory.max": "max",
			"sys/fs/cgroup/a/memory.max":     "4294967296", "sys/fs/cgroup/a/memory.current": "1073741824",
		}, 4 * gib, 3 * gib},
		"of two limits the tighter": {"0::/a/b\n", tree{
			"sys/fs/cgroup/a/b/memory.max": "6442450944", "sys/fs/cgroup/a/b/memory.current": "0",
			"sys/fs/cgroup/a/memory.max": "8589934592", "sys/fs/cgroup/a/memory.current": "7516192768",
		}, 6 * gib, gib},
		"a container's own root": {"0::/\n", tree{
			"sys/fs/cgroup/memory.max": "2147483648", "sys/fs/cgroup/memory.current": "1073741824",
		}, 2 * gib, gib},
		"a path above the namespace": {"0::/../../x\n", tree{
			"sys/fs/cgroup/memory.max": "2147483648", "sys/fs/cgroup/memory.current": "1073741824",
		}, 2 * gib, gib},
		"used over the limit": {"0::/a\n", tree{
			"sys/fs/cgroup/a/memory.max": "1073741824", "sys/fs/cgroup/a/memory.current": "2147483648",
		}, gib, int64(0)},
		"limit larger than the box": {"0::/a\n", tree{
			"sys/fs/cgroup/a/memory.max": "1099511627776", "sys/fs/cgroup/a/memory.current": "5",
		}, total, available},
		"use unknown: the limit at most": {"0::/a\n", tree{"sys/fs/cgroup/a/memory.max": "1073741824"}, gib, gib},
		"hybrid groups": {"12:memory:/x\n1:name=systemd:/y\n0::/a\n", tree{
			"sys/fs/cgroup/a/memory.max": "1073741824", "sys/fs/cgroup/a/memory.current": "0",
		}, gib, gib},
		"an old kernel tells no MemAvailable": {"0::/\n", tree{"proc/meminfo": "MemTotal: 32000000 kB\nMemFree: 5 kB\n"}, total, "unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			inv := inventory(t, machine().with(tree{"proc/self/cgroup": c.cgroup}).with(c.more), Options{})
			if diff := cmp.Diff([]any{c.total, c.free}, []any{number(inv.RAMTotal), number(inv.RAMFree)}); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestTemperature(t *testing.T) {
	const h = "sys/class/hwmon/hwmon"
	for name, c := range map[string]struct {
		files tree
		want  any
	}{
		"none":          {tree{}, "unknown"},
		"no CPU sensor": {tree{h + "0/name": "nvme\n", h + "0/temp1_input": "45000\n", h + "1/name": "amdgpu", h + "1/temp1_input": "90000"}, "unknown"},
		"k10temp with Tdie": {tree{
			h + "3/name": "k10temp\n", h + "3/temp1_input": "82000\n", h + "3/temp1_label": "Tctl\n",
			h + "3/temp2_input": "55125\n", h + "3/temp2_label": "Tdie\n", h + "3/temp3_input": "57000", h + "3/temp3_label": "Tccd1",
		}, 55.125},
		"k10temp with dies": {tree{
			h + "3/name": "k10temp\n", h + "3/temp1_input": "82000\n", h + "3/temp1_label": "Tctl\n",
			h + "3/temp3_input": "57000", h + "3/temp3_label": "Tccd1", h + "3/temp4_input": "61000", h + "3/temp4_label": "Tccd2",
		}, 61.0},
		"k10temp with Tctl only": {tree{h + "3/name": "k10temp", h + "3/temp1_input": "70000", h + "3/temp1_label": "Tctl"}, 70.0},
		"k10temp without labels": {tree{h + "3/name": "k10temp", h + "3/temp1_input": "41000"}, 41.0},
		"coretemp of two sockets": {tree{
			h + "1/name": "coretemp", h + "1/temp1_input": "50000", h + "1/temp1_label": "Package id 0", h + "1/temp2_input": "99000", h + "1/temp2_label": "Core 0",
			h + "2/name": "coretemp", h + "2/temp1_input": "64000", h + "2/temp1_label": "Package id 1",
		}, 64.0},
		"coretemp of old kernels": {tree{h + "1/name": "coretemp", h + "1/temp1_input": "50000", h + "1/temp1_label": "Physical id 0"}, 50.0},
		"coretemp without package": {tree{
			h + "1/name": "coretemp", h + "1/temp2_input": "51000", h + "1/temp2_label": "Core 0", h + "1/temp3_input": "52000", h + "1/temp3_label": "Core 1",
		}, 52.0},
		"a small board":            {tree{h + "0/name": "cpu_thermal", h + "0/temp1_input": "48312"}, 48.312},
		"below zero":               {tree{h + "0/name": "cpu_thermal", h + "0/temp1_input": "-5000"}, -5.0},
		"zero is a temperature":    {tree{h + "0/name": "cpu_thermal", h + "0/temp1_input": "0"}, 0.0},
		"the thermal zone instead": {tree{"sys/class/thermal/thermal_zone0/type": "acpitz", "sys/class/thermal/thermal_zone0/temp": "27800", "sys/class/thermal/thermal_zone1/type": "x86_pkg_temp\n", "sys/class/thermal/thermal_zone1/temp": "60000\n"}, 60.0},
		"a constant is none":       {tree{"sys/class/thermal/thermal_zone0/type": "acpitz", "sys/class/thermal/thermal_zone0/temp": "27800"}, "unknown"},
		"an absurd value":          {tree{h + "0/name": "coretemp", h + "0/temp1_input": "-128000", h + "0/temp1_label": "Package id 0"}, "unknown"},
		"text for a value":         {tree{h + "0/name": "coretemp", h + "0/temp1_input": "N/A", h + "0/temp1_label": "Package id 0"}, "unknown"},
		"linked as the kernel does": {tree{
			h + "5": "->../../../sys/devices/pci/hwmon/hwmon5", "sys/devices/pci/hwmon/hwmon5/name": "k10temp", "sys/devices/pci/hwmon/hwmon5/temp1_input": "39000",
		}, 39.0},
	} {
		t.Run(name, func(t *testing.T) {
			if got := number(cpu(t, inventory(t, machine().with(c.files), Options{})).Celsius); got != c.want {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

func TestVanishedSensorIsUnknown(t *testing.T) {
	root := machine().with(tree{"sys/class/hwmon/hwmon0/name": "coretemp", "sys/class/hwmon/hwmon0/temp1_input": "50000", "sys/class/hwmon/hwmon0/temp1_label": "Package id 0"}).plant(t)
	h := New(Options{Root: root})
	if got := number(cpu(t, h.Inventory(t.Context())).Celsius); got != 50.0 {
		t.Fatalf("got %v", got)
	}
	if err := os.RemoveAll(filepath.Join(root, "sys")); err != nil {
		t.Fatal(err)
	}
	if got := number(cpu(t, h.Inventory(t.Context())).Celsius); got != "unknown" {
		t.Errorf("got %v after the sensor went away", got)
	}
}

// TestCardThatIsPluggedInIsNoticed: what is there for good is looked at now and
// then, not never; memory is read each time.
func TestCardThatIsPluggedInIsNoticed(t *testing.T) {
	root := machine().plant(t)
	h := New(Options{Root: root})
	had := h.Inventory(t.Context())
	card := filepath.Join(root, "sys/bus/pci/devices/0000:01:00.0")
	if err := os.MkdirAll(card, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		filepath.Join(card, "class"): "0x030000\n", filepath.Join(card, "vendor"): "0x10de\n",
		filepath.Join(root, "proc/meminfo"): "MemTotal: 32000000 kB\nMemAvailable: 20000000 kB\n",
	} {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	next := h.Inventory(t.Context())
	if next.RAMFree == nil || had.RAMFree == nil || *next.RAMFree >= *had.RAMFree {
		t.Errorf("free memory went from %v to %v", number(had.RAMFree), number(next.RAMFree))
	}
	for range goodLooks {
		next = h.Inventory(t.Context())
	}
	if all := strings.Join(next.Notes, "\n"); !strings.Contains(all, "NVIDIA GPU at PCI 0000:01:00.0") {
		t.Errorf("the card is not noticed: %q", all)
	}
}

func TestNotesSayWhatWasLookedFor(t *testing.T) {
	const pci = "sys/bus/pci/devices/"
	for name, c := range map[string]struct {
		files tree
		words []string
	}{
		"no GPU": {tree{pci + "0000:00:1f.0/class": "0x060100", pci + "0000:00:1f.0/vendor": "0x8086"},
			[]string{"no GPU found", "NVIDIA, AMD and Intel", "/dev/kfd missing", "/dev/nvidiactl missing"}},
		"a server's display": {tree{pci + "0000:02:00.0/class": "0x030000", pci + "0000:02:00.0/vendor": "0x1a03"}, []string{"no GPU found"}},
		"an unused card": {tree{pci + "0000:01:00.0/class": "0x030200\n", pci + "0000:01:00.0/vendor": "0x10de\n", "dev/nvidiactl": ""},
			[]string{"present but not used", "NVIDIA GPU at PCI 0000:01:00.0", "/proc/driver/nvidia missing", "/dev/nvidiactl there"}},
	} {
		t.Run(name, func(t *testing.T) {
			inv := inventory(t, machine().with(c.files), Options{})
			if len(inv.Notes) != 1 || len(inv.Devices) != 1 {
				t.Fatalf("got notes %q, devices %v", inv.Notes, inv.Devices)
			}
			for _, w := range c.words {
				if !strings.Contains(inv.Notes[0], w) {
					t.Errorf("%q is not in %q", w, inv.Notes[0])
				}
			}
		})
	}
}

// prober is a driver that says what it was told to.
type prober struct {
	devices []catalog.Device
	notes   []string
	err     error
}

func (p prober) Devices(context.Context) ([]catalog.Device, []string, error) {
	return p.devices, p.notes, p.err
}

func TestProbers(t *testing.T) {
	card := catalog.Device{ID: "GPU-1", Kind: catalog.DeviceNVIDIA, Name: "Card"}
	inv := inventory(t, machine(), Options{Probers: []Prober{
		prober{err: errors.New("driver: version mismatch"), notes: []string{"reboot needed"}},
		prober{devices: []catalog.Device{card}},
	}})
	if len(inv.Devices) != 2 || inv.Devices[0].ID != "GPU-1" || inv.Devices[1].ID != "cpu" {
		t.Errorf("got %+v, the CPU comes last", inv.Devices)
	}
	if want := []string{"reboot needed", "driver: version mismatch"}; !slices.Equal(inv.Notes, want) {
		t.Errorf("got %q, want %q", inv.Notes, want)
	}
}

func TestThisMachine(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("reads the kernel's files of Linux")
	}
	inv := New(Options{}).Inventory(t.Context())
	if inv.Threads < 1 || inv.RAMTotal == nil || inv.RAMFree == nil || *inv.RAMFree > *inv.RAMTotal || *inv.RAMTotal < 1<<26 {
		t.Errorf("got %d threads, %v of %v bytes free", inv.Threads, number(inv.RAMFree), number(inv.RAMTotal))
	}
}
