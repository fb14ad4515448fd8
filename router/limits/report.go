package limits

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"llmgw/router/openai"

	"github.com/fxamacker/cbor/v2"
)

// Ways to sum up usage records.
const (
	ByKey      = "key"
	ByModel    = "model"
	ByNode     = "node"
	ByProject  = "project"
	ByTenant   = "tenant"
	ByProvider = "provider"
)

// Report is what was used by one key, model, node, project, tenant or provider.
type Report struct {
	Of       string // ID; of a request without a project or tenant: empty
	Name     string // of a key, as in its newest record
	Requests uint64
	Failed   uint64 // of these: answered with an error, or left by the client
	Usage    openai.Usage
	Micros   uint64
	newest   int64
}

// Records are usage records of one node, oldest first; see store.Store.
type Records interface {
	UsageRecords(from uint64, each func(n uint64, record []byte) bool) error
}

// Sum sums up the records since a time, by one of the By words. Records of a version
// that is not known here are left out, and counted in skipped.
func Sum(records Records, by string, since time.Time) (out []Report, skipped int, err error) {
	sums := map[string]*Report{}
	err = records.UsageRecords(0, func(_ uint64, data []byte) bool {
		r, err := DecodeRecord(data)
		switch {
		case err != nil:
			skipped++
		case r.Time >= since.UnixMilli():
			of := r.of(by)
			if sums[of] == nil {
				sums[of] = &Report{Of: of}
			}
			sums[of].add(r)
		}
		return true
	})
	if err != nil {
		return nil, 0, fmt.Errorf("read usage records: %w", err)
	}
	for _, r := range sums {
		out = append(out, *r)
	}
	slices.SortFunc(out, Report.compare)
	return out, skipped, nil
}

// CheckBy says whether usage can be summed up so.
func CheckBy(by string) bool {
	return slices.Contains([]string{ByKey, ByModel, ByNode, ByProject, ByTenant, ByProvider}, by)
}

func (r Record) of(by string) string {
	switch by {
	case ByModel:
		return r.Model
	case ByNode:
		return r.Node
	case ByProject:
		return r.Project
	case ByTenant:
		return r.Tenant
	case ByProvider:
		return r.Provider
	}
	return r.Key
}

func (s *Report) add(r Record) {
	s.join(Report{Requests: 1, Usage: r.Usage, Micros: r.Micros, Name: r.KeyName, newest: r.Time})
	if r.Status >= 400 {
		s.Failed++
	}
}

func (s *Report) join(o Report) {
	s.Requests = add(s.Requests, o.Requests)
	s.Failed = add(s.Failed, o.Failed)
	s.Micros = add(s.Micros, o.Micros)
	u, v := &s.Usage, o.Usage
	u.Input, u.Cached, u.CacheWrite = add(u.Input, v.Input), add(u.Cached, v.Cached), add(u.CacheWrite, v.CacheWrite)
	u.Output, u.AudioIn, u.AudioOut, u.Images = add(u.Output, v.Output), add(u.AudioIn, v.AudioIn), add(u.AudioOut, v.AudioOut), add(u.Images, v.Images)
	if o.newest >= s.newest {
		s.newest, s.Name = o.newest, o.Name
	}
}

// compare puts what cost most, then what used most, first.
func (s Report) compare(o Report) int {
	return cmp.Or(cmp.Compare(o.Micros, s.Micros), cmp.Compare(add(o.Usage.Input, o.Usage.Output), add(s.Usage.Input, s.Usage.Output)),
		cmp.Compare(o.Requests, s.Requests), cmp.Compare(s.Of, o.Of))
}

// Join adds up reports of several nodes.
func Join(all ...[]Report) []Report {
	sums := map[string]*Report{}
	for _, reports := range all {
		for _, r := range reports {
			if sums[r.Of] == nil {
				sums[r.Of] = &Report{Of: r.Of}
			}
			sums[r.Of].join(r)
		}
	}
	out := make([]Report, 0, len(sums))
	for _, of := range slices.Sorted(maps.Keys(sums)) {
		out = append(out, *sums[of])
	}
	slices.SortFunc(out, Report.compare)
	return out
}

// wireReport is a Report on its way between nodes.
type wireReport struct {
	_                struct{} `cbor:",toarray"`
	Of, Name         string
	Requests, Failed uint64
	Usage            [7]uint64
	Micros           uint64
	Newest           int64
}

// maxReports bounds the reports that are taken from one node.
const maxReports = 100_000

// EncodeReports writes reports for another node.
func EncodeReports(reports []Report) ([]byte, error) {
	wire := make([]wireReport, len(reports))
	for i, r := range reports {
		wire[i] = wireReport{Of: r.Of, Name: r.Name, Requests: r.Requests, Failed: r.Failed, Usage: packUsage(r.Usage), Micros: r.Micros, Newest: r.newest}
	}
	out, err := cbor.Marshal(wire)
	if err != nil {
		return nil, fmt.Errorf("encode reports: %w", err)
	}
	return out, nil
}

// DecodeReports reads what EncodeReports wrote; ErrRecord.
func DecodeReports(data []byte) ([]Report, error) {
	var wire []wireReport
	if err := cbor.Unmarshal(data, &wire); err != nil {
		return nil, fmt.Errorf("decode reports: %w: %w", ErrRecord, err)
	}
	if len(wire) > maxReports {
		return nil, fmt.Errorf("decode %d reports: %w", len(wire), ErrRecord)
	}
	out := make([]Report, len(wire))
	for i, w := range wire {
		out[i] = Report{Of: w.Of, Name: w.Name, Requests: w.Requests, Failed: w.Failed, Usage: unpackUsage(w.Usage), Micros: w.Micros, newest: w.Newest}
	}
	return out, nil
}
