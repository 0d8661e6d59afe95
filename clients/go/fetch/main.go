// Command fetch sends one request with a stored session: fetch FOLDER CA-FILE HOST ADDRESS PATH [tls12]. It prints the
// kind of handshake, the status and the time until the response.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	sessions "sealedsessions"
)

func main() {
	if len(os.Args) < 6 {
		fail("usage: fetch FOLDER CA-FILE HOST ADDRESS PATH [tls12]")
	}
	folder, file, host, address, path := os.Args[1], os.Args[2], os.Args[3], os.Args[4], os.Args[5]
	cache, err := sessions.Open(folder)
	check(err)
	pem, err := os.ReadFile(file)
	check(err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	config := &tls.Config{RootCAs: roots, ServerName: host, ClientSessionCache: cache}
	if len(os.Args) > 6 && os.Args[6] == "tls12" {
		config.MaxVersion = tls.VersionTLS12
	}
	dial := func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, address)
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: config, DialContext: dial}}
	started := time.Now()
	response, err := client.Get("https://" + host + path)
	check(err)
	duration := time.Since(started)
	response.Body.Close()
	handshake := "full"
	if response.TLS.DidResume {
		handshake = "resumed"
	}
	fmt.Printf("%s not-sent %d %d ms\n", handshake, response.StatusCode, duration.Milliseconds())
}

func check(err error) {
	if err != nil {
		fail(err.Error())
	}
}

func fail(message string) {
	fmt.Fprintln(os.Stderr, message)
	os.Exit(1)
}
