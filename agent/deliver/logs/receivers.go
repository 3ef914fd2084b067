package logs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/nearside-mesh/nearside/accesslog/receive"
	"github.com/nearside-mesh/nearside/agent/host/certfiles"
	"github.com/nearside-mesh/nearside/agent/host/config"
	"github.com/nearside-mesh/nearside/agent/host/logpaths"
	"github.com/nearside-mesh/nearside/rotation"
)

// openEach is the interval of attempts to open a receiver.
const openEach = 5 * time.Second

// ReceiversOptions configures [Receivers]. All fields are required.
type ReceiversOptions struct {
	Config *config.Config
	Files  *Files
	// ListenUnix opens a Unix socket of the agent.
	ListenUnix func(ctx context.Context, s config.Socket) (net.Listener, error)
	// ListenTCP opens a TCP socket.
	ListenTCP func(ctx context.Context, address string) (net.Listener, error)
	Log       *slog.Logger
}

// Receivers manages the receivers of accessLog.receivers. A receiver that cannot be opened is
// retried, and does not affect others or the agent.
type Receivers struct {
	opts ReceiversOptions
	all  []*receiver
}

// receiver is one configured receiver.
type receiver struct {
	of  *Receivers
	cfg config.Receiver

	mu    sync.Mutex // held only briefly
	file  *SharedFile
	recv  *receive.Receiver
	certs *certfiles.Files // nil: no TLS
	addr  net.Addr
	err   error // why it is not receiving
}

// NewReceivers returns the receivers of a config. It opens nothing.
func NewReceivers(o ReceiversOptions) *Receivers {
	out := &Receivers{opts: o}
	for _, c := range o.Config.AccessLog.Receivers {
		out.all = append(out.all, &receiver{of: out, cfg: c})
	}
	return out
}

// OpenFiles opens the files, so that files left by a killed agent are repaired before lines arrive.
func (r *Receivers) OpenFiles() {
	for _, x := range r.all {
		x.note(x.openFile())
	}
}

// Listen opens the sockets of receivers with an open file.
func (r *Receivers) Listen(ctx context.Context) {
	for _, x := range r.all {
		if x.hasFile() {
			x.note(x.listen(ctx))
		}
	}
}

// Run receives until ctx ends and all connections are drained. [Files.Run] must run longer.
func (r *Receivers) Run(ctx context.Context) error {
	var g errgroup.Group
	for _, x := range r.all {
		g.Go(func() error {
			x.run(ctx)
			return nil
		})
	}
	return g.Wait()
}

// Close closes the files, after Run or instead of it.
func (r *Receivers) Close() error {
	var errs []error
	for _, x := range r.all {
		x.mu.Lock()
		file := x.file
		x.file = nil
		x.mu.Unlock()
		if file != nil {
			errs = append(errs, file.Close())
		}
	}
	return errors.Join(errs...)
}

// run opens the receiver if necessary, and receives.
func (x *receiver) run(ctx context.Context) {
	for retry := time.NewTicker(openEach); ; {
		x.mu.Lock()
		recv := x.recv
		x.mu.Unlock()
		if recv != nil {
			retry.Stop()
			x.note(recv.Run(ctx))
			return
		}
		select {
		case <-ctx.Done():
			retry.Stop()
			return
		case <-retry.C:
		}
		err := x.openFile()
		if err == nil {
			if err = x.listen(ctx); err == nil {
				x.of.opts.Log.Info("receiving access logs", "receiver", x.cfg.Name, "address", x.cfg.Address)
			}
		}
		x.note(err)
	}
}

// note records why the receiver is not receiving, and logs a new error.
func (x *receiver) note(err error) {
	x.mu.Lock()
	known := err != nil && x.err != nil && x.err.Error() == err.Error()
	x.err = err
	x.mu.Unlock()
	if err != nil && !known {
		x.of.opts.Log.Error("cannot receive access logs", "receiver", x.cfg.Name, "address", x.cfg.Address, "error", err)
	}
}

func (x *receiver) hasFile() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.file != nil
}

