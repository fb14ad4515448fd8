package limits

import "slices"

const (
	// samples is how many answers of a model are remembered, enough to know it from
	// minSamples on.
	samples, minSamples = 128, 16
	// maxModels bounds the models that are learned of.
	maxModels = 1024
)

// learned is how long answers are, by model.
type learned map[string]*answers

type answers struct {
	last [samples]uint64
	n    int    // ever
	p95  uint64 // of last, as of the last refresh
}

// learn takes in the length of an answer.
func (s learned) learn(model string, output uint64) {
	if output == 0 {
		return // an error's, or of a model that answers without text
	}
	a, ok := s[model]
	if !ok {
		if len(s) >= maxModels {
			return
		}
		a = &answers{}
		s[model] = a
	}
	a.last[a.n%samples] = output
	a.n++
	if a.n%minSamples == 0 {
		sorted := slices.Clone(a.last[:min(a.n, samples)])
		slices.Sort(sorted)
		a.p95 = sorted[len(sorted)*95/100]
	}
}

// output is what an answer is expected to have at most: what was asked for, or what
// nearly all answers of the model had. The caller holds mu.
func (l *Limiter) output(r Request) uint64 {
	asked := r.Estimate.Output
	if a, ok := l.outputs[r.Model]; ok && a.p95 > 0 && (asked == 0 || a.p95 < asked) {
		return a.p95
	}
	return asked
}
