package tollgate

import (
	"context"
	"time"

	"github.com/tollgate-limits/tollgate-go/internal/pb/tollgatev1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
)

// sendCheck sends a check over the protocol of the client.
func (c *Client) sendCheck(ctx context.Context, domain string, request CheckRequest) (Decision, error) {
	if c.options.protocol == ProtocolEnvoy {
		return c.sendEnvoy(ctx, domain, request.Descriptors, hitsOf(request.Descriptors, request.Hits))
	}
	if c.stream != nil {
		response, err := c.stream.check(ctx, checkMessage(domain, request))
		if err != nil {
			return Decision{}, err
		}
		return checkDecision(response)
	}
	response := &tollgatev1.CheckResponse{}
	err := c.unary(ctx, tollgateService+"Check", checkMessage(domain, request), response)
	if err != nil {
		return Decision{}, err
	}
	return checkDecision(response)
}

// sendPeek sends a peek over the protocol of the client, again after UNAVAILABLE.
func (c *Client) sendPeek(ctx context.Context, domain string, request CheckRequest) (Decision, error) {
	if c.options.protocol == ProtocolEnvoy {
		return c.sendEnvoyPeek(ctx, domain, request.Descriptors)
	}
	response := &tollgatev1.CheckResponse{}
	err := c.unaryAgain(ctx, tollgateService+"Peek", checkMessage(domain, request), response)
	if err != nil {
		return Decision{}, err
	}
	return checkDecision(response)
}

func checkMessage(domain string, request CheckRequest) *tollgatev1.CheckRequest {
	return &tollgatev1.CheckRequest{
		Domain:      domain,
		Descriptors: descriptorMessages(request.Descriptors),
		Hits:        hitsMessage(request.Hits),
	}
}

func descriptorMessages(descriptors []Descriptor) []*tollgatev1.Descriptor {
	messages := make([]*tollgatev1.Descriptor, len(descriptors))
	for i := range descriptors {
		entries := make([]*tollgatev1.Entry, len(descriptors[i].Entries))
		for j, entry := range descriptors[i].Entries {
			entries[j] = &tollgatev1.Entry{Key: entry.Key, Value: entry.Value}
		}
		messages[i] = &tollgatev1.Descriptor{Entries: entries, Hits: hitsMessage(descriptors[i].Hits)}
	}
	return messages
}

func hitsMessage(hits *int64) *uint64 {
	if hits == nil {
		return nil
	}
	n := uint64(*hits)
	return &n
}

func checkDecision(response *tollgatev1.CheckResponse) (Decision, error) {
	allowed, err := isAllowed(response.GetVerdict())
	if err != nil {
		return Decision{}, err
	}
	return Decision{
		Allowed:    allowed,
		Source:     SourceServer,
		Remaining:  response.Remaining,
		Reset:      durationOf(response.GetReset_()),
		RetryAfter: durationOf(response.GetRetryAfter()),
		Limits:     limitsOf(response.GetLimits()),
		NoLimit:    noLimitOf(response.GetNoLimit()),
	}, nil
}

// noLimitOf returns why no limit applied. A reason of a newer server is dropped.
func noLimitOf(reason string) NoLimit {
	switch no := NoLimit(reason); no {
	case NoLimitUnknownDomain, NoLimitNoRule, NoLimitUnlimited:
		return no
	default:
		return ""
	}
}

func isAllowed(verdict tollgatev1.Verdict) (bool, error) {
	switch verdict {
	case tollgatev1.Verdict_VERDICT_OK:
		return true, nil
	case tollgatev1.Verdict_VERDICT_OVER_LIMIT:
		return false, nil
	default:
		return false, status.Errorf(codes.Internal, "the answer has the unknown verdict %d", verdict)
	}
}

func limitsOf(messages []*tollgatev1.LimitStatus) []Limit {
	limits := make([]Limit, len(messages))
	for i, message := range messages {
		limits[i] = Limit{
			Descriptor:      int(message.GetDescriptor_()),
			Name:            message.GetName(),
			Rule:            message.GetRule(),
			RequestsPerUnit: message.GetRequestsPerUnit(),
			Window:          message.GetWindow(),
			Allowed:         message.GetVerdict() != tollgatev1.Verdict_VERDICT_OVER_LIMIT,
			Remaining:       message.GetRemaining(),
			Reset:           durationOf(message.GetReset_()),
			RetryAfter:      durationOf(message.GetRetryAfter()),
		}
	}
	return limits
}

func durationOf(message *durationpb.Duration) *time.Duration {
	if message == nil {
		return nil
	}
	d := message.AsDuration()
	return &d
}
