package catalog

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"encoding/xml"
	"fmt"
	"math"
	"math/big"
	"strings"
	"testing"
	"time"

	"llmgw/crdt"

	"go.yaml.in/yaml/v3"
)

// okProvider may be kept.
func okProvider() Provider { return Provider{ID: "p", URL: "https://api.example/v1"} }

// authority is a certificate in PEM.
func authority(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	must(t, err)
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

func TestProvidersSayWhatIsWrong(t *testing.T) {
	const noURL = "URL is none of the form https://host/v1"
	const plainHTTP = "URL is plain http, which shows keys and prompts to the network: want https, or --allow-private for a service on your own"
	const badKey = "keys hold one (number %d) that is empty, over 1024 bytes or not printable"
	url := func(u string) func(*Provider) { return func(p *Provider) { p.URL = u } }
	keys := func(k ...string) func(*Provider) { return func(p *Provider) { p.Keys = KeysOf(k) } }
	model := func(pattern, theirs string) func(*Provider) {
		return func(p *Provider) { p.Models = []ProviderModel{{pattern, theirs}} }
	}
	pattern := func(p string) string {
		return fmt.Sprintf("models cannot have %q: want a model name in which '*' stands for anything", p)
	}
	theirs := func(n string) string { return fmt.Sprintf("models cannot have the provider's name %q", n) }
	for name, c := range map[string]struct {
		change func(*Provider)
		want   string
	}{
		"no URL":           {url(""), "URL is missing"},
		"no scheme":        {url("api.example/v1"), noURL},
		"no host":          {url("https:///v1"), noURL},
		"a port alone":     {url("https://:443"), noURL},
		"opaque":           {url("https:api.example"), noURL},
		"not parsed":       {url("https://a b/"), noURL},
		"a control":        {url("https://a.example/\x7f"), noURL},
		"too long":         {url("https://a.example/" + strings.Repeat("x", maxProviderURL)), noURL},
		"a name":           {url("https://me@a.example"), "URL holds a name or password: give keys by --key-file"},
		"a password":       {url("https://me:x@a.example"), "URL holds a name or password: give keys by --key-file"},
		"a query":          {url("https://a.example?a=1"), "URL has a query or fragment"},
		"an empty query":   {url("https://a.example?"), "URL has a query or fragment"},
		"a fragment":       {url("https://a.example#x"), "URL has a query or fragment"},
		"a scheme":         {url("ftp://a.example"), `URL has the scheme "ftp": want https`},
		"plain http":       {url("http://a.example"), plainHTTP},
		"letters":          {url("https://a.example/ä"), "URL has characters that a URL cannot have"},
		"port 0":           {url("https://a.example:0"), `URL has the port "0"`},
		"port too high":    {url("https://a.example:65536"), `URL has the port "65536"`},
		"port in octal":    {url("https://a.example:0443"), `URL has the port "0443"`},
		"an address":       {url("https://10.0.0.7"), "URL 10.0.0.7 is a private address: --allow-private allows it for this provider"},
		"metadata":         {func(p *Provider) { p.URL, p.Private = "http://169.254.169.254", true }, "URL 169.254.169.254 is no address of a service"},
		"both trusts":      {func(p *Provider) { p.CA, p.Insecure = authority(t), true }, "certificate cannot be both checked by a CA and unchecked"},
		"no PEM":           {func(p *Provider) { p.CA = "x" }, "CA holds no certificate in PEM"},
		"a large CA":       {func(p *Provider) { p.CA = authority(t) + strings.Repeat("\n", maxProviderCA) }, "CA is over 32768 bytes"},
		"a CA of bytes":    {func(p *Provider) { p.CA = "# Z\xfcrich\n" + authority(t) }, "trust holds text that is not UTF-8"},
		"too many keys":    {func(p *Provider) { p.Keys = manyKeys(17) }, "keys are more than 16"},
		"an empty key":     {keys("a", ""), fmt.Sprintf(badKey, 2)},
		"a long key":       {keys(strings.Repeat("k", maxProviderKey+1)), fmt.Sprintf(badKey, 1)},
		"a spaced key":     {keys("a b"), fmt.Sprintf(badKey, 1)},
		"a key of letters": {keys("ä"), fmt.Sprintf(badKey, 1)},
		"a key twice":      {keys("a", "b", "a"), "keys hold one twice (number 3)"},
		"low priority":     {func(p *Provider) { p.Priority = -1001 }, "priority is -1001: want -1000 to 1000"},
		"high priority":    {func(p *Provider) { p.Priority = 1001 }, "priority is 1001: want -1000 to 1000"},
		"held":             {func(p *Provider) { p.Held = "never" }, `use for held models is "never": want never, last or equal`},
		"direct":           {func(p *Provider) { p.Direct = true }, "direct is for a host with a sponsor"},
		"below none":       {func(p *Provider) { p.Parallel = -1 }, "parallel is -1: want 0 to 100000"},
		"too parallel":     {func(p *Provider) { p.Parallel = 100001 }, "parallel is 100001: want 0 to 100000"},
		"native":           {func(p *Provider) { p.Native = []Ability{AbilityMessages, AbilityTools} }, `native names "tools": there are responses, messages, tokenize`},
		"many models":      {func(p *Provider) { p.Models = make([]ProviderModel, 257) }, "models are more than 256"},
		"no pattern":       {model("", "x"), pattern("")},
		"a bad pattern":    {model("a b*", ""), pattern("a b*")},
		"a node":           {model("m@n", ""), pattern("m@n")},
		"a renamed wild":   {model("a*", "b"), `models cannot have "a*=b": a pattern has no other name`},
		"theirs, long":     {model("a", strings.Repeat("t", maxNameBytes+1)), theirs(strings.Repeat("t", maxNameBytes+1))},
		"theirs, spaced":   {model("a", "b c"), theirs("b c")},
		"theirs, control":  {model("a", "b\x7f"), theirs("b\x7f")},
		"theirs, bytes":    {model("a", "b\xff"), "models holds text that is not UTF-8"},
		"sponsor":          {func(p *Provider) { p.Sponsor = "\xff" }, "host holds text that is not UTF-8"},
		"much of models":   {func(p *Provider) { p.Models = longModels() }, "models is over 131072 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			p := okProvider()
			c.change(&p)
			refused[*ProviderError](t, p.Check(), `provider "p": `+c.want)
			b := quickBox(t)
			refused[*ProviderError](t, b.SetProvider("P", func(p *Provider) error { *p = okProvider(); c.change(p); return nil }), `provider "p": `+c.want)
			_, err := b.Provider("p")
			notFound(t, "what was refused", err)
		})
	}
}

