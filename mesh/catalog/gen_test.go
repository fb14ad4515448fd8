package catalog

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"llmgw/crdt"

	"pgregory.net/rapid"
)

// What follows draws documents that may be kept.

var drawn atomic.Int64

// fresh is a name that no other document of this run has.
func fresh() string { return fmt.Sprint("n", drawn.Add(1)) }

func names() *rapid.Generator[string] {
	return rapid.StringMatching(`[a-zA-Z0-9][a-zA-Z0-9._-]{0,12}(/[a-zA-Z0-9][a-zA-Z0-9._-]{0,8})?(:[a-zA-Z0-9]{1,5})?`)
}

func selectors() *rapid.Generator[Selector] {
	labels := rapid.MapOfN(rapid.StringMatching(`[a-z/]{1,6}`), rapid.StringMatching(`[a-z0-9.-]{0,6}`), 0, 3)
	return rapid.Custom(func(t *rapid.T) Selector { return Selector{labels.Draw(t, "require"), labels.Draw(t, "forbid")} })
}

func sources() *rapid.Generator[Source] {
	return rapid.Custom(func(t *rapid.T) Source {
		return Source{
			URI: rapid.String().Draw(t, "uri"), Revision: rapid.String().Draw(t, "revision"), Digest: rapid.String().Draw(t, "digest"),
			SizeBytes: rapid.Int64().Draw(t, "size"), Format: rapid.String().Draw(t, "format"), Architecture: rapid.String().Draw(t, "architecture"),
			ContextTrain: rapid.Int().Draw(t, "trained"), KVBytesPerToken: rapid.Int64().Draw(t, "kv"),
		}
	})
}

func profiles() *rapid.Generator[Profile] {
	return rapid.Custom(func(t *rapid.T) Profile {
		return Profile{
			ID: rapid.StringMatching(`[a-zé ]{1,8}`).Draw(t, "id"), Engine: rapid.StringN(1, 9, -1).Draw(t, "engine"),
			Args: rapid.SliceOfN(rapid.String(), 0, 3).Draw(t, "args"), Context: rapid.IntMin(0).Draw(t, "context"),
			Parallel: rapid.IntMin(0).Draw(t, "parallel"), Embeddings: rapid.Bool().Draw(t, "embeddings"), Priority: rapid.Int().Draw(t, "priority"),
		}
	})
}

func models() *rapid.Generator[Model] {
	return rapid.Custom(func(t *rapid.T) Model {
		m := Model{
			Name: names().Draw(t, "name") + "-" + fresh(), Source: sources().Draw(t, "source"),
			Limits: Limits{rapid.IntMin(0).Draw(t, "context"), rapid.IntMin(0).Draw(t, "output"), rapid.Bool().Draw(t, "repetition")},
			Pin:    rapid.String().Draw(t, "pin"), State: rapid.SampledFrom([]ModelState{ModelServed, ModelStopped}).Draw(t, "state"),
			Labels: selectors().Draw(t, "labels"), Profiles: rapid.SliceOfNDistinct(profiles(), 0, 3, func(p Profile) string { return p.ID }).Draw(t, "profiles"),
			Aliases:  rapid.SliceOfNDistinct(names(), 0, 3, FoldName).Draw(t, "aliases"),
			Declared: Declaration{rapid.String().Draw(t, "node"), rapid.String().Draw(t, "file")},
		}
		m.ID = FoldName(m.Name)
		m.Scale.Min = rapid.IntRange(0, MaxReplicas).Draw(t, "min")
		m.Scale.Max = rapid.IntRange(m.Scale.Min, MaxReplicas).Draw(t, "max")
		m.Scale.Idle = time.Duration(rapid.Int64Min(0).Draw(t, "idle"))
		slices.Sort(m.Aliases)
		slices.SortFunc(m.Profiles, func(a, b Profile) int { return strings.Compare(a.ID, b.ID) })
		return m
	})
}

func amounts() *rapid.Generator[uint64] { return rapid.Uint64Range(0, crdt.MaxAmount) }

