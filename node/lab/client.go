package lab

import (
	"net/http"
	"time"
)

// Client speaks HTTP from inside the box. Addresses in URLs must be literal.
func (b *Box) Client() *http.Client {
	t := &http.Transport{
		DialContext:         b.Dial,
		MaxIdleConnsPerHost: 256,
		DisableCompression:  true, // bytes as they are sent
		IdleConnTimeout:     30 * time.Second,
	}
	b.mu.Lock()
	b.idle = append(b.idle, t)
	b.mu.Unlock()
	return &http.Client{Transport: t}
}
