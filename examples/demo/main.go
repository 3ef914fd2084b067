// Demo shows the main features of nearside with real clients: it starts two agents and two gRPC
// servers on this machine and calls the servers through a gRPC client that knows only a service
// name and the agent's socket. If a result is not as expected, it exits with an error.
//
// With an Envoy, it also shows requests through a proxy: a changed route, an access log, and a
// permission between two Envoys.
//
// Usage: go run ./examples/demo [NEARSIDE_PATH [ENVOY_PATH]] ("make demo" builds and passes
// bin/nearside)
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	binary := "bin/nearside"
	if len(os.Args) > 1 {
		binary = os.Args[1]
	}
	binary, err := filepath.Abs(binary)
	if err != nil {
		return err
	}
	if _, err := os.Stat(binary); err != nil {
		return fmt.Errorf("%w: build it first, with make build", err)
	}
	dir, err := os.MkdirTemp("", "nearside-demo-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)

	step("Start an agent. It needs no root, no Envoy and no control plane; everything it writes lies in one folder.")
	if err := makeKey(ctx, binary, dir); err != nil {
		return err
	}
	agent, err := startAgent(ctx, binary, dir, "one")
	if err != nil {
		return err
	}
	defer agent.stop()

	step("Start two instances of a gRPC service, and tell the agent of the first one and of a client named web.")
	first, err := startServer()
	if err != nil {
		return err
	}
	defer first.Stop()
	second, err := startServer()
	if err != nil {
		return err
	}
	defer second.Stop()
	fmt.Printf("    instance 1 listens at %s, instance 2 at %s\n", first.address, second.address)
	if err := agent.apply(ctx, meshDocument+first.dataplane("greeter-1")+webDocument); err != nil {
		return err
	}

	step("Call xds:///greeter. The client gets listener, routes, cluster and endpoints from the agent's socket.")
	client, err := dial(agent.xdsSocket)
	if err != nil {
		return err
	}
	defer client.Close()
	if err := client.expect(ctx, first.address); err != nil {
		return err
	}

	step("Start a second agent, as on another node: it joins the first, and the second instance is its own. " +
		"The client of the first hears of it without asking, and spreads its calls.")
	at, err := agent.address(ctx)
	if err != nil {
		return err
	}
	other, err := startAgent(ctx, binary, dir, "two", "gossip.join="+at)
	if err != nil {
		return err
	}
	defer other.stop()
	if err := other.apply(ctx, second.dataplane("greeter-2")); err != nil {
		return err
	}
	if err := agent.run(ctx, "members"); err != nil {
		return err
	}
	if err := client.expect(ctx, first.address, second.address); err != nil {
		return err
	}

	step("Take the first instance away.")
	if err := agent.run(ctx, "delete", "dataplane", "greeter-1"); err != nil {
		return err
	}
	if err := client.expect(ctx, second.address); err != nil {
		return err
	}

	step("Ask the agent for the config that it sent to the client, and for the client's response.")
	if err := agent.run(ctx, "inspect", "dataplane", "web", "--type=status"); err != nil {
		return err
	}

	step("Look the service up by its name, with a client that knows nothing but the address of the agent's resolver.")
	if err := showNames(ctx, agent, "greeter.mesh"); err != nil {
		return err
	}

	step("Kill the agent without warning. The client continues with its current config.")
	agent.kill()
	if err := client.expect(ctx, second.address); err != nil {
		return err
	}

	step("Start it again. All that was acknowledged is there, and the client is sent nothing that it has already.")
	if agent, err = startAgent(ctx, binary, dir, "one"); err != nil {
		return err
	}
	defer agent.stop()
	if err := agent.connected(ctx, "web"); err != nil {
		return err
	}
	if err := agent.run(ctx, "get", "dataplanes"); err != nil {
		return err
	}
	if err := agent.run(ctx, "inspect", "dataplane", "web", "--type=status"); err != nil {
		return err
	}
	if err := client.expect(ctx, second.address); err != nil {
		return err
	}
	if len(os.Args) > 2 {
		if err := showEnvoy(ctx, agent, dir, os.Args[2]); err != nil {
			return err
		}
		if err := showPermission(ctx, agent, dir, os.Args[2]); err != nil {
			return err
		}
	} else {
		fmt.Println("\nWith an Envoy there is more to see: make envoy, and make demo again.")
	}
	fmt.Println("\nThat was it. Next: make run, and docs/tour.md.")
	return nil
}

