package toolcall

import "testing"

// doubled choices in other letters.
func TestDoubledChoices(t *testing.T) {
	defer func() {
		if p := recover(); p != nil {
			t.Errorf("panics: %v", p)
		}
	}()
	a := NewAnswer(&Call{name: "f", id: "x"})
	_, _ = a.Whole([]byte(`{"choices":[],"CHOICES":[{"message":{"content":"{}"}}]}`))
}