// longModels are as many models as there may be, each with names as long as they may be.
func longModels() []ProviderModel {
	out := make([]ProviderModel, maxProviderModels)
	for i := range out {
		name := fmt.Sprintf("%0*d", maxNameBytes, i)
		out[i] = ProviderModel{name, name}
	}
	return out
}

func TestProvidersAtTheirBoundsAreTaken(t *testing.T) {
	for name, change := range map[string]func(*Provider){
		"the longest URL":  func(p *Provider) { p.URL += strings.Repeat("x", maxProviderURL-len(p.URL)) },
		"upper case":       func(p *Provider) { p.URL = "HTTPS://API.Example:65535/V1" },
		"http, own":        func(p *Provider) { p.URL, p.Private = "http://a.example:8000", true },
		"private, own":     func(p *Provider) { p.URL, p.Private = "http://[fd00::1]:1", true },
		"public address":   func(p *Provider) { p.URL = "https://[2606:4700::1111]" },
		"a CA":             func(p *Provider) { p.CA = "some words before\n" + authority(t) + authority(t) },
		"the longest key":  func(p *Provider) { p.Keys = KeysOf([]string{strings.Repeat("~", maxProviderKey), "!"}) },
		"most keys":        func(p *Provider) { p.Keys = manyKeys(MaxProviderKeys) },
		"first of all":     func(p *Provider) { p.Priority, p.Parallel = MaxProviderPriority, maxProviderParallel },
		"last of all":      func(p *Provider) { p.Priority, p.Held = -MaxProviderPriority, HeldEqual },
		"all abilities":    func(p *Provider) { p.Native = append(NativeAbilities(), NativeAbilities()...) },
		"patterns":         func(p *Provider) { p.Models = []ProviderModel{{"*", ""}, {"***", ""}, {"a/*:b", ""}, {"a", "ä/@:*"}} },
		"a host, directly": func(p *Provider) { p.Sponsor, p.Direct = "12D3", true },
		"all models": func(p *Provider) {
			p.Models = longModels()
			for i := range p.Models {
				p.Models[i].Theirs = ""
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			want := okProvider()
			change(&want)
			must(t, want.Check())
			b := quickBox(t)
			setProvider(t, b, "p", func(p *Provider) { *p = want })
			equal(t, "provider", want, theProvider(t, b, "p"))
		})
	}
}

func TestNamesOfProviders(t *testing.T) {
	b := quickBox(t)
	setProvider(t, b, " Open.AI ", func(p *Provider) {
		if p.ID != "open.ai" {
			t.Errorf("its ID is %q", p.ID)
		}
		p.URL = "https://a.example"
	})
	for _, name := range []string{"", "a b", "-x", "a/b", strings.Repeat("n", 65)} {
		_, err := b.Provider(name)
		notFound(t, "read "+name, err)
		notFound(t, "removed "+name, b.RemoveProvider(name))
		_, bad := GroupID("provider", name)
		refused[*GroupError](t, b.SetProvider(name, func(*Provider) error { t.Error("it was set"); return nil }), bad.Error())
	}
	if p := theProvider(t, b, "OPEN.AI"); p.URL != "https://a.example" {
		t.Errorf("it is %+v", p)
	}
}

