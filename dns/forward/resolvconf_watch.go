package forward

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
)

// maxLinks is the maximum number of links on the path to a resolv.conf.
const maxLinks = 8

// Apply sets the servers. Servers that stay keep their state. Questions in flight to other
// servers move to the new ones.
func (f *Forwarder) Apply(servers []netip.AddrPort, c Conf, problem string) {
	now := f.clock()
	f.mu.Lock()
	defer f.mu.Unlock()
	set := &serverSet{protocol: UDP, rotate: c.Rotate, tcp: c.UseTCP, trusted: c.TrustAD, patience: int64(c.Timeout),
		attempts: c.Attempts}
	if set.tcp {
		set.protocol = TCP
	}
	for _, a := range servers {
		i := slices.IndexFunc(f.set.servers, func(s *server) bool { return s.addr == a })
		if i >= 0 {
			set.servers = append(set.servers, f.set.servers[i])
			continue
		}
		set.servers = append(set.servers, &server{addr: a})
	}
	gone := slices.DeleteFunc(slices.Clone(f.set.servers), func(s *server) bool { return slices.Contains(set.servers, s) })
	trusted := f.set.trusted
	f.set, f.problem = set, problem
	f.current.Store(&servers)
	if trusted != set.trusted {
		f.cache.drop() // cached answers have the AD bit or lack it
	}
	f.cache.era.Add(1)
	if f.Opts.Changed != nil {
		defer f.Opts.Changed()
	}
	for _, sv := range gone {
		f.dismiss(sv)
	}
	f.eachAsked(func(s *slot) {
		if s.set != f.responsible(s) {
			f.move(s, now)
		}
	})
}

// move assigns the current servers to a question in flight, and schedules it if none of them has
// it.
func (f *Forwarder) move(s *slot, now int64) {
	f.choose(s)
	for i := range s.tries {
		if ch := s.tries[i].ch; ch != nil && slices.Contains(s.set.servers, ch.server) {
			return
		}
	}
	s.sendAt = now
	s.endsAt = max(s.endsAt, now+int64(f.timing.wait))
	f.slots.schedule(s, now)
}

// reload reads the resolv.conf. If the file has no usable server, the current servers stay.
func (f *Forwarder) reload() {
	c, err := readResolvConf(f.Opts.ResolvConf)
	var problems []string
	if err != nil {
		problems = append(problems, err.Error())
	}
	problems = append(problems, c.faults...)
	var servers []netip.AddrPort
	for _, s := range c.servers {
		s = netip.AddrPortFrom(s.Addr(), f.Opts.Port)
		if f.Opts.Own != nil && f.Opts.Own(s) {
			problems = append(problems, fmt.Sprintf("nameserver %s is ignored: it is an address of this process", s.Addr()))
			continue
		}
		servers = append(servers, s)
	}
	f.mu.Lock()
	had, before := f.set, f.problem
	if err == nil {
		f.search, f.ndots = c.search, c.ndots
	}
	f.mu.Unlock()
	if len(servers) == 0 {
		problems = append(problems, "no usable name server; add a line \"nameserver ADDRESS\"")
	}
	problem := ""
	if len(problems) > 0 {
		problem = f.Opts.ResolvConf + ": " + strings.Join(problems, "; ")
	}
	if len(servers) == 0 {
		f.mu.Lock()
		f.problem = problem
		f.mu.Unlock()
		if problem != before {
			f.log.Warn("Cannot read the list of name servers; the previous list stays in use",
				"problem", problem, "servers", len(had.servers))
		}
		return
	}
	if problem != "" && problem != before {
		f.log.Warn("Some lines of the list of name servers are ignored", "problem", problem)
	}
	same := had.rotate == c.Rotate && had.tcp == c.UseTCP && had.trusted == c.TrustAD &&
		had.patience == int64(c.Timeout) && had.attempts == c.Attempts &&
		slices.EqualFunc(had.servers, servers, func(s *server, a netip.AddrPort) bool { return s.addr == a })
	if same {
		f.mu.Lock()
		f.problem = problem
		f.mu.Unlock()
		return
	}
	f.Apply(servers, c, problem)
	f.log.Info("Read the list of name servers", "file", f.Opts.ResolvConf, "servers", servers)
}

