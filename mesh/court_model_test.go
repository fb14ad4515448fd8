package mesh

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/libp2p/go-libp2p/core/peer"
	"pgregory.net/rapid"

	"llmgw/crdt"
)

// verdictOf is all that a box derives from its membership rows, as text.
func verdictOf(m *Mesh, of ...*Mesh) string {
	r := m.view.Load().roster
	var out strings.Builder
	for _, o := range of {
		fmt.Fprintf(&out, "%s: standing %d, floor %d, in office %v; ", o.cfg.Name, r.standing(o.self), r.floors[o.self], r.admitters[o.self])
	}
	var void []string
	for _, v := range r.void {
		void = append(void, fmt.Sprintf("%s %s %d by %s", v.body.Kind, v.body.Peer, v.body.Serial, v.body.Issuer))
	}
	slices.Sort(void)
	return out.String() + strings.Join(void, ", ")
}

func oneOf(rt *rapid.T, all []*Mesh, label string) *Mesh {
	return all[rapid.IntRange(0, len(all)-1).Draw(rt, label)]
}

// act has one box make a ruling or an admission by its own API, whether it may or not.
func act(rt *rapid.T, all []*Mesh) {
	ctx := context.Background()
	by, of := oneOf(rt, all, "by"), oneOf(rt, all, "of")
	// Whether it is allowed is not the point here.
	switch rapid.IntRange(0, 5).Draw(rt, "act") {
	case 0, 1:
		_ = by.Ban(ctx, of.Self(), "why")
	case 2:
		_ = by.Demote(ctx, of.Self(), "why")
	case 3:
		_ = by.Promote(ctx, of.Self())
	case 4:
		_ = by.Unban(ctx, of.Self())
	case 5:
		_ = by.writeMembers(func(v *view, tx rowWriter) error {
			if by.needAdmin(v) != nil || v.roster.standing(of.self) == active || of == by {
				return nil
			}
			return by.writeRecord(v, tx, of.self, memberBody{Role: RoleAdmin, Serial: v.roster.floors[of.self] + 1})
		})
	}
}

// TestBoxesAgreeOnEveryVerdict: admins who rule on each other on all sides of cuts, as far
// as each knows, come to one verdict once all heard all, in whatever order; and somebody
// is left to rule.
func TestBoxesAgreeOnEveryVerdict(t *testing.T) {
	t.Parallel()
	everybody := bareMeshes(t, 4)
	rapid.Check(t, func(rt *rapid.T) {
		all := everybody[:rapid.IntRange(2, 4).Draw(rt, "boxes")]
		unite(t, all)
		for range rapid.IntRange(1, 8).Draw(rt, "acts") {
			act(rt, all)
			if rapid.Bool().Draw(rt, "meet") {
				oneOf(rt, all, "who").hears(t, oneOf(rt, all, "whom"))
			}
		}
		for _, m := range all {
			for _, i := range rapid.Permutation([]int{0, 1, 2, 3}[:len(all)]).Draw(rt, "order") {
				m.hears(t, all[i])
			}
		}
		want := verdictOf(all[0], all...)
		for _, m := range all[1:] {
			if got := verdictOf(m, all...); got != want {
				rt.Fatalf("%s says %s\n%s says %s", m.cfg.Name, got, all[0].cfg.Name, want)
			}
		}
		if all[0].view.Load().roster.admins("") == 0 {
			rt.Fatalf("nobody is left to rule: %s", want)
		}
	})
}

// TestRowByRowIsAsAllAtOnce: a box that takes the signed cells of others one by one, in
// any order and some of them twice, ends where one ends that takes them together; and
// what it refused for lack of their signer's record it takes once that is there.
func TestRowByRowIsAsAllAtOnce(t *testing.T) {
	t.Parallel()
	names := []string{"a", "b", "c", "d"}
	c := newCast(t, names...)
	rapid.Check(t, func(rt *rapid.T) {
		rows := onceSigned(history(rt, c, names))
		var current []crdt.Item
		take := func(order []crdt.Item) {
			for _, item := range order {
				kept, _ := screen(c.root.mesh, current, []crdt.Item{item})
				current = mergeItems(current, kept)
			}
		}
		for range len(names) { // the longest chain of sponsors
			take(rapid.Permutation(rows).Draw(rt, "order"))
		}
		together, _ := screen(c.root.mesh, nil, mergeItems(rows))
		want := describe(evaluate(c.root.mesh, together), c, names)
		if got := describe(evaluate(c.root.mesh, current), c, names); got != want {
			rt.Fatalf("one by one %s, together %s", got, want)
		}
		again, dropped := screen(c.root.mesh, together, together)
		if dropped != 0 || describe(evaluate(c.root.mesh, again), c, names) != want {
			rt.Fatalf("what passed the screen once is dropped the second time: %d", dropped)
		}
	})
}

