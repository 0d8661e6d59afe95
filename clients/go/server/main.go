// Command server is an HTTPS server for tests: server CHAIN KEY. It prints its address on 127.0.0.1.
package main

import (
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
)

func main() {
	if len(os.Args) != 3 {
		log.Fatal("usage: server CHAIN KEY")
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(listener.Addr())
	log.Fatal(http.ServeTLS(listener, http.NotFoundHandler(), os.Args[1], os.Args[2]))
}
