package mesh

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"

	"llmgw/crdt"
	"llmgw/crdt/store"
	"llmgw/mesh/token"
)

const (
	tokenTTL    = time.Hour
	tokenMaxTTL = 7 * 24 * time.Hour
	// tokenMaxUses keeps the cells of one row, one a use, within the store's bounds.
	tokenMaxUses = 500
	// tokenSeeds is how many boxes a token names: its maker and others that may be
	// up when it is not.
	tokenSeeds = 3
	// tokenKeep is how long a token is listed after it expired.
	tokenKeep = 14 * 24 * time.Hour
	// tidyAtOnce bounds one write; the rest follows a minute later.
	tidyAtOnce = 500
)

// TokenOptions says what a join token is good for. Zero values: 1 h, one use, role
// admin.
type TokenOptions struct {
	TTL  time.Duration
	Uses int
	Role Role
}

// TokenInfo is a token as shared state knows it. Its secret is nowhere.
type TokenInfo struct {
	ID      string
	Role    Role
	Issuer  string // peer ID
	Created time.Time
	Expires time.Time // by the issuer's clock
	Uses    int
	Used    int
	Revoked bool
	// Redeemed tells who used it and when, the earliest first.
	Redeemed []Redemption
}

// NewToken makes a join token. Its text is the only place where the secret ever
// stands. Options that make no sense are a *token.Error of kind BadOptions.
func (m *Mesh) NewToken(ctx context.Context, o TokenOptions) (string, error) {
	if err := o.settle(); err != nil {
		return "", fmt.Errorf("make token: %w", err)
	}
	v := m.view.Load()
	if err := m.needAdmin(v); err != nil {
		return "", fmt.Errorf("make token: %w", err)
	}
	seeds, err := m.tokenSeeds(v)
	if err != nil {
		return "", fmt.Errorf("make token: %w", err)
	}
	t, err := token.New(v.mesh, seeds, m.cfg.Entropy)
	if err != nil {
		return "", err
	}
	text, err := t.Text()
	if err != nil {
		return "", err
	}
	if err := m.writeToken(t, o); err != nil {
		return "", fmt.Errorf("make token: %w", err)
	}
	m.log.Info("join token made", "token", t.ID.String(), "role", string(o.Role), "uses", o.Uses, "ttl", o.TTL)
	m.offerOrWarn(ctx, "join token")
	return text, nil
}

func (o *TokenOptions) settle() error {
	if o.TTL == 0 {
		o.TTL = tokenTTL
	}
	if o.Uses == 0 {
		o.Uses = 1
	}
	if o.Role == "" {
		o.Role = RoleAdmin
	}
	switch {
	case o.TTL < time.Second || o.TTL > tokenMaxTTL:
		return badOptions("life of %s: want 1s to %s", o.TTL, tokenMaxTTL)
	case o.Uses < 1 || o.Uses > tokenMaxUses:
		return badOptions("%d uses: want 1 to %d", o.Uses, tokenMaxUses)
	case o.Role != RoleAdmin && o.Role != RoleMember:
		return badOptions("role %q: want %s or %s", o.Role, RoleAdmin, RoleMember)
	}
	return nil
}

func badOptions(format string, args ...any) error {
	return &token.Error{Kind: token.BadOptions, Detail: fmt.Sprintf(format, args...)}
}

func (m *Mesh) needAdmin(v *view) error {
	self, ok := v.roster.members[m.self]
	if !ok || !v.roster.active(m.self) || !self.admin() {
		return &token.Error{Kind: token.NotAdmin, Detail: "this box has no admin role in its mesh"}
	}
	return nil
}

func (m *Mesh) writeToken(t token.Token, o TokenOptions) error {
	now := m.now()
	body := tokenBody{
		Mesh: t.Mesh[:], ID: t.ID[:], Key: t.Key().Public().(ed25519.PublicKey), Role: o.Role,
		Created: now.Unix(), Expires: now.Add(o.TTL).Unix(), Uses: o.Uses, Issuer: m.self.String(),
	}
	blob, err := sign(kindToken, body, m.privateKey())
	if err != nil {
		return err
	}
	m.swap.RLock()
	defer m.swap.RUnlock()
	return m.updateRows(func(v *view, tx rowWriter) error {
		if v.mesh != t.Mesh {
			return errMeshReplaced
		}
		row, _, err := tx.Get(tokenKey(t.ID))
		if err != nil {
			return err
		}
		if row.Length != 0 {
			return errTokenTwice
		}
		return tx.Set(tokenKey(t.ID), cellRecord, blob)
	})
}

// errTokenTwice: the source of randomness repeats itself. A token ID is never made
// again, not even after its row was deleted.
var errTokenTwice = errors.New("a token of that ID was made before")

// tidyTokens deletes the tokens that are long over. Whoever is away for less still
// finds out about a use too many.
func (m *Mesh) tidyTokens() {
	v := m.view.Load()
	if !m.actsFor(v.roster, "") || m.absence.overdue() {
		return
	}
	items, err := m.store.List(nsTokens)
	if err != nil {
		m.log.Error("tokens not tidied up", "err", err)
		return
	}
	before := m.now().Add(-tokenKeep)
	var over []crdt.Key
	for _, item := range items {
		id, err := tokenKeyID(item.Key)
		if err != nil {
			continue
		}
		if body, err := checkToken(v, id, item.Row); err == nil && time.Unix(body.Expires, 0).Before(before) {
			over = append(over, item.Key)
		}
	}
	if len(over) == 0 {
		return
	}
	m.swap.RLock()
	defer m.swap.RUnlock()
	_, err = m.store.Update(func(tx *store.Tx) error {
		for _, k := range over[:min(len(over), tidyAtOnce)] {
			if err := tx.Delete(k); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		m.log.Error("tokens not tidied up", "err", err)
		return
	}
	m.log.Info("join tokens that were long over were deleted", "count", len(over))
}

// tokenSeeds names this box and other live admins, with the addresses to dial.
func (m *Mesh) tokenSeeds(v *view) ([]token.Seed, error) {
	self, err := seedOf(m.self, m.addresses())
	if err != nil {
		return nil, err
	}
	seeds := []token.Seed{self}
	for _, p := range m.links.live() {
		other, ok := v.roster.members[p]
		if !ok || !other.admin() || len(seeds) == tokenSeeds {
			continue
		}
		if seed, err := seedOf(p, other.addrs); err == nil {
			seeds = append(seeds, seed)
		}
	}
	return seeds, nil
}

// seedMaxAddrs keeps a token short enough to paste.
const seedMaxAddrs = 4

func seedOf(p peer.ID, addrs []string) (token.Seed, error) {
	_, key, err := peerKey(p.String())
	if err != nil {
		return token.Seed{}, err
	}
	seed := token.Seed{Key: key}
	for _, a := range multiaddrs(addrs) {
		ip, ok := multiaddrIP(a)
		port, err := a.ValueForProtocol(ma.P_TCP)
		if !ok || err != nil || ip.IsLinkLocalUnicast() || len(seed.Addrs) == seedMaxAddrs {
			continue
		}
		host := ip.String()
		if ip.Is6() {
			host = "[" + host + "]"
		}
		seed.Addrs = append(seed.Addrs, host+":"+port)
	}
	if len(seed.Addrs) == 0 {
		return token.Seed{}, fmt.Errorf("node %s has no address that another box could dial", p)
	}
	return seed, nil
}

func tokenKey(id token.ID) crdt.Key { return crdt.NewKey(nsTokens, id.String()) }

// checkToken reads a token row and makes sure that an admin of the mesh made it:
// any member can write rows, but only admins admit.
func checkToken(v *view, id token.ID, row crdt.Row) (*tokenBody, error) {
	var body tokenBody
	env, err := openBlob(kindToken, row.Cells[cellRecord].Value, &body)
	if err != nil {
		return nil, err
	}
	issuer, key, err := peerKey(body.Issuer)
	if err != nil {
		return nil, err
	}
	switch {
	case string(body.Mesh) != string(v.mesh[:]), string(body.ID) != string(id[:]):
		return nil, errors.New("token record is of another token")
	case !v.roster.admitters[issuer]:
		return nil, errors.New("token was not made by an admin")
	case body.Role != RoleAdmin && body.Role != RoleMember, body.Uses < 1:
		// Its use would sign a record that no box takes.
		return nil, fmt.Errorf("token of role %q for %d uses", body.Role, body.Uses)
	}
	return &body, env.check(kindToken, key)
}

// usesOf counts the uses taken: one cell a use.
func usesOf(row crdt.Row) int {
	n := 0
	for name, cell := range row.Cells {
		if strings.HasPrefix(name, cellUsePrefix) && len(cell.Value) > 0 {
			n++
		}
	}
	return n
}

func useCell(p peer.ID, serial uint64) string {
	return cellUsePrefix + p.String() + "/" + strconv.FormatUint(serial, 10)
}

// Tokens lists the tokens that shared state knows, by ID.
func (m *Mesh) Tokens() ([]TokenInfo, error) {
	v := m.view.Load()
	rows, err := m.store.List(nsTokens)
	if err != nil {
		return nil, fmt.Errorf("list tokens: %w", err)
	}
	var out []TokenInfo
	for _, item := range rows {
		id, err := tokenKeyID(item.Key)
		if err != nil {
			continue
		}
		body, err := checkToken(v, id, item.Row)
		if err != nil {
			continue
		}
		redeemed := v.roster.audited(id, body.Uses)
		out = append(out, TokenInfo{
			ID: id.String(), Role: body.Role, Issuer: body.Issuer,
			Created: time.Unix(body.Created, 0), Expires: time.Unix(body.Expires, 0),
			Uses: body.Uses, Used: max(usesOf(item.Row), len(redeemed)), Revoked: revoked(item.Row), Redeemed: redeemed,
		})
	}
	return out, nil
}

func tokenKeyID(k crdt.Key) (token.ID, error) {
	parts, err := k.Parts()
	if err != nil {
		return token.ID{}, err
	}
	if len(parts) != 1 {
		return token.ID{}, fmt.Errorf("key %s names no token", k)
	}
	return token.ParseID(parts[0])
}

func revoked(row crdt.Row) bool { return len(row.Cells[cellRevoked].Value) > 0 }

// RevokeToken makes a token worth nothing, on every box that hears of it.
func (m *Mesh) RevokeToken(ctx context.Context, idText string) error {
	id, err := token.ParseID(idText)
	if err != nil {
		return fmt.Errorf("revoke token: %w", err)
	}
	m.swap.RLock()
	err = m.updateRows(func(_ *view, tx rowWriter) error {
		if _, ok, err := tx.Get(tokenKey(id)); err != nil || !ok {
			return errors.Join(err, &token.Error{Kind: token.Unknown, Detail: idText})
		}
		return tx.Set(tokenKey(id), cellRevoked, []byte{1})
	})
	m.swap.RUnlock()
	if err != nil {
		return fmt.Errorf("revoke token: %w", err)
	}
	m.log.Info("join token revoked", "token", idText)
	m.offerOrWarn(ctx, "token revoked")
	return nil
}
