package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"
)

// links counts the calls of a chain of workloads.
type links struct {
	mu       sync.Mutex
	Answered int
	Failed   int            // since the first successful call
	Foreign  int            // answers with a workload of another namespace
	Last     string         // error
	At       string         // time of the last error
	Pods     map[string]int // answers by pod
}

// chain serves a workload of the mesh's test: it answers with its namespace and name, followed by
// the answer of the next workload. With --rate it also calls that one continuously, and /count
// returns the numbers. SIGTERM ends it at once, without waiting for requests.
func chain(args []string) int {
	flags := flag.NewFlagSet("chain", flag.ContinueOnError)
	port := flags.Int("http-port", 8080, "port")
	next := flags.String("next", "", "URL of the next workload")
	rate := flags.Int("rate", 0, "calls per second to the next workload")
	if flags.Parse(args) != nil {
		return 64
	}
	host, _ := os.Hostname()
	self := os.Getenv("NAMESPACE") + "/" + host
	client := &http.Client{Timeout: 5 * time.Second}
	l := &links{Pods: map[string]int{}}
	http.HandleFunc("/ready", func(http.ResponseWriter, *http.Request) {})
	http.HandleFunc("/count", func(w http.ResponseWriter, _ *http.Request) {
		l.mu.Lock()
		defer l.mu.Unlock()
		_ = json.NewEncoder(w).Encode(l)
	})
	http.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		rest := ""
		if *next != "" {
			var err error
			if rest, err = get(r.Context(), client, *next); err != nil {
				http.Error(w, self+": "+err.Error(), http.StatusBadGateway)
				return
			}
		}
		fmt.Fprintf(w, "%s %s", self, rest)
	})
	if *rate > 0 {
		go l.run(*next, *rate)
	}
	fmt.Fprintln(os.Stderr, http.ListenAndServe(fmt.Sprintf(":%d", *port), nil))
	return 1
}

// run calls the URL at a rate. Half of the calls open a new connection, so that
// both new and long connections meet the changes.
func (l *links) run(url string, rate int) {
	kept := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 8}}
	fresh := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	for n := 0; ; n++ {
		client := kept
		if n%2 == 1 {
			client = fresh
		}
		go func() {
			text, err := get(context.Background(), client, url)
			l.add(text, err)
		}()
		time.Sleep(time.Second / time.Duration(rate))
	}
}

func (l *links) add(text string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		if l.Answered > 0 {
			l.Failed++
			l.Last, l.At = err.Error(), time.Now().Format(time.RFC3339Nano)
		}
		return
	}
	l.Answered++
	for _, pod := range strings.Fields(text) {
		l.Pods[pod]++
		if !strings.HasPrefix(pod, os.Getenv("NAMESPACE")+"/") {
			l.Foreign++
			l.Last, l.At = "foreign: "+text, time.Now().Format(time.RFC3339Nano)
		}
	}
}

func get(ctx context.Context, client *http.Client, url string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 4096))
	if err != nil {
		return "", err
	}
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("status %d: %s", resp.StatusCode, strings.TrimSpace(string(text)))
	}
	return string(text), nil
}

// fetch prints what URLs respond, for tests from inside of a pod. The exit code is 1 if one of them
// does not respond with 200.
func fetch(urls []string) int {
	code := 0
	for _, url := range urls {
		text, err := get(context.Background(), &http.Client{Timeout: 3 * time.Second}, url)
		if err != nil {
			text, code = err.Error(), 1
		}
		fmt.Println(strings.TrimSpace(text))
	}
	return code
}
