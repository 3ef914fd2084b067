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

// maxLinks is how many links lead to a resolv.conf at the most.
const maxLinks = 8

// Apply makes servers those that are asked from now on. What is kept of a server that stays is what
// was learnt about it; questions in flight to one that goes are sent to others.
func (f *Forwarder) Apply(servers []netip.AddrPort, c Conf, problem string) {
	now := f.clock()
	f.mu.Lock()
	defer f.mu.Unlock()
	set := &serverSet{rotate: c.Rotate, tcp: c.UseTCP, trusted: c.TrustAD, patience: int64(c.Timeout),
		attempts: c.Attempts}
	for _, a := range servers {
		i := slices.IndexFunc(f.set.servers, func(s *server) bool { return s.addr == a })
		if i >= 0 {
			set.servers = append(set.servers, f.set.servers[i])
			continue
		}
		set.servers = append(set.servers, &server{addr: a})
	}
	gone := slices.DeleteFunc(slices.Clone(f.set.servers), func(s *server) bool { return slices.Contains(set.servers, s) })
	f.set, f.problem = set, problem
	f.trusted.Store(set.trusted)
	f.cache.era.Add(1)
	for _, sv := range gone {
		f.dismiss(sv)
	}
	for c := range f.slots.chunks {
		for i := range f.slots.chunks[c] {
			if s := &f.slots.chunks[c][i]; s.asking {
				f.move(s, now)
			}
		}
	}
}

// move gives a question in flight the present servers. It is sent to one of them soon where it is
// with none.
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

// reload reads the resolv.conf. The servers stay as they are where it names none.
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
			problems = append(problems, fmt.Sprintf("nameserver %s is this process itself and is not asked", s.Addr()))
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
		problems = append(problems, "no server is named that can be asked; add a line \"nameserver ADDRESS\"")
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
			f.log.Warn("There is no new list of name servers: the old one is kept.",
				"problem", problem, "servers", len(had.servers))
		}
		return
	}
	if problem != "" && problem != before {
		f.log.Warn("Lines of the list of name servers are not used.", "problem", problem)
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
	f.log.Info("Name servers are read.", "file", f.Opts.ResolvConf, "servers", servers)
}

// readResolvConf reads a file that is no longer than it may be.
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
		return Conf{}, fmt.Errorf("it has more than %d bytes, which no list of name servers needs", maxResolvConf)
	}
	return parseResolvConf(text), nil
}

// watch reads the resolv.conf again when it may have changed, until the context ends.
func (f *Forwarder) watch(ctx context.Context) {
	defer f.wg.Done()
	w, err := fsnotify.NewWatcher()
	if err != nil {
		f.log.Warn("Changes of the list of name servers are not noticed at once: it is read again and again.",
			"file", f.Opts.ResolvConf, "error", err, "every", f.timing.Poll)
		f.poll(ctx)
		return
	}
	defer func() { _ = w.Close() }()
	quiet := time.NewTimer(time.Hour)
	defer quiet.Stop()
	watched := map[string]bool{}
	again := func() {
		whole := f.rewatch(w, watched)
		f.reload()
		quiet.Stop()
		if !whole { // a directory that is missing may come
			quiet.Reset(f.timing.Poll)
		}
	}
	again()
	for {
		select {
		case <-ctx.Done():
			return
		case <-quiet.C:
			again()
		case e, ok := <-w.Events:
			if !ok {
				return
			}
			if e.Has(fsnotify.Remove) || e.Has(fsnotify.Rename) { // a file that is gone is no longer watched
				delete(watched, e.Name)
			}
			quiet.Reset(f.timing.Debounce)
		case err, ok := <-w.Errors:
			if !ok {
				return
			}
			f.log.Warn("Changes of the list of name servers may have been missed: it is read again.",
				"file", f.Opts.ResolvConf, "error", err)
			quiet.Reset(f.timing.Debounce)
		}
	}
}

// poll is watch without notices.
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

// rewatch watches the directories through which a path leads, and the file itself, which a
// container engine changes in place. False when the path leads nowhere yet.
func (f *Forwarder) rewatch(w *fsnotify.Watcher, watched map[string]bool) bool {
	want := linkPath(f.Opts.ResolvConf)
	for name := range watched {
		if !slices.Contains(want, name) {
			_ = w.Remove(name) // gone already, perhaps
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

// linkPath returns the directories that hold the links on the way to a file, and the file.
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

// firstLink splits a path at the first element that is a link.
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
