package pooltest_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/api"
)

// change is a write or deletion that the test requested.
type change struct {
	name    string // of the policy
	write   string // value of writeLabel; "" for a deletion
	node    int
	began   time.Time
	ended   time.Time // zero while the request runs
	fragile bool      // it was not acknowledged, or its only durable copy may be lost with a disk
	agreed  bool      // all nodes have it
}

// ledger holds the changes of a storm. It is safe for concurrent use.
type ledger struct {
	mu      sync.Mutex
	number  int
	changes map[string][]*change // by name
	once    []string             // names that one change creates, and that may be deleted
	gone    map[string]bool      // of once: names whose deletion is durable

	acknowledged int
}

// oncePrefix begins the names that are created only once.
const oncePrefix = "once-"

// begin records a change whose result is not known. An empty name means a
// new one.
func (l *ledger) begin(node int, name string, deletion bool) *change {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := &change{name: name, node: node, fragile: true, began: time.Now()}
	l.number++
	if name == "" {
		c.name = fmt.Sprintf("%s%d", oncePrefix, l.number)
	}
	if !deletion {
		c.write = fmt.Sprint(l.number)
	}
	l.changes[c.name] = append(l.changes[c.name], c)
	return c
}

// end records the result of a change. refused means that the agent did not make it.
func (l *ledger) end(c *change, acknowledged, refused bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.ended = time.Now(); acknowledged {
		c.fragile = false
		l.acknowledged++
	}
	if refused {
		l.changes[c.name] = slices.DeleteFunc(l.changes[c.name], func(o *change) bool { return o == c })
	} else if acknowledged && c.write != "" && strings.HasPrefix(c.name, oncePrefix) {
		l.once = append(l.once, c.name)
	}
}

// existing removes a name from the list of created ones, so that it is deleted only once. It
// returns "" if there is none.
func (l *ledger) existing(pick func(int) int) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.once) == 0 {
		return ""
	}
	i := pick(len(l.once))
	name := l.once[i]
	l.once = slices.Delete(l.once, i, i+1)
	return name
}

// lose marks the changes of a node as fragile, unless another node has their result.
func (l *ledger) lose(node int, others []map[string]entry) (fragile int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, list := range l.changes {
		for _, c := range list {
			if c.node != node || c.fragile || c.agreed {
				continue
			}
			spread := 0
			for _, has := range others {
				if c.write != "" && has["meshtimeouts/"+c.name].write == c.write {
					spread++
				}
			}
			if spread < 2 { // one node may be killed before it has stored the change
				c.fragile = true
				fragile++
			}
		}
	}
	return fragile
}

// verify compares the common state of all nodes with the changes. It then forgets all changes that
// are superseded.
func (l *ledger) verify(has map[string]entry, conflicts []api.ConflictItem) (faults []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	listed := map[string]int{}
	isListed := map[string]bool{}
	for _, c := range conflicts {
		listed[c.Name]++
		write := ""
		if !c.Deleted {
			write = labelOf(c.Resource)
		}
		isListed[c.Name+" "+write] = true
	}
	for _, name := range slices.Sorted(maps.Keys(l.changes)) {
		final, list := has["meshtimeouts/"+name].write, l.changes[name]
		visible := func(c *change) bool { return c.write == final || isListed[name+" "+c.write] }
		for _, c := range list {
			deleted := c.write == "" && strings.HasPrefix(name, oncePrefix)
			if c.fragile && !(deleted && final == "") {
				continue
			}
			if deleted {
				l.gone[name] = true
			}
			later := func(o *change) bool { return o == c || !o.ended.Before(c.began) }
			if slices.ContainsFunc(list, func(o *change) bool { return later(o) && visible(o) }) {
				continue
			}
			if listed[name] < conflictsEach {
				faults = append(faults, fmt.Sprintf("the acknowledged change %q of %s on n%d is lost: in force is %q, which "+
					"no later change explains; changes: %s", c.write, name, c.node, final, describe(list)))
			}
		}
		if final != "" && !slices.ContainsFunc(list, func(c *change) bool { return c.write == final }) {
			faults = append(faults, fmt.Sprintf("%s has the value of write %q, which is superseded; changes: %s", name,
				final, describe(list)))
		}
		kept := slices.DeleteFunc(slices.Clone(list), func(c *change) bool { return c.write != final })
		for _, c := range kept {
			c.fragile, c.agreed = false, true
		}
		if l.changes[name] = kept; len(kept) == 0 {
			delete(l.changes, name)
		}
	}
	for name := range l.gone {
		if e, ok := has["meshtimeouts/"+name]; ok {
			faults = append(faults, fmt.Sprintf("%s is live with write %q, and its deletion was acknowledged", name, e.write))
		}
	}
	return faults
}

// conflictsEach is the number of conflicts that an agent lists for a resource.
const conflictsEach = 3

func describe(list []*change) string {
	var b strings.Builder
	for _, c := range list {
		fmt.Fprintf(&b, "[%q on n%d from %s for %s fragile %t] ", c.write, c.node, c.began.Format("05.000"),
			c.ended.Sub(c.began).Round(time.Millisecond), c.fragile)
	}
	return b.String()
}
