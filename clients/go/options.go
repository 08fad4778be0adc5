package tollgate

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
)

// Protocol is the gRPC protocol between client and server.
type Protocol int

const (
	// ProtocolTollgate is tollgate.v1.RateLimits. It is the default.
	ProtocolTollgate Protocol = iota
	// ProtocolEnvoy is Envoy's rate limit service v3. It has Check and Peek only.
	ProtocolEnvoy
)

// OnError is the decision of a check or a reservation that has no answer.
type OnError int

const (
	// OnErrorAllow allows. It is the default.
	OnErrorAllow OnError = iota
	// OnErrorDeny refuses.
	OnErrorDeny
	// OnErrorLocal asks a token bucket of the client; see [WithLocalBucket].
	OnErrorLocal
)

// String returns the name of the decision: allow, deny or local.
func (o OnError) String() string {
	switch o {
	case OnErrorAllow:
		return "allow"
	case OnErrorDeny:
		return "deny"
	case OnErrorLocal:
		return "local"
	default:
		return fmt.Sprintf("OnError(%d)", int(o))
	}
}

// UnknownDomain is what becomes of a call whose domain no rules have.
type UnknownDomain int

const (
	// UnknownDomainAllow allows it, as the server does. It is the default.
	UnknownDomainAllow UnknownDomain = iota
	// UnknownDomainError makes it an error.
	UnknownDomainError
)

// Clock returns the time since any fixed point. It never goes back.
type Clock func() time.Duration

type options struct {
	addresses          []string
	protocol           Protocol
	deadline           time.Duration
	tls                *tls.Config
	keepaliveInterval  time.Duration
	keepaliveTimeout   time.Duration
	onError            OnError
	unknownDomain      UnknownDomain
	localPerSecond     float64
	localBurst         int64
	breakerFailures    int
	breakerOpen        time.Duration
	denialCacheEntries int
	clock              Clock
	logger             *slog.Logger
	batching           bool
	leases             *bool
	httpProxy          bool
	tracerProvider     trace.TracerProvider
	meterProvider      metric.MeterProvider
}

// Option is a setting of a [Client].
type Option func(*options)

func defaultOptions() options {
	started := time.Now()
	return options{
		addresses:          []string{"localhost:8081"},
		deadline:           100 * time.Millisecond,
		keepaliveInterval:  30 * time.Second,
		keepaliveTimeout:   10 * time.Second,
		localPerSecond:     10,
		localBurst:         10,
		breakerFailures:    5,
		breakerOpen:        time.Second,
		denialCacheEntries: 10_000,
		clock:              func() time.Duration { return time.Since(started) },
	}
}

// WithAddresses sets the servers, each as host:port. Calls rotate over those that are connected.
// Default: localhost:8081.
func WithAddresses(addresses ...string) Option {
	return func(o *options) { o.addresses = append([]string(nil), addresses...) }
}

// WithProtocol sets the gRPC protocol. Default: [ProtocolTollgate].
func WithProtocol(protocol Protocol) Option {
	return func(o *options) { o.protocol = protocol }
}

// WithDeadline sets the longest wait of a call, connecting and sending again included.
// Default: 100 ms.
func WithDeadline(deadline time.Duration) Option {
	return func(o *options) { o.deadline = deadline }
}

// WithTLS connects by TLS. The config has the CA bundle (default: system roots), the client
// certificate, and the server name (default: the host of each address). A nil config turns TLS off.
// Default: off.
func WithTLS(config *tls.Config) Option {
	return func(o *options) { o.tls = config }
}

// WithKeepalive sets the interval of pings on a connection with calls in flight, and the wait for
// the answer, after which the connection is closed. An interval is at least 10 s. Default: 30 s and
// 10 s.
func WithKeepalive(interval, timeout time.Duration) Option {
	return func(o *options) { o.keepaliveInterval, o.keepaliveTimeout = interval, timeout }
}

// WithOnError sets the decision of a check or a reservation without an answer.
// Default: [OnErrorAllow].
func WithOnError(onError OnError) Option {
	return func(o *options) { o.onError = onError }
}

// WithUnknownDomain sets what becomes of a check, a peek or a reservation whose domain no rules have.
// With [UnknownDomainError] it fails with [ErrInvalidArgument]; the breaker and [OnError] have no part
// in that. It needs [ProtocolTollgate]. Default: [UnknownDomainAllow].
func WithUnknownDomain(unknownDomain UnknownDomain) Option {
	return func(o *options) { o.unknownDomain = unknownDomain }
}

// WithLocalBucket sets the token bucket of [OnErrorLocal]: tokens a second, and the burst. Each list
// of descriptors has a bucket of its own. The client keeps at most 10,000 buckets.
// Default: 10 a second, burst 10.
func WithLocalBucket(perSecond float64, burst int64) Option {
	return func(o *options) { o.localPerSecond, o.localBurst = perSecond, burst }
}

// WithBreaker sets the number of failures in a row that open the circuit breaker, and the time
// until it lets one call through. Default: 5 failures, 1 s.
func WithBreaker(failures int, open time.Duration) Option {
	return func(o *options) { o.breakerFailures, o.breakerOpen = failures, open }
}