// onceSigned leaves of several contents of one cell the first: no signer gives a cell
// two, and of a liar's two each box may hold another.
func onceSigned(rows []crdt.Item) []crdt.Item {
	type place struct {
		key  crdt.Key
		cell string
	}
	seen := map[place]bool{}
	return slices.DeleteFunc(slices.Clone(rows), func(item crdt.Item) bool {
		for name := range item.Row.Cells { // of these rows each has one
			at := place{item.Key, name}
			if seen[at] {
				return true
			}
			seen[at] = true
		}
		return false
	})
}

// TestTwoAdminsWhoBanEachOther: the earlier ban stands, whoever hears which first.
func TestTwoAdminsWhoBanEachOther(t *testing.T) {
	names := []string{"a", "b", "c"}
	c := newCast(t, names...)
	rapid.Check(t, func(rt *rapid.T) {
		first := crdt.HLC(rapid.Uint64Range(1, 1<<40).Draw(rt, "first"))
		second := first + crdt.HLC(rapid.Uint64Range(1, 1<<40).Draw(rt, "later"))
		winner, loser := "a", "b"
		if rapid.Bool().Draw(rt, "swap") {
			winner, loser = loser, winner
		}
		rows := []crdt.Item{
			c.record("a", "", 1, RoleAdmin), c.record("b", "", 1, RoleAdmin), c.record("c", "", 1, RoleMember),
			c.ban(loser, winner, 2, first), c.ban(winner, loser, 2, second),
		}
		r := evaluate(c.root.mesh, mergeItems(rapid.Permutation(rows).Draw(rt, "order")))
		if r.standing(c.ids[winner]) != active || r.standing(c.ids[loser]) != banned || r.standing(c.ids["c"]) != active {
			rt.Fatalf("%s banned first: %s", winner, describe(r, c, names))
		}
		if len(r.void) != 1 || r.void[0].issuer != c.ids[loser] {
			rt.Fatalf("void: %+v", r.void)
		}
	})
}

// TestEqualStampsAreDecided: of two bans with one stamp the one of the lower peer ID
// stands, everywhere.
func TestEqualStampsAreDecided(t *testing.T) {
	c := newCast(t, "a", "b")
	rows := []crdt.Item{c.record("a", "", 1, RoleAdmin), c.record("b", "", 1, RoleAdmin), c.ban("b", "a", 2, 7), c.ban("a", "b", 2, 7)}
	winner, loser := c.ids["a"], c.ids["b"]
	if loser < winner {
		winner, loser = loser, winner
	}
	for range 5 {
		rows = append(rows[1:], rows[0])
		r := evaluate(c.root.mesh, mergeItems(rows))
		if r.standing(winner) != active || r.standing(loser) != banned {
			t.Fatalf("winner %d, loser %d", r.standing(winner), r.standing(loser))
		}
	}
}

