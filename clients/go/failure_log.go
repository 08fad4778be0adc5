package tollgate

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// warningInterval is the shortest time between two warnings of a client.
const warningInterval = time.Minute

// failureLog logs that [OnError] decides: the first decision, and then at most one a minute.
type failureLog struct {
	logger    *slog.Logger
	addresses string
	onError   OnError
	clock     Clock

	mu sync.Mutex
	// decisions is the number of decisions since the last warning.
	decisions int64
	warned    bool
	warnedAt  time.Duration
}

func newFailureLog(o *options) *failureLog {
	return &failureLog{
		logger: o.logger, addresses: strings.Join(o.addresses, ","), onError: o.onError, clock: o.clock,
	}
}

// decided records a decision of [OnError], and why it was needed.
func (l *failureLog) decided(ctx context.Context, failure error) {
	decisions, due := l.count(failure)
	if !due {
		return
	}
	logger := l.logger
	if logger == nil {
		logger = slog.Default()
	}
	logger.LogAttrs(ctx, slog.LevelWarn, "tollgate: no answer from the service",
		slog.String("addresses", l.addresses), slog.String("on_error", l.onError.String()),
		slog.Int64("decisions", decisions), slog.Any("error", failure))
}

// count returns the decisions since the last warning, and whether another warning is due.
func (l *failureLog) count(failure error) (decisions int64, due bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.decisions++
	now := l.clock()
	// A call that the breaker stopped has no cause of its own.
	if failure == ErrBreakerOpen || l.warned && now-l.warnedAt < warningInterval {
		return 0, false
	}
	decisions, l.decisions = l.decisions, 0
	l.warned, l.warnedAt = true, now
	return decisions, true
}