// readResolvConf reads a file of limited size.
func readResolvConf(path string) (Conf, error) {
	file, err := os.Open(path)
	if err != nil {
		return Conf{}, err
	}
	text, err := io.ReadAll(io.LimitReader(file, maxResolvConf+1))
	if err = errors.Join(err, file.Close()); err != nil {
		return Conf{}, err
	}
	if len(text) > maxResolvConf {
		return Conf{}, fmt.Errorf("the file is larger than the limit of %d bytes", maxResolvConf)
	}
	return parseResolvConf(text), nil
}

// watch reloads the resolv.conf after changes, until ctx ends.
func (f *Forwarder) watch(ctx context.Context) {
	defer f.wg.Done()
	w, err := fsnotify.NewWatcher()
	if err != nil {
		f.log.Warn("Cannot watch the list of name servers; it is read periodically",
			"file", f.Opts.ResolvConf, "error", err, "every", f.timing.Poll)
		f.poll(ctx)
		return
	}
	defer func() { _ = w.Close() }()
	quiet := time.NewTimer(time.Hour)
	defer quiet.Stop()
	watched := map[string]bool{}
	update := func() {
		whole := f.rewatch(w, watched)
		f.reload()
		quiet.Stop()
		if !whole { // a missing directory may be created later
			quiet.Reset(f.timing.Poll)
		}
	}
	update()
	for {
		select {
		case <-ctx.Done():
			return
		case <-quiet.C:
			update()
		case e, ok := <-w.Events:
			if !ok {
				return
			}
			if e.Has(fsnotify.Remove) || e.Has(fsnotify.Rename) { // the watch of a removed file ends
				delete(watched, e.Name)
			}
			quiet.Reset(f.timing.Debounce)
		case err, ok := <-w.Errors:
			if !ok {
				return
			}
			f.log.Warn("Changes of the list of name servers may be lost; it is read again",
				"file", f.Opts.ResolvConf, "error", err)
			quiet.Reset(f.timing.Debounce)
		}
	}
}

// poll reloads the resolv.conf periodically, for systems without a watcher.
func (f *Forwarder) poll(ctx context.Context) {
	every := time.NewTicker(f.timing.Poll)
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-every.C:
			f.reload()
		}
	}
}

// rewatch watches the directories on a path, and the file itself, because container engines
// change it in place. It returns false if a part of the path does not exist yet.
func (f *Forwarder) rewatch(w *fsnotify.Watcher, watched map[string]bool) bool {
	want := linkPath(f.Opts.ResolvConf)
	for name := range watched {
		if !slices.Contains(want, name) {
			_ = w.Remove(name) // it may no longer exist
			delete(watched, name)
		}
	}
	whole := true
	for _, name := range want {
		if watched[name] {
			continue
		}
		if err := w.Add(name); err != nil {
			whole = false
			continue
		}
		watched[name] = true
	}
	return whole
}

// linkPath returns the directories of the links on the path to a file, and the file.
func linkPath(path string) (out []string) {
	add := func(name string) {
		if !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return nil
	}
	for range maxLinks {
		if dir, name, ok := firstLink(path); ok {
			add(filepath.Dir(dir))
			to, err := os.Readlink(dir)
			if err != nil {
				break
			}
			if !filepath.IsAbs(to) {
				to = filepath.Join(filepath.Dir(dir), to)
			}
			path = filepath.Join(to, name)
			continue
		}
		break
	}
	add(filepath.Dir(path))
	add(path)
	return out
}

// firstLink splits a path at the first element that is a symbolic link.
func firstLink(path string) (link, rest string, ok bool) {
	elements := strings.Split(strings.TrimPrefix(path, "/"), "/")
	for i := range elements {
		link = "/" + filepath.Join(elements[:i+1]...)
		if info, err := os.Lstat(link); err == nil && info.Mode()&os.ModeSymlink != 0 {
			return link, filepath.Join(elements[i+1:]...), true
		}
	}
	return "", "", false
}