func (x *receiver) openFile() error {
	if x.hasFile() {
		return nil
	}
	o := FileOptions(x.of.opts.Config, x.cfg.File, x.cfg.Limits)
	file, err := x.of.opts.Files.Open(logpaths.Receiver(x.cfg.Name), o)
	if err != nil {
		return fmt.Errorf("file: %w", err)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.file = file
	return nil
}

// FileOptions returns the options of an access-log file.
func FileOptions(c *config.Config, path string, limits rotation.Limits) rotation.Options {
	a := &c.AccessLog
	return rotation.Options{
		Path: path, Limits: limits, Roots: append([]string{c.Paths.Logs}, a.Directories...), Group: a.Group,
		Compress: a.Compress, MinFree: int64(a.MinFree) << 20,
		OnFull: map[string]rotation.OnFull{"dropNewest": rotation.DropNewest}[a.OnFull],
		Sync:   map[string]rotation.Sync{"batch": rotation.SyncEachBatch, "never": rotation.SyncNever}[a.Fsync],
	}
}

// listen opens the socket.
func (x *receiver) listen(ctx context.Context) error {
	log := x.of.opts.Log.With("receiver", x.cfg.Name)
	certs, err := certfiles.Open(certfiles.Options{Cert: x.cfg.TLS.Cert, Key: x.cfg.TLS.Key,
		ClientCA: x.cfg.TLS.ClientCA, Keys: "tls", Log: log})
	if err != nil {
		return err
	}
	var l net.Listener
	if path, ok := strings.CutPrefix(x.cfg.Address, "unix:"); ok {
		l, err = x.of.opts.ListenUnix(ctx, config.Socket{Path: path, Mode: x.cfg.Mode, Group: x.cfg.Group})
	} else {
		l, err = x.of.opts.ListenTCP(ctx, x.cfg.Address)
	}
	if err != nil {
		return fmt.Errorf("address: %w", err)
	}
	recv, err := receive.New(receive.Options{
		Listener: l, TLS: certs.Server(), To: x.file, MaxConns: x.cfg.MaxConnections, Log: log,
	})
	if err != nil {
		l.Close()
		return err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.recv, x.addr, x.certs = recv, l.Addr(), certs
	return nil
}

// ReceiverStatus is the status of a receiver.
type ReceiverStatus struct {
	Name    string `json:"name"`
	Address string `json:"address"` // configured, or actual TCP address
	File    string `json:"file"`
	receive.Status
}

// Status returns the status of each receiver, in the order of the config. Health describes problems
// of the receiver or its file.
func (r *Receivers) Status() []ReceiverStatus {
	out := make([]ReceiverStatus, len(r.all))
	for i, x := range r.all {
		x.mu.Lock()
		recv, file, addr, certs, err := x.recv, x.file, x.addr, x.certs, x.err
		x.mu.Unlock()
		if err == nil {
			_, err = certs.Current()
		}
		s := ReceiverStatus{Name: x.cfg.Name, Address: x.cfg.Address, File: x.cfg.File}
		if addr != nil && addr.Network() == "tcp" {
			s.Address = addr.String()
		}
		if recv != nil {
			s.Status = recv.Stats()
		}
		if err == nil && file != nil {
			st := file.Stats()
			err, s.Full = st.Health, st.Full
		}
		if err != nil {
			s.Health = err.Error()
		}
		out[i] = s
	}
	return out
}

// Problems describes the problems of receivers but full disks.
func (r *Receivers) Problems() []string {
	var out []string
	for _, s := range r.Status() {
		if s.Health != "" && !s.Full {
			out = append(out, fmt.Sprintf("receiver %s: %s", s.Name, strings.ReplaceAll(s.Health, "\n", "; ")))
		}
	}
	return out
}

// Streams returns the counters of each receiver and of its file, which may have other writers.
func (r *Receivers) Streams() []Stream {
	var out []Stream
	for i, s := range r.Status() {
		out = append(out, Stream{Name: s.Name, Kind: KindReceiver, Destination: "file " + s.File,
			Refused: s.Refused, Stats: s.Stats})
		r.all[i].mu.Lock()
		file := r.all[i].file
		r.all[i].mu.Unlock()
		if file != nil {
			out = append(out, Stream{Name: s.File, Kind: KindFile, Destination: "file " + s.File,
				Stats: (&rotated{file: file}).Stats()})
		}
	}
	return out
}