// WithDenialCache sets the number of refusals that are repeated without a call. 0 turns the cache
// off. Default: 10,000.
func WithDenialCache(entries int) Option {
	return func(o *options) { o.denialCacheEntries = entries }
}

// WithLogger sets where the client logs that [OnError] decides: at the first decision, and then at
// most once a minute. Default: [slog.Default].
func WithLogger(logger *slog.Logger) Option {
	return func(o *options) { o.logger = logger }
}

// WithClock sets the source of time of the breaker, the denial cache, leases, the local bucket and the
// log.
// Default: the monotonic clock.
func WithClock(clock Clock) Option {
	return func(o *options) { o.clock = clock }
}

// WithBatching sends concurrent checks over one bidirectional stream: at most 64 in progress, and at
// most 1,024 that wait for a place within their deadline. A check beyond that has no answer. The
// stream uses one address at a time. It needs [ProtocolTollgate]. Default: off.
func WithBatching(batching bool) Option {
	return func(o *options) { o.batching = batching }
}

// WithLeases sets whether checks are decided by leased hits, without a call. Hits of a key that is
// checked often are then leased from the server; a decision has [SourceLease]. Close gives back those
// that are left. It needs [ProtocolTollgate], and is off without it. Default: on for checks of the
// middleware, off for others.
func WithLeases(leases bool) Option {
	return func(o *options) { o.leases = &leases }
}

// WithHTTPProxy connects by the HTTP proxy that HTTPS_PROXY names, with the exceptions of NO_PROXY.
// Default: off.
func WithHTTPProxy(httpProxy bool) Option {
	return func(o *options) { o.httpProxy = httpProxy }
}

// WithTracerProvider sets the source of spans. Default: the global one of OpenTelemetry.
func WithTracerProvider(provider trace.TracerProvider) Option {
	return func(o *options) { o.tracerProvider = provider }
}

// WithMeterProvider sets the source of metrics. Default: the global one of OpenTelemetry.
func WithMeterProvider(provider metric.MeterProvider) Option {
	return func(o *options) { o.meterProvider = provider }
}

func (o *options) validate(domain string) error {
	switch {
	case domain == "":
		return invalid("the domain is empty; set it")
	case len(o.addresses) == 0:
		return invalid("the list of addresses is empty; add host:port")
	case o.protocol != ProtocolTollgate && o.protocol != ProtocolEnvoy:
		return invalid("protocol %d is unknown; use ProtocolTollgate or ProtocolEnvoy", o.protocol)
	case o.onError < OnErrorAllow || o.onError > OnErrorLocal:
		return invalid("on error %v is unknown; use OnErrorAllow, OnErrorDeny or OnErrorLocal", o.onError)
	case o.unknownDomain != UnknownDomainAllow && o.unknownDomain != UnknownDomainError:
		return invalid("unknown domain %d is unknown; use UnknownDomainAllow or UnknownDomainError", o.unknownDomain)
	case o.unknownDomain == UnknownDomainError && o.protocol != ProtocolTollgate:
		return invalid("UnknownDomainError needs ProtocolTollgate")
	case o.deadline <= 0:
		return invalid("deadline %v is not positive", o.deadline)
	case o.keepaliveInterval <= 0 || o.keepaliveTimeout <= 0:
		return invalid("keepalive %v, %v is not positive", o.keepaliveInterval, o.keepaliveTimeout)
	case !(o.localPerSecond > 0) || o.localPerSecond > 1e12:
		return invalid("local bucket of %v tokens a second; use more than 0, at most 1e12", o.localPerSecond)
	case o.localBurst < 1 || o.localBurst > MaxHits:
		return invalid("local bucket with burst %d; use 1 to %d", o.localBurst, int64(MaxHits))
	case o.breakerFailures < 1:
		return invalid("breaker of %d failures; use at least 1", o.breakerFailures)
	case o.breakerOpen <= 0:
		return invalid("breaker time %v is not positive", o.breakerOpen)
	case o.denialCacheEntries < 0:
		return invalid("denial cache of %d entries; use at least 0", o.denialCacheEntries)
	case o.clock == nil:
		return invalid("the clock is nil")
	case o.batching && o.protocol != ProtocolTollgate:
		return invalid("batching needs ProtocolTollgate")
	}
	for _, address := range o.addresses {
		if !isAddress(address) {
			return invalid(`address "%s" is invalid; write host:port, such as localhost:8081`, masked(address))
		}
	}
	return nil
}

// addressForm is host:port. Its groups are an IPv6 address and the port.
var addressForm = regexp.MustCompile(`^(?:\[([0-9A-Fa-f:.]+)\]|[0-9A-Za-z._-]+):([0-9]{1,5})$`)

// masked hides what is before the last @, which may be a password.
func masked(address string) string {
	if at := strings.LastIndexByte(address, '@'); at >= 0 {
		return "***" + address[at:]
	}
	return address
}

func isAddress(text string) bool {
	found := addressForm.FindStringSubmatch(text)
	if found == nil {
		return false
	}
	if found[1] != "" {
		if ip, err := netip.ParseAddr(found[1]); err != nil || !ip.Is6() {
			return false
		}
	}
	port, err := strconv.ParseUint(found[2], 10, 16)
	return err == nil && port > 0
}
