package crdt

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
)

// Key names a row: the namespace and its parts, each written as its length (unsigned varint, shortest form) and its
// bytes. It is binary and comparable. Parts may hold any byte, "/" included, without two tuples ever sharing a key.
// The keys of one namespace have the encoded namespace, NewKey(namespace), as their common prefix, and no
// other key has it.
type Key string

// NewKey encodes a namespace and parts. Bounds are checked where the key is used, see [Key.Validate].
func NewKey(namespace string, parts ...string) Key {
	buf := make([]byte, 0, 64)
	buf = appendPart(buf, namespace)
	for _, p := range parts {
		buf = appendPart(buf, p)
	}
	return Key(buf)
}

func appendPart(buf []byte, part string) []byte {
	buf = binary.AppendUvarint(buf, uint64(len(part)))
	return append(buf, part...)
}

// Namespace returns the namespace, or "" when the key is malformed.
func (k Key) Namespace() string {
	ns, _, err := cutPart(string(k))
	if err != nil {
		return ""
	}
	return ns
}

// Parts returns the parts after the namespace; it fails with ErrMalformed on bytes that NewKey does not make.
func (k Key) Parts() ([]string, error) {
	_, rest, err := cutPart(string(k))
	if err != nil {
		return nil, err
	}
	var parts []string
	for rest != "" {
		var part string
		if part, rest, err = cutPart(rest); err != nil {
			return nil, err
		}
		parts = append(parts, part)
	}
	return parts, nil
}

// Validate says whether the key may name a row: canonical, with a namespace that is not empty, within MaxKeyBytes.
func (k Key) Validate() error {
	if len(k) > MaxKeyBytes {
		return fmt.Errorf("key of %d bytes: %w", len(k), ErrTooLarge)
	}
	ns, rest, err := cutPart(string(k))
	for err == nil && rest != "" {
		_, rest, err = cutPart(rest)
	}
	if err == nil && ns == "" {
		err = fmt.Errorf("key without namespace: %w", ErrMalformed)
	}
	return err
}

// String is for logs and messages only: parts are joined by "/" and quoted where that could mislead.
func (k Key) String() string {
	parts, err := k.Parts()
	if err != nil {
		return fmt.Sprintf("malformed key %x", string(k))
	}
	shown := make([]string, 0, 1+len(parts))
	for _, p := range append([]string{k.Namespace()}, parts...) {
		if q := strconv.Quote(p); p == "" || strings.Contains(p, "/") || q != `"`+p+`"` {
			p = q
		}
		shown = append(shown, p)
	}
	return strings.Join(shown, "/")
}

// cutPart splits the first part off an encoded tuple.
func cutPart(s string) (part, rest string, err error) {
	// A varint has at most ten bytes; copying more of a long key would be waste.
	n, size := binary.Uvarint([]byte(s[:min(len(s), binary.MaxVarintLen64)]))
	if size <= 0 || n > uint64(len(s)-size) {
		return "", "", fmt.Errorf("key: part cut short: %w", ErrMalformed)
	}
	if size > 1 && s[size-1] == 0 {
		return "", "", fmt.Errorf("key: length not in shortest form: %w", ErrMalformed)
	}
	end := size + int(n)
	return s[size:end], s[end:], nil
}
