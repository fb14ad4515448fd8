package relay

import (
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestEngineSeesNoCredentialsAndNoInternalHeaders(t *testing.T) {
	in := http.Header{
		"Authorization": {"Bearer llmgw-sk-x"}, "X-Api-Key": {"k"}, "Api-Key": {"k"}, "Cookie": {"s=1"},
		"Connection": {"keep-alive, X-Hop"}, "X-Hop": {"1"}, "Keep-Alive": {"1"}, "Te": {"trailers"},
		"Trailer": {"X"}, "Upgrade": {"h2c"}, "Transfer-Encoding": {"chunked"}, "Content-Length": {"7"},
		"Proxy-Authorization": {"x"}, "Proxy-Connection": {"x"}, "X-Llmgw-Model": {"evil"}, "X-Llmgw-Epoch": {"9"},
		"Accept-Encoding": {"gzip"}, "Content-Encoding": {"gzip"}, "Expect": {"100-continue"}, "Origin": {"http://evil"},
		"Referer": {"x"}, "Forwarded": {"for=1"}, "X-Forwarded-For": {"1"}, "Sec-Fetch-Site": {"x"}, "Range": {"bytes=0-"},
		"Content-Type": {"application/json"}, "User-Agent": {"openai"}, "X-Session-Id": {"s"}, "Anthropic-Version": {"v"},
		"Accept": {"text/event-stream"}, "Traceparent": {"00"},
	}
	want := http.Header{
		"Content-Type": {"application/json"}, "User-Agent": {"openai"}, "X-Session-Id": {"s"}, "Anthropic-Version": {"v"},
		"Accept": {"text/event-stream"}, "Traceparent": {"00"},
	}
	before := in.Clone()
	if diff := cmp.Diff(want, CleanRequest(in)); diff != "" {
		t.Errorf("header (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(before, in); diff != "" {
		t.Errorf("the client's header was changed:\n%s", diff)
	}
}

func TestClientSeesNothingOfTheEnginesOwn(t *testing.T) {
	h := http.Header{
		"Server": {"llama.cpp"}, "Set-Cookie": {"a=1"}, "Connection": {"close, X-Hop"}, "X-Hop": {"1"}, "Keep-Alive": {"1"},
		"Transfer-Encoding": {"chunked"}, "Content-Length": {"7"}, "Access-Control-Allow-Origin": {"*"},
		"Access-Control-Allow-Credentials": {"true"}, "X-Llmgw-Refusal": {"busy"}, "Date": {"x"}, "X-Powered-By": {"x"},
		"Alt-Svc": {"x"}, "Proxy-Authenticate": {"x"},
		"Content-Type": {"application/json"}, "X-Ratelimit-Limit-Requests": {"1"}, "Retry-After": {"1"},
	}
	CleanResponse(h)
	want := http.Header{"Content-Type": {"application/json"}, "X-Ratelimit-Limit-Requests": {"1"}, "Retry-After": {"1"}}
	if diff := cmp.Diff(want, h); diff != "" {
		t.Errorf("header (-want +got):\n%s", diff)
	}
}