func rules() *rapid.Generator[Rules] {
	return rapid.Custom(func(t *rapid.T) Rules {
		r := Rules{Limits: rapid.MapOf(rapid.SampledFrom(Metrics()), amounts()).Draw(t, "limits")}
		for _, p := range Periods() {
			for _, u := range []Unit{UnitTokens, UnitMicros} {
				if rapid.Bool().Draw(t, string(p)+string(u)) {
					r.SetBudget(Budget{p, u, amounts().Draw(t, "amount"), rapid.Bool().Draw(t, "hard")})
				}
			}
		}
		return r
	})
}

func apiKeys() *rapid.Generator[APIKey] {
	pattern := rapid.OneOf(names(), rapid.StringMatching(`\*{1,3}`), rapid.StringMatching(`[a-z*]{1,8}`))
	return rapid.Custom(func(t *rapid.T) APIKey {
		return APIKey{
			ID: fresh(), Name: rapid.String().Draw(t, "name"), Hash: rapid.SliceOf(rapid.Byte()).Draw(t, "hash"),
			Scopes:  rapid.SliceOf(rapid.SampledFrom([]string{ScopeInfer, ScopeMetrics, ScopeAdmin})).Draw(t, "scopes"),
			Created: rapid.Int64().Draw(t, "created"), Creator: rapid.String().Draw(t, "creator"), First: rapid.Bool().Draw(t, "first"),
			Models: rapid.SliceOfN(pattern, 0, 4).Draw(t, "models"), Nodes: selectors().Draw(t, "nodes"), Expires: rapid.Int64Min(0).Draw(t, "expires"),
			Origins: rapid.SliceOfN(rapid.StringMatching(`\*|https?://[a-z]{1,9}\.example(:8[0-9]{3})?`), 0, 3).Draw(t, "origins"),
			Rules:   rules().Draw(t, "rules"),
		}
	})
}

func params() *rapid.Generator[Params] {
	value := rapid.Custom(func(t *rapid.T) json.RawMessage {
		raw, _ := json.Marshal(rapid.OneOf(rapid.String().AsAny(), rapid.Bool().AsAny(), rapid.SliceOf(rapid.Int()).AsAny()).Draw(t, "value"))
		return raw
	})
	set := func(prefix string) *rapid.Generator[map[string]json.RawMessage] {
		return rapid.MapOfN(rapid.StringMatching(prefix+`[a-z_]{0,9}`), value, 0, 3)
	}
	return rapid.Custom(func(t *rapid.T) Params {
		return Params{set("d").Draw(t, "default"), set("f").Draw(t, "force"), rapid.SliceOfN(rapid.StringMatching(`t[a-z]{0,8}`), 0, 3).Draw(t, "strip")}
	})
}

func routes() *rapid.Generator[Route] {
	target := rapid.Custom(func(t *rapid.T) string {
		return names().Draw(t, "model") + rapid.SampledFrom([]string{"", "@box-a"}).Draw(t, "node")
	})
	return rapid.Custom(func(t *rapid.T) Route {
		name := names().Draw(t, "name") + "-" + fresh()
		return Route{
			ID: FoldName(name), Name: name, Targets: rapid.SliceOfN(target, 1, 4).Draw(t, "targets"),
			Rule: rapid.SampledFrom(RouteRules()).Draw(t, "rule"), Params: params().Draw(t, "params"),
		}
	})
}

