package intercept

import (
	"errors"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// TestFeatures probes for missing kernel features in a new namespace, and leaves nothing there.
func TestFeatures(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("skipped: network namespaces and nftables need root")
	}
	done := make(chan struct{})
	go func() { // a thread in another namespace ends with its goroutine
		defer close(done)
		runtime.LockOSThread()
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			t.Errorf("a network namespace cannot be made: %v", err)
			return
		}
		n, err := OpenNamespace("")
		if err != nil {
			t.Error(err)
			return
		}
		defer n.Close()
		if err := probe(n, &Spec{DNSPort: 15053, Cgroups: []string{"a"}}); err != nil {
			t.Errorf("this kernel: %v", err)
		}
		none := feature{"a feature of no kernel", "wait for it", nil, func(c *nftables.Conn, tab *nftables.Table) {
			ch := c.AddChain(&nftables.Chain{Name: "x", Table: tab, Type: nftables.ChainTypeFilter,
				Hooknum: nftables.ChainHookOutput, Priority: nftables.ChainPriorityRaw})
			c.AddRule(&nftables.Rule{Table: tab, Chain: ch, Exprs: []expr.Any{&expr.Socket{Key: 99, Register: 1}}})
		}}
		if err := none.tryIn(n); err == nil {
			t.Error("the kernel takes what does not exist")
		} else {
			var hinted interface{ Hint() string }
			missing := error(&MissingError{err, none.name, none.remedy})
			if !strings.HasPrefix(missing.Error(), "the kernel lacks a feature of no kernel: ") ||
				!errors.As(missing, &hinted) || hinted.Hint() != "wait for it" {
				t.Errorf("said of it: %v", missing)
			}
		}
		c, err := n.open()
		if err != nil {
			t.Error(err)
			return
		}
		if tables, err := c.ListTables(); err != nil || len(tables) > 0 {
			t.Errorf("left behind: %v, %v", tables, err)
		}
	}()
	<-done
}
