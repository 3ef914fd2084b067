// Standin replaces the application of the example on a cluster without registries. "netexec
// --http-port=8080" responds with its host name, and continuously calls the address in TARGET.
// /count returns the number of successful calls and the last error. "chain" is a workload of the
// test of the mesh, and "get" prints what a URL responds.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"
)

type counts struct {
	mu       sync.Mutex
	Answered int
	Failed   int    // since the first successful call
	Last     string // error
}

func main() {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "chain":
			os.Exit(chain(os.Args[2:]))
		case "get":
			os.Exit(fetch(os.Args[2:]))
		}
	}
	port := "8080"
	for _, a := range os.Args[1:] {
		if v, ok := strings.CutPrefix(a, "--http-port="); ok {
			port = v
		}
	}
	var c counts
	go c.run("http://127.0.0.1:20001/")
	host, _ := os.Hostname()
	http.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, host) })
	http.HandleFunc("/count", func(w http.ResponseWriter, _ *http.Request) {
		c.mu.Lock()
		defer c.mu.Unlock()
		_ = json.NewEncoder(w).Encode(&c)
	})
	fmt.Fprintln(os.Stderr, http.ListenAndServe(":"+port, nil))
	os.Exit(1)
}

func (c *counts) run(target string) {
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	for range time.Tick(20 * time.Millisecond) {
		err := call(client, target)
		c.mu.Lock()
		switch {
		case err == nil:
			c.Answered++
		case c.Answered > 0:
			c.Failed++
			c.Last = err.Error()
		}
		c.mu.Unlock()
	}
}

func call(client *http.Client, target string) error {
	req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, target, nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d", resp.StatusCode)
	}
	return nil
}
