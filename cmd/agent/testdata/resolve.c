/* Prints the addresses of a name. */
#include <arpa/inet.h>
#include <netdb.h>
#include <stdio.h>
#include <sys/socket.h>

int main(int argc, char **argv) {
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found, *a;
	char text[INET6_ADDRSTRLEN];
	int err = argc == 2 ? getaddrinfo(argv[1], NULL, &hints, &found) : EAI_NONAME;
	if (err) {
		puts(gai_strerror(err));
		return 1;
	}
	for (a = found; a; a = a->ai_next)
		puts(inet_ntop(a->ai_family, a->ai_family == AF_INET ? (void *)&((struct sockaddr_in *)a->ai_addr)->sin_addr : (void *)&((struct sockaddr_in6 *)a->ai_addr)->sin6_addr, text, sizeof text));
	return 0;
}
