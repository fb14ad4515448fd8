package node

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"llmgw/mesh"
	"llmgw/router/limits"
	"llmgw/ui"

	"github.com/fxamacker/cbor/v2"
)

// protocolUsage asks a node what it served clients; each node keeps the records of the
// requests that came to it.
const protocolUsage = "/llmgw/usage/1"

const (
	usageTime = 20 * time.Second
	// maxUsageAnswer bounds the reports of one node, in bytes.
	maxUsageAnswer = 32 << 20
)

type usageQuestion struct {
	By    string `cbor:"1,keyasint"`
	Since int64  `cbor:"2,keyasint"` // unix milliseconds
}

// serveUsage answers one stream of protocolUsage.
func (n *Node) serveUsage(s mesh.Stream) {
	_ = s.SetDeadline(time.Now().Add(usageTime))
	if err := n.tellUsage(s); err != nil {
		n.log.Debug("a question about usage was not answered", "peer", s.Peer(), "error", err)
		_ = s.Reset()
		return
	}
	_ = s.Close()
}

func (n *Node) tellUsage(s mesh.Stream) error {
	question, err := readBounded(s, maxDecision)
	if err != nil {
		return err
	}
	var q usageQuestion
	if err := cbor.Unmarshal(question, &q); err != nil {
		return fmt.Errorf("read question: %w", err)
	}
	reports, _, err := limits.Sum(n.store, q.By, time.UnixMilli(q.Since))
	if err != nil {
		return err
	}
	answer, err := limits.EncodeReports(reports)
	if err != nil {
		return err
	}
	_, err = s.Write(answer)
	return err
}

// askUsage gets the reports of another node.
func (n *Node) askUsage(ctx context.Context, peer, by string, since time.Time) ([]limits.Report, error) {
	question, err := cbor.Marshal(usageQuestion{By: by, Since: since.UnixMilli()})
	if err != nil {
		return nil, fmt.Errorf("write question: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, usageTime)
	defer cancel()
	var reports []limits.Report
	err = rates{n}.exchange(ctx, peer, protocolUsage, question, func(s io.Reader) error {
		answer, err := readBounded(s, maxUsageAnswer)
		if err != nil {
			return err
		}
		reports, err = limits.DecodeReports(answer)
		return err
	})
	return reports, err
}

// Usage sums up what all nodes that are heard recorded, and names those that did not
// answer.
func (a admin) Usage(ctx context.Context, r ui.UsageRequest) (ui.UsageReport, error) {
	if !limits.CheckBy(r.By) {
		return ui.UsageReport{}, &ui.Error{Kind: ui.BadInput, Message: fmt.Sprintf("usage cannot be summed up by %q", r.By),
			Hint: "there are key, model, node, project, tenant and provider"}
	}
	since := time.Time{}
	if r.SinceSeconds > 0 {
		since = a.now().Add(-time.Duration(r.SinceSeconds) * time.Second)
	}
	own, _, err := limits.Sum(a.store, r.By, since)
	if err != nil {
		return ui.UsageReport{}, err
	}
	v := a.view.Load()
	all, missing := a.othersUsage(ctx, v, r.By, since)
	out := ui.UsageReport{By: r.By, Missing: missing}
	for _, report := range limits.Join(append(all, own)...) {
		out.Rows = append(out.Rows, usageRow(v, r.By, report))
	}
	return out, nil
}

// othersUsage asks all other members at once.
func (a admin) othersUsage(ctx context.Context, v *view, by string, since time.Time) (all [][]limits.Report, missing []string) {
	var mu sync.Mutex
	var asked sync.WaitGroup
	for _, n := range v.nodes {
		if n.State == mesh.StateSelf || n.State == mesh.StateLeft {
			continue
		}
		asked.Go(func() {
			var reports []limits.Report
			answered := false
			if isLive(n) {
				var err error
				reports, err = a.askUsage(ctx, n.ID, by, since)
				answered = err == nil
			}
			mu.Lock()
			defer mu.Unlock()
			if answered {
				all = append(all, reports)
			} else {
				missing = append(missing, v.name(n.ID))
			}
		})
	}
	asked.Wait()
	slices.Sort(missing)
	return all, missing
}

func usageRow(v *view, by string, r limits.Report) ui.UsageRow {
	name := r.Of
	switch by {
	case limits.ByKey:
		name = r.Name
	case limits.ByNode:
		name = v.name(r.Of)
	}
	u := r.Usage
	return ui.UsageRow{
		ID: r.Of, Name: name, Requests: r.Requests, Failed: r.Failed, InputTokens: u.Input, CachedTokens: u.Cached,
		OutputTokens: u.Output, Images: u.Images, Micros: r.Micros,
	}
}
