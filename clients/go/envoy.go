package tollgate

import (
	"context"
	"fmt"

	"github.com/tollgate-limits/tollgate-go/internal/pb/rlsv3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// sendEnvoy sends a check as Envoy does.
func (c *Client) sendEnvoy(
	ctx context.Context, domain string, descriptors []Descriptor, hits []int64,
) (Decision, error) {
	response := &rlsv3.RateLimitResponse{}
	err := c.unary(ctx, envoyMethod, envoyMessage(domain, descriptors, hits), response)
	if err != nil {
		return Decision{}, err
	}
	return envoyDecision(response)
}

// sendEnvoyPeek sends a check of 0 hits, again after UNAVAILABLE.
func (c *Client) sendEnvoyPeek(
	ctx context.Context, domain string, descriptors []Descriptor,
) (Decision, error) {
	response := &rlsv3.RateLimitResponse{}
	message := envoyMessage(domain, descriptors, make([]int64, len(descriptors)))
	err := c.unaryAgain(ctx, envoyMethod, message, response)
	if err != nil {
		return Decision{}, err
	}
	return envoyDecision(response)
}

func envoyMessage(domain string, descriptors []Descriptor, hits []int64) *rlsv3.RateLimitRequest {
	messages := make([]*rlsv3.RateLimitDescriptor, len(descriptors))
	for i := range descriptors {
		entries := make([]*rlsv3.RateLimitDescriptor_Entry, len(descriptors[i].Entries))
		for j, entry := range descriptors[i].Entries {
			entries[j] = &rlsv3.RateLimitDescriptor_Entry{Key: entry.Key, Value: entry.Value}
		}
		messages[i] = &rlsv3.RateLimitDescriptor{Entries: entries}
		if hits[i] != 1 {
			messages[i].HitsAddend = wrapperspb.UInt64(uint64(hits[i]))
		}
	}
	return &rlsv3.RateLimitRequest{Domain: domain, Descriptors: messages}
}

func envoyDecision(response *rlsv3.RateLimitResponse) (Decision, error) {
	decision := Decision{Source: SourceServer, Limits: []Limit{}}
	switch response.GetOverallCode() {
	case rlsv3.RateLimitResponse_OK:
		decision.Allowed = true
	case rlsv3.RateLimitResponse_OVER_LIMIT:
	default:
		return Decision{}, status.Errorf(
			codes.Internal, "the answer has the unknown code %d", response.GetOverallCode())
	}
	for i, message := range response.GetStatuses() {
		if message.GetCurrentLimit() == nil {
			continue
		}
		limit := envoyLimit(i, message)
		if limit.RetryAfter != nil &&
			(decision.RetryAfter == nil || *limit.RetryAfter > *decision.RetryAfter) {
			decision.RetryAfter = limit.RetryAfter
		}
		decision.Limits = append(decision.Limits, limit)
	}
	if tightest := decision.TightestLimit(); tightest != nil {
		decision.Remaining, decision.Reset = &tightest.Remaining, tightest.Reset
	}
	return decision, nil
}

func envoyLimit(position int, message *rlsv3.RateLimitResponse_DescriptorStatus) Limit {
	rule := message.GetCurrentLimit()
	limit := Limit{
		Descriptor:      position,
		Name:            rule.GetName(),
		RequestsPerUnit: uint64(rule.GetRequestsPerUnit()),
		Window:          envoyWindow(rule.GetUnit(), rule.GetUnitMultiplier().GetValue()),
		Allowed:         message.GetCode() != rlsv3.RateLimitResponse_OVER_LIMIT,
		Remaining:       uint64(message.GetLimitRemaining()),
		Reset:           durationOf(message.GetDurationUntilReset()),
	}
	if !limit.Allowed {
		limit.RetryAfter = limit.Reset
	}
	return limit
}

var envoyUnits = map[rlsv3.RateLimitResponse_RateLimit_Unit]string{
	rlsv3.RateLimitResponse_RateLimit_SECOND: "second",
	rlsv3.RateLimitResponse_RateLimit_MINUTE: "minute",
	rlsv3.RateLimitResponse_RateLimit_HOUR:   "hour",
	rlsv3.RateLimitResponse_RateLimit_DAY:    "day",
	rlsv3.RateLimitResponse_RateLimit_WEEK:   "week",
	rlsv3.RateLimitResponse_RateLimit_MONTH:  "month",
	rlsv3.RateLimitResponse_RateLimit_YEAR:   "year",
}

// envoyWindow returns a window in words, empty for an unknown unit.
func envoyWindow(unit rlsv3.RateLimitResponse_RateLimit_Unit, count uint32) string {
	name, ok := envoyUnits[unit]
	switch {
	case !ok:
		return ""
	case count <= 1:
		return "1 " + name
	default:
		return fmt.Sprintf("%d %ss", count, name)
	}
}
