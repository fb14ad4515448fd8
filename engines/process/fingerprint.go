package process

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"reflect"

	"llmgw/mesh/catalog"
)

// fingerprint covers what a running process cannot change: when it differs,
// the process must be replaced. Measured values and the weights' path are not
// in it; the digest is.
func fingerprint(s catalog.Shard) (string, error) {
	b, err := json.Marshal(struct {
		ID, Name, Digest string
		Profile          catalog.Profile
		Context          int
		Devices          string
	}{
		s.Model.ID, s.Model.Name, s.Model.Source.Digest, s.Profile.Process(),
		s.Model.ContextTokens(s.Profile), deviceNames(s.Devices),
	})
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:16]), nil
}

// sameShard tells whether two shards ask for the same thing, measured values
// aside.
func sameShard(a, b catalog.Shard) bool {
	if deviceNames(a.Devices) != deviceNames(b.Devices) {
		return false
	}
	a.Devices, b.Devices = nil, nil
	return reflect.DeepEqual(a, b)
}
