package openai

import (
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestErrorObjectHasTheShapeThatClientsKnow(t *testing.T) {
	e := &Error{
		Status: 503, Type: TypeUnavailable, Code: "model_not_loaded", Param: "model",
		Message: `the model "a" is not loaded`, Hint: "llmgw load a", RetryAfter: 1500 * time.Millisecond,
	}
	w := httptest.NewRecorder()
	WriteError(w, e, Origin{Node: "box", RequestID: "req-1"})
	want := `{"error":{"message":"the model \"a\" is not loaded","type":"service_unavailable","param":"model","code":"model_not_loaded"},` +
		`"llmgw":{"node":"box","hint":"llmgw load a","request_id":"req-1"}}` + "\n"
	if diff := cmp.Diff(want, w.Body.String()); diff != "" {
		t.Errorf("body (-want +got):\n%s", diff)
	}
	if got := w.Header().Get("Retry-After"); w.Code != 503 || got != "2" {
		t.Errorf("status %d, Retry-After %q", w.Code, got)
	}
}

func TestErrorObjectSaysNullForWhatIsAbsent(t *testing.T) {
	got := string((&Error{Message: "m", Type: "t"}).Encode(Origin{}))
	if !strings.Contains(got, `"param":null,"code":null`) || strings.Contains(got, "hint") {
		t.Errorf("object is %s", got)
	}
}

func TestErrorFrameIsOneEventOfValidJSON(t *testing.T) {
	e := &Error{Message: "line\nend \"quoted\" \x00 \xff data: [DONE]\n\n", Type: "t"}
	frame := string(e.Frame(Origin{}))
	line, ok := strings.CutPrefix(frame, "data: ")
	if !ok || strings.Count(frame, "\n") != 2 || !json.Valid([]byte(strings.TrimSuffix(line, "\n\n"))) {
		t.Errorf("frame is %q", frame)
	}
	var tr Tracker
	tr.Feed([]byte(frame))
	if !tr.Failed() || tr.Done() || !tr.Boundary() {
		t.Error("the tracker does not see one error event")
	}
}

func TestUnauthorizedNamesItsScheme(t *testing.T) {
	w := httptest.NewRecorder()
	WriteError(w, &Error{Status: 401, Message: "m", Type: "t"}, Origin{})
	if w.Header().Get("WWW-Authenticate") == "" {
		t.Error("no WWW-Authenticate")
	}
}
