package mesh

import (
	"crypto/ed25519"
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/peer"
	"pgregory.net/rapid"

	"llmgw/crdt"
)

// cast is a set of peers with known keys and one mesh.
type cast struct {
	root root
	keys map[string]ed25519.PrivateKey
	ids  map[string]peer.ID
}

func newCast(t testing.TB, names ...string) *cast {
	t.Helper()
	c := &cast{keys: map[string]ed25519.PrivateKey{}, ids: map[string]peer.ID{}}
	var err error
	if c.root, err = secretRoot([]byte("the secret of the test mesh")); err != nil {
		t.Fatal(err)
	}
	for i, name := range names {
		seed := make([]byte, ed25519.SeedSize)
		seed[0] = byte(i + 1)
		key := ed25519.NewKeyFromSeed(seed)
		pub, err := crypto.UnmarshalEd25519PublicKey(key.Public().(ed25519.PublicKey))
		if err != nil {
			t.Fatal(err)
		}
		c.keys[name] = key
		if c.ids[name], err = peer.IDFromPublicKey(pub); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

func (c *cast) cell(p, name string, serial uint64, kind string, body any, key ed25519.PrivateKey) crdt.Item {
	blob, err := sign(kind, body, key)
	if err != nil {
		panic(err)
	}
	return crdt.Item{Key: memberKey(c.ids[p]), Row: crdt.Row{Length: 1, Cells: map[string]crdt.Cell{
		name: {At: crdt.HLC(serial), By: 1, Value: blob},
	}}}
}

// record is p's membership by issuer; "" is the genesis key.
func (c *cast) record(p, issuer string, serial uint64, role Role) crdt.Item {
	return c.recordUnder(p, issuer, 1, serial, role)
}

// recordUnder is a record that names the issuer's record by which it was an admin.
func (c *cast) recordUnder(p, issuer string, issuerSerial, serial uint64, role Role) crdt.Item {
	body := memberBody{Mesh: c.root.mesh[:], Peer: c.ids[p].String(), Role: role, Serial: serial}
	key := c.root.private
	if issuer == "" {
		body.Genesis = c.root.record
	} else {
		body.Issuer, body.IssuerSerial = c.ids[issuer].String(), issuerSerial
		key = c.keys[issuer]
	}
	return c.cell(p, recordCell(body), serial, kindMember, body, key)
}

func (c *cast) promotion(p, issuer string, serial, admission uint64) crdt.Item {
	body := memberBody{
		Mesh: c.root.mesh[:], Peer: c.ids[p].String(), Role: RoleAdmin, Serial: serial, Admission: admission,
		Issuer: c.ids[issuer].String(), IssuerSerial: 1,
	}
	return c.cell(p, recordCell(body), serial, kindMember, body, c.keys[issuer])
}

func (c *cast) left(p string, serial uint64) crdt.Item {
	body := leftBody{Mesh: c.root.mesh[:], Peer: c.ids[p].String(), Serial: serial}
	return c.cell(p, cellLeft, serial, kindLeft, body, c.keys[p])
}

// rule is a ruling of issuer by its record of serial 1.
func (c *cast) rule(kind, p, issuer string, serial uint64, at crdt.HLC, keeps ...crdt.Item) crdt.Item {
	body := rulingBody{
		Mesh: c.root.mesh[:], Peer: c.ids[p].String(), Serial: serial, Kind: kind, Issuer: c.ids[issuer].String(), IssuerSerial: 1, At: at,
	}
	for _, item := range keeps {
		for _, cell := range item.Row.Cells {
			hash := sha256.Sum256(cell.Value)
			body.Keeps = append(body.Keeps, keep{Serial: uint64(cell.At), Hash: hash[:]})
		}
	}
	return c.cell(p, rulingCell(body), serial, kindRuling, body, c.keys[issuer])
}

func (c *cast) ban(p, issuer string, serial uint64, at crdt.HLC, keeps ...crdt.Item) crdt.Item {
	return c.rule(rulingBan, p, issuer, serial, at, keeps...)
}

func TestRoster(t *testing.T) {
	c := newCast(t, "a", "b", "c", "d")
	type want map[string]standing
	cases := map[string]struct {
		rows []crdt.Item
		want want
	}{
		"founder alone": {
			[]crdt.Item{c.record("a", "", 1, RoleAdmin)}, want{"a": active, "b": stranger},
		},
		"a chain of three": {
			[]crdt.Item{c.record("c", "b", 1, RoleAdmin), c.record("b", "a", 1, RoleAdmin), c.record("a", "", 1, RoleAdmin)},
			want{"a": active, "b": active, "c": active},
		},
		"a chain without its root": {
			[]crdt.Item{c.record("c", "b", 1, RoleAdmin), c.record("b", "a", 1, RoleAdmin)},
			want{"b": stranger, "c": stranger},
		},
		"two who vouch for each other": {
			[]crdt.Item{c.record("a", "", 1, RoleAdmin), c.record("b", "c", 1, RoleAdmin), c.record("c", "b", 1, RoleAdmin)},
			want{"b": stranger, "c": stranger},
		},
		"one who vouches for itself": {
			[]crdt.Item{c.record("a", "", 1, RoleAdmin), c.record("b", "b", 1, RoleAdmin)}, want{"b": stranger},
		},
		"a plain member admits nobody": {
			[]crdt.Item{c.record("a", "", 1, RoleAdmin), c.record("b", "a", 1, RoleMember), c.record("c", "b", 1, RoleMember)},
			want{"b": active, "c": stranger},
		},
		"left": {
			[]crdt.Item{c.record("a", "", 1, RoleAdmin), c.record("b", "a", 1, RoleAdmin), c.left("b", 1)},
			want{"a": active, "b": departed},
		},
		"left and admitted again": {
			[]crdt.Item{c.record("a", "", 1, RoleAdmin), c.record("b", "a", 1, RoleAdmin), c.left("b", 1), c.record("b", "a", 2, RoleAdmin)},
			want{"b": active},
		},
		"the founder left; what it signed stands": {
			[]crdt.Item{c.record("a", "", 1, RoleAdmin), c.record("b", "a", 1, RoleAdmin), c.left("a", 1)},
			want{"a": departed, "b": active},
		},
		"the founder came back by one it admitted": {
			[]crdt.Item{c.record("a", "", 1, RoleAdmin), c.record("b", "a", 1, RoleAdmin), c.left("a", 1), c.record("a", "b", 2, RoleAdmin)},
			want{"a": active, "b": active},
		},
		"banned, and those whom it alone signed": {
			[]crdt.Item{c.record("a", "", 1, RoleAdmin), c.record("b", "a", 1, RoleAdmin), c.record("c", "b", 1, RoleAdmin), c.ban("b", "a", 2, 5)},
			want{"a": active, "b": banned, "c": stranger},
		},
		"banned, and one whom the ban keeps": {
			[]crdt.Item{c.record("a", "", 1, RoleAdmin), c.record("b", "a", 1, RoleAdmin), c.record("c", "b", 1, RoleAdmin), c.record("d", "c", 1, RoleAdmin),
				c.ban("b", "a", 2, 5, c.record("c", "b", 1, RoleAdmin))},
			want{"b": banned, "c": active, "d": active},
		},
		"the founder banned by one who keeps itself": {
			[]crdt.Item{c.record("a", "", 1, RoleAdmin), c.record("b", "a", 1, RoleAdmin), c.record("c", "a", 1, RoleAdmin),
				c.ban("a", "b", 2, 5, c.record("b", "a", 1, RoleAdmin), c.record("c", "a", 1, RoleAdmin))},
			want{"a": banned, "b": active, "c": active},
		},
		"a ban that cuts off its own issuer is void when nobody is left": {
			[]crdt.Item{c.record("a", "", 1, RoleAdmin), c.record("b", "a", 1, RoleAdmin), c.ban("a", "b", 2, 5)},
			want{"a": active, "b": active},
		},
		"one keeps, and is banned by one who keeps that": {
			[]crdt.Item{c.record("a", "", 1, RoleAdmin), c.record("b", "a", 1, RoleAdmin), c.record("c", "a", 1, RoleAdmin),
				c.ban("a", "b", 2, 5, c.record("b", "a", 1, RoleAdmin), c.record("c", "a", 1, RoleAdmin)),
				c.ban("b", "c", 2, 6, c.record("c", "a", 1, RoleAdmin))},
			want{"a": banned, "b": banned, "c": active},
		},
		"one keeps, and is banned by one who keeps nothing": {
			[]crdt.Item{c.record("a", "", 1, RoleAdmin), c.record("b", "a", 1, RoleAdmin), c.record("c", "a", 1, RoleAdmin), c.record("d", "", 1, RoleAdmin),
				c.ban("a", "b", 2, 5, c.record("b", "a", 1, RoleAdmin), c.record("c", "a", 1, RoleAdmin)),
				c.ban("b", "d", 2, 6)},
			want{"a": banned, "b": banned, "c": stranger, "d": active},
		},
		"a banned box does not lift its ban by the mesh secret": {
			[]crdt.Item{c.record("a", "", 1, RoleAdmin), c.record("b", "a", 1, RoleAdmin), c.ban("b", "a", 2, 5), c.record("b", "", 3, RoleAdmin)},
			want{"b": banned},
		},
		"a new record made elsewhere does not outweigh a ban": {
			[]crdt.Item{c.record("a", "", 1, RoleAdmin), c.record("b", "a", 1, RoleAdmin), c.ban("b", "a", 2, 5), c.record("b", "a", 3, RoleAdmin)},
			want{"b": banned},
		},
		"pardoned": {
			[]crdt.Item{c.record("a", "", 1, RoleAdmin), c.record("b", "a", 1, RoleAdmin), c.ban("b", "a", 2, 5), c.rule(rulingPardon, "b", "a", 3, 6)},
			want{"b": stranger},
		},
		"pardoned and admitted again; what it signed before stays void": {
			[]crdt.Item{c.record("a", "", 1, RoleAdmin), c.record("b", "a", 1, RoleAdmin), c.record("c", "b", 1, RoleAdmin), c.ban("b", "a", 2, 5),
				c.rule(rulingPardon, "b", "a", 3, 6), c.record("b", "a", 4, RoleAdmin), c.recordUnder("d", "b", 4, 1, RoleAdmin)},
			want{"b": active, "c": stranger, "d": active},
		},
		"pardoned and banned again": {
			[]crdt.Item{c.record("a", "", 1, RoleAdmin), c.record("b", "a", 1, RoleAdmin), c.ban("b", "a", 2, 5),
				c.rule(rulingPardon, "b", "a", 3, 6), c.record("b", "a", 4, RoleAdmin), c.ban("b", "a", 5, 7)},
			want{"b": banned},
		},
		"a pardon of a ban that is void changes nothing": {
			[]crdt.Item{c.record("a", "", 1, RoleAdmin), c.record("b", "a", 1, RoleAdmin), c.ban("b", "d", 2, 5), c.rule(rulingPardon, "b", "a", 3, 6)},
			want{"b": active},
		},
		"demoted: stays, admits nobody": {
			[]crdt.Item{c.record("a", "", 1, RoleAdmin), c.record("b", "a", 1, RoleAdmin), c.record("c", "b", 1, RoleAdmin), c.rule(rulingDemote, "b", "a", 2, 5)},
			want{"b": active, "c": stranger},
		},
		"demoted, with what it signed kept": {
			[]crdt.Item{c.record("a", "", 1, RoleAdmin), c.record("b", "a", 1, RoleAdmin), c.record("c", "b", 1, RoleAdmin),
				c.rule(rulingDemote, "b", "a", 2, 5, c.record("c", "b", 1, RoleAdmin))},
			want{"b": active, "c": active},
		},
		"demoted and promoted again; the old term stays over": {
			[]crdt.Item{c.record("a", "", 1, RoleAdmin), c.record("b", "a", 1, RoleAdmin), c.record("c", "b", 1, RoleAdmin), c.rule(rulingDemote, "b", "a", 2, 5),
				c.record("b", "a", 3, RoleAdmin), c.recordUnder("d", "b", 3, 1, RoleAdmin)},
			want{"b": active, "c": stranger, "d": active},
		},
		"a demoted admin bans nobody": {
			[]crdt.Item{c.record("a", "", 1, RoleAdmin), c.record("b", "a", 1, RoleAdmin), c.rule(rulingDemote, "b", "a", 2, 5), c.ban("a", "b", 2, 6)},
			want{"a": active, "b": active},
		},
		"of two who demote themselves one stays": {
			[]crdt.Item{c.record("a", "", 1, RoleAdmin), c.record("b", "", 1, RoleAdmin), c.rule(rulingDemote, "a", "a", 2, 5), c.rule(rulingDemote, "b", "b", 2, 6),
				c.ban("c", "b", 1, 7), c.record("c", "a", 1, RoleMember)},
			want{"a": active, "b": active, "c": banned},
		},
		"one who left is not brought back by a promotion": {
			[]crdt.Item{c.record("a", "", 1, RoleAdmin), c.record("b", "a", 1, RoleMember), c.left("b", 1), c.promotion("b", "a", 2, 1)},
			want{"b": departed},
		},
		"a stranger bans nobody": {
			[]crdt.Item{c.record("a", "", 1, RoleAdmin), c.record("b", "a", 1, RoleAdmin), c.ban("b", "d", 2, 5)},
			want{"b": active},
		},
		"a plain member bans nobody": {
			[]crdt.Item{c.record("a", "", 1, RoleAdmin), c.record("b", "a", 1, RoleMember), c.ban("a", "b", 2, 5)},
			want{"a": active},
		},
		"of two who ban each other the earlier ban stands": {
			[]crdt.Item{c.record("a", "", 1, RoleAdmin), c.record("b", "", 1, RoleAdmin), c.ban("a", "b", 2, 9), c.ban("b", "a", 2, 5)},
			want{"a": active, "b": banned},
		},
		"of three in a ring the first ban stands, and the third": {
			[]crdt.Item{c.record("a", "", 1, RoleAdmin), c.record("b", "", 1, RoleAdmin), c.record("c", "", 1, RoleAdmin),
				c.ban("b", "a", 2, 5), c.ban("c", "b", 2, 6), c.ban("a", "c", 2, 7)},
			want{"a": banned, "b": banned, "c": active},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			for range 5 { // in any order
				rand.Shuffle(len(tc.rows), func(i, j int) { tc.rows[i], tc.rows[j] = tc.rows[j], tc.rows[i] })
				r := evaluate(c.root.mesh, mergeItems(tc.rows))
				for p, want := range tc.want {
					if got := r.standing(c.ids[p]); got != want {
						t.Errorf("%s is %d, want %d", p, got, want)
					}
				}
			}
		})
	}
}

func TestChainOfReachesTheGenesis(t *testing.T) {
	c := newCast(t, "a", "b", "c")
	rows := mergeItems([]crdt.Item{
		c.record("a", "", 1, RoleAdmin), c.record("b", "a", 1, RoleAdmin), c.left("a", 1), c.record("a", "b", 2, RoleAdmin), c.record("c", "a", 1, RoleMember),
	})
	r := evaluate(c.root.mesh, rows)
	for _, p := range []string{"a", "b", "c"} {
		record, err := verifyChain(c.root.mesh, c.ids[p], r.chainOf(c.ids[p]))
		if err != nil || record.Peer != c.ids[p].String() {
			t.Errorf("%s: %+v %v", p, record, err)
		}
	}
	other, err := secretRoot([]byte("another secret of some length"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := verifyChain(other.mesh, c.ids["b"], r.chainOf(c.ids["b"])); err == nil {
		t.Error("the chain holds in another mesh")
	}
	if _, err := verifyChain(c.root.mesh, c.ids["c"], r.chainOf(c.ids["b"])); err == nil {
		t.Error("b's chain makes c a member")
	}
	if _, err := verifyChain(c.root.mesh, c.ids["b"], nil); err == nil {
		t.Error("no chain at all holds")
	}
}

func TestScreen(t *testing.T) {
	c := newCast(t, "a", "b", "x", "y")
	current := mergeItems([]crdt.Item{c.record("a", "", 1, RoleAdmin), c.record("b", "a", 1, RoleMember)})
	tamper := func(item crdt.Item, f func(*crdt.Row)) crdt.Item {
		cells := map[string]crdt.Cell{}
		for k, v := range item.Row.Cells {
			cells[k] = v
		}
		item.Row.Cells = cells
		f(&item.Row)
		return item
	}
	good := c.record("x", "a", 1, RoleAdmin)
	name := "record/1/" + c.ids["a"].String()
	cases := map[string]struct {
		in   []crdt.Item
		kept int
	}{
		"a good record":             {[]crdt.Item{good}, 1},
		"a chain in one message":    {[]crdt.Item{c.record("y", "x", 1, RoleAdmin), good}, 2},
		"by a plain member":         {[]crdt.Item{c.record("x", "b", 1, RoleAdmin)}, 0},
		"by a stranger":             {[]crdt.Item{c.record("y", "x", 1, RoleAdmin)}, 0},
		"an unsigned tombstone":     {[]crdt.Item{{Key: memberKey(c.ids["a"]), Row: crdt.Row{Length: 2}}}, 0},
		"a row made anew":           {[]crdt.Item{tamper(good, func(r *crdt.Row) { r.Length = 3 })}, 0},
		"a leave by somebody else":  {[]crdt.Item{c.cell("a", cellLeft, 1, kindLeft, leftBody{Mesh: c.root.mesh[:], Peer: c.ids["a"].String(), Serial: 1}, c.keys["b"])}, 0},
		"a ban by a plain member":   {[]crdt.Item{c.ban("a", "b", 2, 1)}, 0},
		"a ban by an admin":         {[]crdt.Item{c.ban("b", "a", 2, 1)}, 1},
		"another namespace":         {[]crdt.Item{{Key: crdt.NewKey("things", "t"), Row: crdt.Row{Length: 1}}}, 1},
		"a name":                    {[]crdt.Item{{Key: memberKey(c.ids["a"]), Row: crdt.Row{Length: 1, Cells: map[string]crdt.Cell{cellName: {At: 5, Value: []byte("n")}}}}}, 1},
		"a key that names no peer":  {[]crdt.Item{{Key: crdt.NewKey(nsMembers, "nobody"), Row: good.Row}}, 0},
		"under another peer's key":  {[]crdt.Item{{Key: memberKey(c.ids["y"]), Row: good.Row}}, 0},
		"a stamp that looks newer":  {[]crdt.Item{tamper(good, func(r *crdt.Row) { cell := r.Cells[name]; cell.At++; r.Cells[name] = cell })}, 0},
		"in another record's place": {[]crdt.Item{tamper(good, func(r *crdt.Row) { r.Cells["record/2"] = r.Cells[name]; delete(r.Cells, name) })}, 0},
		"a flipped bit": {[]crdt.Item{tamper(good, func(r *crdt.Row) {
			cell := r.Cells[name]
			cell.Value = slices.Clone(cell.Value)
			cell.Value[20] ^= 1
			r.Cells[name] = cell
		})}, 0},
		"a king": {[]crdt.Item{c.record("x", "a", 1, "king")}, 0},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			kept, dropped := screen(c.root.mesh, current, tc.in)
			if len(kept) != tc.kept || (dropped == 0) != (tc.kept == len(tc.in)) {
				t.Errorf("kept %d, dropped %d, want %d kept", len(kept), dropped, tc.kept)
			}
		})
	}
}

// history draws signed cells of all kinds, those of strangers and liars too.
func history(rt *rapid.T, c *cast, names []string) []crdt.Item {
	rows := []crdt.Item{c.record("a", "", 1, RoleAdmin)}
	for range rapid.IntRange(0, 14).Draw(rt, "events") {
		p := rapid.SampledFrom(names).Draw(rt, "subject")
		by := rapid.SampledFrom(names).Draw(rt, "issuer")
		serial := rapid.Uint64Range(1, 4).Draw(rt, "serial")
		at := crdt.HLC(rapid.Uint64Range(1, 6).Draw(rt, "at"))
		switch rapid.IntRange(0, 6).Draw(rt, "kind") {
		case 0:
			rows = append(rows, c.left(p, serial))
		case 1, 2:
			var keeps []crdt.Item
			for _, item := range rows {
				if rapid.Bool().Draw(rt, "keep") {
					keeps = append(keeps, item)
				}
			}
			kind := rapid.SampledFrom([]string{rulingBan, rulingDemote, rulingPardon}).Draw(rt, "ruling")
			rows = append(rows, c.rule(kind, p, by, serial, at, keeps...))
		case 3:
			rows = append(rows, c.record(p, "", serial, RoleAdmin))
		default:
			role := rapid.SampledFrom([]Role{RoleAdmin, RoleAdmin, RoleMember}).Draw(rt, "role")
			rows = append(rows, c.recordUnder(p, by, rapid.Uint64Range(1, 4).Draw(rt, "term"), serial, role))
		}
	}
	return rows
}

// TestRostersConverge: boxes that got the same signed cells in any order and any
// parts have the same roster.
func TestRostersConverge(t *testing.T) {
	c := newCast(t, "a", "b", "c", "d")
	names := []string{"a", "b", "c", "d"}
	rapid.Check(t, func(rt *rapid.T) {
		rows := history(rt, c, names)
		want := describe(evaluate(c.root.mesh, mergeItems(rows)), c, names)
		order := rapid.Permutation(rows).Draw(rt, "order")
		if got := describe(evaluate(c.root.mesh, mergeItems(order, rows)), c, names); got != want {
			rt.Errorf("in another order %s, want %s", got, want)
		}
	})
}

// TestRulingsLeaveAnAdmin: whatever is ruled, concurrently or not, a mesh that has
// an active admin without the rulings has one with them.
func TestRulingsLeaveAnAdmin(t *testing.T) {
	c := newCast(t, "a", "b", "c", "d")
	names := []string{"a", "b", "c", "d"}
	rapid.Check(t, func(rt *rapid.T) {
		rows := history(rt, c, names)
		var bare []crdt.Item
		for _, item := range rows {
			for name := range item.Row.Cells {
				if !isRuling(name) {
					bare = append(bare, item)
				}
			}
		}
		without, with := evaluate(c.root.mesh, mergeItems(bare)), evaluate(c.root.mesh, mergeItems(rows))
		if without.admins("") > 0 && with.admins("") == 0 {
			rt.Fatalf("no admin left: %s, without rulings %s", describe(with, c, names), describe(without, c, names))
		}
		if len(with.court.accepted)+len(with.void) != rulingsIn(mergeItems(rows)) {
			rt.Fatal("a ruling neither stands nor is void")
		}
	})
}

func rulingsIn(rows []crdt.Item) int {
	n := 0
	for _, item := range rows {
		for name, cell := range item.Row.Cells {
			if id, err := memberKeyPeer(item.Key); err == nil && isRuling(name) {
				if _, err := checkRuling(meshID(ruledMesh(cell)), id, name, cell); err == nil {
					n++
				}
			}
		}
	}
	return n
}

func ruledMesh(cell crdt.Cell) []byte {
	var body rulingBody
	openBlob(kindRuling, cell.Value, &body)
	return body.Mesh
}

// TestRulingsKeepTheOthers: a ban or demotion that an admin makes with all rows at
// hand removes nobody but its subject, whoever that is.
func TestRulingsKeepTheOthers(t *testing.T) {
	names := []string{"a", "b", "c", "d", "e"}
	c := newCast(t, names...)
	rapid.Check(t, func(rt *rapid.T) {
		rows := []crdt.Item{c.record("a", "", 1, RoleAdmin)}
		for i, name := range names[1:] {
			rows = append(rows, c.record(name, names[rapid.IntRange(0, i).Draw(rt, "sponsor")], 1, RoleAdmin))
		}
		for at := range rapid.IntRange(1, 5).Draw(rt, "rulings") {
			before := evaluate(c.root.mesh, mergeItems(rows))
			p, by := rapid.SampledFrom(names).Draw(rt, "subject"), rapid.SampledFrom(names).Draw(rt, "issuer")
			kind := rapid.SampledFrom([]string{rulingBan, rulingDemote}).Draw(rt, "kind")
			issuer, ok := before.members[c.ids[by]]
			if !ok || !issuer.admin() || before.standing(c.ids[p]) != active || p == by && kind == rulingBan {
				continue
			}
			body := rulingBody{
				Mesh: c.root.mesh[:], Peer: c.ids[p].String(), Serial: before.floors[c.ids[p]] + 1, Kind: kind, Issuer: c.ids[by].String(),
				IssuerSerial: issuer.record.Serial, At: crdt.HLC(at + 1),
			}
			for _, rec := range before.court.keepsOf(&ruling{body: body, peer: c.ids[p], issuer: c.ids[by]}) {
				body.Keeps = append(body.Keeps, keep{Peer: rec.body.Peer, Serial: rec.body.Serial, Hash: rec.hash[:]})
			}
			rows = append(rows, c.cell(p, rulingCell(body), body.Serial, kindRuling, body, c.keys[by]))
			after := evaluate(c.root.mesh, mergeItems(rows))
			for _, other := range names {
				id := c.ids[other]
				if other == p {
					continue
				}
				if after.standing(id) != before.standing(id) || after.admitters[id] != before.admitters[id] {
					rt.Fatalf("%s of %s by %s changed %s: %d to %d", kind, p, by, other, before.standing(id), after.standing(id))
				}
			}
			if last := before.admins(c.ids[p]) == 0; !last && (after.admitters[c.ids[p]] || kind == rulingBan && after.standing(c.ids[p]) != banned ||
				kind == rulingDemote && after.standing(c.ids[p]) != active) {
				rt.Fatalf("%s of %s by %s did not do what it says", kind, p, by)
			}
		}
	})
}

func describe(r *roster, c *cast, names []string) string {
	var out string
	for _, n := range names {
		out += fmt.Sprintf("%s=%d/%d/%v ", n, r.standing(c.ids[n]), r.floors[c.ids[n]], r.admitters[c.ids[n]])
	}
	return out
}

func FuzzReadEntry(f *testing.F) {
	c := newCast(f, "a", "b")
	for _, item := range []crdt.Item{c.record("b", "a", 1, RoleAdmin), c.left("b", 1), c.ban("b", "a", 1, 1, c.record("b", "a", 1, RoleAdmin))} {
		for name, cell := range item.Row.Cells {
			f.Add(name, uint64(1), cell.Value)
		}
	}
	f.Add(cellAddresses, uint64(9), []byte{0x81, 0x61, 0x2f})
	f.Fuzz(func(t *testing.T, name string, at uint64, value []byte) {
		item := crdt.Item{Key: memberKey(c.ids["b"]), Row: crdt.Row{Length: 1, Cells: map[string]crdt.Cell{name: {At: crdt.HLC(at), Value: value}}}}
		r := evaluate(c.root.mesh, mergeItems([]crdt.Item{c.record("a", "", 1, RoleAdmin)}, []crdt.Item{item}))
		if !r.active(c.ids["a"]) {
			t.Fatal("a cell of b's row removed a")
		}
		screen(c.root.mesh, nil, []crdt.Item{item})
	})
}

func FuzzGreeting(f *testing.F) {
	frame, err := encodeFrame(hello{Min: 1, Max: 1, Store: 7})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(frame)
	f.Fuzz(func(t *testing.T, data []byte) {
		if h, err := readHello(&oneByOne{data}, spoken); err == nil && (h.Min > spoken.max || h.Max < spoken.min) {
			t.Fatalf("taken: %+v", h)
		}
	})
}

func (c *cast) items(items ...crdt.Item) []crdt.Item { return items }

// signed is a record as given, signed by the issuer that it names.
func (c *cast) signed(p string, body memberBody) crdt.Item {
	for name, id := range c.ids {
		if id.String() == body.Issuer {
			return c.cell(p, recordCell(body), body.Serial, kindMember, body, c.keys[name])
		}
	}
	panic("no such issuer")
}
