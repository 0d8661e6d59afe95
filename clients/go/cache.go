// Package sealedsessions stores TLS client sessions on disk, so that they survive a restart of the application.
//
// A [Cache] is a [tls.ClientSessionCache]: the first connection after a restart resumes, which saves a round trip with
// TLS 1.2, and a signature and a certificate chain with both versions. Files are sealed with AES-256-GCM, separately for
// each network and server.
//
//   - A TLS 1.3 session is removed from the folder before it is used, so that a ticket is used once, also by several
//     processes. A TLS 1.2 session may be used again (RFC 5077), and stays until the server replaces or refuses it.
//   - A file that was modified, renamed, or copied is ignored: a full handshake follows, without an error.
//   - crypto/tls sends no early data (0-RTT) over TCP. The flag of QUIC sessions is cleared, unless [Cache.AllowEarlyData].
package sealedsessions

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const (
	// LongestLife is the time after which a session is not used (RFC 8446 section 4.6.1). crypto/tls also observes the
	// lifetime that the server has stated.
	LongestLife = 7 * 24 * time.Hour
	// SessionsPerServer is the number of sessions kept for a server; another one replaces the oldest.
	SessionsPerServer = 4

	mostFiles   = 1024
	largestFile = 256 << 10
	suffix      = ".session"
)

// A Cache stores sealed sessions in a folder, for one network. Several goroutines and processes may use a folder.
type Cache struct {
	// AllowEarlyData permits early data with restored sessions of QUIC. An attacker can replay early data: the
	// application must send only requests early that are safe to process twice.
	AllowEarlyData bool

	folder  string
	network string
	key     []byte
	aead    cipher.AEAD
}

var _ tls.ClientSessionCache = (*Cache)(nil)

// Open opens a folder, which is created if it is missing, with the key in its file "key", which is created with mode 600.
// The key protects the sessions from readers of a backup without that file. An application with access to a keychain
// passes a key from there to [WithKey].
func Open(folder string) (*Cache, error) {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, err
	}
	path := filepath.Join(folder, "key")
	fresh := make([]byte, 32)
	rand.Read(fresh)
	// Complete before it has its name, or another process might read half of a key.
	temporary := path + "." + unique()
	if err := os.WriteFile(temporary, fresh, 0o600); err != nil {
		return nil, err
	}
	err := os.Link(temporary, path)
	os.Remove(temporary)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if isShared(info) {
		return nil, fmt.Errorf("%s: others than its owner may use it; chmod 600 it", path)
	}
	key, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if len(key) != 32 {
		return nil, fmt.Errorf("%s: not a key of 32 bytes; remove it, and it is created again", path)
	}
	return WithKey(folder, [32]byte(key))
}

// WithKey opens a folder with a key of the application: 32 random bytes.
func WithKey(folder string, key [32]byte) (*Cache, error) {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key[:])
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return nil, err
	}
	return &Cache{folder: folder, key: key[:], aead: aead}, nil
}

// OnNetwork returns the cache for sessions on another network, for example the name of a wireless network. A session that
// is used on two networks shows an observer of both that it is the same client.
func (c *Cache) OnNetwork(network string) *Cache {
	other := *c
	other.network = network
	return &other
}

// Get implements [tls.ClientSessionCache].
func (c *Cache) Get(server string) (*tls.ClientSessionState, bool) {
	files := c.files(c.prefix(server))
	for _, file := range slices.Backward(files) {
		if session := c.open(server, file.name); session != nil {
			return session, true
		}
	}
	return nil, false
}

// Put implements [tls.ClientSessionCache]. A failure, such as a full disk, costs a later full handshake only.
func (c *Cache) Put(server string, session *tls.ClientSessionState) {
	prefix := c.prefix(server)
	if session == nil {
		for _, file := range c.files(prefix) {
			os.Remove(filepath.Join(c.folder, file.name))
		}
		return
	}
	ticket, state, err := session.ResumptionState()
	if err != nil || state == nil {
		return
	}
	encoded, err := state.Bytes()
	if err != nil {
		return
	}
	plain := binary.BigEndian.AppendUint64(nil, uint64(time.Now().Add(LongestLife).Unix()))
	plain = binary.BigEndian.AppendUint32(plain, uint32(len(ticket)))
	c.makeRoom(prefix)
	c.write(server, prefix+unique()+suffix, slices.Concat(plain, ticket, encoded))
}

// Clear removes all sessions, for example because the application trusts other authorities from now on.
func (c *Cache) Clear() {
	for _, file := range c.files("") {
		os.Remove(filepath.Join(c.folder, file.name))
	}
}

