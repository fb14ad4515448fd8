package keys

import (
	"crypto/tls"
	"net/http"
	"net/netip"
	"testing"
)

func trusted(t testing.TB, texts ...string) (out []netip.Prefix) {
	t.Helper()
	for _, text := range texts {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, p)
	}
	return out
}

func TestClientAddresses(t *testing.T) {
	type headers map[string][]string
	for name, c := range map[string]struct {
		peer    string
		headers headers
		want    string
	}{
		"no proxy":                      {"203.0.113.9:5000", nil, "203.0.113.9"},
		"a client says it is another":   {"203.0.113.9:5000", headers{"X-Forwarded-For": {"10.0.0.1"}, "Forwarded": {"for=10.0.0.1"}}, "203.0.113.9"},
		"a proxy tells":                 {"10.0.0.1:5000", headers{"X-Forwarded-For": {"198.51.100.7"}}, "198.51.100.7"},
		"a proxy adds to what was said": {"10.0.0.1:5000", headers{"X-Forwarded-For": {"1.2.3.4, 198.51.100.7"}}, "198.51.100.7"},
		"in another line":               {"10.0.0.1:5000", headers{"X-Forwarded-For": {"1.2.3.4", "198.51.100.7"}}, "198.51.100.7"},
		"two proxies":                   {"10.0.0.1:5000", headers{"X-Forwarded-For": {"1.2.3.4, 198.51.100.7, 10.0.0.2"}}, "198.51.100.7"},
		"proxies alone":                 {"10.0.0.1:5000", headers{"X-Forwarded-For": {"10.0.0.3, 10.0.0.2"}}, "10.0.0.3"},
		"words behind a proxy":          {"10.0.0.1:5000", headers{"X-Forwarded-For": {"198.51.100.7, unknown, 10.0.0.2"}}, "10.0.0.2"},
		"nothing but words":             {"10.0.0.1:5000", headers{"X-Forwarded-For": {"unknown"}}, "10.0.0.1"},
		"an empty header":               {"10.0.0.1:5000", headers{"X-Forwarded-For": {""}}, "10.0.0.1"},
		"with a port":                   {"10.0.0.1:5000", headers{"X-Forwarded-For": {"198.51.100.7:4711"}}, "198.51.100.7"},
		"the standard's header":         {"10.0.0.1:5000", headers{"Forwarded": {`for=1.2.3.4;by=5.6.7.8, For="198.51.100.7:80";proto=https`}}, "198.51.100.7"},
		"IPv6 in the standard's header": {"[fd00::1]:5000", headers{"Forwarded": {`for="[2001:db8::7]:443"`}}, "2001:db8::7"},
		"an element without for":        {"10.0.0.1:5000", headers{"Forwarded": {`for=198.51.100.7, proto=https`}}, "10.0.0.1"},
		"both headers agree":            {"10.0.0.1:5000", headers{"X-Forwarded-For": {"198.51.100.7"}, "Forwarded": {"for=198.51.100.7"}}, "198.51.100.7"},
		"one header is the client's":    {"10.0.0.1:5000", headers{"X-Forwarded-For": {"198.51.100.7"}, "Forwarded": {"for=1.2.3.4"}}, "10.0.0.1"},
		"IPv4 in IPv6":                  {"[::ffff:10.0.0.1]:5000", headers{"X-Forwarded-For": {"::ffff:198.51.100.7"}}, "198.51.100.7"},
		"no address":                    {"@", nil, "invalid IP"},
	} {
		t.Run(name, func(t *testing.T) {
			req := &http.Request{RemoteAddr: c.peer, Header: http.Header(c.headers)}
			if got := ClientAddress(req, trusted(t, "10.0.0.0/8", "fd00::/8")); got.String() != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

// Whatever headers say, a client that is no trusted proxy is what its connection is.
func FuzzClientAddress(f *testing.F) {
	f.Add("203.0.113.9:1", "10.0.0.1, 2.2.2.2", "for=1.1.1.1;by=x")
	f.Add("10.0.0.1:1", `"`, `for="[::1`)
	f.Fuzz(func(t *testing.T, peer, x, forwarded string) {
		req := &http.Request{RemoteAddr: peer, Header: http.Header{"X-Forwarded-For": {x}, "Forwarded": {forwarded}}}
		got := ClientAddress(req, trusted(t, "10.0.0.0/8"))
		if from := hostAddress(peer); !within(from, trusted(t, "10.0.0.0/8")) && got != from {
			t.Fatalf("%s is taken for %s", peer, got)
		}
	})
}

func TestClientURL(t *testing.T) {
	proxies := trusted(t, "10.0.0.0/8")
	for name, c := range map[string]struct {
		peer, host string
		secure     bool
		headers    map[string]string
		want       string
	}{
		"direct":                   {"203.0.113.9:5", "box-a:8770", false, nil, "http://box-a:8770"},
		"direct, IPv6":             {"203.0.113.9:5", "[fd00::1]:8770", false, nil, "http://[fd00::1]:8770"},
		"encrypted":                {"203.0.113.9:5", "box-a", true, nil, "https://box-a"},
		"a client plays proxy":     {"203.0.113.9:5", "box-a", false, map[string]string{"X-Forwarded-Proto": "https", "X-Forwarded-Host": "evil.example"}, "http://box-a"},
		"a proxy tells":            {"10.0.0.1:5", "box-a", false, map[string]string{"X-Forwarded-Proto": "HTTPS", "X-Forwarded-Host": "ai.example:444"}, "https://ai.example:444"},
		"two proxies tell":         {"10.0.0.1:5", "box-a", false, map[string]string{"X-Forwarded-Proto": "https, http", "X-Forwarded-Host": "ai.example, inner"}, "https://ai.example"},
		"a proxy tells the scheme": {"10.0.0.1:5", "box-a", false, map[string]string{"X-Forwarded-Proto": "https"}, "https://box-a"},
		"a proxy tells nonsense":   {"10.0.0.1:5", "box-a", false, map[string]string{"X-Forwarded-Proto": "javascript", "X-Forwarded-Host": "a/b@c"}, "http://box-a"},
	} {
		req := &http.Request{RemoteAddr: c.peer, Host: c.host, Header: http.Header{}}
		if c.secure {
			req.TLS = &tls.ConnectionState{}
		}
		for k, v := range c.headers {
			req.Header.Set(k, v)
		}
		if got := ClientURL(req, proxies); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}
