// Command service is an HTTP service that is limited by tollgate. It is the demo behind Envoy.
//
// PORT is its port (default: 8000), TOLLGATE the host:port of tollgate (default: localhost:8081),
// ON_ERROR is allow, deny or local (default: allow), and DEADLINE_MS the deadline (default: 100).
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"

	tollgate "github.com/tollgate-limits/tollgate-go"
	"github.com/tollgate-limits/tollgate-go/httplimit"
)

// lateAfter is the time beyond the deadline after which a decision is late.
const lateAfter = 100 * time.Millisecond

func main() {
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	milliseconds, err := strconv.Atoi(cmp.Or(os.Getenv("DEADLINE_MS"), "100"))
	if err != nil {
		return fmt.Errorf("DEADLINE_MS: %w", err)
	}
	deadline := time.Duration(milliseconds) * time.Millisecond
	onErrors := map[string]tollgate.OnError{
		"allow": tollgate.OnErrorAllow, "deny": tollgate.OnErrorDeny, "local": tollgate.OnErrorLocal,
	}
	onError, ok := onErrors[cmp.Or(os.Getenv("ON_ERROR"), "allow")]
	if !ok {
		return fmt.Errorf("ON_ERROR is %q; set it to allow, deny or local", os.Getenv("ON_ERROR"))
	}
	client, err := tollgate.New("demo",
		tollgate.WithAddresses(cmp.Or(os.Getenv("TOLLGATE"), "localhost:8081")),
		tollgate.WithDeadline(deadline), tollgate.WithOnError(onError))
	if err != nil {
		return err
	}
	defer client.Close()
	stats := newStats(deadline + lateAfter)
	limiter, err := httplimit.New(client, []httplimit.Descriptor{{httplimit.Value("generic_key", "demo")}},
		httplimit.WithSkipPaths("/healthz", "/stats"), httplimit.WithOnDecision(stats.count))
	if err != nil {
		return err
	}
	routes := http.NewServeMux()
	routes.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "hello from go")
	})
	routes.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "ok")
	})
	routes.HandleFunc("GET /stats", stats.serve)
	return serve(ctx, limiter.Handler(routes))
}

// serve serves until the context ends, and then gives requests half a second.
func serve(ctx context.Context, handler http.Handler) error {
	listener, err := net.Listen("tcp", "127.0.0.1:"+cmp.Or(os.Getenv("PORT"), "8000"))
	if err != nil {
		return err
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	fmt.Printf("listening on %s\n", listener.Addr())
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
	defer cancel()
	if err := server.Shutdown(grace); err != nil {
		_ = server.Close()
	}
	if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// stats counts decisions.
type stats struct {
	lateAfter time.Duration

	mu         sync.Mutex
	Checks     int                     `json:"checks"`
	Late       int                     `json:"late"`
	Sources    map[tollgate.Source]int `json:"sources"`
	Goroutines int                     `json:"goroutines"`
}

func newStats(lateAfter time.Duration) *stats {
	return &stats{lateAfter: lateAfter, Sources: map[tollgate.Source]int{
		tollgate.SourceServer: 0, tollgate.SourceLease: 0, tollgate.SourceCache: 0, tollgate.SourceLocal: 0,
		tollgate.SourceAllow: 0, tollgate.SourceDeny: 0,
	}}
}

func (s *stats) count(_ *http.Request, decision tollgate.Decision) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Checks++
	s.Sources[decision.Source]++
	if decision.Elapsed > s.lateAfter {
		s.Late++
	}
}

func (s *stats) serve(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Goroutines = runtime.NumGoroutine()
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(s)
}
