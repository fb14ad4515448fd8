package mesh

import (
	"crypto/ed25519"
	"maps"
	"strings"
	"testing"

	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/peer"
	"pgregory.net/rapid"

	"llmgw/crdt"
)

// cellOf is the one cell of an item.
func cellOf(item crdt.Item) (name string, cell crdt.Cell) {
	for name, cell = range item.Row.Cells {
	}
	return name, cell
}

// TestRecordsThatDoNotHold: each differs in one thing from one that does, and is signed
// as it should be.
func TestRecordsThatDoNotHold(t *testing.T) {
	c := newCast(t, "a", "b")
	good := memberBody{
		Mesh: c.root.mesh[:], Peer: c.ids["b"].String(), Role: RoleMember, Serial: 3, Issuer: c.ids["a"].String(), IssuerSerial: 1, Admission: 2, At: 9,
		Token: make([]byte, 8),
	}
	root := good
	root.Issuer, root.IssuerSerial, root.Genesis = "", 0, c.root.record
	spoil := func(b memberBody, f func(*memberBody)) memberBody { f(&b); return b }
	for name, tc := range map[string]struct {
		body memberBody
		kind string // kindMember unless set
		key  ed25519.PrivateKey
		name string   // of the cell, unless the usual one
		at   crdt.HLC // of the cell, unless the usual one
		text string   // empty: it holds
	}{
		"by an admin":              {body: good, key: c.keys["a"]},
		"by the genesis":           {body: root, key: c.root.private},
		"by the wrong key":         {body: good, key: c.keys["b"], text: "check member: signature does not hold"},
		"by the wrong genesis":     {body: root, key: c.keys["a"], text: "check member: signature does not hold"},
		"signed as another kind":   {body: good, kind: kindRuling, key: c.keys["a"], text: "check member: signature does not hold"},
		"of another mesh":          {body: spoil(good, func(b *memberBody) { b.Mesh = make([]byte, 32) }), key: c.keys["a"], text: "signed blob is of another mesh"},
		"of no mesh":               {body: spoil(good, func(b *memberBody) { b.Mesh = nil }), key: c.keys["a"], text: "signed blob is of another mesh"},
		"about another":            {body: spoil(good, func(b *memberBody) { b.Peer = peerOf(t, 1).String() }), key: c.keys["a"], text: "signed blob is about " + peerOf(t, 1).String()},
		"about nobody":             {body: spoil(good, func(b *memberBody) { b.Peer = "" }), key: c.keys["a"], text: "signed blob is about , its row about"},
		"of serial 0":              {body: spoil(good, func(b *memberBody) { b.Serial, b.Admission = 0, 0 }), key: c.keys["a"], text: "signed blob has serial 0, its cell stamp 0"},
		"under a newer stamp":      {body: good, key: c.keys["a"], at: 4, text: "signed blob has serial 3, its cell stamp 4"},
		"in another cell":          {body: good, key: c.keys["a"], name: "record/3/genesis", text: `record of serial 3 in cell "record/3/genesis"`},
		"an unknown role":          {body: spoil(good, func(b *memberBody) { b.Role = "king" }), key: c.keys["a"], text: `check member: unknown role "king"`},
		"no role":                  {body: spoil(good, func(b *memberBody) { b.Role = "" }), key: c.keys["a"], text: `check member: unknown role ""`},
		"a token of five bytes":    {body: spoil(good, func(b *memberBody) { b.Token = make([]byte, 5) }), key: c.keys["a"], text: "check member: token ID of 5 bytes"},
		"admitted after itself":    {body: spoil(good, func(b *memberBody) { b.Admission = 4 }), key: c.keys["a"], text: "check member: admission 4, serial 3, stamp 9"},
		"stamped at the last time": {body: spoil(good, func(b *memberBody) { b.At = maxStamp }), key: c.keys["a"]},
		"stamped beyond all time":  {body: spoil(good, func(b *memberBody) { b.At = maxStamp + 1 }), key: c.keys["a"], text: "check member: admission 2, serial 3"},
		"by oneself":               {body: spoil(good, func(b *memberBody) { b.Issuer = b.Peer }), key: c.keys["b"], text: "vouches for itself"},
		"by nobody that exists":    {body: spoil(good, func(b *memberBody) { b.Issuer = "a" }), key: c.keys["a"], text: "decode peer ID"},
		"by an ID in another form": {body: spoil(good, func(b *memberBody) { b.Issuer = peer.ToCid(c.ids["a"]).String() }), key: c.keys["a"], text: "is not in its usual form"},
		"a genesis of another":     {body: spoil(root, func(b *memberBody) { b.Genesis = []byte{1} }), key: c.root.private, text: "genesis record is of another mesh"},
		"no genesis":               {body: spoil(root, func(b *memberBody) { b.Genesis = nil }), key: c.root.private, text: "genesis record is of another mesh"},
	} {
		kind := kindMember
		if tc.kind != "" {
			kind = tc.kind
		}
		blob, err := sign(kind, tc.body, tc.key)
		if err != nil {
			t.Fatal(err)
		}
		cellName, at := recordCell(tc.body), crdt.HLC(tc.body.Serial)
		if tc.name != "" {
			cellName = tc.name
		}
		if tc.at != 0 {
			at = tc.at
		}
		rec, err := checkRecord(c.root.mesh, c.ids["b"], cellName, crdt.Cell{At: at, Value: blob})
		if tc.text == "" {
			if err != nil || rec.peer != c.ids["b"] || (rec.issuer == "") != (tc.body.Issuer == "") {
				t.Errorf("%s: %+v, %v", name, rec, err)
			}
			continue
		}
		wantText(t, name, err, tc.text)
	}
}

