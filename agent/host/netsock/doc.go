// Package netsock opens sockets to name servers in other network namespaces, and finds the servers
// of redirected queries in the connection tracking of the kernel.
package netsock
