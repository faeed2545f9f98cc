package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// writePKI puts into dir what an API server at the addresses needs: ca.crt, which
// clients trust, server.crt with server.key, and sa.key and sa.pub for tokens of
// service accounts.
func writePKI(dir string, addresses ...net.IP) error {
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	ca := certificate("lab", 1)
	ca.IsCA = true
	ca.BasicConstraintsValid = true
	ca.KeyUsage = x509.KeyUsageCertSign
	caDER, err := x509.CreateCertificate(rand.Reader, ca, ca, caKey.Public(), caKey)
	if err != nil {
		return err
	}
	if err := writePEM(dir, "ca.crt", "CERTIFICATE", caDER); err != nil {
		return err
	}

	key, err := writeKey(dir, "server.key")
	if err != nil {
		return err
	}
	server := certificate("kube-apiserver", 2)
	server.IPAddresses = addresses
	server.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	serverDER, err := x509.CreateCertificate(rand.Reader, server, ca, key.Public(), caKey)
	if err != nil {
		return err
	}
	if err := writePEM(dir, "server.crt", "CERTIFICATE", serverDER); err != nil {
		return err
	}

	accounts, err := writeKey(dir, "sa.key")
	if err != nil {
		return err
	}
	pub, err := x509.MarshalPKIXPublicKey(accounts.Public())
	if err != nil {
		return err
	}
	return writePEM(dir, "sa.pub", "PUBLIC KEY", pub)
}

func certificate(name string, serial int64) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: big.NewInt(serial),
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(24 * time.Hour),
	}
}

func writeKey(dir, name string) (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	return key, writePEM(dir, name, "EC PRIVATE KEY", der)
}

func writePEM(dir, name, kind string, der []byte) error {
	return os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}
