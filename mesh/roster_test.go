package mesh

import (
	"crypto/ed25519"
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
	body := memberBody{Mesh: c.root.mesh[:], Peer: c.ids[p].String(), Role: role, Serial: serial}
	key := c.root.private
	if issuer == "" {
		body.Genesis = c.root.record
	} else {
		body.Issuer = c.ids[issuer].String()
		key = c.keys[issuer]
	}
	return c.cell(p, recordCell(serial), serial, kindMember, body, key)
}

func (c *cast) left(p string, serial uint64) crdt.Item {
	body := leftBody{Mesh: c.root.mesh[:], Peer: c.ids[p].String(), Serial: serial}
	return c.cell(p, cellLeft, serial, kindLeft, body, c.keys[p])
}

func (c *cast) ban(p, issuer string, serial uint64, at int64) crdt.Item {
	body := banBody{Mesh: c.root.mesh[:], Peer: c.ids[p].String(), Serial: serial, Issuer: c.ids[issuer].String(), At: at}
	return c.cell(p, cellBan, serial, kindBan, body, c.keys[issuer])
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
			[]crdt.Item{c.record("a", "", 1, RoleAdmin), c.record("b", "a", 1, RoleAdmin), c.record("c", "b", 1, RoleAdmin), c.ban("b", "a", 1, 5)},
			want{"a": active, "b": banned, "c": stranger},
		},
		"banned, and one who was signed again": {
			[]crdt.Item{c.record("a", "", 1, RoleAdmin), c.record("b", "a", 1, RoleAdmin), c.record("c", "b", 1, RoleAdmin), c.ban("b", "a", 1, 5), c.record("c", "a", 2, RoleAdmin)},
			want{"b": banned, "c": active},
		},
		"a banned admin cannot lift its ban": {
			[]crdt.Item{c.record("a", "", 1, RoleAdmin), c.record("b", "a", 1, RoleAdmin), c.ban("b", "a", 1, 5), c.record("b", "", 2, RoleAdmin)},
			want{"b": banned},
		},
		"banned, then admitted by an admin": {
			[]crdt.Item{c.record("a", "", 1, RoleAdmin), c.record("b", "a", 1, RoleAdmin), c.ban("b", "a", 1, 5), c.record("b", "a", 2, RoleAdmin)},
			want{"b": active},
		},
		"a stranger bans nobody": {
			[]crdt.Item{c.record("a", "", 1, RoleAdmin), c.record("b", "a", 1, RoleAdmin), c.ban("b", "d", 1, 5)},
			want{"b": active},
		},
		"a plain member bans nobody": {
			[]crdt.Item{c.record("a", "", 1, RoleAdmin), c.record("b", "a", 1, RoleMember), c.ban("a", "b", 1, 5)},
			want{"a": active},
		},
		"of two who ban each other the earlier ban stands": {
			[]crdt.Item{c.record("a", "", 1, RoleAdmin), c.record("b", "", 1, RoleAdmin), c.ban("a", "b", 1, 9), c.ban("b", "a", 1, 5)},
			want{"a": active, "b": banned},
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
		"a ban by a plain member":   {[]crdt.Item{c.ban("a", "b", 1, 1)}, 0},
		"another namespace":         {[]crdt.Item{{Key: crdt.NewKey("things", "t"), Row: crdt.Row{Length: 1}}}, 1},
		"a name":                    {[]crdt.Item{{Key: memberKey(c.ids["a"]), Row: crdt.Row{Length: 1, Cells: map[string]crdt.Cell{cellName: {At: 5, Value: []byte("n")}}}}}, 1},
		"a key that names no peer":  {[]crdt.Item{{Key: crdt.NewKey(nsMembers, "nobody"), Row: good.Row}}, 0},
		"under another peer's key":  {[]crdt.Item{{Key: memberKey(c.ids["y"]), Row: good.Row}}, 0},
		"a stamp that looks newer":  {[]crdt.Item{tamper(good, func(r *crdt.Row) { cell := r.Cells["record/1"]; cell.At++; r.Cells["record/1"] = cell })}, 0},
		"in another record's place": {[]crdt.Item{tamper(good, func(r *crdt.Row) { r.Cells["record/2"] = r.Cells["record/1"]; delete(r.Cells, "record/1") })}, 0},
		"a flipped bit": {[]crdt.Item{tamper(good, func(r *crdt.Row) {
			cell := r.Cells["record/1"]
			cell.Value = slices.Clone(cell.Value)
			cell.Value[20] ^= 1
			r.Cells["record/1"] = cell
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

// TestRostersConverge: boxes that got the same signed cells in any order and any
// parts have the same roster.
func TestRostersConverge(t *testing.T) {
	c := newCast(t, "a", "b", "c", "d")
	names := []string{"a", "b", "c", "d"}
	rapid.Check(t, func(rt *rapid.T) {
		rows := []crdt.Item{c.record("a", "", 1, RoleAdmin)}
		for i := range rapid.IntRange(0, 12).Draw(rt, "events") {
			p := rapid.SampledFrom(names).Draw(rt, "subject")
			by := rapid.SampledFrom(names).Draw(rt, "issuer")
			serial := rapid.Uint64Range(1, 4).Draw(rt, "serial")
			switch rapid.IntRange(0, 3).Draw(rt, "kind") {
			case 0:
				rows = append(rows, c.left(p, serial))
			case 1:
				rows = append(rows, c.ban(p, by, serial, int64(i)))
			default:
				rows = append(rows, c.record(p, by, serial, rapid.SampledFrom([]Role{RoleAdmin, RoleMember}).Draw(rt, "role")))
			}
		}
		want := describe(evaluate(c.root.mesh, mergeItems(rows)), c, names)
		order := rapid.Permutation(rows).Draw(rt, "order")
		if got := describe(evaluate(c.root.mesh, mergeItems(order, rows)), c, names); got != want {
			rt.Errorf("in another order %s, want %s", got, want)
		}
	})
}

func describe(r *roster, c *cast, names []string) string {
	var out string
	for _, n := range names {
		out += fmt.Sprintf("%s=%d/%d ", n, r.standing(c.ids[n]), r.floors[c.ids[n]])
	}
	return out
}

func FuzzReadEntry(f *testing.F) {
	c := newCast(f, "a", "b")
	for name, item := range map[string]crdt.Item{
		recordCell(1): c.record("b", "a", 1, RoleAdmin), cellLeft: c.left("b", 1), cellBan: c.ban("b", "a", 1, 1),
	} {
		f.Add(name, uint64(1), item.Row.Cells[name].Value)
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
		var g greeter
		g.greet(&oneByOne{data})
	})
}
