package tollgate

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"
	"unicode"

	"google.golang.org/genproto/googleapis/rpc/code"
)

// warningInterval is the shortest time between two warnings of a client.
const warningInterval = time.Minute

// maxCauseLength is how many characters of a cause are logged.
const maxCauseLength = 200

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

// decided records a decision of [OnError], and the error of the call that made it necessary.
func (l *failureLog) decided(ctx context.Context, cause *CallError) {
	decisions, due := l.count()
	if !due {
		return
	}
	logger := l.logger
	if logger == nil {
		logger = slog.Default()
	}
	logger.LogAttrs(ctx, slog.LevelWarn, "no answer from tollgate",
		slog.String("addresses", l.addresses), slog.String("on_error", l.onError.String()),
		slog.Int64("decisions", decisions), slog.String("error", causeText(cause)))
}

// count returns the decisions since the last warning, and whether another warning is due.
func (l *failureLog) count() (decisions int64, due bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.decisions++
	now := l.clock()
	if l.warned && now-l.warnedAt < warningInterval {
		return 0, false
	}
	decisions, l.decisions = l.decisions, 0
	l.warned, l.warnedAt = true, now
	return decisions, true
}

// causeText returns the status and the message of an error on one line. The message comes from the
// network: it is cut, and characters that end a line or control a terminal are escaped.
func causeText(cause *CallError) string {
	text := code.Code(cause.Code).String()
	if cause.Message != "" {
		text += ": " + cause.Message
	}
	var written strings.Builder
	length := 0
	for _, char := range text {
		if length == maxCauseLength {
			written.WriteRune('…')
			break
		}
		length++
		if unicode.IsControl(char) || char == '\u2028' || char == '\u2029' {
			fmt.Fprintf(&written, `\u%04x`, char)
		} else {
			written.WriteRune(char)
		}
	}
	return written.String()
}