// TestRulingsThatDoNotHold, and leaves.
func TestRulingsThatDoNotHold(t *testing.T) {
	c := newCast(t, "a", "b")
	good := rulingBody{
		Mesh: c.root.mesh[:], Peer: c.ids["b"].String(), Serial: 3, Kind: rulingBan, Issuer: c.ids["a"].String(), IssuerSerial: 1, At: 9,
		Keeps: []keep{{Serial: 1, Hash: make([]byte, 32)}},
	}
	spoil := func(f func(*rulingBody)) rulingBody { b := good; f(&b); return b }
	for name, tc := range map[string]struct {
		body rulingBody
		by   string
		text string
	}{
		"a ban":                 {good, "a", ""},
		"a demotion of oneself": {spoil(func(b *rulingBody) { b.Kind, b.Issuer = rulingDemote, b.Peer }), "b", ""},
		"a ban of oneself":      {spoil(func(b *rulingBody) { b.Issuer = b.Peer }), "b", "rules on itself"},
		"a pardon of oneself":   {spoil(func(b *rulingBody) { b.Kind, b.Issuer = rulingPardon, b.Peer }), "b", "rules on itself"},
		"of an unknown kind":    {spoil(func(b *rulingBody) { b.Kind = "exile" }), "a", `check ruling: unknown kind "exile"`},
		"by the wrong key":      {good, "b", "check ruling: signature does not hold"},
		"of another mesh":       {spoil(func(b *rulingBody) { b.Mesh = nil }), "a", "signed blob is of another mesh"},
		"about another":         {spoil(func(b *rulingBody) { b.Peer = b.Issuer }), "a", "signed blob is about"},
		"of serial 0":           {spoil(func(b *rulingBody) { b.Serial = 0 }), "a", "signed blob has serial 0"},
		"beyond all time":       {spoil(func(b *rulingBody) { b.At = maxStamp + 1 }), "a", "check ruling: stamp"},
		"that keeps half a one": {spoil(func(b *rulingBody) { b.Keeps = []keep{{Hash: make([]byte, 16)}} }), "a", "check ruling: hash of 16 bytes"},
		"by nobody":             {spoil(func(b *rulingBody) { b.Issuer = "" }), "a", "decode peer ID"},
	} {
		blob, err := sign(kindRuling, tc.body, c.keys[tc.by])
		if err != nil {
			t.Fatal(err)
		}
		_, err = checkRuling(c.root.mesh, c.ids["b"], rulingCell(tc.body), crdt.Cell{At: crdt.HLC(tc.body.Serial), Value: blob})
		if tc.text == "" {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		wantText(t, name, err, tc.text)
	}
	_, cell := cellOf(c.left("b", 3))
	if body, err := checkLeft(c.root.mesh, c.ids["b"], cell); err != nil || body.Serial != 3 {
		t.Errorf("a leave: %+v, %v", body, err)
	}
	if _, err := checkLeft(c.root.mesh, c.ids["a"], cell); err == nil {
		t.Error("a leave of another")
	}
	cell.At++
	if _, err := checkLeft(c.root.mesh, c.ids["b"], cell); err == nil {
		t.Error("a leave under a newer stamp")
	}
	other, err := secretRoot([]byte("another secret of some length"))
	if err != nil {
		t.Fatal(err)
	}
	cell.At--
	if _, err := checkLeft(other.mesh, c.ids["b"], cell); err == nil {
		t.Error("a leave of another mesh")
	}
}

// TestNoBitOfASignedBlobIsLoose: whatever is changed in it, it holds no more.
func TestNoBitOfASignedBlobIsLoose(t *testing.T) {
	c := newCast(t, "a", "b")
	for what, item := range map[string]crdt.Item{
		"record": c.record("b", "a", 1, RoleAdmin), "ruling": c.ban("b", "a", 1, 5, c.record("b", "a", 1, RoleAdmin)), "leave": c.left("b", 1),
	} {
		name, cell := cellOf(item)
		if err := soundCell(c.root.mesh, c.ids["b"], name, cell); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		for i := range cell.Value {
			bad := cell
			bad.Value = append([]byte{}, cell.Value...)
			bad.Value[i] ^= 1 << (i % 8)
			if soundCell(c.root.mesh, c.ids["b"], name, bad) == nil {
				t.Fatalf("%s: bit %d of byte %d may be anything", what, i%8, i)
			}
		}
		for i := range cell.Value {
			bad := cell
			bad.Value = cell.Value[:i]
			if soundCell(c.root.mesh, c.ids["b"], name, bad) == nil {
				t.Fatalf("%s: %d bytes of it hold", what, i)
			}
		}
	}
	// What is not signed is kept, of later versions too: it gives nobody anything.
	for _, name := range []string{cellName, cellAddresses, "color", "recording", "leftover"} {
		if err := soundCell(c.root.mesh, c.ids["b"], name, crdt.Cell{Value: []byte("x")}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestKeysOfMembers(t *testing.T) {
	p := peerOf(t, 1)
	if got, err := memberKeyPeer(memberKey(p)); err != nil || got != p {
		t.Errorf("%s, %v", got, err)
	}
	rsa, _, err := crypto.GenerateKeyPair(crypto.Secp256k1, 0)
	if err != nil {
		t.Fatal(err)
	}
	other, err := peer.IDFromPrivateKey(rsa)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		key  crdt.Key
		text string
	}{
		"of another namespace": {crdt.NewKey("things", p.String()), "names no member"},
		"of two parts":         {crdt.NewKey(nsMembers, p.String(), "x"), "names no member"},
		"of none":              {crdt.NewKey(nsMembers), "names no member"},
		"broken":               {crdt.Key("\xff"), "read member key"},
		"no peer":              {crdt.NewKey(nsMembers, "x"), "decode peer ID"},
		"another form":         {crdt.NewKey(nsMembers, peer.ToCid(p).String()), "is not in its usual form"},
		"another kind of key":  {crdt.NewKey(nsMembers, other.String()), "is not ed25519"},
	} {
		_, err := memberKeyPeer(c.key)
		wantText(t, name, err, c.text)
		if items, dropped := screen(newCast(t, "a").root.mesh, nil, []crdt.Item{{Key: c.key, Row: crdt.Row{Length: 1, Cells: map[string]crdt.Cell{cellName: {Value: []byte("x")}}}}}); c.key.Namespace() == nsMembers && (len(items) != 0 || dropped != 1) {
			t.Errorf("%s: passes the screen", name)
		}
	}
}

// TestScreenTakesOnlyTheBadCells: a row with some that hold and some that do not is taken
// for the former, and the row that came is left as it was.
func TestScreenTakesOnlyTheBadCells(t *testing.T) {
	c := newCast(t, "a", "b", "x")
	base := mergeItems(c.items(c.record("a", "", 1, RoleAdmin)))
	rapid.Check(t, func(rt *rapid.T) {
		cells, want := map[string]crdt.Cell{}, 0
		for name, part := range map[string]struct {
			item crdt.Item
			ok   bool
		}{
			"record": {c.record("b", "a", 1, RoleMember), true}, "forged": {c.record("b", "x", 2, RoleAdmin), false},
			"ban": {c.ban("b", "a", 3, 5), true}, "ban by a stranger": {c.ban("b", "x", 4, 5), false}, "leave": {c.left("b", 1), true},
		} {
			if rapid.Bool().Draw(rt, name) {
				maps.Copy(cells, part.item.Row.Cells)
				if part.ok {
					want++
				}
			}
		}
		if rapid.Bool().Draw(rt, "name") {
			cells[cellName] = crdt.Cell{At: 3, Value: []byte("n")}
			want++
		}
		if len(cells) == 0 {
			return
		}
		before := maps.Clone(cells)
		kept, dropped := screen(c.root.mesh, base, []crdt.Item{{Key: memberKey(c.ids["b"]), Row: crdt.Row{Length: 1, Cells: cells}}})
		got := 0
		for _, item := range kept {
			got += len(item.Row.Cells)
		}
		if got != want || dropped != len(before)-want || len(cells) != len(before) {
			rt.Fatalf("%d cells kept, %d dropped of %d; want %d", got, dropped, len(before), want)
		}
	})
}

// TestFloorsAndStamps: what is signed next is above all that was, of that peer and at all.
func TestFloorsAndStamps(t *testing.T) {
	c := newCast(t, "a", "b")
	rows := mergeItems(c.items(c.record("a", "", 1, RoleAdmin), c.record("b", "a", 4, RoleMember), c.ban("b", "a", 7, 50), c.left("b", 9)))
	r := evaluate(c.root.mesh, rows)
	if r.floors[c.ids["b"]] != 9 || r.floors[c.ids["a"]] != 1 || r.lastAt != 50 {
		t.Errorf("floors %v, last stamp %d", r.floors, r.lastAt)
	}
	m := bareMesh(t, "m")
	v := m.view.Load()
	for last, want := range map[crdt.HLC]func(crdt.HLC) bool{
		0:            func(h crdt.HLC) bool { return h > 1<<40 && h < maxStamp }, // the clock's
		maxStamp - 5: func(h crdt.HLC) bool { return h == maxStamp-4 },
		maxStamp:     func(h crdt.HLC) bool { return h == maxStamp },
		maxStamp - 1: func(h crdt.HLC) bool { return h == maxStamp },
	} {
		v.roster.lastAt = last
		if got := m.stamp(v); !want(got) {
			t.Errorf("after %d comes %d", last, got)
		}
	}
	if !strings.HasPrefix(useCell(c.ids["a"], 3), cellUsePrefix) || usesOf(crdt.Row{Cells: map[string]crdt.Cell{useCell(c.ids["a"], 3): {}}}) != 0 {
		t.Error("an empty cell is a use")
	}
}