func providers() *rapid.Generator[Provider] {
	model := rapid.OneOf(
		rapid.Custom(func(t *rapid.T) ProviderModel { return ProviderModel{Pattern: names().Draw(t, "pattern") + "*"} }),
		rapid.Custom(func(t *rapid.T) ProviderModel {
			return ProviderModel{names().Draw(t, "ours"), rapid.StringMatching(`[a-zé/:@]{0,9}`).Draw(t, "theirs")}
		}))
	secrets := rapid.SliceOfNDistinct(rapid.StringMatching(`[!-~]{1,40}`), 0, 4, rapid.ID)
	return rapid.Custom(func(t *rapid.T) Provider {
		p := Provider{
			ID: fresh(), URL: "https://" + rapid.StringMatching(`[a-z]{1,9}\.example(:[1-9][0-9]{0,3})?(/[a-z0-9]{1,4}){0,2}`).Draw(t, "url"),
			Private: rapid.Bool().Draw(t, "private"), Insecure: rapid.Bool().Draw(t, "insecure"), Keys: KeysOf(secrets.Draw(t, "keys")),
			Models: rapid.SliceOfN(model, 0, 4).Draw(t, "models"), Priority: rapid.IntRange(-MaxProviderPriority, MaxProviderPriority).Draw(t, "priority"),
			Held: rapid.SampledFrom([]HeldUse{HeldNever, HeldLast, HeldEqual}).Draw(t, "held"), Parallel: rapid.IntRange(0, maxProviderParallel).Draw(t, "parallel"),
			Native:  rapid.SliceOfN(rapid.SampledFrom(NativeAbilities()), 0, 3).Draw(t, "native"),
			Sponsor: rapid.StringMatching(`(12D3[a-z]{3})?`).Draw(t, "sponsor"),
		}
		p.Direct = p.Sponsor != "" && rapid.Bool().Draw(t, "direct")
		return p
	})
}

func nodeSettings() *rapid.Generator[NodeSettings] {
	labels := rapid.MapOfN(rapid.StringMatching(`[a-z/]{1,6}`), rapid.StringMatching(`[a-z0-9.-]{0,6}`), 0, 4)
	return rapid.Custom(func(t *rapid.T) NodeSettings {
		s := NodeSettings{
			Peer: fresh(), Location: rapid.String().Draw(t, "location"), Labels: labels.Draw(t, "labels"), Cordoned: rapid.Bool().Draw(t, "cordoned"), Draining: rapid.Bool().Draw(t, "draining"),
			CordonedDevices: rapid.SliceOfNDistinct(rapid.StringMatching(`GPU-[0-9a-f]{4}|cpu`), 0, 3, rapid.ID).Draw(t, "devices"),
		}
		slices.Sort(s.CordonedDevices)
		return s
	})
}

func prices() *rapid.Generator[Price] {
	return rapid.Custom(func(t *rapid.T) Price {
		return Price{
			Model: FoldName(names().Draw(t, "model")) + "-" + fresh(), Provider: strings.ToLower(rapid.StringMatching(`([a-z]{1,9})?`).Draw(t, "provider")),
			Micros: rapid.MapOfN(rapid.SampledFrom(PriceKinds()), amounts(), 1, len(PriceKinds())).Draw(t, "micros"),
		}
	})
}

// settings draws a value for some settings, spelled as it is shown.
func settings() *rapid.Generator[map[string]string] {
	address := rapid.StringMatching(`[a-z]{1,6}\.example:[1-9][0-9]{0,3}|/ip4/192\.0\.2\.[1-9]/tcp/8771`)
	network := rapid.StringMatching(`192\.0\.2\.[1-9]|10\.[1-9]\.0\.0/16|fd0[0-9]::/32`)
	return rapid.Custom(func(t *rapid.T) map[string]string {
		out := map[string]string{}
		for _, s := range MeshSettings() {
			if !rapid.Bool().Draw(t, s.Key) {
				continue
			}
			switch s.Kind {
			case SettingBool:
				out[s.Key] = fmt.Sprint(rapid.Bool().Draw(t, "bool"))
			case SettingChoice:
				out[s.Key] = rapid.SampledFrom(s.Choices).Draw(t, "choice")
			case SettingNumber:
				out[s.Key] = fmt.Sprint(rapid.Uint32Max(1<<31-1).Draw(t, "number"))
			case SettingDuration:
				out[s.Key] = time.Duration(rapid.Int64Range(int64(time.Second), int64(24*time.Hour)).Draw(t, "duration")).String()
			case SettingAddresses:
				out[s.Key] = strings.Join(rapid.SliceOfNDistinct(address, 0, 3, rapid.ID).Draw(t, "addresses"), ",")
			case SettingNetworks:
				out[s.Key] = strings.Join(rapid.SliceOfNDistinct(network, 0, 3, rapid.ID).Draw(t, "networks"), ",")
			}
		}
		return out
	})
}

func sortedKeys(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }
