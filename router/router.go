package router

import (
	"context"
	"crypto/rand"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"sync/atomic"
	"time"

	"llmgw/mesh"
	"llmgw/mesh/catalog"
	"llmgw/router/affinity"
	"llmgw/router/files"
	"llmgw/router/keys"
	"llmgw/router/openai"
	"llmgw/router/relay"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Replica is a served copy of a model that presence says is Ready.
type Replica struct {
	Peer     string // holder
	Node     string // the holder's name, for people
	Local    bool
	Model    string // model ID
	Slot     int
	Epoch    uint64
	Digest   string
	InFlight int // relays at the holder, as it last told
	Slots    int // requests it computes at once; 0 unknown
	Context  int // tokens of one request; 0 unknown

	Boot     uint64        // changes when its engine starts anew; 0: unknown
	Hop      time.Duration // to its holder and back; 0: unknown
	KVTokens int64         // its KV cache holds, the largest tier; 0: unknown
	KVUse    float64       // of that by running requests, 0 to 1; 0: unknown
	Weight   float64       // its share beside others; 0: 1
	Priority int           // a lower one gets what a higher one cannot take

	Lacks  []catalog.Ability // what it is known not to be able to do
	Labels map[string]string // of its node

	// Provider is set when it is none of the mesh's; see ProviderReplica.
	Provider *catalog.Provider
	Theirs   string // what the provider calls the model
	Pattern  string // by which it answers for it
	// Sponsored: it is reached as a replica of Peer, which passes requests on.
	Sponsored bool
}

// ModelView is a model with what serves it now.
type ModelView struct {
	Model    catalog.Model
	Loaded   bool      // a replica is Ready
	Replicas []Replica // the Ready ones on live nodes, and providers
	Problem  string    // why none is, with the engine's last lines; empty: nobody asked for it
	// Loadable: one is on its way, or comes when requests ask for it.
	Loadable bool
	Stage    string // how far that is, for a person who waits
	// Outside: the mesh has no such model, and only providers answer to the name.
	Outside bool
}

// Catalog tells what the mesh serves. Its methods are called for requests and
// must not block. Resolve and Route take names in any case, Resolve aliases too.
type Catalog interface {
	Resolve(name string) (ModelView, bool)
	Route(name string) (catalog.Route, bool)
	List() []ModelView
}

// Local reaches the engines of this node. Target gives a Ready replica and a
// function that ends the use of it, to be called once; a *relay.Refusal says
// why there is none.
type Local interface {
	Target(model string, epoch uint64) (relay.Target, func(), error)
}

// Mesh opens streams to other members.
type Mesh interface {
	Open(ctx context.Context, peer, protocol string) (mesh.Stream, error)
}

// Auth finds the key that a credential is; see keys.Keys.CheckFrom.
type Auth interface {
	CheckFrom(token string, client netip.Addr) (keys.Info, error)
	// Find gives a key by its ID; an error for one that is revoked.
	Find(id string) (keys.Info, error)
	// AllowsOrigin says whether any key may be used by web pages of an origin.
	AllowsOrigin(origin string) bool
}

// Registry is where metrics are registered and read.
type Registry interface {
	prometheus.Registerer
	prometheus.Gatherer
}

const (
	// DefaultBodyLimit is far above what agents send: 17 MB were seen for
	// half a million tokens.
	DefaultBodyLimit = 64 << 20
	// DefaultBodyBudget bounds all bodies that a node holds.
	DefaultBodyBudget = 256 << 20
)

// Config of a Router. Catalog, Local, Mesh, Auth, Metrics and Files are needed.
type Config struct {
	Catalog Catalog
	Local   Local
	Mesh    Mesh
	Auth    Auth
	Metrics Registry
	Node    string // name shown in errors
	Peer    string // peer ID of this node
	Version string // shown in metrics
	Log     *slog.Logger
	Now     func() time.Time
	Entropy io.Reader
	// Ready says in one word why this head should not be sent requests, for all
	// to read at /readyz; empty: it is ready. Nil: always ready.
	Ready func() string
	// Serving says why this head answers no request for a model: it was removed
	// from its mesh, or is a copy of another box; nil: it always does.
	Serving func() error
	// Alive says whether a member is heard now; nil: all are. It is asked for
	// requests and must not block.
	Alive func(peer string) bool
	// Trusted are the proxies whose word on where a client is counts; nil: none.
	Trusted func() []netip.Prefix
	Limits  relay.Limits // zero: relay.DefaultLimits
	// Quotas admits requests and counts what they use; nil: there are none.
	Quotas Limits
	// Demand asks for a replica while a request waits for one; nil: requests wait
	// for those alone that are on their way.
	Demand Demand
	// LoadWait bounds that wait; 0: DefaultLoadWait.
	LoadWait time.Duration
	// QueueTime is how long a request waits for a replica with room; 0:
	// DefaultQueueTime.
	QueueTime time.Duration
	// MaxInFlight bounds the requests for engines that this node has at once; 0:
	// no bound.
	MaxInFlight int
	// Share gives messages to the other heads; nil: there are none.
	Share Sharer
	// Via names this mesh to providers, so that no request goes to one in a circle;
	// nil: nothing does.
	Via func() string

	// Files keeps what models make for clients that want links to it.
	Files *files.Store

	BodyLimit     int64 // bytes of one body; 0: DefaultBodyLimit
	BodyBudget    int64 // bytes of all bodies; 0: DefaultBodyBudget
	PublicMetrics bool  // serve /metrics without a key
}

// Router answers the client API of one node.
type Router struct {
	cfg                 Config
	engines             *relay.Engines
	outside             *outside
	bodies              *budget
	picker              *affinity.Picker
	share               *sharing
	breakers            breakers
	queue               queue
	prompts             prompts
	stored              stored
	strip               atomic.Bool  // volatile lines
	running             atomic.Int64 // requests for engines
	maxInFlight         atomic.Int64 // of them; 0: no bound
	queueTime, loadWait atomic.Int64 // nanoseconds
	metrics             *metrics
	scrape              http.Handler
	quiet               *limiter
	now                 func() time.Time
}

// New makes a router; it panics when a metric of its is registered already.
func New(cfg Config) *Router {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Entropy == nil {
		cfg.Entropy = rand.Reader
	}
	if cfg.Limits == (relay.Limits{}) {
		cfg.Limits = relay.DefaultLimits()
	}
	if cfg.LoadWait == 0 {
		cfg.LoadWait = DefaultLoadWait
	}
	if cfg.QueueTime == 0 {
		cfg.QueueTime = DefaultQueueTime
	}
	if cfg.BodyLimit == 0 {
		cfg.BodyLimit = DefaultBodyLimit
	}
	if cfg.BodyBudget == 0 {
		cfg.BodyBudget = DefaultBodyBudget
	}
	r := &Router{cfg: cfg, now: cfg.Now, quiet: &limiter{every: time.Second}}
	r.SetBounds(cfg.MaxInFlight, cfg.QueueTime, cfg.LoadWait)
	r.engines, r.outside = relay.NewEngines(cfg.Limits), newOutside(cfg)
	boot := uint64(0)
	if cfg.Share != nil {
		boot = headBoot(cfg.Entropy)
	}
	r.picker, r.share = affinity.NewPicker(boot), &sharing{r: r}
	r.bodies = &budget{limit: cfg.BodyBudget}
	r.metrics = newMetrics(cfg, r)
	r.scrape = promhttp.HandlerFor(cfg.Metrics, promhttp.HandlerOpts{})
	return r
}

// SetBounds changes how many requests for engines this node has at once, and
// how long one waits for room and for its model; see Config. It is in force for
// the next request.
func (r *Router) SetBounds(inFlight int, queue, load time.Duration) {
	r.maxInFlight.Store(int64(inFlight))
	r.queueTime.Store(int64(queue))
	r.loadWait.Store(int64(load))
}

// SetStripVolatile changes whether lines that agents change with each turn are
// taken out of prompts, so that engines find the rest in their cache.
func (r *Router) SetStripVolatile(on bool) { r.strip.Store(on) }

// Close closes the connections that are kept to engines and providers, and tells
// other heads no more. Requests go on.
func (r *Router) Close() {
	r.share.close()
	r.engines.Close()
	r.outside.conns.Close()
}

// Handler answers the paths that Owns reports. It must not stand behind a
// ServeMux: that redirects doubled slashes, and clients turn a redirected POST
// into a GET.
func (r *Router) Handler() http.Handler { return http.HandlerFunc(r.serve) }

func (r *Router) serve(w http.ResponseWriter, req *http.Request) {
	t := r.begin(w, req)
	defer t.end()
	route, ok := routeOf(req.URL.Path)
	if !ok {
		t.fail(unknownRoute(req.URL.Path))
		return
	}
	t.route = route
	if t.preflight() {
		return
	}
	if !route.allows(req.Method) {
		w.Header().Set("Allow", route.allowed())
		t.fail(wrongMethod(req.Method, route))
		return
	}
	if apiErr := t.authenticate(route.scope); apiErr != nil {
		t.fail(apiErr)
		return
	}
	if route.scope == keys.ScopeInfer && r.cfg.Serving != nil {
		if err := r.cfg.Serving(); err != nil {
			t.fail(notServing(err))
			return
		}
	}
	route.serve(r, t)
}

func (r *Router) health(t *request) { t.word(http.StatusOK, "ok") }

func (r *Router) ready(t *request) {
	if r.cfg.Ready != nil {
		if why := r.cfg.Ready(); why != "" {
			t.word(http.StatusServiceUnavailable, why)
			return
		}
	}
	t.word(http.StatusOK, "ready")
}

func (r *Router) scraped(t *request) {
	t.out.status, t.out.committed = http.StatusOK, true
	r.scrape.ServeHTTP(t.out.w, t.req)
}

// origin tells in error objects who answers which request.
func (t *request) origin() openai.Origin {
	return openai.Origin{Node: t.r.cfg.Node, RequestID: t.id}
}