func step(text string) { fmt.Printf("\n==> %s\n", text) }

// agent is a running nearside.
type agent struct {
	binary, socket, xdsSocket string
	cmd                       *exec.Cmd
	ended                     chan struct{}
}

// makeKey creates the gossip key of the pool.
func makeKey(ctx context.Context, binary, dir string) error {
	key, err := exec.CommandContext(ctx, binary, "keyring", "generate").Output()
	if err != nil {
		return fmt.Errorf("make a key: %w", err)
	}
	add := exec.CommandContext(ctx, binary, "keyring", "add", "--set", "gossip.keyringFile="+filepath.Join(dir, "keyring"))
	add.Stdin = bytes.NewReader(key)
	if out, err := add.CombinedOutput(); err != nil {
		return fmt.Errorf("add a key: %w: %s", err, out)
	}
	fmt.Println("    $ nearside keyring generate | nearside keyring add")
	return nil
}

func startAgent(ctx context.Context, binary, root, name string, settings ...string) (*agent, error) {
	dir := filepath.Join(root, name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	a := &agent{
		binary: binary, socket: filepath.Join(dir, "run", "nearside.sock"), xdsSocket: filepath.Join(dir, "run", "xds.sock"),
		ended: make(chan struct{}),
	}
	log, err := os.OpenFile(filepath.Join(dir, "agent.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	args := []string{"run"}
	for _, set := range append([]string{
		"node.name=" + name, "gossip.bind=127.0.0.1:0", "gossip.keyringFile=" + filepath.Join(root, "keyring"), "paths.run=" +
			dir + "/run", "paths.state=" + dir + "/state", "paths.logs=" + dir + "/logs", "resources.dir=" + dir + "/resources",
		"api.socket.group=", "api.socket.mode=0600", "xds.socket.group=", "xds.socket.mode=0600", "dns.listen=127.0.0.1:0",
	}, settings...) {
		args = append(args, "--set", set)
	}
	a.cmd = exec.Command(binary, args...)
	a.cmd.Stdout, a.cmd.Stderr = log, log
	if err := a.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = a.cmd.Wait()
		close(a.ended)
	}()
	fmt.Printf("    $ nearside run --set node.name=%s …\n", name)
	if err := a.await(ctx); err != nil {
		a.stop()
		text, _ := os.ReadFile(log.Name())
		return nil, fmt.Errorf("the agent did not start: %w\n%s", err, text)
	}
	return a, nil
}

// await queries the agent's health until the agent responds.
func (a *agent) await(ctx context.Context) error {
	for {
		if exec.CommandContext(ctx, a.binary, "--socket", a.socket, "healthcheck").Run() == nil {
			return nil
		}
		select {
		case <-a.ended:
			return errors.New("it ended")
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// address returns the address at which other agents reach this one.
func (a *agent) address(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, a.binary, "--socket", a.socket, "members", "-o", "json").Output()
	if err != nil {
		return "", err
	}
	var list struct {
		Items []struct {
			Address string
			Self    bool
		}
	}
	if err := json.Unmarshal(out, &list); err != nil {
		return "", err
	}
	for _, m := range list.Items {
		if m.Self {
			return m.Address, nil
		}
	}
	return "", errors.New("the agent is no member of a pool")
}

// connected waits until a proxy has a stream again. Clients delay their reconnections.
func (a *agent) connected(ctx context.Context, name string) error {
	for {
		out, err := exec.CommandContext(ctx, a.binary, "--socket", a.socket, "inspect", "dataplane", name, "--type=status",
			"-o", "json").Output()
		if err == nil && bytes.Contains(out, []byte(`"state": "serving"`)) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s to connect: %w", name, ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (a *agent) kill() {
	_ = a.cmd.Process.Kill()
	<-a.ended
	fmt.Println("    $ kill -9", a.cmd.Process.Pid)
}

func (a *agent) stop() {
	_ = a.cmd.Process.Signal(syscall.SIGTERM)
	<-a.ended
}
