package tollgate

import (
	"context"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

const (
	tollgateService = "/tollgate.v1.RateLimits/"
	envoyMethod     = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
	roundRobin      = `{"loadBalancingConfig": [{"round_robin": {}}]}`
)

// connect returns a connection to the addresses. It connects in the background.
func connect(o *options) (*grpc.ClientConn, error) {
	endpoints := make([]resolver.Endpoint, len(o.addresses))
	for i, address := range o.addresses {
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			return nil, fmt.Errorf("tollgate: splitting address %q: %w", address, err)
		}
		if o.tls != nil && o.tls.ServerName != "" {
			host = o.tls.ServerName
		}
		server := resolver.Address{Addr: address, ServerName: host}
		endpoints[i] = resolver.Endpoint{Addresses: []resolver.Address{server}}
	}
	addresses := manual.NewBuilderWithScheme("tollgate")
	addresses.InitialState(resolver.State{Endpoints: endpoints})
	security := insecure.NewCredentials()
	if o.tls != nil {
		security = credentials.NewTLS(o.tls)
	}
	dial := []grpc.DialOption{
		grpc.WithResolvers(addresses),
		grpc.WithTransportCredentials(security),
		grpc.WithDefaultServiceConfig(roundRobin),
		grpc.WithDisableRetry(),
		grpc.WithIdleTimeout(0),
		grpc.WithUserAgent("tollgate-go/" + Version),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{
				BaseDelay:  100 * time.Millisecond,
				Multiplier: 1.6,
				Jitter:     0.2,
				MaxDelay:   time.Second,
			},
			MinConnectTimeout: 5 * time.Second,
		}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{
			Time:    o.keepaliveInterval,
			Timeout: o.keepaliveTimeout,
		}),
	}
	if !o.httpProxy {
		dial = append(dial, grpc.WithNoProxy())
	}
	conn, err := grpc.NewClient(addresses.Scheme()+":///servers", dial...)
	if err != nil {
		return nil, fmt.Errorf("tollgate: connecting: %w", err)
	}
	conn.Connect()
	return conn, nil
}

// Ready connects, and waits until an address is connected. A program that calls it at its start
// spares its first check the time of the connection. It returns [ErrClosed], or the error of ctx if
// that ends before.
func (c *Client) Ready(ctx context.Context) error {
	for {
		state := c.conn.GetState()
		switch state {
		case connectivity.Ready:
			return nil
		case connectivity.Shutdown:
			return ErrClosed
		}
		c.conn.Connect()
		if !c.conn.WaitForStateChange(ctx, state) {
			return ctx.Err()
		}
	}
}

// unary makes one call.
func (c *Client) unary(ctx context.Context, method string, request, response proto.Message) error {
	return c.conn.Invoke(ctx, method, request, response)
}

// unaryAgain makes one call, and a second one if the first is UNAVAILABLE.
func (c *Client) unaryAgain(ctx context.Context, method string, request, response proto.Message) error {
	err := c.unary(ctx, method, request, response)
	if status.Code(err) == codes.Unavailable && ctx.Err() == nil {
		err = c.unary(ctx, method, request, response)
	}
	return err
}
