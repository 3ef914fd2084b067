// Package proxydrain takes proxies out of service without failed requests, and back.
package proxydrain
