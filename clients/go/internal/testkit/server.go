// Package testkit has what the tests of this module share: a scripted server, a real tollgate, and a
// clock that stands still.
package testkit

import (
	"cmp"
	"io"
	"net"
	"path"
	"sync"
	"testing"
	"time"

	"github.com/tollgate-limits/tollgate-go/internal/pb/rlsv3"
	"github.com/tollgate-limits/tollgate-go/internal/pb/tollgatev1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// Received is a call that the scripted server got.
type Received struct {
	// Method is the last part of the path, such as Check.
	Method  string
	Request proto.Message
}

// Reply is what the scripted server does with a call: a message, an error, or nothing for ever.
type Reply struct {
	Message proto.Message
	Code    codes.Code
	// Text is the message of an error; "scripted" by default.
	Text string
	Hang bool
}

func (r *Reply) text() string { return cmp.Or(r.Text, "scripted") }

// Server is a gRPC server on loopback that answers as its script says.
type Server struct {
	Address string

	server *grpc.Server
	mu     sync.Mutex
	calls  []Received
	script func(Received) Reply
}

// StartServer starts a scripted server that ends with the test.
func StartServer(t testing.TB) *Server {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{Address: listener.Addr().String()}
	s.Script(func(Received) Reply { return Reply{Code: codes.Unimplemented} })
	s.server = grpc.NewServer(grpc.UnknownServiceHandler(s.handle))
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.server.Serve(listener)
	}()
	t.Cleanup(func() {
		s.server.Stop()
		<-done
	})
	return s
}

// Stop ends the server and its connections.
func (s *Server) Stop() { s.server.Stop() }

// Script sets what the server answers, and forgets the calls so far.
func (s *Server) Script(script func(Received) Reply) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls, s.script = nil, script
}

// Calls returns the calls since the last script.
func (s *Server) Calls() []Received {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Received(nil), s.calls...)
}

func (s *Server) reply(call Received) Reply {
	s.mu.Lock()
	script := s.script
	s.calls = append(s.calls, call)
	s.mu.Unlock()
	return script(call)
}

func (s *Server) handle(_ any, stream grpc.ServerStream) error {
	full, _ := grpc.MethodFromServerStream(stream)
	method := path.Base(full)
	if method == "Stream" {
		return s.handleStream(stream)
	}
	request := requestOf(method)
	if request == nil {
		return status.Error(codes.Unimplemented, "the scripted server has no such method")
	}
	if err := stream.RecvMsg(request); err != nil {
		return err
	}
	reply := s.reply(Received{Method: method, Request: request})
	switch {
	case reply.Hang:
		<-stream.Context().Done()
		return stream.Context().Err()
	case reply.Message != nil:
		return stream.SendMsg(reply.Message)
	default:
		return status.Error(reply.Code, reply.text())
	}
}

func requestOf(method string) proto.Message {
	switch method {
	case "Check", "Peek":
		return &tollgatev1.CheckRequest{}
	case "Reserve":
		return &tollgatev1.ReserveRequest{}
	case "Commit":
		return &tollgatev1.CommitRequest{}
	case "Release":
		return &tollgatev1.ReleaseRequest{}
	case "Extend":
		return &tollgatev1.ExtendRequest{}
	case "Lease":
		return &tollgatev1.LeaseRequest{}
	case "Batch":
		return &tollgatev1.BatchRequest{}
	case "ShouldRateLimit":
		return &rlsv3.RateLimitRequest{}
	default:
		return nil
	}
}

// handleStream answers the checks of a stream, each by the script.
func (s *Server) handleStream(stream grpc.ServerStream) error {
	var sending sync.Mutex
	var answering sync.WaitGroup
	defer answering.Wait()
	for {
		call := &tollgatev1.Call{}
		if err := stream.RecvMsg(call); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		answering.Go(func() {
			reply := s.reply(Received{Method: "Check", Request: call.GetCheck()})
			answer := &tollgatev1.Answer{Tag: call.GetTag()}
			switch message := reply.Message.(type) {
			case *tollgatev1.CheckResponse:
				answer.Answer = &tollgatev1.Answer_Check{Check: message}
			default:
				failure := &tollgatev1.Failure{Code: int32(reply.Code), Message: reply.text()}
				answer.Answer = &tollgatev1.Answer_Failure{Failure: failure}
			}
			if reply.Hang {
				return
			}
			sending.Lock()
			defer sending.Unlock()
			_ = stream.SendMsg(answer)
		})
	}
}

// Clock is a clock that stands still until it is advanced.
type Clock struct {
	mu  sync.Mutex
	now time.Duration
}

// Now returns the time.
func (c *Clock) Now() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Advance moves the clock.
func (c *Clock) Advance(by time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now += by
}
