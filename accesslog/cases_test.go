package accesslog_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// cases lists failures seen with access logs in other programs, and the tests that rule them out
// here. Test names begin with the number of their case.
var cases = []struct{ what, tests string }{
	{"1: 64 connections at once, rotation at 1 MB: each line once, no oversized file",
		"accesslog/receive.Test1ManyConnections rotation.TestManyWritersExactlyOnce"},
	{"2: 200 rotations within one millisecond, and with a clock set back by an hour",
		"rotation.TestRotationsWithinOneMillisecond rotation.TestNamesGoOnAfterRestart"},
	{"3: maxFileSize 0, 250 MB: one file, and old backups are still removed", "rotation.TestSizeOffStillPrunes"},
	{"5: maxFiles 1: one backup after every rotation", "rotation.TestOneBackup"},
	{"6: each limit of -1: the start fails with the field, its value, and a remedy",
		"rotation.TestNegativeLimits agent/serve/auditlog.TestLimitsBelowZero"},
	{"7: a backup of 8 days and maxFileAge 7, without traffic", "rotation.TestAgeWithoutTraffic"},
	{"8: age and number are independent", "rotation.TestAgeAndNumberAreIndependent"},
	{"9: a line of the limit, one byte more, ten times that", "rotation.TestLongLine accesslog.TestLongestLine"},
	{"13: a partial line while others flood", "accesslog/receive.Test13HalfLine"},
	{"14: a partial line, then FIN or RST", "accesslog/receive.Test14Unterminated"},
	{"16: a full disk for 5 s: senders wait; no line is lost, repeated, or torn",
		"accesslog/receive.Test16FullDisk rotation.TestFullDiskForFiveSeconds"},
	{"18: SIGKILL under load, then a start with its lock and torn line",
		"accesslog/receive.Test18Killed rotation.TestKilledUnderLoad"},
	{"20: the active file is removed, renamed, or truncated by another process",
		"rotation.TestChangedFromOutside rotation.TestLinkReplacesFile rotation.TestRotationAfterReplacement"},
	{"21: a collector that stops and starts: all lines in order", "accesslog/spool.TestForwardCollectorAwayAndBack"},
	{"24: SIGTERM with senders that stop and with ones that do not",
		"accesslog/receive.Test24Polite accesslog/receive.Test24Impolite accesslog/receive.TestStopWhileOthersHaveTheTurns " +
			"agent.TestReceivers"},
	{"a quiet connection and 63 flooding ones", "accesslog/receive.TestQuietBesideFlood"},
	{"memory does not grow with the number of flooding connections", "accesslog/receive.TestFloodsShareBuffers"},
	{"a disk that stays full: lines are dropped by policy, counted, and noted in the file",
		"accesslog/receive.TestFullDiskDropsNewest accesslog/fifo.TestPipeFullDisk rotation.TestFullDiskDropsNewest " +
			"rotation.TestCloseEndsWriters"},
	{"a full disk beside a spool on another one: all lines are stored once, in order, also over kills",
		"agent/deliver/logs.TestFullDiskSpools agent/deliver/logs.TestKilledWhileSpooling " +
			"agent/deliver/logs.TestFullDiskAndSpool agent/deliver/logs.TestSpoolOfAnEarlierAgent"},
	{"senders that break the TLS handshake", "accesslog/receive.TestTLSFaults"},
	{"a disk that fails with an error other than ENOSPC",
		"rotation.TestFailingDisk rotation.TestReadOnly accesslog/fifo.TestPipeIOError"},
	{"a disk that is full before a file is opened, or that others fill",
		"rotation.TestFullDiskAtTheStart rotation.TestOthersFillTheDisk rotation.TestMinFree"},
	{"16 MiB without LF, NUL, invalid UTF-8, CR, octet counts", "accesslog/receive.TestHostileBytes"},
	{"10,000 connections", "accesslog/receive.TestManyConnections accesslog/receive.TestMaxConns"},
	{"a collector that accepts and never reads, resets, or rejects",
		"accesslog/spool.TestForwardNeverRead accesslog/spool.TestForwardStalled accesslog/spool.TestForwardReset " +
			"accesslog/otlp.TestOTLPAnswers"},
	{"one slow collector does not block others",
		"accesslog/fifo.TestPipeSlowDestination cmd/agent.TestAccessLogDeadBackend"},
	{"a flipped byte, a torn tail, a full disk, and a kill in the spool",
		"accesslog/spool.TestSpoolFlippedByte accesslog/spool.TestSpoolTornTail accesslog/spool.TestSpoolFullDisk " +
			"accesslog/spool.TestSpoolKilled"},
	{"a lock of another process, a symbolic link as directory, a directory that others can write to",
		"rotation.TestOneProcess rotation.TestRefusedPaths accesslog/spool.TestSpoolLinks"},
	{"an Envoy never loses its FIFO, and the FIFO always has a holder",
		"accesslog/fifo.TestPipeRestart agent/host/hold.TestProcess agent/host/hold.TestHolderIsRestarted " +
			"accesslog/fifo.TestPipeRemovedFromOutside cmd/agent.TestAccessLogSurvivesTheAgent"},
	{"a file, nothing, or wrong permissions in place of a FIFO",
		"accesslog/fifo.TestPipeFileInItsPlace cmd/agent.TestAccessLogInTheWay"},
	{"an Envoy killed with a full pipe: the next one's lines are whole",
		"accesslog/fifo.TestPipeNewWriter cmd/agent.TestAccessLogAfterAFullPipe"},
	{"a killed reader: no line is lost or stored twice",
		"accesslog/fifo.TestPipeKilledReader cmd/agent.TestAccessLogSurvivesTheAgent"},
	{"shortened names that collide", "agent/compute/kinds/accesslog.TestFIFOName"},
	{"goroutines that never end", "accesslog.TestMain rotation.TestMain"},
	{"in = written + spooled + dropped + in flight",
		"accesslog/receive.Test1ManyConnections cmd/agent.TestAccessLogCounters agent/deliver/logs.TestCollector"},
	{"the example of the audit document: 200 MB, 1 file, 7 days",
		"rotation.TestExampleOfTheAuditLog agent/serve/auditlog.TestExampleOfTheAuditLog"},
}

// TestCasesHaveTests checks that the tests named in cases exist.
func TestCasesHaveTests(t *testing.T) {
	sources := map[string]string{} // test sources by package
	for _, c := range cases {
		for _, test := range strings.Fields(c.tests) {
			at := strings.LastIndexByte(test, '.')
			dir, name := test[:at], test[at+1:]
			if _, ok := sources[dir]; !ok {
				files, err := filepath.Glob(filepath.Join("..", dir, "*_test.go"))
				if err != nil {
					t.Fatal(err)
				}
				for _, f := range files {
					text, err := os.ReadFile(f)
					if err != nil {
						t.Fatal(err)
					}
					sources[dir] += string(text)
				}
			}
			if !strings.Contains(sources[dir], "\nfunc "+name+"(") {
				t.Errorf("%s: there is no test %s in %s", c.what, name, dir)
			}
		}
	}
}
