// Command http3-client exercises a gateway over HTTP/3 with quic-go: http3-client CA-FILE HOST ADDRESS CASE. It prints one
// line of JSON. The cases are functions below.
package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"os"
	"sync"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
	"github.com/quic-go/quic-go/qlog"
)

type client struct {
	host     string
	server   *net.UDPAddr
	config   *tls.Config
	quic     *quic.Config
	sessions *sessions
	result   map[string]any
}

// limit is longer than any pause of a busy machine. The test ends the program earlier.
const limit = 10 * time.Minute

// sessions is a cache that reports its first session.
type sessions struct {
	tls.ClientSessionCache
	once   sync.Once
	stored chan struct{}
}

// Put stores a session, or removes one if session is nil.
func (s *sessions) Put(key string, session *tls.ClientSessionState) {
	s.ClientSessionCache.Put(key, session)
	if session != nil {
		s.once.Do(func() { close(s.stored) })
	}
}

var cases = map[string]func(*client){
	"get": get, "echo": echo, "trailers": trailers, "hints": hints, "resume": resume, "early": early, "migrate": migrate,
	"parallel": parallel, "cancel": cancel, "soak": soak,
}

func main() {
	if len(os.Args) != 5 || cases[os.Args[4]] == nil {
		fail(errors.New("usage: http3-client CA-FILE HOST ADDRESS CASE"))
	}
	pem, err := os.ReadFile(os.Args[1])
	check(err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	server, err := net.ResolveUDPAddr("udp", os.Args[3])
	check(err)
	cache := &sessions{ClientSessionCache: tls.NewLRUClientSessionCache(10), stored: make(chan struct{})}
	c := &client{
		host:   os.Args[2],
		server: server,
		config: &tls.Config{
			RootCAs: roots, ServerName: os.Args[2], NextProtos: []string{http3.NextProtoH3}, ClientSessionCache: cache,
		},
		// The log goes to the folder QLOGDIR, if set. The default of the handshake is 5 seconds.
		quic: &quic.Config{
			TokenStore: quic.NewLRUTokenStore(10, 10), Tracer: qlog.DefaultConnectionTracer,
			HandshakeIdleTimeout: time.Minute, MaxIdleTimeout: 2 * time.Minute,
		},
		sessions: cache,
		result:   map[string]any{},
	}
	cases[os.Args[4]](c)
	check(json.NewEncoder(os.Stdout).Encode(c.result))
}

// connection is an HTTP/3 connection, with the transports of its paths.
type connection struct {
	*http3.ClientConn
	quic       *quic.Conn
	transports []*quic.Transport
}

func newTransport() *quic.Transport {
	socket, err := net.ListenUDP("udp4", &net.UDPAddr{})
	check(err)
	return &quic.Transport{Conn: socket}
}

func (c *client) connect(early bool) *connection {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	transport := newTransport()
	dial := transport.Dial
	if early {
		dial = transport.DialEarly
	}
	conn, err := dial(ctx, c.server, c.config, c.quic)
	check(err)
	h3 := &http3.Transport{}
	return &connection{h3.NewClientConn(conn), conn, []*quic.Transport{transport}}
}

// close ends the connection and closes its sockets, which quic.Transport leaves open.
func (conn *connection) close() {
	conn.quic.CloseWithError(0x100, "")
	for _, transport := range conn.transports {
		transport.Close()
		transport.Conn.Close()
	}
}

func (c *client) request(method, path string, body io.Reader) *http.Request {
	request, err := http.NewRequest(method, "https://"+c.host+path, body)
	check(err)
	return request
}

func (c *client) exchange(conn *connection, request *http.Request) (*http.Response, []byte) {
	response, err := conn.RoundTrip(request)
	check(err)
	body, err := io.ReadAll(response.Body)
	check(err)
	if response.StatusCode != 200 {
		fail(fmt.Errorf("status %d", response.StatusCode))
	}
	return response, body
}

func (c *client) get(conn *connection, path string) []byte {
	_, body := c.exchange(conn, c.request("GET", path, nil))
	return body
}

func get(c *client) {
	conn := c.connect(false)
	defer conn.close()
	c.result["body"] = string(c.get(conn, "/quic-go"))
}

// content is a body of 1 MiB whose bytes differ by their place.
func content() []byte {
	body := make([]byte, 1<<20)
	for at := range body {
		body[at] = byte(at / 7 % 251)
	}
	return body
}

func echo(c *client) {
	conn := c.connect(false)
	defer conn.close()
	_, body := c.exchange(conn, c.request("POST", "/quic-go", bytes.NewReader(content())))
	c.result["same"] = bytes.Equal(body, content())
}

func trailers(c *client) {
	conn := c.connect(false)
	defer conn.close()
	response, body := c.exchange(conn, c.request("GET", "/quic-go", nil))
	c.result["body"], c.result["trailer"] = string(body), response.Trailer.Get("x-end")
}

func hints(c *client) {
	conn := c.connect(false)
	defer conn.close()
	request := c.request("GET", "/quic-go", nil)
	request.Header.Set("accept", "text/html")
	links := []string{}
	trace := &httptrace.ClientTrace{Got1xxResponse: func(code int, header textproto.MIMEHeader) error {
		links = append(links, fmt.Sprint(code, " ", header.Get("link")))
		return nil
	}}
	_, body := c.exchange(conn, request.WithContext(httptrace.WithClientTrace(request.Context(), trace)))
	c.result["body"], c.result["hints"] = string(body), links
}

// again connects a second time, after the session of the first connection has arrived.
func again(c *client, early bool, use func(*connection)) {
	first := c.connect(false)
	c.get(first, "/first")
	<-c.sessions.stored
	first.close()
	second := c.connect(early)
	defer second.close()
	use(second)
	<-second.quic.HandshakeComplete()
	state := second.quic.ConnectionState()
	c.result["resumed"], c.result["early"] = state.TLS.DidResume, state.Used0RTT
}

func resume(c *client) {
	again(c, false, func(conn *connection) { c.result["body"] = string(c.get(conn, "/second")) })
}

// early sends 40 requests before the handshake is complete.
func early(c *client) {
	again(c, true, func(conn *connection) { c.result["answered"] = answered(c, conn, 40) })
}

func answered(c *client, conn *connection, requests int) int {
	var group sync.WaitGroup
	answers := make(chan bool, requests)
	for number := range requests {
		group.Go(func() {
			request := c.request(http3.MethodGet0RTT, fmt.Sprint("/", number), nil)
			_, body := c.exchange(conn, request)
			answers <- len(body) > 0
		})
	}
	group.Wait()
	close(answers)
	count := 0
	for answer := range answers {
		if answer {
			count++
		}
	}
	return count
}

// migrate moves an open connection to three further sockets, and sends a request on each. A server probes the path before each move
// too, for which quic-go may use a further connection ID that it does not give back: with four in all, a fourth move could wait forever.
func migrate(c *client) {
	conn := c.connect(false)
	defer conn.close()
	c.get(conn, "/before")
	moves := 0
	for number := range 3 {
		move(conn)
		c.get(conn, fmt.Sprint("/moved-", number))
		moves++
	}
	c.result["moves"] = moves
}

func move(conn *connection) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	transport := newTransport()
	conn.transports = append(conn.transports, transport)
	path, err := conn.quic.AddPath(transport)
	check(err)
	check(path.Probe(ctx))
	check(path.Switch())
}

