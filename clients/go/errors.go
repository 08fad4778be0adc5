package tollgate

import (
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

var (
	// ErrInvalidArgument is the cause of every error of an argument that can never be right. No call
	// was made, except with [UnknownDomainError]: the server then answered that no rules have the domain.
	ErrInvalidArgument = errors.New("tollgate: invalid argument")
	// ErrBreakerOpen is the error of a decision that was made without a call, since the circuit
	// breaker is open. A peek fails with it.
	ErrBreakerOpen = errors.New("tollgate: the circuit breaker is open, no call was made")
	// ErrClosed is the error of every call after [Client.Close].
	ErrClosed = errors.New("tollgate: the client is closed")
)

// CallError says why a call has no answer. [status.Code] and errors.As read it.
type CallError struct {
	// Call is the name of the call, such as "check".
	Call string
	// Code is the gRPC status code.
	Code codes.Code
	// Message is the message of the gRPC status.
	Message string

	status *status.Status
}

// Error implements error.
func (e *CallError) Error() string {
	return fmt.Sprintf("tollgate: %s failed: %s: %s", e.Call, e.Code, e.Message)
}

// GRPCStatus returns the status with its details.
func (e *CallError) GRPCStatus() *status.Status { return e.status }

func callError(call string, err error) *CallError {
	s, ok := status.FromError(err)
	if !ok {
		s = status.FromContextError(err)
	}
	return &CallError{Call: call, Code: s.Code(), Message: s.Message(), status: s}
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrInvalidArgument, fmt.Sprintf(format, args...))
}

// isServiceFailure tells a failure of the service from an answer with an error.
func isServiceFailure(code codes.Code) bool {
	switch code {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Internal, codes.Unknown, codes.Canceled:
		return true
	default:
		return false
	}
}