// TestScreenTakesNoAuthority: nothing that boxes outside of the mesh sign among themselves
// changes what a member is, whatever of it passes.
func TestScreenTakesNoAuthority(t *testing.T) {
	names := []string{"x", "y", "z"}
	c := newCast(t, "a", "b", "x", "y", "z")
	own := []crdt.Item{c.record("a", "", 1, RoleAdmin), c.record("b", "a", 1, RoleMember)}
	insiders := []string{"a", "b"}
	want := describe(evaluate(c.root.mesh, mergeItems(own)), c, insiders)
	rapid.Check(t, func(rt *rapid.T) {
		var forged []crdt.Item
		for range rapid.IntRange(1, 12).Draw(rt, "forgeries") {
			by := rapid.SampledFrom(append(names, "b")).Draw(rt, "by") // a plain member helps them
			of := rapid.SampledFrom([]string{"a", "b", "x", "y", "z"}).Draw(rt, "of")
			serial := rapid.Uint64Range(1, 4).Draw(rt, "serial")
			switch kind := rapid.SampledFrom([]string{"record", "left", rulingBan, rulingDemote, rulingPardon}).Draw(rt, "kind"); kind {
			case "record":
				forged = append(forged, c.recordUnder(of, by, rapid.Uint64Range(1, 4).Draw(rt, "term"), serial, RoleAdmin))
			case "left":
				body := leftBody{Mesh: c.root.mesh[:], Peer: c.ids[of].String(), Serial: serial}
				if of == by { // b may leave, and that is its own word
					continue
				}
				forged = append(forged, c.cell(of, cellLeft, serial, kindLeft, body, c.keys[by]))
			default:
				forged = append(forged, c.rule(kind, of, by, serial, crdt.HLC(serial), own...))
			}
		}
		kept, _ := screen(c.root.mesh, mergeItems(own), mergeItems(forged))
		r := evaluate(c.root.mesh, mergeItems(own, kept))
		if got := describe(r, c, insiders); got != want {
			rt.Fatalf("%s, before %s", got, want)
		}
		for _, n := range names {
			if r.standing(c.ids[n]) != stranger {
				rt.Fatalf("%s is %d", n, r.standing(c.ids[n]))
			}
		}
	})
}

// TestVerdictRowsLeadToOneVerdict: a removed box that is told nothing but the verdict rows
// judges as the one that told it, of all who ever ruled.
func TestVerdictRowsLeadToOneVerdict(t *testing.T) {
	names := []string{"a", "b", "c", "d"}
	c := newCast(t, names...)
	rapid.Check(t, func(rt *rapid.T) {
		rows, _ := screen(c.root.mesh, nil, mergeItems(history(rt, c, names))) // as a store has them
		full := evaluate(c.root.mesh, rows)
		told := verdictRows(c.root.mesh, full, rows)
		for _, item := range told {
			for name := range item.Row.Cells {
				if name == cellName || name == cellAddresses {
					rt.Fatalf("%s is told", name)
				}
			}
		}
		got := evaluate(c.root.mesh, told)
		for _, n := range names {
			id := c.ids[n]
			if got.admitters[id] != full.admitters[id] {
				rt.Fatalf("%s in office: %v by the verdict, %v by all rows", n, got.admitters[id], full.admitters[id])
			}
			_, bannedThere := got.bans[id]
			if _, bannedHere := full.bans[id]; bannedHere != bannedThere {
				rt.Fatalf("%s banned: %v by the verdict, %v by all rows", n, bannedThere, bannedHere)
			}
		}
	})
}

// TestChainsOfAllMembersHold: whoever a roster calls a member can prove it to a joiner, and
// nobody else can.
func TestChainsOfAllMembersHold(t *testing.T) {
	names := []string{"a", "b", "c", "d"}
	c := newCast(t, names...)
	rapid.Check(t, func(rt *rapid.T) {
		rows, _ := screen(c.root.mesh, nil, mergeItems(history(rt, c, names))) // as a store has them
		r := evaluate(c.root.mesh, rows)
		for _, n := range names {
			chain := r.chainOf(c.ids[n])
			m, member := r.members[c.ids[n]]
			if member != (len(chain) > 0) {
				rt.Fatalf("%s: member %v, chain of %d", n, member, len(chain))
			}
			if !member {
				continue
			}
			record, err := verifyChain(c.root.mesh, c.ids[n], chain)
			if err != nil || record.Serial != m.record.Serial {
				rt.Fatalf("%s: %+v, %v", n, record, err)
			}
			if len(chain) > 1 {
				if _, err := verifyChain(c.root.mesh, c.ids[n], chain[:len(chain)-1]); err == nil && len(r.chainOf(peer.ID(m.signed.issuer))) > 0 {
					rt.Fatalf("%s: the chain holds without its end", n)
				}
			}
		}
	})
}
