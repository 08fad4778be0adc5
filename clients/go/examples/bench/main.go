// Command bench is an HTTP server with routes that answer alike: /bare without a limiter, /headers
// with the headers of one that are constants, /tollgate with the middleware, and /peer with redis_rate.
//
// BATCHING=1 turns batching on, LEASES=1 leases. KEYS is a number of keys, of which a request has one
// at random (default: 1). PORT is its port (default: 8000), TOLLGATE the host:port of tollgate (default: localhost:8081), and
// REDIS the URL of Redis (default: redis://127.0.0.1:6379).
package main

import (
	"cmp"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	tollgate "github.com/tollgate-limits/tollgate-go"
	"github.com/tollgate-limits/tollgate-go/httplimit"
)

const requestsPerDay = 1_000_000_000

func main() {
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	client, err := tollgate.New("bench",
		tollgate.WithAddresses(cmp.Or(os.Getenv("TOLLGATE"), "localhost:8081")),
		tollgate.WithDenialCache(0),
		tollgate.WithBatching(os.Getenv("BATCHING") == "1"),
		tollgate.WithLeases(os.Getenv("LEASES") == "1"))
	if err != nil {
		return err
	}
	defer client.Close()
	keys, err := strconv.Atoi(cmp.Or(os.Getenv("KEYS"), "1"))
	if err != nil {
		return fmt.Errorf("KEYS: %w", err)
	}
	key := func() string { return strconv.Itoa(rand.IntN(keys)) }
	limiter, err := httplimit.New(client,
		[]httplimit.Descriptor{{httplimit.Func("key",
			func(*http.Request) (string, bool) { return key(), true })}})
	if err != nil {
		return err
	}
	options, err := redis.ParseURL(cmp.Or(os.Getenv("REDIS"), "redis://127.0.0.1:6379"))
	if err != nil {
		return fmt.Errorf("REDIS: %w", err)
	}
	store := redis.NewClient(options)
	defer store.Close()

	hello := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "hello")
	})
	routes := http.NewServeMux()
	routes.Handle("GET /bare", hello)
	routes.Handle("GET /headers", withHeaders(hello))
	routes.Handle("GET /tollgate", limiter.Handler(hello))
	routes.Handle("GET /peer", limitByRedis(store, key, hello))
	listener, err := net.Listen("tcp", "127.0.0.1:"+cmp.Or(os.Getenv("PORT"), "8000"))
	if err != nil {
		return err
	}
	fmt.Printf("listening on %s\n", listener.Addr())
	server := &http.Server{Handler: routes, ReadHeaderTimeout: 10 * time.Second}
	return server.Serve(listener)
}

// withHeaders sends the headers of the other handlers, and limits nothing.
func withHeaders(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("RateLimit-Limit", strconv.Itoa(requestsPerDay))
		w.Header().Set("RateLimit-Remaining", strconv.Itoa(requestsPerDay))
		w.Header().Set("RateLimit-Reset", "86400")
		next.ServeHTTP(w, r)
	})
}

// limitByRedis is middleware of redis_rate, with the same limit and headers.
func limitByRedis(store *redis.Client, key func() string, next http.Handler) http.Handler {
	limiter := redis_rate.NewLimiter(store)
	limit := redis_rate.Limit{Rate: requestsPerDay, Burst: requestsPerDay, Period: 24 * time.Hour}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		result, err := limiter.Allow(r.Context(), key(), limit)
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("RateLimit-Limit", strconv.Itoa(result.Limit.Burst))
		w.Header().Set("RateLimit-Remaining", strconv.Itoa(result.Remaining))
		w.Header().Set("RateLimit-Reset", strconv.Itoa(int(result.ResetAfter.Seconds())))
		if result.Allowed == 0 {
			http.Error(w, "Too Many Requests", http.StatusTooManyRequests)
			return
		}
		next.ServeHTTP(w, r)
	})
}
