// Go's net/http: client URL CA VERSION KIND. Prints a line of JSON for each visit.
package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"log"
	"net/http"
	"os"
)

func main() {
	url, kind := os.Args[1], os.Args[4]
	pem, err := os.ReadFile(os.Args[2])
	if err != nil {
		log.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	version := map[string]uint16{"1.2": tls.VersionTLS12, "1.3": tls.VersionTLS13}[os.Args[3]]
	config := &tls.Config{RootCAs: roots, MinVersion: version, MaxVersion: version, ClientSessionCache: tls.NewLRUClientSessionCache(8)}
	visits := 2
	if kind == "full" {
		visits = 1
	}
	for visit := 0; visit < visits; visit++ {
		transport := &http.Transport{TLSClientConfig: config.Clone(), ForceAttemptHTTP2: true}
		answer, err := (&http.Client{Transport: transport}).Get(url)
		if err != nil {
			log.Fatal(err)
		}
		io.Copy(io.Discard, answer.Body)
		answer.Body.Close()
		transport.CloseIdleConnections()
		json.NewEncoder(os.Stdout).Encode(map[string]any{
			"status": answer.StatusCode, "resumed": answer.TLS.DidResume, "alpn": answer.TLS.NegotiatedProtocol,
			"suite": tls.CipherSuiteName(answer.TLS.CipherSuite)})
	}
}
