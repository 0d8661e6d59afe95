package sealedsessions

import (
	"bytes"
	"crypto/tls"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
)

func server(t *testing.T, version uint16) *httptest.Server {
	t.Helper()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {}))
	server.TLS = &tls.Config{MaxVersion: version}
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	return server
}

// ask reports whether a request of a new process resumes: with another cache for the same folder.
func ask(t *testing.T, server *httptest.Server, folder, network string) bool {
	t.Helper()
	cache, err := Open(folder)
	if err != nil {
		t.Fatal(err)
	}
	transport := server.Client().Transport.(*http.Transport).Clone()
	transport.TLSClientConfig.ClientSessionCache = cache.OnNetwork(network)
	defer transport.CloseIdleConnections()
	response, err := (&http.Client{Transport: transport}).Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	io.Copy(io.Discard, response.Body)
	response.Body.Close()
	return response.TLS.DidResume
}

func sessions(t *testing.T, folder string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*"+suffix))
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func TestBothVersionsResumeAfterARestart(t *testing.T) {
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		server, folder := server(t, version), t.TempDir()
		for number, expected := range []bool{false, true, true} {
			if ask(t, server, folder, "") != expected {
				t.Errorf("%s, connection %d: resumed is not %v", tls.VersionName(version), number, expected)
			}
		}
		if ask(t, server, folder, "cafe") {
			t.Errorf("%s: a session of another network", tls.VersionName(version))
		}
	}
}

func TestATLS13SessionIsTakenOnce(t *testing.T) {
	server, folder := server(t, tls.VersionTLS13), t.TempDir()
	ask(t, server, folder, "")
	first, _ := Open(folder)
	second, _ := Open(folder)
	files := len(sessions(t, folder))
	taken := 0
	for range files + 1 {
		for _, cache := range []*Cache{first, second} {
			if _, ok := cache.Get("127.0.0.1"); ok {
				taken++
			}
		}
	}
	if taken != files || files == 0 {
		t.Errorf("%d of %d sessions were returned", taken, files)
	}
}

func TestAModifiedOrCopiedFileLeadsToAFullHandshake(t *testing.T) {
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		server, folder, other := server(t, version), t.TempDir(), t.TempDir()
		ask(t, server, folder, "")
		copyAll(t, folder, other)
		if ask(t, server, other, "") {
			t.Error("a copied folder")
		}
		for _, file := range sessions(t, folder) {
			sealed, _ := os.ReadFile(file)
			sealed[len(sealed)/2] ^= 1
			os.WriteFile(file, sealed, 0o600)
		}
		if ask(t, server, folder, "") {
			t.Error("a modified file")
		}
		if !ask(t, server, folder, "") {
			t.Error("the session after that is not resumed")
		}
		for _, file := range sessions(t, folder) {
			os.Truncate(file, 5)
		}
		if ask(t, server, folder, "") {
			t.Error("a truncated file")
		}
	}
}

func copyAll(t *testing.T, from, to string) {
	t.Helper()
	files, _ := os.ReadDir(from)
	for _, file := range files {
		bytes, err := os.ReadFile(filepath.Join(from, file.Name()))
		if err != nil {
			t.Fatal(err)
		}
		os.WriteFile(filepath.Join(to, file.Name()), bytes, 0o600)
	}
}

func TestTheNumberOfSessionsIsLimited(t *testing.T) {
	cache, err := WithKey(t.TempDir(), [32]byte{})
	if err != nil {
		t.Fatal(err)
	}
	for range 10 {
		cache.makeRoom(cache.prefix("a"))
		cache.write("a", cache.prefix("a")+unique()+suffix, make([]byte, 12))
	}
	if count := len(sessions(t, cache.folder)); count != SessionsPerServer {
		t.Errorf("%d sessions", count)
	}
	if cache.Clear(); len(sessions(t, cache.folder)) != 0 {
		t.Error("sessions remain")
	}
}

func TestTheKeyIsPrivate(t *testing.T) {
	folder := t.TempDir()
	if _, err := Open(folder); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(folder, "key")
	if info, _ := os.Stat(path); info.Mode().Perm() != 0o600 {
		t.Error(info.Mode())
	}
	os.Chmod(path, 0o644)
	if _, err := Open(folder); err == nil || !bytes.Contains([]byte(err.Error()), []byte("chmod 600")) {
		t.Error(err)
	}
}
