package sim

import (
	"crypto/subtle"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"
)

// unlimitedSlots is what /props tells when no number was set: readers divide
// by it.
const unlimitedSlots = 1024

// bodyCap bounds a request; the public API's own cap is lower.
const bodyCap = 128 << 20 // bytes

// Config makes a Server.
type Config struct {
	Params     Params
	Alias      string // served model name
	Key        string // empty: none is asked for
	Context    int    // tokens of one request; 0: unlimited
	Embeddings bool
	Path       string // of the model file; for /props
	Now        func() time.Time
}

// Server is the simulated engine's HTTP side.
type Server struct {
	cfg     Config
	alias   []byte   // as JSON
	slots   chan int // free slots; nil: unlimited
	loading atomic.Bool
	crashed chan struct{} // closed by FailCrash
	crash   atomic.Bool
	serial  atomic.Uint64
	cache   promptCache
	events  publisher
	stats   stats
}

// New makes a loaded server. Params of a zero Version stand for the defaults.
func New(cfg Config) *Server {
	if cfg.Params.Version == 0 {
		cfg.Params = Params{Version: 1, Tokens: 64, EmbeddingDim: 384}
	}
	if cfg.Alias == "" {
		cfg.Alias = "sim"
	}
	if cfg.Params.Fail == FailName {
		cfg.Alias += "-other"
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	alias, _ := json.Marshal(cfg.Alias) // a string: it cannot fail
	s := &Server{
		cfg: cfg, alias: alias, crashed: make(chan struct{}), cache: promptCache{limit: cfg.Params.CacheTokens},
		events: publisher{array: cfg.Params.KVEvents == "array", shared: make(map[uint64]int)},
	}
	s.cache.events = &s.events
	if n := cfg.Params.Slots; n > 0 {
		s.slots = make(chan int, n)
		for i := range n {
			s.slots <- i
		}
	}
	return s
}

// Handler serves the engine's routes. As llama-server does, it leaves health
// and the model list open and wants the key for everything else.
func (s *Server) Handler() http.Handler {
	open, locked := http.NewServeMux(), http.NewServeMux()
	open.HandleFunc("GET /health", s.health)
	open.HandleFunc("GET /v1/models", s.models)
	locked.HandleFunc("GET /props", s.props)
	locked.HandleFunc("GET /slots", s.slotList)
	locked.HandleFunc("GET /metrics", s.metrics)
	locked.HandleFunc("POST /v1/chat/completions", s.generate(chatShape{}))
	locked.HandleFunc("POST /v1/completions", s.generate(textShape{}))
	locked.HandleFunc("POST /v1/embeddings", s.embed)
	locked.HandleFunc("POST /v1/images/generations", s.draw)
	locked.HandleFunc("POST /v1/images/edits", s.redraw)
	locked.HandleFunc("POST /v1/audio/speech", s.speak)
	locked.HandleFunc("POST /reset_prefix_cache", s.resetCache)
	locked.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		fail(w, http.StatusNotFound, "not_found_error", "File Not Found")
	})
	open.Handle("/", s.withKey(locked))
	return s.whenLoaded(open)
}

func (s *Server) whenLoaded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.loading.Load() {
			fail(w, http.StatusServiceUnavailable, "unavailable_error", "Loading model")
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (s *Server) withKey(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		given := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		if x := r.Header.Get("X-Api-Key"); x != "" {
			given = x
		}
		if s.cfg.Key != "" && subtle.ConstantTimeCompare([]byte(given), []byte(s.cfg.Key)) != 1 {
			fail(w, http.StatusUnauthorized, "authentication_error", "Invalid API Key")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// resetCache empties the cache, as vLLM does under this path.
func (s *Server) resetCache(http.ResponseWriter, *http.Request) { s.cache.clear() }

func (s *Server) health(w http.ResponseWriter, _ *http.Request) {
	reply(w, map[string]any{"status": "ok"})
}

func (s *Server) models(w http.ResponseWriter, _ *http.Request) {
	reply(w, map[string]any{"object": "list", "data": []any{map[string]any{
		"id": s.cfg.Alias, "object": "model", "created": s.cfg.Now().Unix(), "owned_by": "llmgw-sim",
		"meta": map[string]any{"n_ctx": s.cfg.Context, "n_ctx_train": s.cfg.Context},
	}}})
}

// totalSlots is what a reader may divide by.
func (s *Server) totalSlots() int {
	if s.slots == nil {
		return unlimitedSlots
	}
	return cap(s.slots)
}

func (s *Server) props(w http.ResponseWriter, _ *http.Request) {
	reply(w, map[string]any{
		"default_generation_settings": map[string]any{"n_ctx": s.cfg.Context},
		"total_slots":                 s.totalSlots(),
		"model_alias":                 s.cfg.Alias,
		"model_path":                  s.cfg.Path,
		"build_info":                  "llmgw-sim",
		"is_sleeping":                 false,
	})
}

// slotList shows the limited slots, or the busy ones when they are unlimited.
func (s *Server) slotList(w http.ResponseWriter, _ *http.Request) {
	busy := int(s.stats.processing.Load())
	n := busy
	if s.slots != nil {
		n = cap(s.slots)
	}
	list := []any{}
	for i := range n {
		list = append(list, map[string]any{"id": i, "n_ctx": s.cfg.Context, "is_processing": i < busy})
	}
	reply(w, list)
}

func reply(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	_ = json.NewEncoder(w).Encode(v) // the client may have left
}

// fail answers in llama-server's shape.
func fail(w http.ResponseWriter, status int, kind, message string) {
	failWith(w, status, map[string]any{"code": status, "type": kind, "message": message})
}

func failWith(w http.ResponseWriter, status int, fields map[string]any) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"error": fields})
}

// name makes a new ID with a prefix.
func (s *Server) name(prefix string) string {
	return fmt.Sprintf("%s-sim%d", prefix, s.serial.Add(1))
}
