package relay

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"llmgw/mesh/catalog"
)

// Replace has Next give body, which is what Hold read or is to stand for it.
func (x *Exchange) Replace(body []byte) {
	x.resp.Body = io.NopCloser(bytes.NewReader(body))
	x.resp.ContentLength, x.Length = int64(len(body)), int64(len(body))
}

// Probe is what was found of a provider.
type Probe struct {
	Address     string // that was connected to
	Connect     time.Duration
	Certificate *Certificate // nil: there is no TLS, or it did not come so far
	Keys        []KeyProbe   // one, with an empty ID, of a provider without keys
}

// Certificate is what a provider showed.
type Certificate struct {
	Subject, Issuer string
	Expires         time.Time
	SHA256          string
	Checked         bool
}

// KeyProbe is what one key got.
type KeyProbe struct {
	ID     string
	Status int // HTTP; 0: no answer
	Answer time.Duration
	Models []string // that the provider lists
	Err    error
}

const (
	// maxListBytes bounds a list of models, maxListed its entries.
	maxListBytes = 4 << 20
	maxListed    = 10_000
)

// Probe asks a provider for its models with each of its keys. The error says why
// it cannot be reached; what was seen until then is in the probe.
func (o *Outside) Probe(ctx context.Context, p *catalog.Provider) (Probe, error) {
	began := time.Now()
	conn, err := o.connect(ctx, p)
	if err != nil {
		return Probe{Certificate: refusedCertificate(err)}, err
	}
	out := Probe{Address: conn.raw.RemoteAddr().String(), Connect: time.Since(began)}
	if secured, ok := conn.Conn.(*tls.Conn); ok {
		out.Certificate = certificateOf(secured.ConnectionState().PeerCertificates, !p.Insecure)
	}
	_ = conn.Close()
	for _, k := range KeysOf(p) {
		out.Keys = append(out.Keys, o.list(ctx, p, k, ""))
	}
	return out, nil
}

// Models is which models a provider says it has, to the first key that gets an answer.
// via names this mesh; another mesh then tells of its own models alone.
func (o *Outside) Models(ctx context.Context, p *catalog.Provider, via string) (models []string, err error) {
	for _, k := range KeysOf(p) {
		found := o.list(ctx, p, k, via)
		if models, err = found.Models, found.Err; err == nil {
			return models, nil
		}
	}
	return nil, err
}

// KeysOf are those of a provider; an empty one of one without.
func KeysOf(p *catalog.Provider) []catalog.ProviderKey {
	if len(p.Keys) == 0 {
		return []catalog.ProviderKey{{}}
	}
	return p.Keys
}

func certificateOf(chain []*x509.Certificate, checked bool) *Certificate {
	if len(chain) == 0 {
		return nil
	}
	sum := sha256.Sum256(chain[0].Raw)
	return &Certificate{
		Subject: chain[0].Subject.String(), Issuer: chain[0].Issuer.String(), Expires: chain[0].NotAfter,
		SHA256: hex.EncodeToString(sum[:]), Checked: checked,
	}
}

// refusedCertificate is the one that a handshake failed at.
func refusedCertificate(err error) *Certificate {
	var bad *tls.CertificateVerificationError
	if !errors.As(err, &bad) {
		return nil
	}
	return certificateOf(bad.UnverifiedCertificates, true)
}

// list asks for the models with one key.
func (o *Outside) list(ctx context.Context, p *catalog.Provider, k catalog.ProviderKey, via string) KeyProbe {
	out := KeyProbe{ID: k.ID}
	began := time.Now()
	x, err := o.get(ctx, p, k.Secret, via, "/v1/models")
	if err != nil {
		out.Err = err
		return out
	}
	defer x.Close()
	out.Status, out.Answer = x.Status, time.Since(began)
	body, err := x.Hold(maxListBytes)
	switch {
	case err != nil:
		out.Err = err
	case x.Status >= 300 && x.Status < 400:
		out.Err = fmt.Errorf("it answers with a redirect (status %d), which is not followed: set the URL that it leads to", x.Status)
	case x.Status != http.StatusOK:
		out.Err = fmt.Errorf("it answers with status %d", x.Status)
	default:
		out.Models, out.Err = readList(body)
	}
	return out
}

func readList(body []byte) ([]string, error) {
	var list struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	if json.Unmarshal(body, &list) != nil || list.Data == nil {
		return nil, errors.New("it answers, but with no list of models: is the URL that of an OpenAI API?")
	}
	var out []string
	for _, m := range list.Data[:min(len(list.Data), maxListed)] {
		out = append(out, m.ID)
	}
	return out, nil
}

// get is Start for a request without a body, over a connection of its own.
func (o *Outside) get(ctx context.Context, p *catalog.Provider, key catalog.Secret, via, path string) (*Exchange, error) {
	call, err := outsideCall(p, key, via, &Call{Path: path, Header: http.Header{"Accept": {"application/json"}}})
	if err != nil {
		return nil, &BrokenError{StageConnect, err}
	}
	call.Method = http.MethodGet
	call.Extra = append(call.Extra, "Connection", "close")
	conn, err := o.connect(ctx, p)
	if err != nil {
		return nil, err
	}
	return o.startOn(ctx, conn, call, nil)
}

// Get asks a provider, with its first key, for a document of at most limit bytes.
// path is as this node's own API has it: /v1/models, or one beside /v1.
func (o *Outside) Get(ctx context.Context, p *catalog.Provider, path string, limit int) (status int, body []byte, err error) {
	var key catalog.Secret
	if len(p.Keys) > 0 {
		key = p.Keys[0].Secret
	}
	x, err := o.get(ctx, p, key, "", path)
	if err != nil {
		return 0, nil, err
	}
	defer x.Close()
	body, err = x.Hold(limit)
	return x.Status, body, err
}

// IsCertificate reports a provider that did not prove to be who it should be.
func IsCertificate(err error) bool {
	var bad *tls.CertificateVerificationError
	return errors.As(err, &bad)
}