// parallel sends 1,000 requests on one connection, at most 100 at a time.
func parallel(c *client) {
	conn := c.connect(false)
	defer conn.close()
	count := 0
	for range 10 {
		count += answered(c, conn, 100)
	}
	c.result["answered"] = count
}

// cancel abandons responses after their first byte, and then uses the connection.
func cancel(c *client) {
	conn := c.connect(false)
	defer conn.close()
	for range 20 {
		stream, err := conn.OpenRequestStream(context.Background())
		check(err)
		check(stream.SendRequestHeader(c.request("GET", "/large", nil)))
		check(stream.Close())
		_, err = stream.ReadResponse()
		check(err)
		_, err = stream.Read(make([]byte, 1))
		check(err)
		stream.CancelRead(quic.StreamErrorCode(http3.ErrCodeRequestCanceled))
	}
	c.result["body"] = len(c.get(conn, "/large"))
}

// soak connects, resumes, migrates, requests and cancels until the program is ended. It prints the number of rounds.
func soak(c *client) {
	for rounds := 1; ; rounds++ {
		conn := c.connect(rounds%3 != 0)
		for number := range 5 {
			c.get(conn, fmt.Sprint("/", number))
		}
		if rounds%2 == 0 {
			<-conn.quic.HandshakeComplete()
			move(conn)
			c.get(conn, "/moved")
		}
		stream, err := conn.OpenRequestStream(context.Background())
		check(err)
		check(stream.SendRequestHeader(c.request("GET", "/cancelled", nil)))
		stream.CancelRead(quic.StreamErrorCode(http3.ErrCodeRequestCanceled))
		conn.close()
		if rounds%100 == 0 {
			fmt.Println(rounds)
		}
	}
}

func check(err error) {
	if err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
