package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"time"

	"llmgw/engines"
)

// answerCap bounds what is read of an engine's answer to a probe.
const answerCap = 1 << 20 // bytes

// errWrongKey means that whoever answers does not know this run's key.
var errWrongKey = errors.New("engine does not take this run's key")

// newProbeClient makes connections that are used once: an idle connection to an
// engine would only delay its end. Proxies of the environment are not for
// loopback.
func newProbeClient() *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			DisableKeepAlives: true,
			DialContext:       (&net.Dialer{Timeout: 2 * time.Second}).DialContext,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// asker puts questions to one engine.
type asker struct {
	client *http.Client
	url    string
	key    string
	probe  engines.Probe
}

func baseURL(port int) string {
	return "http://" + net.JoinHostPort(loopback, strconv.Itoa(port))
}

func (a asker) do(ctx context.Context, method, path string, body []byte) (int, []byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, a.url+path, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Authorization", "Bearer "+a.key)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := a.client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(io.LimitReader(res.Body, answerCap))
	return res.StatusCode, b, err
}

// health asks once. An error means that nobody answered.
func (a asker) health(ctx context.Context) (engines.Health, error) {
	status, body, err := a.do(ctx, http.MethodGet, a.probe.HealthPath, nil)
	if err != nil {
		return engines.HealthUnknown, err
	}
	return a.probe.Health(status, body), nil
}

// serves checks that the engine serves name.
func (a asker) serves(ctx context.Context, name string) error {
	status, body, err := a.do(ctx, http.MethodGet, a.probe.ModelsPath, nil)
	if err != nil {
		return err
	}
	if status != http.StatusOK {
		return fmt.Errorf("list models: status %d", status)
	}
	names, err := a.probe.Models(body)
	if err != nil {
		return fmt.Errorf("list models: %w", err)
	}
	if !slices.Contains(names, name) {
		return fmt.Errorf("engine serves %q, not %q", names, name)
	}
	return nil
}

// props asks for the engine's limits; only the right key gets an answer.
func (a asker) props(ctx context.Context) (engines.Props, error) {
	status, body, err := a.do(ctx, http.MethodGet, a.probe.PropsPath, nil)
	switch {
	case err != nil:
		return engines.Props{}, err
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		return engines.Props{}, errWrongKey
	case status != http.StatusOK:
		return engines.Props{}, fmt.Errorf("read properties: status %d", status)
	}
	p, err := a.probe.Props(body)
	if err != nil {
		return engines.Props{}, fmt.Errorf("read properties: %w", err)
	}
	return p, nil
}

// token makes the engine compute.
func (a asker) token(ctx context.Context, t engines.TokenRequest) error {
	status, body, err := a.do(ctx, http.MethodPost, t.Path, t.Body)
	if err != nil {
		return fmt.Errorf("ask for one token: %w", err)
	}
	if err := t.Check(status, body); err != nil {
		return fmt.Errorf("ask for one token: %w", err)
	}
	return nil
}
