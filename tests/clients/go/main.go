// The grpc-go client of tests/clients. See tests/clients/contract.md for its arguments, commands
// and results.
package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
)

const service = "envoy.service.ratelimit.v3.RateLimitService"

type client struct {
	connection      *grpc.ClientConn
	request, answer protoreflect.MessageDescriptor
	stopped         atomic.Bool
	cancel          chan struct{}
	output          sync.Mutex
}

// The result of one command.
type result struct {
	Name       string         `json:"name"`
	Answered   int            `json:"answered"`
	Incomplete int            `json:"incomplete"`
	Failed     map[string]int `json:"failed"`
	First      string         `json:"first"`
	lock       sync.Mutex
}

func main() {
	options := words(strings.Join(os.Args[1:], " "))
	descriptors, err := os.ReadFile(options["descriptors"])
	must(err)
	var set descriptorpb.FileDescriptorSet
	must(proto.Unmarshal(descriptors, &set))
	files, err := protodesc.NewFiles(&set)
	must(err)
	found, err := files.FindDescriptorByName(service + ".ShouldRateLimit")
	must(err)
	method := found.(protoreflect.MethodDescriptor)
	connection, err := grpc.NewClient("passthrough:///"+options["address"], dialOptions(options)...)
	must(err)
	c := &client{
		connection: connection,
		request:    method.Input(),
		answer:     method.Output(),
		cancel:     make(chan struct{}),
	}
	var running sync.WaitGroup
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		switch lines.Text() {
		case "stop":
			c.stopped.Store(true)
		case "cancel":
			close(c.cancel)
		default:
			command := words(lines.Text())
			running.Add(1)
			go func() {
				defer running.Done()
				c.run(command)
			}()
		}
	}
	running.Wait()
}

func dialOptions(options map[string]string) []grpc.DialOption {
	transport := insecure.NewCredentials()
	if authority := options["ca"]; authority != "" {
		pem, err := os.ReadFile(authority)
		must(err)
		config := &tls.Config{RootCAs: x509.NewCertPool()}
		config.RootCAs.AppendCertsFromPEM(pem)
		if options["cert"] != "" {
			pair, err := tls.LoadX509KeyPair(options["cert"], options["key"])
			must(err)
			config.Certificates = []tls.Certificate{pair}
		}
		transport = credentials.NewTLS(config)
	}
	dial := []grpc.DialOption{grpc.WithTransportCredentials(transport)}
	if options["gzip"] == "1" {
		dial = append(dial, grpc.WithDefaultCallOptions(grpc.UseCompressor(gzip.Name)))
	}
	if interval := number(options, "keepalive-ms"); interval > 0 {
		dial = append(dial, grpc.WithKeepaliveParams(keepalive.ClientParameters{
			Time:                time.Duration(interval) * time.Millisecond,
			Timeout:             20 * time.Second,
			PermitWithoutStream: true,
		}))
	}
	return dial
}

// Makes the calls of one command and prints its result.
func (c *client) run(command map[string]string) {
	total := &result{Name: command["name"], Failed: map[string]int{}}
	request := c.requestOf(number(command, "value-bytes"))
	calls := int64(number(command, "calls"))
	var begun atomic.Int64
	var callers sync.WaitGroup
	for range number(command, "at-once") {
		callers.Add(1)
		go func() {
			defer callers.Done()
			for !c.stopped.Load() && (calls == 0 || begun.Add(1) <= calls) {
				answer, err := c.call(command, request)
				total.count(answer, err)
			}
		}()
	}
	callers.Wait()
	line, err := json.Marshal(total)
	must(err)
	c.output.Lock()
	defer c.output.Unlock()
	fmt.Println(string(line))
}

func (c *client) call(command map[string]string, request proto.Message) (protoreflect.Message, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if deadline := number(command, "deadline-ms"); deadline > 0 {
		ctx, cancel = context.WithTimeout(ctx, time.Duration(deadline)*time.Millisecond)
		defer cancel()
	}
	if size := number(command, "metadata-bytes"); size > 0 {
		ctx = metadata.AppendToOutgoingContext(ctx, "x-long", strings.Repeat("X", size))
	}
	if command["cancel"] == "1" {
		go func() {
			select {
			case <-c.cancel:
				cancel()
			case <-ctx.Done():
			}
		}()
	}
	answer := dynamicpb.NewMessage(c.answer)
	err := c.connection.Invoke(ctx, "/"+service+"/ShouldRateLimit", request, answer)
	return answer, err
}

// Three descriptors: one with a limit, one over its limit, one without a rule.
func (c *client) requestOf(valueBytes int) proto.Message {
	request := dynamicpb.NewMessage(c.request)
	fields := c.request.Fields()
	request.Set(fields.ByName("domain"), protoreflect.ValueOfString("clients"))
	descriptors := request.Mutable(fields.ByName("descriptors")).List()
	for _, pair := range [][2]string{
		{"open", strings.Repeat("v", max(1, valueBytes))},
		{"closed", "v"},
		{"unknown", "v"},
	} {
		descriptor := descriptors.AppendMutable().Message()
		list := descriptor.Descriptor().Fields().ByName("entries")
		entry := descriptor.Mutable(list).List().AppendMutable().Message()
		names := entry.Descriptor().Fields()
		entry.Set(names.ByName("key"), protoreflect.ValueOfString(pair[0]))
		entry.Set(names.ByName("value"), protoreflect.ValueOfString(pair[1]))
	}
	return request
}

func (r *result) count(answer protoreflect.Message, err error) {
	r.lock.Lock()
	defer r.lock.Unlock()
	switch {
	case err != nil:
		code := status.Code(err)
		r.Failed[names[code]]++
		if r.First == "" {
			r.First = err.Error()
		}
	case complete(answer):
		r.Answered++
	default:
		r.Incomplete++
	}
}

// One status a descriptor, in their order: OK, OVER_LIMIT, OK.
func complete(answer protoreflect.Message) bool {
	fields := answer.Descriptor().Fields()
	statuses := answer.Get(fields.ByName("statuses")).List()
	if answer.Get(fields.ByName("overall_code")).Enum() != 2 || statuses.Len() != 3 {
		return false
	}
	for at, code := range []protoreflect.EnumNumber{1, 2, 1} {
		one := statuses.Get(at).Message()
		if one.Get(one.Descriptor().Fields().ByName("code")).Enum() != code {
			return false
		}
	}
	first := statuses.Get(0).Message()
	limit := first.Get(first.Descriptor().Fields().ByName("current_limit")).Message()
	return limit.Get(limit.Descriptor().Fields().ByName("requests_per_unit")).Uint() == 1_000_000_000
}

var names = map[codes.Code]string{
	codes.Canceled: "CANCELLED", codes.Unknown: "UNKNOWN", codes.DeadlineExceeded: "DEADLINE_EXCEEDED",
	codes.ResourceExhausted: "RESOURCE_EXHAUSTED", codes.Unimplemented: "UNIMPLEMENTED",
	codes.Internal: "INTERNAL", codes.Unavailable: "UNAVAILABLE",
	codes.InvalidArgument: "INVALID_ARGUMENT",
}

func words(line string) map[string]string {
	found := map[string]string{}
	for _, word := range strings.Fields(line) {
		name, value, _ := strings.Cut(word, "=")
		found[name] = value
	}
	return found
}

func number(given map[string]string, name string) int {
	parsed, err := strconv.Atoi(given[name])
	if given[name] == "" {
		return 0
	}
	must(err)
	return parsed
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