func (c *Cache) write(server, name string, plain []byte) {
	path := filepath.Join(c.folder, name)
	temporary := path + ".new"
	file, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return
	}
	defer os.Remove(temporary)
	defer file.Close()
	bound, err := c.bound(server, name, file)
	if err != nil {
		return
	}
	nonce := make([]byte, c.aead.NonceSize())
	rand.Read(nonce)
	if _, err := file.Write(c.aead.Seal(nonce, nonce, plain, bound)); err != nil {
		return
	}
	if file.Close() == nil {
		os.Rename(temporary, path)
	}
}

// open returns the session in a file, or nil if the file does not open. Only a TLS 1.2 session stays in the folder.
func (c *Cache) open(server, name string) *tls.ClientSessionState {
	path := filepath.Join(c.folder, name)
	taken := path + "." + unique()
	// Only one of several processes succeeds: no ticket is used twice.
	if os.Rename(path, taken) != nil {
		return nil
	}
	plain, err := c.read(server, name, taken)
	isTLS12 := false
	var session *tls.ClientSessionState
	if err == nil {
		session, isTLS12 = c.parse(plain)
	}
	if isTLS12 {
		os.Rename(taken, path)
	} else if os.Remove(taken) != nil {
		// A session whose file remains would be used twice.
		return nil
	}
	return session
}

func (c *Cache) read(server, name, taken string) ([]byte, error) {
	file, err := os.Open(taken)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	sealed, err := io.ReadAll(io.LimitReader(file, largestFile))
	if err != nil {
		return nil, err
	}
	bound, err := c.bound(server, name, file)
	if err != nil {
		return nil, err
	}
	size := c.aead.NonceSize()
	if len(sealed) < size {
		return nil, io.ErrUnexpectedEOF
	}
	return c.aead.Open(nil, sealed[:size], sealed[size:], bound)
}

// parse returns the session, and whether it may be used again.
func (c *Cache) parse(plain []byte) (*tls.ClientSessionState, bool) {
	if len(plain) < 12 || time.Now().Unix() >= int64(binary.BigEndian.Uint64(plain)) {
		return nil, false
	}
	length := uint64(binary.BigEndian.Uint32(plain[8:]))
	plain = plain[12:]
	if uint64(len(plain)) < length {
		return nil, false
	}
	ticket, encoded := plain[:length], plain[length:]
	state, err := tls.ParseSessionState(encoded)
	if err != nil {
		return nil, false
	}
	if !c.AllowEarlyData {
		state.EarlyData = false
	}
	session, err := tls.NewResumptionState(bytes.Clone(ticket), state)
	if err != nil {
		return nil, false
	}
	// The encoding begins with the version. An unknown encoding is taken for that of a session that is used once.
	return session, len(encoded) > 2 && binary.BigEndian.Uint16(encoded) == tls.VersionTLS12
}

// bound is the data that a sealed session is bound to: network, server, name, and the number of the file, which a copy
// lacks.
func (c *Cache) bound(server, name string, file *os.File) ([]byte, error) {
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	var bound []byte
	for _, text := range []string{c.network, server, name} {
		bound = binary.BigEndian.AppendUint64(bound, uint64(len(text)))
		bound = append(bound, text...)
	}
	return binary.BigEndian.AppendUint64(bound, numberOf(info)), nil
}

// prefix is the start of the names of a server's files; it does not reveal the server without the key.
func (c *Cache) prefix(server string) string {
	mac := hmac.New(sha256.New, c.key)
	mac.Write(binary.BigEndian.AppendUint64(nil, uint64(len(c.network))))
	mac.Write([]byte(c.network + server))
	return hex.EncodeToString(mac.Sum(nil)[:16]) + "-"
}

type stored struct {
	time time.Time
	name string
}

// files lists the sessions with this prefix, oldest first.
func (c *Cache) files(prefix string) []stored {
	entries, _ := os.ReadDir(c.folder)
	var files []stored
	for _, entry := range entries {
		if !strings.HasPrefix(entry.Name(), prefix) || !strings.HasSuffix(entry.Name(), suffix) {
			continue
		}
		if info, err := entry.Info(); err == nil {
			files = append(files, stored{info.ModTime(), entry.Name()})
		}
	}
	slices.SortFunc(files, func(a, b stored) int { return a.time.Compare(b.time) })
	return files
}

// makeRoom removes expired sessions, and the oldest ones where there are too many.
func (c *Cache) makeRoom(prefix string) {
	files := c.files("")
	own := 0
	for _, file := range files {
		if strings.HasPrefix(file.name, prefix) {
			own++
		}
	}
	excess := len(files) + 1 - mostFiles
	for index, file := range files {
		isOwn := strings.HasPrefix(file.name, prefix)
		if index < excess || time.Since(file.time) > LongestLife || isOwn && own >= SessionsPerServer {
			os.Remove(filepath.Join(c.folder, file.name))
			if isOwn {
				own--
			}
		}
	}
}

func unique() string {
	var bytes [16]byte
	rand.Read(bytes[:])
	return hex.EncodeToString(bytes[:])
}
