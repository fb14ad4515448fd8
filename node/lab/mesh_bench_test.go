package lab

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"llmgw/ui"
)

// benchBoxes is the size of the mesh that is measured.
const benchBoxes = 8

// Measures of one round.
const (
	benchWrites    = 100              // one after the other, on one box after the other
	benchPartition = 30 * time.Second // long enough for both sides to give each other up
	benchIdle      = 30 * time.Second
	benchSettle    = 10 * time.Second // after the last join, before an idle mesh is idle
)

// benchMesh joins boxes that do nothing else.
func benchMesh(b *testing.B) (*Lab, []*Box, []*ui.Client) {
	b.Helper()
	l := New(b)
	var names []string
	for i := range benchBoxes {
		names = append(names, fmt.Sprintf("n%d", i))
	}
	boxes := l.startBoxes(names...)
	admins := make([]*ui.Client, len(boxes))
	for i, box := range boxes {
		admins[i] = box.Admin()
		if i > 0 {
			box.CLI("join", boxes[0].CLI("token", "new"))
		}
	}
	for i, a := range admins {
		Eventually(b, 30*time.Second, boxes[i].Name+" sees all as live", func() (bool, string) {
			s, err := a.Status(b.Context())
			return err == nil && s.Mesh.Live == benchBoxes, fmt.Sprint(s.Mesh, err)
		})
	}
	return l, boxes, admins
}

// BenchmarkWriteSeenByAll measures the time from the acknowledgement of a key
// on one box to the first answer for it on the last of all boxes. The look at
// each box is repeated every few milliseconds, which is part of the figure.
func BenchmarkWriteSeenByAll(b *testing.B) {
	l, boxes, admins := benchMesh(b)
	laptop := l.Box("laptop")
	at := make([]*API, len(boxes))
	for i, box := range boxes {
		at[i] = laptop.API(box, "")
	}
	var took []time.Duration
	for b.Loop() {
		for n := range benchWrites {
			key, err := admins[n%len(admins)].NewKey(b.Context(), ui.KeyRequest{Name: fmt.Sprintf("key-%d", len(took))})
			if err != nil {
				b.Fatal(err)
			}
			took = append(took, seenByAll(b, at, key.Key))
		}
	}
	slices.Sort(took)
	b.ReportMetric(milliseconds(took[len(took)/2]), "p50-ms")
	b.ReportMetric(milliseconds(took[len(took)*99/100]), "p99-ms")
}

func milliseconds(d time.Duration) float64 { return d.Seconds() * 1000 }

func seenByAll(b *testing.B, at []*API, key string) time.Duration {
	began := time.Now()
	var boxes sync.WaitGroup
	for _, a := range at {
		with := *a
		with.Key = key
		boxes.Go(func() {
			for time.Since(began) < startTimeout {
				got, err := with.Ask(b.Context(), http.MethodGet, "/v1/models", nil)
				if err == nil && got.Status == http.StatusOK {
					return
				}
				time.Sleep(2 * time.Millisecond)
			}
			b.Errorf("%s did not know a key after %v", with.Base, startTimeout)
		})
	}
	boxes.Wait()
	return time.Since(began)
}

// BenchmarkPartitionHeals measures how long two halves take to be equal again
// that were apart and were both written to.
func BenchmarkPartitionHeals(b *testing.B) {
	_, boxes, admins := benchMesh(b)
	var took time.Duration
	rounds := 0
	for b.Loop() {
		split(boxes, (*Box).CutTo)
		began := time.Now()
		for i, a := range admins {
			if _, err := a.NewKey(b.Context(), ui.KeyRequest{Name: fmt.Sprintf("key-%d-%d", rounds, i)}); err != nil {
				b.Fatal(err)
			}
		}
		time.Sleep(benchPartition - time.Since(began))
		rounds++
		for i, a := range admins {
			keys, err := a.Keys(b.Context())
			if want := 1 + rounds*benchBoxes - benchBoxes/2; err != nil || len(keys.Keys) != want {
				b.Fatalf("%s has %d keys behind the cut, want %d: %v", boxes[i].Name, len(keys.Keys), want, err)
			}
		}
		healed := time.Now() // before the first link is whole, so the figure is too high rather than too low
		split(boxes, (*Box).HealTo)
		Eventually(b, 60*time.Second, "all boxes have all keys", func() (bool, string) {
			for i, a := range admins {
				keys, err := a.Keys(b.Context())
				if err != nil || len(keys.Keys) != 1+rounds*benchBoxes {
					return false, fmt.Sprint(boxes[i].Name, len(keys.Keys), err)
				}
			}
			return true, ""
		})
		took += time.Since(healed)
	}
	b.ReportMetric(took.Seconds()/float64(rounds), "s-until-equal")
}

// split does something to each link between the two halves, in both directions.
func split(boxes []*Box, do func(from, to *Box)) {
	for _, x := range boxes[:len(boxes)/2] {
		for _, y := range boxes[len(boxes)/2:] {
			do(x, y)
			do(y, x)
		}
	}
}

// BenchmarkIdleMesh measures what a node of a mesh costs that does nothing.
func BenchmarkIdleMesh(b *testing.B) {
	l, boxes, _ := benchMesh(b)
	time.Sleep(benchSettle)
	var sent int64
	var cpu, span time.Duration
	for b.Loop() {
		sent0, cpu0, began := l.sent(boxes), spentBy(b, boxes), time.Now()
		time.Sleep(benchIdle)
		sent += l.sent(boxes) - sent0
		cpu += spentBy(b, boxes) - cpu0
		span += time.Since(began)
	}
	per := span.Seconds() * float64(len(boxes))
	b.ReportMetric(float64(sent)/per, "B/s/node")
	b.ReportMetric(100*cpu.Seconds()/per, "%core/node")
}

// sent is how many bytes the boxes have sent, headers included, as the switch
// counts them on their ports.
func (l *Lab) sent(boxes []*Box) int64 {
	l.tb.Helper()
	out, err := tool("ip", "-n", l.sw.name, "-s", "-j", "link", "show")
	if err != nil {
		l.tb.Fatal(err)
	}
	var links []struct {
		Name  string `json:"ifname"`
		Stats struct {
			RX struct {
				Bytes int64 `json:"bytes"`
			} `json:"rx"`
		} `json:"stats64"`
	}
	if err := json.Unmarshal([]byte(out), &links); err != nil {
		l.tb.Fatalf("read the switch's counters: %v\n%s", err, out)
	}
	var sum int64
	counted := 0
	for _, link := range links {
		for _, b := range boxes {
			if link.Name == b.port() {
				sum += link.Stats.RX.Bytes
				counted++
			}
		}
	}
	if counted != len(boxes) {
		l.tb.Fatalf("the switch counts %d of %d ports:\n%s", counted, len(boxes), out)
	}
	return sum
}

func spentBy(tb testing.TB, boxes []*Box) time.Duration {
	tb.Helper()
	var sum time.Duration
	for _, b := range boxes {
		p, err := ReadProcess(b.PID())
		if err != nil {
			tb.Fatal(err)
		}
		sum += p.CPU
	}
	return sum
}
