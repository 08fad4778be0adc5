package tollgate_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/tollgate-limits/tollgate-go/internal/testkit"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

var runnable = regexp.MustCompile("(?s)<!-- run: (\\S+) -->\n```go\n(.*?)```")

const edgeRules = `domain: edge
descriptors:
  - key: user
    rate_limit: {unit: minute, requests_per_unit: 5}
  - key: remote_address
    rate_limit: {unit: minute, requests_per_unit: 5}
  - key: budget
    rate_limit: {unit: day, requests_per_unit: 10000, algorithm: sliding_window}
`

// buildExamples builds each example of the README in an empty project that has only this module.
func buildExamples(t *testing.T) map[string]string {
	t.Helper()
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	module, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	programs := map[string]string{}
	for _, found := range runnable.FindAllSubmatch(readme, -1) {
		name := string(found[1])
		folder := t.TempDir()
		if err := os.WriteFile(filepath.Join(folder, name), found[2], 0o600); err != nil {
			t.Fatal(err)
		}
		programs[name] = filepath.Join(folder, "program")
		for _, args := range [][]string{
			{"mod", "init", "example"},
			{"mod", "edit", "-require=github.com/tollgate-limits/tollgate-go@v0.1.0",
				"-replace=github.com/tollgate-limits/tollgate-go=" + module},
			{"mod", "tidy"},
			{"build", "-o", programs[name], "."},
		} {
			command := exec.Command("go", args...)
			command.Dir = folder
			if out, err := command.CombinedOutput(); err != nil {
				t.Fatalf("%s: go %v: %v\n%s", name, args, err, out)
			}
		}
	}
	return programs
}

// startProgram starts an example on a free port, and returns its address once it accepts.
func startProgram(t *testing.T, program, tollgate string) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	_, port, _ := net.SplitHostPort(address)
	_ = listener.Close()
	command := exec.Command(program)
	command.Env = append(os.Environ(), "PORT="+port, "TOLLGATE="+tollgate)
	var output bytes.Buffer
	command.Stdout, command.Stderr = &output, &output
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
		if t.Failed() {
			t.Log(output.String())
		}
	})
	for range 500 {
		if conn, err := net.Dial("tcp", address); err == nil {
			_ = conn.Close()
			return address
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Fatalf("%s does not listen on %s", program, address)
	return ""
}

func TestReadmeExamplesRunAsWritten(t *testing.T) {
	programs := buildExamples(t)
	t.Run("client.go", func(t *testing.T) {
		server := testkit.StartTollgate(t, edgeRules)
		command := exec.Command(programs["client.go"])
		command.Env = append(os.Environ(), "TOLLGATE="+server.GRPC)
		out, err := command.CombinedOutput()
		if err != nil || strings.TrimSpace(string(out)) != "allowed\ncommitted 120" {
			t.Errorf("%v: %s", err, out)
		}
	})
	t.Run("web.go", func(t *testing.T) {
		server := testkit.StartTollgate(t, edgeRules)
		address := startProgram(t, programs["web.go"], server.GRPC)
		refused := 0
		for range 12 { // 12 in two windows at most: 2 or more are refused.
			response, err := http.Get("http://" + address + "/")
			if err != nil {
				t.Fatal(err)
			}
			body, _ := io.ReadAll(response.Body)
			_ = response.Body.Close()
			if response.StatusCode == http.StatusTooManyRequests {
				refused++
			} else if response.StatusCode != http.StatusOK || string(body) != "hello" {
				t.Errorf("%d %s", response.StatusCode, body)
			}
		}
		if refused < 2 || refused > 7 {
			t.Errorf("%d of 12 refused", refused)
		}
	})
	t.Run("grpc.go", func(t *testing.T) {
		server := testkit.StartTollgate(t, edgeRules)
		address := startProgram(t, programs["grpc.go"], server.GRPC)
		conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		refused := 0
		for range 12 {
			_, err := grpc_health_v1.NewHealthClient(conn).Check(
				context.Background(), &grpc_health_v1.HealthCheckRequest{})
			if status.Code(err) == codes.ResourceExhausted {
				refused++
			} else if err != nil {
				t.Error(err)
			}
		}
		if refused < 2 || refused > 7 {
			t.Errorf("%d of 12 refused", refused)
		}
	})
}