func TestOriginOfAURL(t *testing.T) {
	for raw, want := range map[string]string{
		"https://a.example": "https://a.example:443", "HTTPS://A.Example/v1?x#y": "https://a.example:443", "http://a.example": "http://a.example:80",
		"http://a.example:8080/": "http://a.example:8080", "https://[::1]/": "https://::1:443", "app://x": "app://x:", "https://me:x@a.example:1": "https://a.example:1",
		"": "", "a.example": "", "https://": "", "https:///x": "", "https://a b": "", "://a": "", "https:a": "", "/v1": "",
	} {
		if got := Origin(raw); got != want {
			t.Errorf("%q: %q, want %q", raw, got, want)
		}
	}
}

// A permission given for one address does not pass to another that was set on another box meanwhile.
func TestPermissionsStayWithTheirAddress(t *testing.T) {
	a, b := quickBox(t), quickBox(t)
	setProvider(t, a, "p", func(p *Provider) { p.URL = "https://old.example" })
	exchange(t, a, b)
	setProvider(t, a, "p", func(p *Provider) { p.URL, p.Private = "http://old.example", true })
	setProvider(t, b, "p", func(p *Provider) { p.URL = "https://new.example" })
	exchange(t, a, b)
	for name, side := range map[string]box{"a": a, "b": b} {
		if p := theProvider(t, side, "p"); p.URL == "https://new.example" && p.Private || p.URL == "http://old.example" && !p.Private {
			t.Errorf("on %s: %s, private %v", name, p.URL, p.Private)
		}
	}
}

// Keys keep the order in which they were given, and one that is given again keeps its ID.
func TestKeysOfAProviderKeepTheirOrder(t *testing.T) {
	b := quickBox(t)
	order := func(secrets ...string) {
		t.Helper()
		setProvider(t, b, "p", func(p *Provider) { p.URL, p.Keys = "https://a.example", KeysOf(secrets) })
		for i, k := range theProvider(t, b, "p").Keys {
			if k.Secret.Reveal() != secrets[i] || k.ID != KeysOf(secrets)[i].ID {
				t.Errorf("number %d is %s of %v", i, k.Secret.Reveal(), secrets)
			}
		}
		if n := len(theProvider(t, b, "p").Keys); n != len(secrets) {
			t.Errorf("there are %d keys of %v", n, secrets)
		}
	}
	order("c", "a", "b")
	order("b", "c", "a")
	order("a")
	order("z", "a")
	if KeysOf([]string{"a"})[0].ID == KeysOf([]string{"b"})[0].ID || len(KeysOf(nil)) != 0 {
		t.Error("IDs of keys")
	}
}

// Numbers that no check of this version lets through are put in order, too.
func TestProvidersOfAnotherVersionAreInOrder(t *testing.T) {
	b := quickBox(t)
	for id, priority := range map[string]int{"low": math.MinInt, "high": math.MaxInt, "none": 0, "less": -2} {
		b.put(t, crdt.NewKey(NamespaceProviders, id), map[string][]byte{
			cellProviderTarget: enc(t, providerTarget{URL: "https://a.example"}), cellProviderPriority: enc(t, priority),
			providerKeyPrefix + "z": enc(t, providerKeyCell{"first", "https://a.example:443", math.MinInt}), providerKeyPrefix + "y": enc(t, providerKeyCell{"second", "https://a.example:443", 2}),
			providerKeyPrefix + "x": enc(t, providerKeyCell{"third", "https://a.example:443", math.MaxInt}),
		})
	}
	all, err := b.Providers()
	must(t, err)
	var ids, keys []string
	for _, p := range all {
		ids = append(ids, p.ID)
	}
	for _, k := range all[0].Keys {
		keys = append(keys, k.Secret.Reveal())
	}
	equal(t, "providers", []string{"high", "none", "less", "low"}, ids)
	equal(t, "keys", []string{"first", "second", "third"}, keys)
}

func TestASecretIsNotEncodedEither(t *testing.T) {
	v := struct{ Key Secret }{providerSecret}
	inYAML, err := yaml.Marshal(map[string]any{"key": v.Key, "struct": v, "keys": KeysOf([]string{providerSecret})})
	must(t, err)
	inXML, err := xml.Marshal(v.Key)
	must(t, err)
	inJSON := asJSON(t, v)
	for _, text := range []string{string(inYAML), string(inXML), inJSON} {
		if strings.Contains(text, providerSecret[3:]) || !strings.Contains(text, "***") {
			t.Errorf("shown as %s", text)
		}
	}
	if v.Key.LogValue().String() != "***" || v.Key.Reveal() != providerSecret {
		t.Error("what is logged or revealed is another thing")
	}
}
