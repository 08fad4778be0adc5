// Package tollgate is a client of the tollgate rate limiter.
//
// A [Client] checks limits over gRPC, and reserves hits whose number is known only later:
//
//	client, err := tollgate.New("edge", tollgate.WithAddresses("localhost:8081"))
//	if err != nil {
//		return err
//	}
//	defer client.Close()
//	decision, err := client.Check(ctx, tollgate.CheckRequest{
//		Descriptors: []tollgate.Descriptor{tollgate.NewDescriptor("user", "ann")},
//	})
//
// A check does not fail when the service does. [OnError] decides then, and the decision carries the
// error. A check ends by its deadline: 100 ms by default.
//
// The package httplimit limits net/http servers. The package grpclimit limits gRPC servers.
package tollgate

// Version is the version of this package.
const Version = "0.1.0"
