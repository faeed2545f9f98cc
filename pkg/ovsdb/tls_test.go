package ovsdb_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"math/big"
	"net"
	"strings"
	"testing"
	"time"

	"sluice.dev/sluice/pkg/ovsdb"
	"sluice.dev/sluice/pkg/ovsdb/ovsdbtest"
)

// One server behind all three kinds of endpoint.
func TestTCPAndTLS(t *testing.T) {
	o := ovsdbtest.InProcess(t)
	o.AddBridge(t, "br0")
	cert, pool := certificate(t)
	plain := listen(t)
	forward(t, plain, o.Endpoint)
	secure := listen(t)
	forward(t, tls.NewListener(secure, &tls.Config{Certificates: []tls.Certificate{cert}}), o.Endpoint)
	trusting := tls.Dialer{Config: &tls.Config{RootCAs: pool}}
	strange := tls.Dialer{Config: &tls.Config{}}

	for name, connect := range map[string]func() (*ovsdb.Client, error){
		"tcp": func() (*ovsdb.Client, error) {
			return ovsdb.Connect(t.Context(), "tcp:"+plain.Addr().String())
		},
		"ssl": func() (*ovsdb.Client, error) {
			return ovsdb.ConnectVia(t.Context(), "ssl:"+secure.Addr().String(), trusting.DialContext)
		},
		"unix, with keys that it has no use for": func() (*ovsdb.Client, error) {
			return ovsdb.ConnectVia(t.Context(), o.Endpoint, strange.DialContext)
		},
	} {
		c, err := connect()
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		out, err := c.Transact(t.Context(), ovsdb.Select("Bridge", ovsdb.All(), "name"))
		if err != nil || !strings.Contains(string(out[0].Rows), "br0") {
			t.Errorf("%s: %v %v", name, out, err)
		}
		_ = c.Close()
	}
	var unknown x509.UnknownAuthorityError
	_, err := ovsdb.ConnectVia(t.Context(), "ssl:"+secure.Addr().String(), strange.DialContext)
	if !errors.Is(err, ovsdb.ErrUnavailable) || !errors.As(err, &unknown) {
		t.Errorf("a server that nobody vouches for: %v", err)
	}
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// forward carries each connection of l on to the Unix socket of an endpoint.
func forward(t *testing.T, l net.Listener, endpoint string) {
	t.Helper()
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("unix", strings.TrimPrefix(endpoint, "unix:"))
			if err != nil {
				_ = in.Close()
				continue
			}
			go func() { _, _ = io.Copy(out, in); _ = out.Close() }()
			go func() { _, _ = io.Copy(in, out); _ = in.Close() }()
		}
	}()
}

// certificate is one for 127.0.0.1 that vouches for itself.
func certificate(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(parsed)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}
