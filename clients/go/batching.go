package tollgate

import (
	"context"
	"sync"

	"github.com/tollgate-limits/tollgate-go/internal/pb/tollgatev1"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
)

const (
	// maxStreamCalls is the number of calls in progress on a stream.
	maxStreamCalls = 64
	// maxQueuedCalls is the number of callers that wait for a place on the stream.
	maxQueuedCalls = 1024
)

// errQueueFull is not a failure of the service, so that the breaker does not count it.
var errQueueFull = grpcstatus.Error(codes.Unavailable, "queue full")

var streamDesc = grpc.StreamDesc{StreamName: "Stream", ServerStreams: true, ClientStreams: true}

// checkStream sends concurrent checks over one bidirectional stream. Its answers are matched by tag.
type checkStream struct {
	conn *grpc.ClientConn
	// ctx ends when the client is closed. It ends every stream.
	ctx  context.Context
	stop context.CancelFunc
	// places has one item for each call in progress, queue one for each caller that waits.
	places chan struct{}
	queue  chan struct{}

	tasks   sync.WaitGroup
	mu      sync.Mutex
	current *openStream
	nextTag uint64
}

// openStream is one stream and the calls that wait for its answers.
type openStream struct {
	calls  chan *tollgatev1.Call
	cancel context.CancelFunc

	mu      sync.Mutex
	pending map[uint64]chan<- streamResult
	// failed is why the stream has ended.
	failed error
}

type streamResult struct {
	answer *tollgatev1.Answer
	err    error
}

func newCheckStream(conn *grpc.ClientConn) *checkStream {
	ctx, stop := context.WithCancel(context.Background())
	return &checkStream{
		conn:   conn,
		ctx:    ctx,
		stop:   stop,
		places: make(chan struct{}, maxStreamCalls),
		queue:  make(chan struct{}, maxQueuedCalls),
	}
}

// close ends the stream, and waits for its goroutines.
func (s *checkStream) close() {
	s.mu.Lock()
	s.stop()
	s.mu.Unlock()
	s.tasks.Wait()
}

// check sends a check, and waits for its answer until ctx ends.
func (s *checkStream) check(
	ctx context.Context, request *tollgatev1.CheckRequest,
) (*tollgatev1.CheckResponse, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer func() { <-s.places }()
	open, tag := s.open()
	result := make(chan streamResult, 1)
	if err := open.add(tag, result); err != nil {
		return nil, err
	}
	defer open.remove(tag)
	calls := open.calls
	call := &tollgatev1.Call{Tag: tag, Call: &tollgatev1.Call_Check{Check: request}}
	for {
		select {
		case calls <- call:
			calls = nil
		case got := <-result:
			return checkResponse(got)
		case <-ctx.Done():
			return nil, grpcstatus.FromContextError(ctx.Err()).Err()
		}
	}
}

// enter waits for a place on the stream.
func (s *checkStream) enter(ctx context.Context) error {
	select {
	case s.places <- struct{}{}:
		return nil
	default:
	}
	select {
	case s.queue <- struct{}{}:
		defer func() { <-s.queue }()
	default:
		return errQueueFull
	}
	select {
	case s.places <- struct{}{}:
		return nil
	case <-ctx.Done():
		return grpcstatus.FromContextError(ctx.Err()).Err()
	}
}

// open returns the current stream, a new one after a failure, and the tag of the next call. It does
// not wait for the connection.
func (s *checkStream) open() (*openStream, uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nextTag++
	if s.current != nil && !s.current.hasFailed() {
		return s.current, s.nextTag
	}
	ctx, cancel := context.WithCancel(s.ctx)
	opened := &openStream{
		calls:   make(chan *tollgatev1.Call, maxStreamCalls),
		cancel:  cancel,
		pending: make(map[uint64]chan<- streamResult),
	}
	s.current = opened
	if ctx.Err() == nil {
		s.tasks.Go(func() { s.run(ctx, opened) })
	} else {
		opened.fail(grpcstatus.FromContextError(ctx.Err()).Err())
	}
	return opened, s.nextTag
}

// run opens a stream, and hands out its answers until it ends.
func (s *checkStream) run(ctx context.Context, opened *openStream) {
	defer opened.cancel()
	stream, err := s.conn.NewStream(ctx, &streamDesc, tollgateService+"Stream")
	if err != nil {
		opened.fail(err)
		return
	}
	s.tasks.Go(func() { opened.write(ctx, stream) })
	for {
		answer := &tollgatev1.Answer{}
		if err := stream.RecvMsg(answer); err != nil {
			opened.fail(err)
			return
		}
		opened.mu.Lock()
		result, ok := opened.pending[answer.GetTag()]
		delete(opened.pending, answer.GetTag())
		opened.mu.Unlock()
		if ok {
			result <- streamResult{answer: answer}
		}
	}
}

// write sends calls until the stream ends. It drops a call whose caller has gone.
func (o *openStream) write(ctx context.Context, stream grpc.ClientStream) {
	for {
		select {
		case <-ctx.Done():
			return
		case call := <-o.calls:
			if !o.waits(call.GetTag()) {
				continue
			}
			// The reader gets the reason of a failure, and fails the calls in progress with it.
			if stream.SendMsg(call) != nil {
				return
			}
		}
	}
}

func (o *openStream) waits(tag uint64) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	_, ok := o.pending[tag]
	return ok
}

// fail ends every call in progress. A call is never sent again.
func (o *openStream) fail(err error) {
	if _, ok := grpcstatus.FromError(err); !ok {
		err = grpcstatus.Error(codes.Unavailable, "the stream has ended")
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.failed = err
	for tag, result := range o.pending {
		delete(o.pending, tag)
		result <- streamResult{err: err}
	}
}

func (o *openStream) hasFailed() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.failed != nil
}

func (o *openStream) add(tag uint64, result chan<- streamResult) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.failed != nil {
		return o.failed
	}
	o.pending[tag] = result
	return nil
}

func (o *openStream) remove(tag uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.pending, tag)
}

func checkResponse(got streamResult) (*tollgatev1.CheckResponse, error) {
	if got.err != nil {
		return nil, got.err
	}
	if failure := got.answer.GetFailure(); failure != nil && failure.GetCode() != 0 {
		return nil, grpcstatus.FromProto(&status.Status{
			Code: failure.GetCode(), Message: failure.GetMessage(), Details: failure.GetDetails(),
		}).Err()
	}
	if response := got.answer.GetCheck(); response != nil {
		return response, nil
	}
	return nil, grpcstatus.Error(codes.Internal, "the answer is not one of a check")
}
