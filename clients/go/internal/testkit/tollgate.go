package testkit

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Tollgate is a real tollgate process.
type Tollgate struct {
	// GRPC and HTTP are host:port.
	GRPC string
	HTTP string

	process *exec.Cmd
	rules   string
	flags   []string
	ended   chan struct{}
}

var listens = regexp.MustCompile(` listens: gRPC (\S+), HTTP (\S+), `)

// StartTollgate starts the binary of TOLLGATE_BIN with the rules. It ends with the test.
func StartTollgate(t testing.TB, rules string, flags ...string) *Tollgate {
	t.Helper()
	file := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(file, []byte(rules), 0o600); err != nil {
		t.Fatal(err)
	}
	server := &Tollgate{rules: file, flags: flags}
	server.start(t, "0")
	t.Cleanup(server.Kill)
	return server
}

// Restart starts the process again on the same gRPC port.
func (s *Tollgate) Restart(t testing.TB) {
	t.Helper()
	_, port, err := net.SplitHostPort(s.GRPC)
	if err != nil {
		t.Fatal(err)
	}
	s.start(t, port)
}

func (s *Tollgate) start(t testing.TB, port string) {
	t.Helper()
	binary := os.Getenv("TOLLGATE_BIN")
	if binary == "" {
		t.Fatal("TOLLGATE_BIN is not set; set it to the path of a tollgate binary")
	}
	args := append([]string{"serve", s.rules, "--grpc-host", "127.0.0.1", "--grpc-port", port,
		"--host", "127.0.0.1", "--port", "0", "--debug-port", "0"}, s.flags...)
	process := exec.Command(binary, args...)
	stderr, err := process.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := process.Start(); err != nil {
		t.Fatalf("starting tollgate: %v", err)
	}
	s.process, s.ended = process, make(chan struct{})
	ready := make(chan []string, 1)
	ended, log := s.ended, &strings.Builder{}
	go func() {
		defer close(ended)
		lines := bufio.NewScanner(stderr)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			if found := listens.FindStringSubmatch(lines.Text()); found != nil {
				ready <- found
			} else if len(ready) == 0 {
				fmt.Fprintln(log, lines.Text())
			}
		}
		_ = process.Wait()
	}()
	select {
	case found := <-ready:
		s.GRPC, s.HTTP = found[1], found[2]
	case <-ended:
		t.Fatalf("tollgate ended before it was ready:\n%s", log)
	case <-time.After(30 * time.Second):
		_ = process.Process.Kill()
		<-ended
		t.Fatalf("tollgate was not ready in 30 s:\n%s", log)
	}
}

// Kill ends the process at once, and waits for its end.
func (s *Tollgate) Kill() {
	_ = s.process.Process.Signal(syscall.SIGCONT)
	_ = s.process.Process.Kill()
	<-s.ended
}

// Stop suspends the process, and waits until it is suspended. Continue resumes it.
func (s *Tollgate) Stop(t testing.TB) {
	t.Helper()
	if err := s.process.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	stat := fmt.Sprintf("/proc/%d/stat", s.process.Process.Pid)
	for range 1000 {
		text, err := os.ReadFile(stat)
		if err != nil {
			t.Fatal(err)
		}
		_, state, _ := strings.Cut(string(text), ") ")
		if strings.HasPrefix(state, "T") {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatal("the process did not stop")
}

// Continue resumes the process.
func (s *Tollgate) Continue() { _ = s.process.Process.Signal(syscall.SIGCONT) }
