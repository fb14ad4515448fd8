package relay

import (
	"cmp"
	"net/http"
	"net/textproto"
	"strconv"
	"strings"
)

// Call is a request as it goes to an engine or to the node that holds one. The
// body is in memory: it can be sent again, and no server closes it under us.
type Call struct {
	Method string // empty: POST
	Path   string // canonical, without a query: queries carry credentials
	Host   string
	Header http.Header // cleaned; see CleanRequest
	// Extra are headers that differ by attempt, as name and value by turns.
	Extra []string
	Body  []byte
}

// message is the head as it goes over the wire, with room for a short body.
func (c *Call) message() []byte {
	b := make([]byte, 0, 1024+min(len(c.Body), inlineBody))
	b = append(b, cmp.Or(c.Method, http.MethodPost)...)
	b = append(b, ' ')
	b = append(b, c.Path...)
	b = append(b, " HTTP/1.1\r\nHost: "...)
	b = append(b, c.Host...)
	b = append(b, "\r\nContent-Length: "...)
	b = strconv.AppendInt(b, int64(len(c.Body)), 10)
	b = append(b, "\r\n"...)
	for name, values := range c.Header {
		for _, v := range values {
			b = appendField(b, name, v)
		}
	}
	for i := 0; i+1 < len(c.Extra); i += 2 {
		b = appendField(b, c.Extra[i], c.Extra[i+1])
	}
	return append(b, "\r\n"...)
}

// appendField writes one header. A line end within a value would let a client
// write headers of its own; such a value is left out.
func appendField(b []byte, name, value string) []byte {
	if strings.ContainsAny(value, "\r\n\x00") || strings.ContainsAny(name, "\r\n\x00: ") {
		return b
	}
	b = append(b, name...)
	b = append(b, ": "...)
	b = append(b, value...)
	return append(b, "\r\n"...)
}

// Internal headers, from the entry node to the holder. What a client sends
// under this prefix is dropped.
const (
	internalPrefix  = "X-Llmgw-"
	HeaderModel     = "X-Llmgw-Model"
	HeaderSlot      = "X-Llmgw-Slot"
	HeaderEpoch     = "X-Llmgw-Epoch"
	HeaderDigest    = "X-Llmgw-Digest"
	HeaderKey       = "X-Llmgw-Key"
	HeaderRequestID = "X-Llmgw-Request-Id"
	HeaderSession   = "X-Llmgw-Session"
	HeaderRefusal   = "X-Llmgw-Refusal"
)

// hopByHop belong to one connection (RFC 9110, 7.6.1).
var hopByHop = map[string]bool{
	"Connection": true, "Keep-Alive": true, "Te": true, "Trailer": true, "Trailers": true,
	"Transfer-Encoding": true, "Upgrade": true, "Content-Length": true,
}

// neverToEngine are credentials, what only we answer for, and what would make
// an engine answer in a form that we do not read.
var neverToEngine = map[string]bool{
	"Authorization": true, "X-Api-Key": true, "Api-Key": true, "Cookie": true, "Host": true,
	"Accept-Encoding": true, "Content-Encoding": true, "Expect": true, "Origin": true,
	"Referer": true, "Forwarded": true, "Range": true,
}

// neverToClient are of the engine's own making: its name, its cookies, and its
// answer to browsers, which is for us to give.
var neverToClient = map[string]bool{"Set-Cookie": true, "Server": true, "Date": true, "X-Powered-By": true, "Alt-Svc": true}

func isProxyField(name string) bool {
	return strings.HasPrefix(name, "Proxy-") || strings.HasPrefix(name, internalPrefix)
}

// CleanRequest copies what of a client's headers an engine may see.
func CleanRequest(h http.Header) http.Header {
	named := connectionFields(h)
	out := make(http.Header, len(h))
	for name, values := range h {
		switch {
		case hopByHop[name], neverToEngine[name], isProxyField(name), named[name]:
		case strings.HasPrefix(name, "X-Forwarded-"), strings.HasPrefix(name, "Sec-"):
		default:
			out[name] = values
		}
	}
	return out
}

// CleanResponse removes from an engine's headers what a client must not see.
func CleanResponse(h http.Header) {
	named := connectionFields(h)
	for name := range h {
		switch {
		case hopByHop[name], neverToClient[name], isProxyField(name), named[name]:
			delete(h, name)
		case strings.HasPrefix(name, "Access-Control-"):
			delete(h, name)
		}
	}
}

// connectionFields are the headers that the Connection header declares to be
// for one hop; nil when there are none.
func connectionFields(h http.Header) map[string]bool {
	var named map[string]bool
	for _, line := range h["Connection"] {
		for field := range strings.SplitSeq(line, ",") {
			if named == nil {
				named = make(map[string]bool)
			}
			named[textproto.CanonicalMIMEHeaderKey(strings.TrimSpace(field))] = true
		}
	}
	return named
}
