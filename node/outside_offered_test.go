package node

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"llmgw/mesh/catalog"
)

func providerOf(id string, patterns ...string) *catalog.Provider {
	p := &catalog.Provider{ID: id, URL: "https://" + id + ".example/v1"}
	for _, text := range patterns {
		pattern, theirs, _ := strings.Cut(text, "=")
		p.Models = append(p.Models, catalog.ProviderModel{Pattern: pattern, Theirs: theirs})
	}
	return p
}

func TestPatternsListWhatTheProviderHas(t *testing.T) {
	o, now := newOffered(), time.Unix(1_800_000_000, 0)
	all := []*catalog.Provider{providerOf("a", "gpt-*", "Llama/*"), providerOf("b", "fixed"), providerOf("c", "*=one")}
	asked := func(listed bool) (ids string) {
		for _, p := range o.due(all, listed, now) {
			ids += p.ID
		}
		return ids
	}
	if got := asked(false); got != "a" {
		t.Fatalf("asked at first: %q; only a has a pattern that stands for names of its own", got)
	}
	o.end(all[0], []string{"GPT-5", "gpt-5-mini", "whisper-1", "llama/x", "gpt-@bad"}, nil)
	if got, want := o.names(all), []string{"GPT-5", "gpt-5-mini", "llama/x"}; !slices.Equal(got, want) {
		t.Errorf("listed: %v, want %v", got, want)
	}
	select {
	case <-o.listed:
	default:
		t.Error("that somebody lists models wakes nobody")
	}

	now = now.Add(offerStale - time.Second)
	if got := asked(true); got != "" {
		t.Errorf("asked again while fresh: %q", got)
	}
	if now = now.Add(time.Second); asked(false) != "" {
		t.Error("asked though nobody lists models")
	}
	if asked(true) != "a" {
		t.Error("not asked when stale")
	}
	// What it said holds while it is away, and it is asked sooner.
	o.end(all[0], nil, errors.New("away"))
	if got := o.names(all); len(got) != 3 {
		t.Errorf("away: %v", got)
	}
	if now = now.Add(offerAgain); asked(true) != "a" {
		t.Error("one that failed is not asked again")
	}

	// Another URL or key is another provider; what the old one says late does not count.
	moved := *all[0]
	moved.URL = "https://elsewhere.example/v1"
	before := all[0]
	if all[0] = &moved; asked(false) != "a" {
		t.Error("not asked anew at another URL")
	}
	o.end(before, []string{"gpt-old"}, nil)
	if got := o.names(all); len(got) != 0 {
		t.Errorf("of the old URL: %v", got)
	}
	o.end(&moved, make([]string, maxOffered+5), nil)
	if n := len(o.offers["a"].models); n != maxOffered {
		t.Errorf("%d models are kept", n)
	}
	if all = all[1:]; asked(true) != "" || len(o.offers) != 0 {
		t.Error("one that is gone is remembered")
	}
}
